# What the build's steps share. Sourced by them; it needs a POSIX shell and nothing else.
# shellcheck shell=sh

fail() {
    printf 'error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

# apt_install PACKAGE...: from the base image's own mirrors; the lists are in a cache mount.
apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    # Ubuntu and Debian images delete what apt downloads: here that is kept in a cache mount, outside the image.
    rm -f /etc/apt/apt.conf.d/docker-clean
    apt-get update -qq -o APT::Update::Error-Mode=any ||
        fail "apt-get update failed: the package lists of ${BASE_IMAGE:-the base image} can't be fetched" \
            "builds need the network; behind a proxy, set http_proxy and https_proxy"
    apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
        fail "apt-get can't install $* into ${BASE_IMAGE:-the base image}"
}

# pip_install ENVIRONMENT ARGUMENT...: with the builder's own index and certificates, which stay out of the image.
pip_install() {
    environment=$1
    shift
    [ ! -s /run/secrets/pip_conf ] || export PIP_CONFIG_FILE=/run/secrets/pip_conf
    [ ! -s /run/secrets/ca_bundle ] || export PIP_CERT=/run/secrets/ca_bundle
    "$environment/bin/python" -m pip install --quiet --no-compile --disable-pip-version-check --root-user-action ignore \
        --no-input "$@" ||
        fail "pip can't install $*" \
            "builds need a package index; docker/build.py passes pip's settings on this machine to the build"
}

python_version() {
    python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}
