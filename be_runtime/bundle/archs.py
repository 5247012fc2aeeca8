"""GPUs that run code for other architectures. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from be_toolchain.arch import Arch, parse_archs


def serves(built: Sequence[Arch], wanted: Sequence[Arch]) -> bool:
    """Return whether device code for some architectures runs on all of others. Pure.

    Machine code runs on later minor versions of its major version; the driver compiles the PTX of the highest
    architecture without a suffix for any later one; code with the suffix ``a`` runs only on that capability.

    Examples
    --------
    >>> serves(parse_archs("8.0,9.0a"), parse_archs("8.6"))
    True
    >>> serves(parse_archs("9.0a"), parse_archs("10.0"))
    False
    """
    return all(_serves_one(built, arch) for arch in wanted)


def _serves_one(built: Sequence[Arch], wanted: Arch) -> bool:
    if wanted in built:
        return True
    if wanted.suffix:
        return False
    generic = [arch for arch in built if not arch.suffix]
    same_major = any(arch.suffix != "a" and arch.major == wanted.major and arch <= wanted for arch in built)
    return same_major or any(arch.base == wanted for arch in built) or (bool(generic) and max(generic) <= wanted)


def lacking_arch(archs: Sequence[str], wanted: Sequence[Arch]) -> str:
    """Return why code for some architectures does not run here; empty if it does.

    Examples
    --------
    >>> lacking_arch(["8.0"], [Arch.parse("9.0a")])
    'its code for sm_80 does not run on sm_90a'
    """
    built = parse_archs(",".join(archs)) if archs else ()
    if not built or serves(built, wanted):
        return ""
    have, want = ("/".join(arch.sm for arch in each) for each in (built, wanted))
    return f"its code for {have} does not run on {want}"
