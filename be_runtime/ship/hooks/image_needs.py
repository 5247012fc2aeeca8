"""Needs of a compiled image, of the machine that loads it, read from its ELF headers."""

from __future__ import annotations

import io
from typing import NamedTuple

from be_runtime.errors import BeRuntimeError


class Needs(NamedTuple):
    """Libraries and symbols that an image asks for.

    Parameters
    ----------
    libraries : tuple of str
        Names of shared libraries, such as ``"libc.so.6"``; that of the loader itself is left out.
    versions : frozenset of str
        Versions of their symbols, such as ``"GLIBC_2.34"``.
    undefined : frozenset of str
        Symbols that other libraries must have.
    run_paths : tuple of str
        Folders in which libraries are looked for.
    """

    libraries: tuple[str, ...]
    versions: frozenset[str] = frozenset()
    undefined: frozenset[str] = frozenset()
    run_paths: tuple[str, ...] = ()


def read_needs(data: bytes) -> Needs:
    """Read what an image asks for.

    Raises
    ------
    BeRuntimeError
        The extra ``build`` is not installed.
    """
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise lacking_extra("pyelftools") from None
    elf = ELFFile(io.BytesIO(data))
    dynamic, versions, symbols = map(elf.get_section_by_name, (".dynamic", ".gnu.version_r", ".dynsym"))
    tags = list(dynamic.iter_tags()) if dynamic else []
    paths = [tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath for tag in tags if tag.entry.d_tag in _PATHS]
    return Needs(
        libraries=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED" and not _is_loader(tag.needed)),
        versions=frozenset(
            each.name
            for library, rows in (versions.iter_versions() if versions else ())
            if not _is_loader(library.name)
            for each in rows
        ),
        undefined=frozenset(
            symbol.name
            for symbol in (symbols.iter_symbols() if symbols else ())
            if symbol["st_shndx"] == "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_WEAK"
        ),
        run_paths=tuple(path for text in paths for path in text.split(":") if path),
    )


_PATHS = ("DT_RPATH", "DT_RUNPATH")


def _is_loader(library: str) -> bool:
    return library.startswith(("ld-linux", "ld64.so"))


def lacking_extra(package: str) -> BeRuntimeError:
    """Return the error for a wheel that can't be checked."""
    return BeRuntimeError(
        f"the tag of a wheel can't be found without {package}",
        hints=('[build-system] requires = ["brainevent-toolchain[build]", ...] has it',),
    )
