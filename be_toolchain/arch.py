"""GPU architectures: parse every spelling into one canonical value, and make nvcc flags of it. Pure."""

from __future__ import annotations

import re
from typing import Literal

from be_toolchain.errors import ArchError
from be_toolchain.named import NamedTuple

ACCEPTED_SPELLINGS = '"8.6", "86", "sm_86" or "compute_86", with a suffix letter where one exists ("sm_90a", "10.0f")'

_ARCH = re.compile(r"(?:sm_|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))([af]?)", re.ASCII | re.IGNORECASE)

_OLDEST_MAJOR = 2

_AMD_ARCH = re.compile(r"gfx\d{1,2}[\da-f]{2}", re.ASCII)


class Arch(NamedTuple):
    """A compute capability, such as 8.6 or the architecture-specific 9.0a.

    Parameters
    ----------
    major : int
        First number.
    minor : int
        Second number, one digit.
    suffix : {"", "a", "f"}, default ""
        ``"a"`` for code that runs only on this capability, ``"f"`` for code that runs on GPUs of the same family, such
        as 10.x.

    See Also
    --------
    - :doc:`/compiler-options`: architectures and flags of a load.

    Examples
    --------
    >>> from be_toolchain import Arch
    >>> Arch.parse("sm_86") < Arch.parse("9.0a")
    True
    >>> Arch(9, 0, "a").sm
    'sm_90a'
    """

    major: int
    minor: int
    suffix: str = ""

    @property
    def language(self) -> Literal["cuda"]:
        """The language of its kernels."""
        return "cuda"

    @classmethod
    def parse(cls, text: str) -> Arch:
        """Parse one architecture.

        Parameters
        ----------
        text : str
            ``"8.6"``, ``"86"``, ``"sm_86"``, ``"compute_86"``, each with an optional ``a`` or ``f``.

        Returns
        -------
        Arch
            Architecture.

        Raises
        ------
        ArchError
            `text` has none of these forms, or the capability is below 2.0.

        Examples
        --------
        >>> Arch.parse("86") == Arch.parse("8.6") == Arch.parse("compute_86")
        True
        >>> Arch.parse("sm_120f").sm
        'sm_120f'
        """
        match = _ARCH.fullmatch(str(text).strip())
        if match is None:
            raise ArchError(f"{text!r} is not a GPU architecture", hints=(f"write it as {ACCEPTED_SPELLINGS}",))
        dotted_major, dotted_minor, major, minor, suffix = match.groups()
        arch = cls(int(dotted_major or major), int(dotted_minor or minor), suffix.lower())
        if arch.major < _OLDEST_MAJOR:
            meant = f"{arch.major}{arch.minor}.0{arch.suffix}"
            raise ArchError(
                f"{text!r} is compute capability {arch}; CUDA has none below {_OLDEST_MAJOR}.0",
                hints=(f"did you mean {meant}?",) if arch.major else (),
            )
        return arch

    @property
    def number(self) -> str:
        """The digits and the suffix without a dot, such as ``"90a"``."""
        return f"{self.major}{self.minor}{self.suffix}"

    @property
    def sm(self) -> str:
        """The name of the machine code, such as ``"sm_90a"``."""
        return f"sm_{self.number}"

    @property
    def compute(self) -> str:
        """The name of the PTX, such as ``"compute_90a"``."""
        return f"compute_{self.number}"

    @property
    def base(self) -> Arch:
        """The capability without its suffix."""
        return Arch(self.major, self.minor)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}{self.suffix}"


class AmdArch(NamedTuple):
    """An architecture of AMD GPUs, such as gfx942.

    Parameters
    ----------
    name : str
        Its name in clang's ``--offload-arch``.

    Examples
    --------
    >>> str(AmdArch.parse("gfx90a"))
    'gfx90a'
    """

    name: str

    @property
    def language(self) -> Literal["hip"]:
        """The language of its kernels."""
        return "hip"

    @classmethod
    def parse(cls, text: str) -> AmdArch:
        """Read one architecture.

        Raises
        ------
        ArchError
            `text` is not ``gfx`` and a number of three or four digits, the last two hexadecimal.
        """
        if not _AMD_ARCH.fullmatch(str(text)):
            raise ArchError(f"{text!r} is not an architecture of AMD GPUs", hints=('write it as "gfx942" or "gfx90a"',))
        return cls(str(text))

    def __str__(self) -> str:
        return self.name


GpuArch = Arch | AmdArch


def parse_gpu_arch(text: str) -> GpuArch:
    """Read the architecture of either vendor as its ``str`` spells it.

    Raises
    ------
    ArchError
        The text is not an architecture of either vendor.

    Examples
    --------
    >>> parse_gpu_arch("9.0a").language, parse_gpu_arch("gfx942").language
    ('cuda', 'hip')
    """
    return AmdArch.parse(text) if text.startswith("gfx") else Arch.parse(text)


def runs_on(arch: Arch, device: Arch, *, is_ptx: bool = False) -> bool:
    """Return whether code for one architecture runs on another.

    Machine code runs on its capability and on later minor versions. The driver compiles PTX for any later capability.
    Machine code and PTX with the suffix ``a`` run on their capability alone, with ``f`` also on later minor versions.

    Examples
    --------
    >>> runs_on(Arch(8, 0), Arch(8, 6)), runs_on(Arch(8, 0), Arch(9, 0)), runs_on(Arch(8, 0), Arch(9, 0), is_ptx=True)
    (True, False, True)
    >>> runs_on(Arch(10, 0, "f"), Arch(10, 3), is_ptx=True), runs_on(Arch(10, 0, "f"), Arch(12, 0), is_ptx=True)
    (True, False)
    """
    if arch == device or device.suffix:
        return arch == device
    if arch.suffix == "a":
        return arch.base == device
    return arch.base <= device and (arch.major == device.major or (is_ptx and not arch.suffix))


def parse_archs(text: str) -> tuple[Arch, ...]:
    """Parse a list of architectures separated by commas, semicolons or spaces.

    Parameters
    ----------
    text : str
        List, such as ``"8.0, sm_90a"``. `Arch.parse` lists the spellings.

    Returns
    -------
    tuple of Arch
        Sorted architectures without duplicates; at least one.

    Raises
    ------
    ArchError
        An element is not an architecture, or the list is empty.

    See Also
    --------
    - `gencode_flags`: make nvcc's flags for these architectures.
    - :doc:`/compiler-options`: architectures and flags of a load.

    Examples
    --------
    >>> from be_toolchain import parse_archs
    >>> [arch.sm for arch in parse_archs("9.0; 80 sm_90")]
    ['sm_80', 'sm_90']
    """
    words = str(text).replace(",", " ").replace(";", " ").split()
    if not words:
        raise ArchError(f"{text!r} does not name a GPU architecture", hints=(f"write it as {ACCEPTED_SPELLINGS}",))
    return tuple(sorted({Arch.parse(word) for word in words}))


def render_archs(archs: tuple[Arch, ...]) -> str:
    """Spell a list of architectures canonically, as `parse_archs` reads it back.

    Examples
    --------
    >>> render_archs(parse_archs("sm_90a,80"))
    '8.0,9.0a'
    """
    return ",".join(str(arch) for arch in archs)


def gencode_flags(archs: tuple[Arch, ...], ptx_for_highest: bool = True) -> tuple[str, ...]:
    """Return nvcc's flags for machine code of each architecture, and for PTX that the driver compiles for newer GPUs.

    Parameters
    ----------
    archs : tuple of Arch
        Architectures to build for.
    ptx_for_highest : bool, default True
        Add PTX of the highest architecture that has no suffix. PTX of an architecture with a suffix is not added,
        because PTX of ``9.0a`` does not run on newer GPUs.

    Returns
    -------
    tuple of str
        Arguments of nvcc, one for each architecture in ascending order, then the argument for PTX.

    See Also
    --------
    - :doc:`/compiler-options`: architectures and flags of a load.

    Examples
    --------
    >>> from be_toolchain import gencode_flags, parse_archs
    >>> for flag in gencode_flags(parse_archs("8.0,9.0a")):
    ...     print(flag)
    -gencode=arch=compute_80,code=sm_80
    -gencode=arch=compute_90a,code=sm_90a
    -gencode=arch=compute_80,code=compute_80
    """
    ordered = sorted(set(archs))
    flags = [f"-gencode=arch={arch.compute},code={arch.sm}" for arch in ordered]
    generic = [arch for arch in ordered if not arch.suffix]
    if ptx_for_highest and generic:
        flags.append(f"-gencode=arch={generic[-1].compute},code={generic[-1].compute}")
    return tuple(flags)
