# What every image has from the distribution: Python, an init, the C++ library that compiled kernels need.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

command -v apt-get >/dev/null ||
    fail "the base image ${BASE_IMAGE} has no apt-get, so nothing can be installed into it" \
        "take one that is made from Debian 12, Ubuntu 24.04, or a later release of these"

check_python() {
    python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "the base image ${BASE_IMAGE} has Python $(python_version || echo 'that does not run'); 3.11 or newer is needed" \
            "take a later release, such as ubuntu:24.04"
}

if command -v python3 >/dev/null; then check_python; fi

# As the distributions' own images have it. lto-dump is for debugging gcc itself, and as large as the compiler.
cat >/etc/dpkg/dpkg.cfg.d/be-small <<'EOF'
path-exclude=/usr/share/doc/*
path-include=/usr/share/doc/*/copyright
path-exclude=/usr/share/man/*
path-exclude=/usr/share/info/*
path-exclude=/usr/share/locale/*
path-exclude=/usr/bin/*lto-dump*
EOF

apt_install ca-certificates libstdc++6 python3 tini
check_python
