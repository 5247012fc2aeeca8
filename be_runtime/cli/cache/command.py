"""The command ``cache``: finds what runs each of its commands."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from be_runtime.cli.answer import Answer

COMMANDS = {
    "clear": ("removal", "clear"),
    "export": ("carry", "export"),
    "import": ("carry", "import_file"),
    "keygen": ("keys", "keygen"),
    "list": ("listing", "list_entries"),
    "path": ("listing", "path"),
    "prune": ("removal", "prune"),
    "show": ("show_entry", "show"),
    "sign": ("keys", "sign"),
    "stats": ("stats", "stats"),
    "verify": ("verify_entries", "verify"),
    "why": ("why", "why"),
}
"""The module and the function of each command."""


def run(arguments: argparse.Namespace) -> Answer:
    """Run one of the commands.

    Raises
    ------
    ArgumentError
        There is nothing of the name.
    CacheError
        The cache can't be used, or another user could put files there.
    """
    module, function = COMMANDS[arguments.subcommand]
    command: Callable[[argparse.Namespace], Answer] = getattr(import_module(f"be_runtime.cli.cache.{module}"), function)
    return command(arguments)
