"""C++ literals. Pure."""

from __future__ import annotations


def c_string(text: str) -> str:
    r"""Write a C string literal for `text`, which may have quotes, control characters and non-ASCII characters.

    Examples
    --------
    >>> print(c_string('a "b"\n'))
    "a \"b\"\012"
    """
    escapes = {0x22: '\\"', 0x5C: "\\\\"}
    encoded = text.encode("utf-8", "surrogateescape")
    body = "".join(escapes.get(byte) or (chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}") for byte in encoded)
    return f'"{body}"'
