#!/bin/sh
# Says on standard error what will keep kernels from being compiled, kept or run, then becomes the command.
# BE_QUIET=1 says nothing. BE_PROC and BE_DEV stand for /proc and /dev in tests.
set -u
proc=${BE_PROC:-/proc} dev=${BE_DEV:-/dev}

say() {
    [ -n "${BE_QUIET:-}" ] || printf 'be: %s\n' "$@" >&2
}

# The mount options of the file system that holds a folder: those of the longest mount point above it.
mount_options() {
    best='' options=''
    while read -r _ point _ each _; do
        case "$1/" in
            "${point%/}"/*) [ "${#point}" -lt "${#best}" ] || best=$point options=$each ;;
        esac
    done <"$proc/mounts"
    printf %s "$options"
}

check_cache() {
    folder=${BE_CACHE_DIR:-} problem=''
    [ -n "$folder" ] || return 0
    if [ -d "$folder" ] && ! [ -w "$folder" ]; then
        problem="can't be written"
    fi
    case ",$(mount_options "$folder")," in
        *,noexec,*) problem='is mounted noexec, so compiled kernels in it cannot be loaded' ;;
    esac
    [ -n "$problem" ] || return 0
    say "the cache folder $folder $problem; another one is used if there is any, and kernels do not outlast this container" \
        "    a volume keeps them: docker run -v be-cache:$folder ..., or --tmpfs $folder:exec,mode=1777 for this run alone"
    unset BE_CACHE_DIR
}

check_gpu() {
    if ! [ -e "$dev/nvidiactl" ] && ! [ -e "$dev/dxg" ]; then
        say 'no NVIDIA GPU is visible: JAX runs on the CPU, and CUDA is compiled only for architectures that are named' \
            '    with a GPU and the NVIDIA Container Toolkit on the host: docker run --gpus all ...'
        return
    fi
    [ -r "$proc/driver/nvidia/version" ] && [ -n "${BE_MIN_DRIVER:-}" ] || return 0
    # "... Kernel Module  535.129.03  Tue ..." or "... Open Kernel Module for x86_64  580.95.05  Release Build ..."
    driver=$(sed -n '1s/.*Module.*  \([0-9][0-9]*\)\.[0-9][0-9.]*  .*/\1/p' "$proc/driver/nvidia/version")
    if [ -n "$driver" ] && [ "$driver" -lt "$BE_MIN_DRIVER" ]; then
        say "the host's NVIDIA driver $driver is older than $BE_MIN_DRIVER, which this image's CUDA needs: GPU programs will fail" \
            '    update the driver on the host, or take an image of an earlier CUDA release'
    fi
}

[ -w "${HOME:-/}" ] || export HOME=/tmp
check_cache
check_gpu
# Compilers need a temporary folder; with a read-only root there may be none but the cache.
[ -w "${TMPDIR:-/tmp}" ] || [ -z "${BE_CACHE_DIR:-}" ] || export TMPDIR="$BE_CACHE_DIR"

case ${1:-} in
    doctor) set -- python -m be_toolchain "$@" ;;
esac
exec "$@"
