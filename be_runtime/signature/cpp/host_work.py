"""Find work on CUDA's default stream, and calls that end the process, in host code.

The patterns are compiled at import, so this module is imported only for sources with certain words.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from itertools import islice

from be_runtime.signature.cpp.lexer import CLOSING, OPENING

_LONGEST = 1000
"""Limit for the characters of a call's arguments."""
_MOST = 100
"""Limit for the calls of one function that are examined."""
_CALLS = (
    *("cudaLaunch(?:Cooperative)?Kernel", r"cudaMem(?:cpy|set)\w*", r"cub::Device\w+::\w+"),
    r"thrust::\w+",
)
_WORK = re.compile("|".join(("<<<", *(rf"{call}\s*(?:<[^;(){{}}]{{0,200}}>)?\s*\(" for call in _CALLS))))
"""Each alternative begins with a literal, which makes the search fast."""
_BEFORE_STREAM = {
    "<<<": 3,
    **dict.fromkeys(("cudaLaunchKernel", "cudaLaunchCooperativeKernel"), 5),
    "cudaMemcpyAsync": 4,
    "cudaMemsetAsync": 3,
    "cudaMemcpy2DAsync": 7,
    "cudaMemset2DAsync": 5,
}
"""Number of arguments before the stream, which is CUDA's default stream if a call leaves it out."""
_CALL = re.compile(r"[\w:]+")
_WORDS = re.compile(r"\w+")
_NAME_BEFORE = re.compile(r"[A-Za-z_][\w:]*(?:<[^;(){}]*>)?\s*$")
_WAIT = re.compile(r"(?:Synchronize|\bcudaStreamWaitEvent)\s*\(")
_DEFAULT_STREAMS = frozenset(["0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread"])
_CAST = re.compile(r"^(?:\(\s*cudaStream_t\s*\)|(?:static|reinterpret)_cast<\s*cudaStream_t\s*>)|^cudaStream_t(?=[{(])")
_NULL = re.compile(r"\bnullptr\b|\bNULL\b|^(?:\([^()]*\)\s*)?0$")
_THRUST_DEFAULT = re.compile(r"^thrust::(?:device|cuda::par(?:_nosync)?)$")
"""Policies of Thrust without a stream."""
_PASSES = re.compile(r"stream|\benv\b|\.get\(|^[\w.]*\.[A-Za-z_]\w*$", re.IGNORECASE)
"""An argument of CUB that may be a stream: a name with ``stream`` or ``env``, or a member."""
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;(){}]{0,200}>)?\s*\(")
_MOST_CALLED = 200
_ENDS = re.compile(r"(?<![\w.>:])(?:(?:\bstd\s*)?::\s*)?\b(exit|_exit|_Exit|quick_exit|abort)\s*\(")


def default_stream_work(
    body: str, streams: Container[str] = (), hidden: Container[str] = (), *, most: int = _MOST, is_file: bool = False
) -> Iterator[tuple[int, str]]:
    """Find the launches, copies and library calls of a body that certainly run on CUDA's default stream.

    Parameters
    ----------
    body : str
        Code without comments and the contents of literals.
    streams, hidden : container of str
        Names of parameters that are streams, and of macros that may be a stream.
    most : int
        Limit for the calls that are examined.
    is_file : bool
        False to stop at the first wait for a stream.

    Yields
    ------
    tuple of int and str
        Place in the body, and a text for a message.

    Examples
    --------
    >>> list(default_stream_work("k<<<n, 256>>>(x); k<<<n, 256, 0, stream>>>(x); cudaMemset(x, 0, 4);"))
    [(0, 'k<<<n, 256>>>'), (47, 'cudaMemset')]
    """
    wait = None if is_file else _WAIT.search(body)
    for work in islice(_WORK.finditer(body, 0, wait.start() if wait else len(body)), most):
        begin, start = work.span()
        if work[0] == "<<<":
            close = body.find(">>>", start, start + _LONGEST)
            text = body[start:close]
            if close < 0 or ";" in text:
                continue
            name, arguments = work[0], _arguments(f"{text})", 0) if "(" in text or "{" in text else text.split(",")
        elif begin and body[begin - 1 : begin].isidentifier():
            continue
        else:
            name, arguments = _CALL.match(work[0])[0], _arguments(body, start)  # type: ignore[index]  # a name is first
        if name != "<<<" and begin and body[begin - 1] in ".>":  # a member
            continue
        if not _is_default(name, [argument.strip() for argument in arguments], "" if is_file else body, streams):
            continue
        if any(word in hidden for argument in arguments for word in _WORDS.findall(argument)):
            continue
        if name == "<<<" and (kernel := _NAME_BEFORE.search(body, max(0, begin - 100), begin)):
            begin = kernel.start()
        yield begin, " ".join(body[begin : close + 3].split()) if name == "<<<" else name


def _is_default(name: str, arguments: Sequence[str], body: str, streams: Container[str]) -> bool:
    """Return whether a call certainly runs on the default stream."""
    if name in _BEFORE_STREAM:
        before = _BEFORE_STREAM[name]
        given = _CAST.sub("", (arguments[before : before + 1] or ["0"])[0]).strip("(){} ") or "0"
        return len(arguments) >= before - (name == "<<<" or "Launch" in name) and given in _DEFAULT_STREAMS
    if name.startswith("cudaMem"):
        return not name.endswith("Async")
    if name.startswith("thrust::"):  # without a policy, the iterators determine where the work runs
        return bool(arguments) and _THRUST_DEFAULT.match(arguments[0]) is not None
    return (
        len(arguments) > 1
        and not _asks_for_size(name, arguments[0], body)
        and not any(
            argument in streams or _PASSES.search(argument) or _is_stream(argument, body, streams)
            for argument in arguments[2:]
        )
    )


def _asks_for_size(name: str, storage: str, body: str) -> bool:
    """Return whether a call of CUB may only compute the size of its storage: the storage is or may be null."""
    if _NULL.search(storage):
        return True
    is_null = re.search(
        rf"\b{re.escape(storage)}\s*(?:=\s*(?:\([^()]*\)\s*)?(?:nullptr|NULL|0)\b|\{{\s*(?:nullptr)?\s*\}})", body
    )
    return is_null is not None and body.count(f"{name}(") > 1


def _is_stream(name: str, body: str, streams: Container[str]) -> bool:
    """Return whether a body defines a stream variable of this name."""
    if not name.isidentifier():
        return False
    defined = re.search(rf"\bcudaStream_t\s+{name}\b|\b{name}\s*=[^;=]*\bcudaStream_t\b", body)
    copied = re.search(rf"\b{name}\s*(?:=|\{{|\()\s*(\w+)\s*[;)}}]", body)
    return defined is not None or (copied is not None and copied[1] in streams)


def process_ends(body: str) -> Iterator[tuple[int, str]]:
    """Find the calls of a body that end the process; see `default_stream_work` for the values.

    Examples
    --------
    >>> list(process_ends("if (bad) std::exit(1); job.abort(); Pool::exit();"))
    [(14, 'exit')]
    """
    for match in islice(_ENDS.finditer(body), _MOST):
        yield match.start(1), match[1]


def words(body: str) -> frozenset[str]:
    """Return the names and numbers in a body."""
    return frozenset(_WORDS.findall(body))


def called_names(body: str) -> tuple[str, ...]:
    """List the names before parentheses in a body: functions, macros and keywords."""
    names = dict.fromkeys(match[1] for match in islice(_CALLED.finditer(body), _MOST_CALLED))
    return tuple(names)


def _arguments(text: str, start: int) -> list[str]:
    """Split the arguments of a call after its opening parenthesis; return none if they are too long."""
    found, depth, begin = [], 0, start
    for position in range(start, min(len(text), start + _LONGEST)):
        char = text[position]
        if depth == 0 and char in ",)":
            found.append(text[begin:position])
            begin = position + 1
            if char == ")":
                return found
        depth += (char in OPENING) - (char in CLOSING)
    return []
