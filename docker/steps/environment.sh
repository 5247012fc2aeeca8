# The Python environment of every image: JAX and what else the project requires.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

case ${JAX} in
    cpu) jax=jax ;;
    cuda12 | cuda13) jax="jax[${JAX}]" ;;
    *) fail "JAX=${JAX} is not known" "it is cpu, cuda12 or cuda13" ;;
esac

python3 -m venv /opt/be
/opt/be/bin/python -m pip uninstall --quiet --yes --root-user-action ignore setuptools
# Every CUDA library that jax brings is of the release that nvcc is of.
constraints=/requirements/constraints/cuda13.txt
[ "${JAX}" != cuda12 ] || constraints=/requirements/constraints/cuda12.txt
pip_install /opt/be --requirement /requirements/base.txt --constraint "${constraints}" "${jax}"

# Half a second instead of two at each start, for the 20 MB that an import of JAX reads; their own tests are left out.
/opt/be/bin/python -c 'import jax; jax.devices("cpu")'
find /opt/be/lib/python3*/site-packages/numpy /opt/be/lib/python3*/site-packages/scipy \
    -type d -name tests -prune -exec rm -rf {} +
