# nvcc and what it calls, where the base image does not bring them.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

case ${CUDA} in
    wheels) pip_install /opt/be --requirement /requirements/cuda13.txt --constraint /requirements/constraints/cuda13.txt ;;
    system)
        [ -x /usr/local/cuda/bin/nvcc ] ||
            fail "CUDA=system, but the base image ${BASE_IMAGE} has no /usr/local/cuda/bin/nvcc" \
                "take nvidia/cuda:<version>-devel-ubuntu24.04, or CUDA=wheels"
        ;;
    none) ;;
    *) fail "CUDA=${CUDA} is not known" "it is wheels, system or none" ;;
esac
