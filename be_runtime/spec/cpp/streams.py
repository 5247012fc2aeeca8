"""Detection of kernel launches that are not ordered with XLA's work, from a function's own text. Pure.

Only certain cases count: a launch on CUDA's default stream, in a function that has no stream parameter or never names
it, without waiting for the device before.
"""

from __future__ import annotations

import re
from itertools import islice

_LONGEST = 1000
"""Characters of the longest launch that is judged."""
_MOST = 100
"""Launches of one function that are judged."""
_LAUNCH = re.compile(rf"<<<(?P<config>[^;]{{0,{_LONGEST}}}?)>>>|\bcudaLaunch(?:Cooperative)?Kernel\s*(?P<call>\()")
_WAIT = re.compile(r"Synchronize\s*\(")
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_DEFAULT_STREAMS = frozenset(["0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread"])


def launches_out_of_order(body: str, stream: str) -> bool:
    """Return whether the code of a function launches a kernel that XLA's work does not wait for.

    Parameters
    ----------
    body : str
        Code without comments and the contents of literals.
    stream : str
        Name of the stream parameter; empty if the function has none, or if it has no name.

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
    return any(_is_on_default_stream(body, launch) for launch in islice(launches, _MOST))


def _is_on_default_stream(body: str, launch: re.Match[str]) -> bool:
    """Return whether the stream, the fourth argument of ``<<<>>>`` or the sixth of a call, is CUDA's default."""
    config = launch["config"]
    arguments = _arguments(body, launch.end()) if config is None else _arguments(f"{config})", 0)
    leading = 4 if config is None else 2
    given = arguments[leading + 1 :]
    return len(arguments) >= leading and (not given or given[0].strip() in _DEFAULT_STREAMS)


def _arguments(text: str, start: int) -> list[str]:
    """Split the arguments from after an opening parenthesis to the closing one; none if that is far away."""
    found, depth, begin = [], 0, start
    for position in range(start, min(len(text), start + _LONGEST)):
        char = text[position]
        if depth == 0 and char in ",)":
            found.append(text[begin:position])
            begin = position + 1
            if char == ")":
                return found
        depth += (char in _OPEN) - (char in _CLOSE)
    return []
