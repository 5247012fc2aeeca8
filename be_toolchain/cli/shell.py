"""What other tools need to use the same toolchain, as variables for a shell. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from be_toolchain.model import ClangCuda, Nvcc, Toolchain


def shell_variables(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that make torch, CMake, CuPy and a plain nvcc use a toolchain.

    Parameters
    ----------
    toolchain : Toolchain
        What to use; without CUDA only ``CXX`` is named.
    environ : Mapping of str to str
        The present variables: lists are extended, not replaced, and extending twice changes nothing.

    Returns
    -------
    tuple of (name, value)
        ``LD_LIBRARY_PATH`` is never among them: it would also replace the libraries that jax brings.

    Examples
    --------
    >>> shell_variables(Toolchain(), {})
    ()
    """
    rows: list[tuple[str, str]] = []
    cuda = toolchain.cuda
    if cuda is not None:
        root = str(cuda.root)
        rows += [("CUDA_HOME", root), ("CUDA_PATH", root), *_compiler_variables(cuda.compiler)]
        rows += [
            (name, _extended(folders, environ.get(name, "")))
            for name, folders in (
                ("PATH", ((cuda.nvcc or cuda.ptxas).parent,)),
                ("CPATH", cuda.include_dirs),
                ("LIBRARY_PATH", cuda.library_dirs),
            )
        ]
    if toolchain.cxx is not None:
        rows.append(("CXX", str(toolchain.cxx.path)))
    return tuple(rows)


def _compiler_variables(compiler: Nvcc | ClangCuda) -> tuple[tuple[str, str], ...]:
    """The names of what compiles CUDA."""
    host = str(compiler.host.path)
    match compiler:
        case Nvcc():
            return ("CUDACXX", str(compiler.path)), ("CUDAHOSTCXX", host), ("NVCC_CCBIN", host)
        case ClangCuda():
            return (("CUDACXX", host),)


def _extended(folders: tuple[Path, ...], present: str) -> str:
    """A list of folders before those that are there already; an empty entry would mean the working folder."""
    return ":".join(dict.fromkeys((*map(str, folders), *filter(None, present.split(":")))))


def render_variables(variables: tuple[tuple[str, str], ...], shell: str) -> str:
    """Text for ``eval`` or ``source``, or a JSON object.

    Examples
    --------
    >>> render_variables((("CXX", "/opt/my gcc/g++"),), "bash")
    "export CXX='/opt/my gcc/g++'"
    >>> render_variables((("CXX", "/usr/bin/g++"),), "fish")
    "set -gx CXX '/usr/bin/g++';"
    """
    if shell == "json":
        return json.dumps(dict(variables), indent=2)
    if shell == "fish":
        return "\n".join(f"set -gx {name} {_fish_quoted(value)};" for name, value in variables)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables)


def _fish_quoted(text: str) -> str:
    """A text in fish's single quotes, in which only the quote and the backslash are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
