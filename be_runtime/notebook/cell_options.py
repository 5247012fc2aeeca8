"""The options in the first line of a kernel's cell. Pure."""

from __future__ import annotations

import argparse
import keyword
import shlex
from typing import Any, NamedTuple, NoReturn

from be_runtime.errors import ArgumentError


class CellOptions(NamedTuple):
    """A cell's options.

    Parameters
    ----------
    name : str
        Name of the module, and of the variable that it is bound to.
    functions : list of str or None
    flags : list of str
        For the compiler.
    load : dict
        Other keyword arguments of the load function.
    """

    name: str
    functions: list[str] | None
    flags: list[str]
    load: dict[str, Any]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ArgumentError(f"{self.prog}: {message}", hints=(self.format_usage().strip(),))


def cell_parser(magic: str) -> argparse.ArgumentParser:
    """Make the parser of a magic's line."""
    parser = _Parser(prog=f"%%{magic}", add_help=False, allow_abbrev=False)
    parser.add_argument("name", metavar="NAME", help="name of the module, and of the variable that it is bound to")
    parser.add_argument("--functions", metavar="A,B", help="entry points; by default those with // @BE")
    parser.add_argument("-O", dest="optimization_level", type=int, default=3, metavar="N", help="0 to 3; by default 3")
    parser.add_argument("--fast-math", dest="use_fast_math", action="store_true")
    parser.add_argument("-I", dest="extra_include_paths", action="append", metavar="FOLDER", help="folder of headers")
    parser.add_argument("--flag", action="append", default=[], metavar="X", help="flag of the compiler: --flag=-DN=4")
    parser.add_argument("--ldflag", dest="extra_ldflags", action="append", metavar="X", help="flag of the linker")
    parser.add_argument("--debug", action="store_true", help="check every call, see be_runtime.debug")
    parser.add_argument("--line-info", action="store_true", help="keep source lines for profilers")
    parser.add_argument("--verbose", action="store_true", help="print the commands and what they said")
    return parser


def parse_cell_options(magic: str, line: str) -> CellOptions:
    """Read the line after a magic.

    Raises
    ------
    ArgumentError
        It has no name, or something that is no option.

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
