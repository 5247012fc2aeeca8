# The host compiler.
set -eu
# shellcheck source=common.sh
. /mnt/common.sh

apt_install g++
