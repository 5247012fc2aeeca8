# What a project's kernels are built with beside the compilers, such as Numba: no other stage has it.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

[ -z "${EXTRAS}" ] || pip_install /opt/be "brainevent-toolchain[${EXTRAS}]"
