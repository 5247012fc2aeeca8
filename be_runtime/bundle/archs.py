"""GPUs that run code for other architectures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from be_toolchain.arch import Arch


def runs_on(arch: Arch, device: Arch, *, is_ptx: bool = False) -> bool:
    """Return whether code for one architecture runs on another.

    Machine code runs on later minor versions of its major version, and the driver compiles PTX for any later one; code
    with the suffix ``a`` runs only on that capability.

    Examples
    --------
    >>> runs_on(Arch(8, 0), Arch(8, 6)), runs_on(Arch(8, 0), Arch(9, 0)), runs_on(Arch(8, 0), Arch(9, 0), is_ptx=True)
    (True, False, True)
    """
    if arch == device or device.suffix:
        return arch == device
    if arch.suffix == "a":
        return arch.base == device
    return arch.base <= device and (is_ptx or arch.major == device.major)


def serves(built: Sequence[Arch], wanted: Sequence[Arch]) -> bool:
    """Return whether a library for some architectures, with PTX of the highest plain one, runs on all of others.

    Examples
    --------
    >>> serves([Arch(8, 0), Arch(9, 0, "a")], [Arch(8, 6)])
    True
    >>> serves([Arch(9, 0, "a")], [Arch(10, 0)])
    False
    """
    ptx = [max(generic)] if (generic := [arch for arch in built if not arch.suffix]) else []
    code = [*((arch, False) for arch in built), *((arch, True) for arch in ptx)]
    return all(any(runs_on(arch, each, is_ptx=is_ptx) for arch, is_ptx in code) for each in wanted)


def lacking_arch(archs: Sequence[str], wanted: Sequence[Arch]) -> str:
    """Return why code for some architectures does not run here; empty if it does.

    Examples
    --------
    >>> lacking_arch(["8.0"], [Arch.parse("9.0a")])
    'its code for sm_80 does not run on sm_90a'
    """
    built = tuple(map(Arch.parse, archs))
    if not built or serves(built, wanted):
        return ""
    have, want = ("/".join(arch.sm for arch in each) for each in (built, wanted))
    return f"its code for {have} does not run on {want}"
