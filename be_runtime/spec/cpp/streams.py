"""Launches that a function's own text shows to be in no order with XLA's work. Pure.

Only what is certain counts: a launch on CUDA's default stream, in a function that has no stream or never names it, and
that does not wait for the device before.
"""

from __future__ import annotations

import re

_LAUNCH = re.compile(r"<<<(?P<config>[^;]*?)>>>|\bcudaLaunch(?:Cooperative)?Kernel\s*(?P<call>\()")
_WAIT = re.compile(r"Synchronize\s*\(")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_DEFAULT_STREAMS = frozenset(["0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread"])


def launches_out_of_order(body: str, stream: str) -> bool:
    """Whether the code of a function launches a kernel that XLA's work does not wait for.

    Parameters
    ----------
    body : str
        Code without comments and the contents of literals.
    stream : str
        The name of the parameter for the stream; empty where the function has none, or does not name it.

    Examples
    --------
    >>> launches_out_of_order("kernel<<<n, 256>>>(x);", "stream")
    True
    >>> launches_out_of_order("kernel<<<n, 256, 0, (cudaStream_t)stream>>>(x);", "stream")
    False
    """
    if stream and re.search(rf"\b{re.escape(stream)}\b", body):
        return False
    wait = _WAIT.search(body)
    launches = _LAUNCH.finditer(body, 0, wait.start() if wait else len(body))
    return any(_is_on_default_stream(body, launch) for launch in launches)


def _is_on_default_stream(body: str, launch: re.Match[str]) -> bool:
    """Whether the stream, which follows two arguments of a configuration and four of a call, is CUDA's default."""
    config = launch["config"]
    arguments = _arguments(body, launch.end()) if config is None else _arguments(f"{config})", 0)
    leading = 4 if config is None else 2
    given = arguments[leading + 1 :]
    return len(arguments) >= leading and (not given or given[0].strip() in _DEFAULT_STREAMS)


def _arguments(text: str, start: int) -> list[str]:
    """The arguments from behind an opening parenthesis to the one that closes it."""
    found, depth, begin = [], 0, start
    for position in range(start, len(text)):
        char = text[position]
        if depth == 0 and char in ",)":
            found.append(text[begin:position])
            begin = position + 1
            if char == ")":
                break
        depth += (char in _OPEN) - (char in _CLOSE)
    return found
