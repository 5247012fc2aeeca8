"""Report of an exception that a kernel raised: the only Python code in a call, and only if there is an exception."""

from __future__ import annotations

import ctypes

MESSAGE_SIZE = 1024
"""Size in bytes of the native handler's message, including the final zero."""


def report(kind: type[BaseException], value: object, address: int) -> None:
    """Write an exception's name and text to the native handler's message.

    Parameters
    ----------
    kind : type
        Type of the exception.
    value : object
        The exception, or the arguments to construct it.
    address : int
        Address of `MESSAGE_SIZE` bytes.
    """
    message = message_of(kind, value)
    ctypes.memmove(address, message, len(message))


def message_of(kind: type[BaseException], value: object) -> bytes:
    """Return the message of an exception, at most `MESSAGE_SIZE` bytes with the final zero."""
    text = _text(kind, value).encode("utf-8", "replace").replace(b"\0", b" ")
    return text[: MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode() + b"\0"


def _text(kind: type[BaseException], value: object) -> str:
    if not isinstance(value, BaseException):
        arguments = value if isinstance(value, tuple) else () if value is None else (value,)
        value = kind(*arguments)
    try:
        shown = str(value)
    except Exception as error:  # noqa: BLE001 - it is the author's, and the one that it hides matters more
        shown = f"(its text can't be made: {type(error).__name__})"
    return f"{kind.__name__}: {shown}" if shown else kind.__name__
