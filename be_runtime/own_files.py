"""The package's own files, with their folders, their names in cache keys, and the ABI number of compiled modules."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

from be_runtime.errors import LoadError

ABI = 1
"""Number of the interface between compiled modules and this package.

Raise it if the changed code can't call modules that were compiled before: a change of the symbols of handlers, the
fields of a module's functions, the launcher's functions, its attributes or their order, or the version of XLA's FFI
that handlers claim. A new field or symbol that older modules do not need is no reason.
"""

OLDEST = 1
"""The lowest ABI number whose modules this release still loads."""

FFI_CLAIM = "0.1"
"""The version of XLA's FFI that the handlers claim, the lowest with all their calls, see ``native/ffi_versions.h``."""


def check_abi(number: int, what: str) -> None:
    """Check that this release can load compiled code.

    Parameters
    ----------
    number : int
        ABI number of the code.
    what : str
        Name of the code, for the message.

    Raises
    ------
    LoadError
        The ABI is later than this release's, or no longer supported.

    Examples
    --------
    >>> check_abi(ABI, "spikes")
    """
    if OLDEST <= number <= ABI:
        return
    old = number < OLDEST
    raise LoadError(
        f"{what} was made for ABI {number}, but this be_runtime has ABI {ABI}{f', and loads {OLDEST} on' * old}",
        hints=(
            f"build {what} again with this brainevent-toolchain"
            if old
            else "update brainevent-toolchain here: pip install --upgrade brainevent-toolchain",
        ),
    )


INCLUDE_DIR = Path(__file__).parent / "include"
"""Folder of headers, on the search path of every kernel."""

TORCH_DIR = INCLUDE_DIR / "brainevent" / "torch"
"""Folder that is searched last for a source that names torch, ATen or c10, with headers named like PyTorch's."""

NATIVE_DIR = Path(__file__).parent / "native"
"""Folder of the handler, the launcher, and helpers for compilers."""

CMAKE_DIR = Path(__file__).parent / "cmake"
"""Folder of the package for CMake."""

HERE = "here"
"""Label of a key's field that binds the key to one environment, since the author's texts name a folder of it."""


def jax_headers() -> Path | None:
    """Find the folder of ``xla/ffi/api/c_api.h`` without importing jax; None if there is no jaxlib."""
    spec = importlib.util.find_spec("jaxlib")
    locations = spec.submodule_search_locations if spec is not None else None
    return Path(locations[0]) / "include" if locations else None


@functools.cache
def homes() -> tuple[tuple[str, str], ...]:
    """Return the package's folder and the folder of JAX's headers, each with the name that replaces it in keys."""
    named = ((INCLUDE_DIR.parent, "<be_runtime>"), (jax_headers(), "<jaxlib>"))
    return tuple((str(folder), name) for folder, name in named if folder is not None)


def by_name(text: str) -> str:
    """Replace the folder of a path in `homes`, also after ``-I``, by the folder's name; keep other text.

    Examples
    --------
    >>> by_name(f"-I{INCLUDE_DIR}"), by_name("-I/usr/include")
    ('-I<be_runtime>/include', '-I/usr/include')
    """
    for folder, name in (*homes(), *_real_homes()):
        for start in (folder, f"-I{folder}"):
            if text == start or text.startswith(f"{start}/"):
                return start[: -len(folder)] + name + text[len(start) :]
    return text


@functools.cache
def _real_homes() -> tuple[tuple[str, str], ...]:
    """Return `homes` with links resolved, as compilers may write them."""
    return tuple((os.path.realpath(folder), name) for folder, name in homes())


def by_path(text: str) -> str:
    """Return the path in this environment for a text from `by_name`."""
    for folder, name in homes():
        if text.startswith(f"{name}/") or text == name:
            return folder + text[len(name) :]
    return text
