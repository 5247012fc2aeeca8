"""Kernels without host code that a package declares: tables ``[kernels.NAME]``, and their functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from be_runtime.call.call_options import Options, check_options
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError, SourceNotFoundError
from be_runtime.ship.declaration import refuse_unknown
from be_toolchain.machine.trust.regular_file import LARGE, read_regular

KernelLanguage = Literal["cuda", "numba", "numba_cuda"]

_CALL = frozenset(
    {"vmap_method", "input_output_aliases", "has_side_effect", "ordered", "input_layouts", "output_layouts", "random"}
)
"""Options of every call, by the names of `check_options`."""

_SOURCE = frozenset({"extra_cuda_cflags", "extra_include_paths", "use_fast_math"})
_LAUNCH: Mapping[KernelLanguage, frozenset[str]] = {
    "cuda": frozenset({"grid", "block", "shared_mem", "cluster"}),
    "numba": frozenset(),
    "numba_cuda": frozenset({"grid", "block", "launch_dims", "threads_per_block", "shared_mem"}),
}
_MORE: Mapping[KernelLanguage, frozenset[str]] = {
    "cuda": _SOURCE | {"source", "name", "compute_capability"},
    "numba": frozenset({"numba", "dtypes"}),
    "numba_cuda": frozenset({"numba_cuda", "dtypes"}),
}
_SIGNATURE = {"signature": "'arg[n] ret[n]:like(0)'"}
_NEEDED: Mapping[KernelLanguage, Mapping[str, str]] = {
    "cuda": {**_SIGNATURE, "grid": "'ceil(n/256)'", "block": "256"},
    "numba": _SIGNATURE,
    "numba_cuda": _SIGNATURE,
}
"""Keys that a table must have, with examples."""


class KernelTable(NamedTuple):
    """A declared kernel.

    Parameters
    ----------
    language : {"cuda", "numba", "numba_cuda"}
    source : str
        Path of the source below the package's folder, or ``module:function``.
    signature : str or list of str
    call, launch, compiling : dict
        Options of calls, of launches and of the compiler, by the names of the public functions.
    dtypes : tuple of DType
        What arrays without a dtype of their own are built for.
    """

    language: KernelLanguage
    source: str
    signature: Any
    call: Mapping[str, Any]
    launch: Mapping[str, Any]
    compiling: Mapping[str, Any]
    dtypes: tuple[DType, ...]

    @property
    def options(self) -> dict[str, Any]:
        """The part of the table that an index repeats, for calls."""
        return {"signature": self.signature, "call": dict(self.call), "launch": dict(self.launch)}


def read_table(name: str, table: Mapping[str, Any]) -> KernelTable:
    """Read a table.

    Raises
    ------
    ArgumentError
        It has an unknown key, lacks one, or a size of a launch is no number and no arithmetic.
    """
    where = f"kernels.{name}"
    language: KernelLanguage = "numba" if "numba" in table else "numba_cuda" if "numba_cuda" in table else "cuda"
    refuse_unknown(table, _CALL | _LAUNCH[language] | _MORE[language] | {"signature"}, where)
    source = table.get("source" if language == "cuda" else language)
    if not isinstance(source, str) or (language != "cuda" and source.count(":") != 1):
        form = "a path" if language == "cuda" else "'module:function'"
        raise ArgumentError(f"{where}: its source must be {form}, not {source!r}")
    for key, example in _NEEDED[language].items():
        if key not in table:
            raise ArgumentError(f"{where} has no {key}", hints=(f"add {key} = {example}",))
    launch = {key: value for key, value in table.items() if key in _LAUNCH[language]}
    for key, value in launch.items():
        for each in value if isinstance(value, list) else [value]:
            if not isinstance(each, int | str) or isinstance(each, bool):
                raise ArgumentError(f"{where}: {key} must be numbers or arithmetic such as 'ceil(n/256)', not {each!r}")
    return KernelTable(
        language,
        source,
        table["signature"],
        {key: value for key, value in table.items() if key in _CALL},
        launch,
        {key: table[key] for key in ("name", "compute_capability", *sorted(_SOURCE)) if key in table},
        tuple(_dtype(where, each) for each in table.get("dtypes", ["float32"])),
    )


def _dtype(where: str, name: object) -> DType:
    found = BY_NAME.get(str(name))
    if found is None:
        raise ArgumentError(f"{where}: dtypes has {name!r}; there are {', '.join(BY_NAME)}")
    return found


def call_options(call: Mapping[str, Any]) -> Options:
    """Check the options of calls, as TOML and JSON have them: with texts as keys."""
    return check_options(**_numbered(call))


def _numbered(call: Mapping[str, Any]) -> dict[str, Any]:
    aliases = call.get("input_output_aliases")
    if not isinstance(aliases, Mapping):
        return dict(call)
    numbered = {int(key) if key.isdecimal() else key: value for key, value in aliases.items()}
    return {**call, "input_output_aliases": numbered}


def declared_function(name: str, table: Mapping[str, Any], root: Path) -> Callable[..., Any]:
    """Make the function of a declared kernel, compiled when it is first traced.

    Parameters
    ----------
    name : str
        Name of the table, and of the kernel unless that says another.
    table : mapping
    root : Path
        Folder of the package.

    Raises
    ------
    ArgumentError, SpecError
        The table is wrong.
    SourceNotFoundError
        There is no such source or function.
    """
    read = read_table(name, table)
    options: dict[str, Any] = {"signature": read.signature, **read.launch, **_numbered(read.call)}
    if read.language == "cuda":
        from be_runtime.kernels.cuda.raw import cuda_kernel

        compiling = {"name": name, **read.compiling, "extra_include_paths": include_paths(read, root)}
        return cuda_kernel(read_source(name, read, root), **compiling, **options)
    if read.language == "numba":
        from be_runtime.kernels.numba.cpu.cpu_kernel import numba_kernel

        return numba_kernel(imported(name, read), **options)
    from be_runtime.kernels.numba.gpu.numba_cuda import numba_cuda_kernel

    return numba_cuda_kernel(imported(name, read), **options)


def include_paths(read: KernelTable, root: Path) -> list[str]:
    """Return the folders of headers."""
    return [str(root / path) for path in read.compiling.get("extra_include_paths", ())]


def read_source(name: str, read: KernelTable, root: Path) -> str:
    """Read a raw kernel's source, a file below the package's folder."""
    from be_runtime.ship.links_out import refuse_links_out  # what is built needs no sources

    path = root / read.source
    refuse_links_out(f"kernels.{name}", root, [path], map(Path, include_paths(read, root)))
    try:
        return read_regular(path, LARGE).decode("utf-8", "surrogateescape")
    except OSError as error:
        raise SourceNotFoundError(f"kernels.{name}: {read.source} can't be read: {error.strerror}") from error


def imported(name: str, read: KernelTable) -> Any:
    """Import the function of a Numba kernel."""
    module, _, function = read.source.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        missing = (getattr(error, "name", None) or "").partition(".")[0]
        is_other = isinstance(error, ImportError) and missing != module.partition(".")[0]
        hints = (f"install {missing} where the kernels are built: for a wheel, add it to requires of [build-system]",)
        raise SourceNotFoundError(
            f"kernels.{name}: {read.source} can't be imported: {error}", hints=hints if is_other else ()
        ) from error
