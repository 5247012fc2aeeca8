"""The extension of IPython: ``%load_ext be_runtime``."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import Any

from be_runtime.api import load_cpp_inline, load_cuda_inline
from be_runtime.control import watch
from be_runtime.errors import BeRuntimeError
from be_runtime.frames import filtering
from be_runtime.live.watcher import Watching, watcher
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.process import PROCESS
from be_runtime.notebook.cell_options import CellOptions, cell_parser, parse_cell_options
from be_runtime.notebook.shown_error import error_html
from be_toolchain.errors import ToolchainError

Load = Callable[[str, CellOptions], CompiledModule]


def load_ipython_extension(shell: Any) -> None:
    """Add the magics ``%%cuda_kernel`` and ``%%cpp_kernel`` to IPython, and follow what is edited; see `watch`.

    IPython calls it for ``%load_ext be_runtime``.

    Parameters
    ----------
    shell : IPython.core.interactiveshell.InteractiveShell

    Examples
    --------
    >>> load_ipython_extension(get_ipython())  # doctest: +SKIP
    """
    PROCESS.only(_Extension, _Extension).begin(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Follow nothing more; IPython calls it for ``%unload_ext be_runtime``.

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
        for magic, load in (("cuda_kernel", _load_cuda), ("cpp_kernel", _load_cpp)):
            shell.register_magic_function(_cell_magic(shell, magic, load), "cell", magic)
        if self._watching is None:
            self._watching = watch()
            watcher().show = lambda name, error: _show(shell, error, f"{name} was saved, but the code before it stays")
            shell.events.register("pre_run_cell", self._follow)

    def end(self, shell: Any) -> None:
        if self._watching is not None:
            shell.events.unregister("pre_run_cell", self._follow)
            watcher().show = self._shown
            watcher().end(self._watching)
            self._watching = None

    def _follow(self, _info: object) -> None:
        """Follow what was saved before a cell runs, since a jitted function doesn't look itself."""
        watcher().follow_all()


def _cell_magic(shell: Any, magic: str, load: Load) -> Callable[[str, str], None]:
    def run(line: str, cell: str) -> None:
        try:
            options = parse_cell_options(magic, line)
            began = time.perf_counter()
            module = load(f"\n{cell}", options)  # so that the lines of messages are the cell's
        except (BeRuntimeError, ToolchainError) as error:
            _show(shell, error)
            lines = [f"{type(error).__name__}: {error.message}"]
            failure: Any = error
            if filtering() != "off":
                failure._render_traceback_ = lambda: lines  # IPython's protocol; all frames are ours or IPython's
            raise
        shell.user_ns[options.name] = module
        functions = ", ".join(ModuleInfo.of(module).function_names)
        print(f"{options.name}: {functions}, {time.perf_counter() - began:.2f} s")  # noqa: T201

    run.__doc__ = f"Compile a cell, and bind the module to NAME.\n\n{cell_parser(magic).format_help()}"
    return run


def _load_cuda(text: str, options: CellOptions) -> CompiledModule:
    return load_cuda_inline(options.name, text, options.functions, extra_cuda_cflags=options.flags, **options.load)


def _load_cpp(text: str, options: CellOptions) -> CompiledModule:
    return load_cpp_inline(options.name, text, options.functions, extra_cflags=options.flags, **options.load)


def _show(shell: Any, error: Exception, before: str = "") -> None:
    """Show an error in the cell's output, for front ends with and without HTML."""
    plain = f"{before}: {error}" if before else str(error)
    assert isinstance(error, BeRuntimeError | ToolchainError)
    shell.display_pub.publish(
        {"text/plain": plain, "text/html": (f"{escape(before)}: " if before else "") + error_html(error)}
    )
