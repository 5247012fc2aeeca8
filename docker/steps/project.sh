# What a project's kernels are built with beside the compilers, such as Numba. It stays out of the project's image.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

if [ -f pyproject.toml ]; then
    python3 /mnt/project.py pyproject.toml /tmp/requirements.txt
    pip_install /opt/be --requirement /tmp/requirements.txt
fi
