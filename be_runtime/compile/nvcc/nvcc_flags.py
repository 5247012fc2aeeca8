"""Nvcc's arguments for a set of options. Pure.

An author's own flag replaces ours: nvcc refuses a repeated ``-std`` or ``-O``.
"""

from __future__ import annotations

from collections.abc import Sequence

from be_runtime.compile.plan.flags import STANDARD, has_flag, line_flags, native_flags
from be_runtime.request.options import ARCH_FLAGS, CompileOptions
from be_toolchain.arch import Arch, gencode_flags
from be_toolchain.model import Nvcc

_LTO = ("-dlto", "--dlink-time-opt", "-lto")
_RELOCATABLE = ("-rdc=true", "--relocatable-device-code=true", "-dc", "--device-c", *_LTO)


def is_relocatable(flags: Sequence[str]) -> bool:
    """Return whether the flags ask for relocatable device code, which needs a device link."""
    return any(flag in flags for flag in _RELOCATABLE) or "-rdc true" in " ".join(flags)


def nvcc_compile(
    nvcc: Nvcc, options: CompileOptions, archs: tuple[Arch, ...], includes: Sequence[str]
) -> tuple[str, ...]:
    """Return nvcc's command for one of the author's units, without files."""
    flags = options.cflags
    argv = [str(nvcc.path)]
    if not has_flag(flags, "-std", "--std"):
        argv.append(f"-std={STANDARD}")
    if not any(flag.startswith("-O") or has_flag([flag], "--optimize") for flag in flags):
        argv.append(f"-O{options.optimization_level}")
        if options.optimization_level < 3:
            argv += ["-Xptxas", f"-O{options.optimization_level}"]
    if not has_flag(flags, *ARCH_FLAGS):
        if has_flag(flags, *_LTO):
            argv += _lto_flags(flags, archs)
            flags = tuple(flag for flag in flags if flag not in _LTO)
        else:
            argv += gencode_flags(archs)
    if not has_flag(flags, "-ccbin", "--compiler-bindir"):
        argv += ["-ccbin", str(nvcc.host.path)]
    if nvcc.allow_unsupported_compiler:
        argv.append("-allow-unsupported-compiler")
    if options.use_fast_math:
        argv.append("--use_fast_math")
    if options.line_info:
        argv.append("-lineinfo")
    host = ("-fPIC", "-fvisibility=hidden", *native_flags(options), *line_flags(options))
    argv += ["-Xcompiler", ",".join(host)]
    return (*argv, *includes, *flags)


def _lto_flags(flags: Sequence[str], archs: tuple[Arch, ...]) -> tuple[str, ...]:
    """Return the flags for ``-dlto`` with named architectures, where nvcc refuses it: the device link compiles."""
    relocatable = () if has_flag(flags, "-rdc", "--relocatable-device-code", "-dc", "--device-c") else ("-rdc=true",)
    return (*relocatable, *(f"-gencode=arch={arch.compute},code=lto_{arch.number}" for arch in archs))


def nvcc_device_link(nvcc: Nvcc, options: CompileOptions, archs: tuple[Arch, ...]) -> tuple[str, ...]:
    """Return nvcc's command that links relocatable device code, without files."""
    flags = options.cflags
    arch_flags = () if has_flag(flags, *ARCH_FLAGS) else gencode_flags(archs)
    lto = tuple(flag for flag in flags if flag in _LTO)
    author_arch = _arch_arguments(flags)
    ccbin = ("-ccbin", str(nvcc.host.path))
    return (str(nvcc.path), "-dlink", *arch_flags, *author_arch, *lto, *ccbin, "-Xcompiler", "-fPIC", "-lcudadevrt")


def _arch_arguments(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the author's own architecture flags with their values, for a command that repeats them."""
    found: list[str] = []
    for index, flag in enumerate(flags):
        if has_flag([flag], *ARCH_FLAGS):
            found.append(flag)
            if "=" not in flag and index + 1 < len(flags):
                found.append(flags[index + 1])
    return tuple(found)
