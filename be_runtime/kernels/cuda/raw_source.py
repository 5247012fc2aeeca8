"""A raw kernel's source as the compilers take it, and the kernel's name in their output. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.errors import BuildError
from be_runtime.kernels.cuda.prototype import KernelName, is_within

_ENTRY = re.compile(rb"\.text\.([\w$]+)\0")
_LENGTH = re.compile(r"\d+")
_PRE_INCLUDE = ("-include", "--pre-include")
_PLACE = re.compile(r"(-I|--include-path|-isystem|--system-include|-include|--pre-include)(=?)(/[^,]*)?")
"""An option that names folders of headers, or one header; after a comma it may name another."""


class RawKernel(NamedTuple):
    """The source of a raw kernel and the author's compiler options.

    Parameters
    ----------
    source : str
    name : KernelName
    flags : tuple of str
        Flags of the author, one argument each.
    include_paths : tuple of Path
        Folders of the author.
    use_fast_math : bool
    """

    source: str
    name: KernelName
    flags: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()
    use_fast_math: bool = False

    @property
    def file_name(self) -> str:
        """The name of the source in messages."""
        return f"{self.name.base}.cu"

    def options(self) -> tuple[str, ...]:
        """Return the options that NVRTC and nvcc have in common."""
        standard = () if any(flag.startswith(("-std", "--std")) for flag in self.flags) else ("-std=c++17",)
        fast = ("--use_fast_math",) if self.use_fast_math else ()
        return (*standard, *fast, *(f"-I{path}" for path in self.include_paths), *self.flags)


def placeless(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[Path, ...]]:
    """Replace each absolute path of headers in options by a number, and return the paths too.

    Examples
    --------
    >>> options, places = placeless(["-I/home/ada", "-DHOME=/home/ada", "-include", "/opt/a.h"])
    >>> options, [str(place) for place in places]
    (('-I<0>', '-DHOME=/home/ada', '-include', '<1>'), ['/home/ada', '/opt/a.h'])
    """
    found: list[str] = []
    places: list[Path] = []
    is_place = False
    for option in options:
        named = _PLACE.fullmatch(f"-I{option}" if is_place else option)
        if named is None or named[3] is None:
            found.append(option)
        else:
            found.append(f"{'' if is_place else named[1] + named[2]}<{len(places)}>")
            places.append(Path(named[3]))
        is_place = not is_place and named is not None and not (named[2] or named[3])
    return tuple(found), tuple(places)


def for_nvrtc(kernel: RawKernel) -> RawKernel:
    r"""Return the kernel with the headers that its flags name included by its source.

    Headers that the source includes are searched only in the folders of the flags; for a header of a flag, NVRTC
    searches the process's working folder too. A ``#line`` directive keeps the line numbers in messages right.

    Examples
    --------
    >>> from be_runtime.kernels.cuda.prototype import parse_name
    >>> for_nvrtc(RawKernel("int a;", parse_name("f"), ("-DX", "-include", "a.h"))).source
    '#include "a.h"\n#line 1 "f.cu"\nint a;'
    """
    names, flags = [], []
    words = iter(kernel.flags)
    for word in words:
        option, is_joined, value = word.partition("=")
        if option in _PRE_INCLUDE:
            names.append(value if is_joined else next(words, ""))
        else:
            flags.append(word)
    includes = "".join(f'#include "{name}"\n' for name in names)
    return kernel._replace(source=f'{includes}#line 1 "{kernel.file_name}"\n{kernel.source}', flags=tuple(flags))


def instantiated(source: str, name: KernelName) -> str:
    """Return the source, with a reference that makes nvcc compile an instance of a template."""
    if not name.arguments:
        return source
    return f"{source}\n\nstatic void* const be_instance = (void*)&{name.expression};\n"


def entry_in_cubin(cubin: bytes, name: KernelName) -> str:
    """Find the name of a kernel in a cubin that nvcc made, from the names of its sections.

    Raises
    ------
    BuildError
        There is no such kernel, or several.

    Examples
    --------
    >>> from be_runtime.kernels.cuda.prototype import parse_name
    >>> entry_in_cubin(b".text._Z5scalePf" + bytes(1), parse_name("scale"))
    '_Z5scalePf'
    """
    entries = sorted({match.decode() for match in _ENTRY.findall(cubin)})
    marked = {entry: scopes for entry in entries if (scopes := _scopes(entry, name)) is not None}
    found = [entry for entry, scopes in marked.items() if scopes == name.namespaces] or [
        entry for entry, scopes in marked.items() if is_within(name.namespaces, scopes)
    ]
    if len(found) == 1:
        return str(found[0])
    what = "no kernel" if not found else f"{len(found)} kernels"
    raise BuildError(
        f"the compiled source has {what} of the name {name.expression}; it has {', '.join(entries) or 'none'}",
        hints=("install NVRTC (pip install nvidia-cuda-nvrtc), which tells instances of a template apart",),
    )


def _scopes(entry: str, name: KernelName) -> tuple[str, ...] | None:
    """Return the namespaces of a kernel in the code; None for a kernel of another name.

    The Itanium ABI writes each name after its length, names in a namespace between ``N`` and ``E``, and ``I`` before a
    template's arguments. A function that is ``extern "C"`` has its plain name.
    """
    if entry == name.base:
        return None if name.arguments else name.namespaces
    nested, at = entry.startswith("_ZN"), 3 if entry.startswith("_ZN") else 2
    names = []
    while entry.startswith("_Z") and (length := _LENGTH.match(entry, at)):
        at = length.end() + int(length[0])
        names.append(entry[length.end() : at])
        if not nested:
            break
    is_instance = entry[at : at + 1] == "I"
    return tuple(names[:-1]) if names[-1:] == [name.base] and is_instance == bool(name.arguments) else None
