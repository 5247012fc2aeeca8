"""A raw kernel's source as the compilers take it, and what they make of it. Pure, but for reading headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ..errors import BuildError
from .prototype import KernelName

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"]", re.MULTILINE)
_ENTRY = re.compile(rb"\.text\.([\w$]+)\0")


class RawKernel(NamedTuple):
    """What a raw kernel is compiled from.

    Parameters
    ----------
    source : str
    name : KernelName
    flags : tuple of str
        The author's, each one argument.
    include_paths : tuple of Path
        The author's.
    use_fast_math : bool
    """

    source: str
    name: KernelName
    flags: tuple[str, ...] = ()
    include_paths: tuple[Path, ...] = ()
    use_fast_math: bool = False

    @property
    def file_name(self) -> str:
        """What messages call the source."""
        return f"{self.name.base}.cu"

    def options(self) -> tuple[str, ...]:
        """What NVRTC and nvcc are told alike."""
        standard = () if any(flag.startswith(("-std", "--std")) for flag in self.flags) else ("-std=c++17",)
        fast = ("--use_fast_math",) if self.use_fast_math else ()
        return (*standard, *fast, *(f"-I{path}" for path in self.include_paths), *self.flags)


def included_files(source: str, folders: Sequence[Path], read: Callable[[Path], str | None]) -> tuple[Path, ...]:
    """The author's headers that a source includes, directly or through others: a change of one makes a new kernel.

    Parameters
    ----------
    read : callable
        A file's text, or None where there is none.

    Examples
    --------
    >>> files = {Path("/inc/a.h"): '#include "b.h"', Path("/inc/b.h"): ""}
    >>> [path.name for path in included_files("#include <a.h>", [Path("/inc")], files.get)]
    ['a.h', 'b.h']
    """
    found: dict[Path, None] = {}
    waiting: list[tuple[str, tuple[Path, ...]]] = [(source, ())]
    while waiting:
        text, beside = waiting.pop()
        for name in _INCLUDE.findall(text):
            for path in (folder / name for folder in (*beside, *folders)):
                content = None if path in found else read(path)
                if content is not None:
                    found[path] = None
                    waiting.append((content, (path.parent,)))
                if path in found:
                    break
    return tuple(found)


def instantiated(source: str, name: KernelName) -> str:
    """The source, with what makes nvcc compile an instance of a template."""
    if not name.arguments:
        return source
    return f"{source}\n\nstatic void* const be_instance = (void*)&{name.expression};\n"


def entry_in_cubin(cubin: bytes, name: KernelName) -> str:
    """The name of a kernel in a cubin that nvcc made, from the names of its sections.

    Raises
    ------
    BuildError
        There is no such kernel, or several.

    Examples
    --------
    >>> from be_runtime.launch.prototype import parse_name
    >>> entry_in_cubin(b".text._Z5scalePf" + bytes(1), parse_name("scale"))
    '_Z5scalePf'
    """
    entries = sorted({match.decode() for match in _ENTRY.findall(cubin)})
    marked = [entry for entry in entries if _is_entry(entry, name)]
    if len(marked) == 1:
        return str(marked[0])
    what = "no kernel" if not marked else f"{len(marked)} kernels"
    raise BuildError(
        f"the compiled source has {what} of the name {name.expression}; it has {', '.join(entries) or 'none'}",
        hints=("install NVRTC (pip install nvidia-cuda-nvrtc), which tells instances of a template apart",),
    )


def _is_entry(entry: str, name: KernelName) -> bool:
    """Whether a mangled name is that of a kernel: the Itanium ABI writes a name after its length."""
    if entry == name.base:
        return not name.arguments
    match = re.fullmatch(rf"_Z(?:N(?:\d+\w+?)?)?{len(name.base)}{re.escape(name.base)}(I?)\w*", entry)
    return match is not None and bool(match[1]) == bool(name.arguments)
