# What builds environments and the wheel, and is in no image.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

apt_install g++ python3-venv
python3 -m venv /opt/build
pip_install /opt/build 'setuptools>=77'
