"""TOML, parsed in time: the standard library takes the square of a dotted key's length. Pure."""

from __future__ import annotations

from typing import Any

MOST_DOTS = 500
"""How many dots a line may have: a key of 15,000 parts takes 2.4 s, and one of 500 takes 3 ms."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    ValueError
        It is none, or takes too long.
    """
    import tomllib  # few loads need it

    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {MOST_DOTS} dots")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
