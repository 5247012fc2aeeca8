"""Warnings of compilers, a line each. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WARNING = re.compile(r"^\S[^\n]*?(?::\d+(?::\d+)?: warning|\(\d+\): warning(?: #[\w-]+)?): ")
_MOST = 10


def find_warnings(outputs: Iterable[str]) -> tuple[str, ...]:
    r"""Find the warnings in what g++, clang and nvcc printed, each once.

    Examples
    --------
    >>> find_warnings(["k.cc: In function 'f':\nk.cc:3:5: warning: unused variable 'a'\n    3 | int a;"])
    ("k.cc:3:5: warning: unused variable 'a'",)
    """
    return tuple(dict.fromkeys(line for output in outputs for line in output.splitlines() if _WARNING.match(line)))


def warnings_text(name: str, warnings: tuple[str, ...]) -> str:
    """Write warnings for a terminal, below the name of their module.

    Examples
    --------
    >>> print(warnings_text("m", ("m:3:5: warning: unused variable 'a'",)))
    be_runtime: m: the compiler warns
      m:3:5: warning: unused variable 'a'
    """
    rest = [f"  and {len(warnings) - _MOST} more, which module.report() lists"] if len(warnings) > _MOST else []
    return "\n".join([f"be_runtime: {name}: the compiler warns", *(f"  {each}" for each in warnings[:_MOST]), *rest])
