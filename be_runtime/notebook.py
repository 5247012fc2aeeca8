"""The extension of IPython, with cells of C++ and CUDA, and errors as HTML."""

from __future__ import annotations

import argparse
import keyword
import re
import shlex
import time
from collections.abc import Callable
from html import escape
from typing import Any, NamedTuple, NoReturn

from be_runtime.api import load_cpp_inline, load_cuda_inline
from be_runtime.control import watch
from be_runtime.debugging.watch import Watching, watcher
from be_runtime.errors import ArgumentError, BeRuntimeError, BuildError
from be_runtime.frames import filtering
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.process import PROCESS
from be_toolchain.errors import ToolchainError
from be_toolchain.terminal import many, printable


class CellOptions(NamedTuple):
    """The options of a cell.

    Parameters
    ----------
    name : str
        Name of the module and of its variable.
    functions : list of str or None
    flags : list of str
        Flags of the compiler.
    load : dict
        Other keyword arguments of the load function.
    """

    name: str
    functions: list[str] | None
    flags: list[str]
    load: dict[str, Any]


_FLAG = "a flag of the compiler is written with =, as in --flag=-march=native"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{self.prog}: {message}", hints=(self.format_usage().strip(), _FLAG))


def cell_parser(magic: str) -> argparse.ArgumentParser:
    """Return the parser of a magic's line."""
    parser = _Parser(prog=f"%%{magic}", add_help=False, allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", help="name of the module, and of the variable that it is bound to")
    parser.add_argument("--functions", metavar="A,B", help="entry points; by default functions with // @BE")
    parser.add_argument("-O", dest="optimization_level", type=int, default=3, metavar="N", help="0 to 3; by default 3")
    parser.add_argument("--fast-math", dest="use_fast_math", action="store_true")
    parser.add_argument("-I", dest="extra_include_paths", action="append", metavar="FOLDER", help="folder of headers")
    parser.add_argument("--flag", action="append", default=[], metavar="X", help="flag of the compiler: --flag=-DN=4")
    parser.add_argument("--ldflag", dest="extra_ldflags", action="append", metavar="X", help="flag of the linker")
    parser.add_argument("--debug", action="store_true", help="check every call, see be_runtime.debug")
    parser.add_argument("--line-info", action="store_true", help="keep source lines for profilers")
    parser.add_argument("--verbose", action="store_true", help="print the commands and their output")
    return parser


def parse_cell_options(magic: str, line: str) -> CellOptions:
    """Read the line after a magic.

    Raises
    ------
    ArgumentError
        The line has no name, or an unknown option.

    Examples
    --------
    >>> parse_cell_options("cuda_kernel", "scale --functions f,g --flag=-DN=4").functions
    ['f', 'g']
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise ArgumentError(f"%%{magic}: {error}: {line}") from None
    given = vars(cell_parser(magic).parse_args(words))
    name, functions, flags = given.pop("name"), given.pop("functions"), given.pop("flag")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentError(
            f"%%{magic}: {name!r} can't be the name of a Python variable",
            hints=(f"name the module that the cell is, as in: %%{magic} scale",),
        )
    names = None if functions is None else [each.strip() for each in functions.split(",")]
    return CellOptions(name, names, flags, given)


_CARET = re.compile(r"([\s|]*)([\^~][\^~\s|]*)")
_RED, _GREY = "var(--jp-error-color1, #c62828)", "var(--jp-ui-font-color2, #616161)"
_PRE = '<pre style="margin: 0.3em 0; padding: 0; overflow-x: auto; white-space: pre">'


def error_html(error: BeRuntimeError | ToolchainError) -> str:
    """Return an error as HTML, with all its texts escaped.

    Examples
    --------
    >>> error_html(BeRuntimeError("no <b>"))
    '<div><b style="color: var(--jp-error-color1, #c62828)">BeRuntimeError</b>: no &lt;b&gt;</div>'
    """
    parts = [f'<b style="color: {_RED}">{type(error).__name__}</b>: {_text(error.message)}']
    place = ""
    if isinstance(error, BuildError):
        place = error.first_error
    elif isinstance(error, BeRuntimeError) and error.span is not None:
        place = error.span.render()
    if place:
        parts.append(f"{_PRE}{chr(10).join(map(_line, place.splitlines()))}</pre>")
    parts += [f'<div style="color: {_GREY}">hint: {_text(hint)}</div>' for hint in error.hints]
    if isinstance(error, BuildError):
        if error.output.strip():
            lines = error.output.strip().splitlines()
            parts.append(_folded(f"output of the compiler, {many(len(lines), 'line')}", "\n".join(lines)))
        if error.command:
            parts.append(_folded("command", shlex.join(error.command)))
    return f"<div>{''.join(parts)}</div>"


def _line(line: str) -> str:
    """Return a line of a source as HTML, with red carets."""
    caret = _CARET.fullmatch(line)
    return _text(line) if caret is None else f'{caret[1]}<b style="color: {_RED}">{caret[2]}</b>'


def _folded(summary: str, text: str) -> str:
    return f"<details><summary>{_text(summary)}</summary>{_PRE}{_text(text)}</pre></details>"


def _text(text: str) -> str:
    return escape(printable(text))


def load_ipython_extension(shell: Any) -> None:
    """Add the magics ``%%cuda_kernel`` and ``%%cpp_kernel`` to IPython, and follow edited files, see `watch`.

    IPython calls this function for ``%load_ext be_runtime``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell

    Examples
    --------
    >>> load_ipython_extension(get_ipython())  # doctest: +SKIP
    """
    PROCESS.only(_Extension, _Extension).begin(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Stop following files; IPython calls this function for ``%unload_ext be_runtime``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell

    Examples
    --------
    >>> unload_ipython_extension(get_ipython())  # doctest: +SKIP
    """
    PROCESS.only(_Extension, _Extension).end(shell)


class _Extension:
    """The extension while it is loaded."""

    def __init__(self) -> None:
        self._watching: Watching | None = None
        self._shown = watcher().show

    def begin(self, shell: Any) -> None:
        for magic in ("cuda_kernel", "cpp_kernel"):
            shell.register_magic_function(_cell_magic(shell, magic), "cell", magic)
        if self._watching is None:
            self._watching = watch()
            watcher().show = lambda name, error: _show(
                shell, error, f"{name} was saved, but the previous code stays in use"
            )
            shell.events.register("pre_run_cell", self._follow)

    def end(self, shell: Any) -> None:
        if self._watching is not None:
            shell.events.unregister("pre_run_cell", self._follow)
            watcher().show = self._shown
            watcher().end(self._watching)
            self._watching = None

    def _follow(self, _info: object) -> None:
        """Compile saved files before a cell runs, since a jitted function does not check its files."""
        watcher().follow_all()


def _cell_magic(shell: Any, magic: str) -> Callable[[str, str], None]:
    """Return the function of a magic."""

    def run(line: str, cell: str) -> None:
        try:
            options = parse_cell_options(magic, line)
            began = time.perf_counter()
            module = _load(magic, f"\n{cell}", options)  # the first line of the notebook's cell is the magic
        except (BeRuntimeError, ToolchainError) as error:
            _show(shell, error)
            lines = [f"{type(error).__name__}: {error.message}"]
            failure: Any = error
            if filtering() != "off":
                failure._render_traceback_ = lambda: lines  # IPython's protocol; no frame belongs to the user
            raise
        shell.user_ns[options.name] = module
        functions = ", ".join(ModuleInfo.of(module).function_names)
        print(f"{options.name}: {functions}, {time.perf_counter() - began:.2f} s")  # noqa: T201

    run.__doc__ = f"Compile a cell, and bind the module to NAME.\n\n{cell_parser(magic).format_help()}"
    return run


def _load(magic: str, text: str, options: CellOptions) -> CompiledModule:
    name, functions = options.name, options.functions
    if magic == "cuda_kernel":
        return load_cuda_inline(name, text, functions, extra_cuda_cflags=options.flags, **options.load)
    return load_cpp_inline(name, text, functions, extra_cflags=options.flags, **options.load)


def _show(shell: Any, error: Exception, before: str = "") -> None:
    """Show an error in the cell's output, for front ends with and without HTML."""
    assert isinstance(error, BeRuntimeError | ToolchainError)
    before = f"{before}: " if before else ""
    shell.display_pub.publish({"text/plain": f"{before}{error}", "text/html": escape(before) + error_html(error)})
