"""Shell variables that make other tools use the same toolchain. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path

from be_toolchain.model import ClangCuda, Nvcc, Toolchain


def shell_variables(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that make torch, CMake, CuPy and a plain nvcc use a toolchain.

    Parameters
    ----------
    toolchain : Toolchain
        The toolchain to use; without CUDA, only ``CXX`` is set.
    environ : Mapping of str to str
        The present variables. Lists are extended, not replaced; extending them twice changes nothing.

    Returns
    -------
    tuple of (name, value)
        ``LD_LIBRARY_PATH`` is never among them: it would override the libraries that come with jax.

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
    """Return the variables that name the CUDA compiler."""
    host = str(compiler.host.path)
    match compiler:
        case Nvcc():
            return ("CUDACXX", str(compiler.path)), ("CUDAHOSTCXX", host), ("NVCC_CCBIN", host)
        case ClangCuda():
            return (("CUDACXX", host),)


def _extended(folders: tuple[Path, ...], present: str) -> str:
    """Put folders before those already in a list, without empty entries, which mean the working folder."""
    return ":".join(dict.fromkeys((*map(str, folders), *filter(None, present.split(":")))))


def render_variables(variables: tuple[tuple[str, str], ...], shell: str) -> str:
    """Render variables as text for ``eval`` or ``source``, or as a JSON object.

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
    """Put a text in fish's single quotes, inside which only the quote and the backslash are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
