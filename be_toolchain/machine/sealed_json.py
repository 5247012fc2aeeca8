"""JSON objects that begin with a checksum of all the rest of their text, so that no damage reads as content. Pure."""

from __future__ import annotations

import json
from binascii import crc32
from typing import Any

_HEAD = b'{"crc32":"%08x",'
_HEAD_BYTES = len(_HEAD % 0)


def seal(document: dict[str, Any]) -> str:
    """Write an object as JSON, with its checksum.

    Examples
    --------
    >>> seal({"a": 1})
    '{"crc32":"94da56a3","a":1}'
    """
    rest = json.dumps(document, separators=(",", ":"))[1:]
    return (_HEAD % crc32(rest.encode())).decode() + rest


def unseal(text: str | bytes) -> Any:
    """Read what `seal` wrote.

    Raises
    ------
    ValueError
        The text is damaged.

    Examples
    --------
    >>> unseal(seal({"a": 1}))
    {'a': 1}
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    rest = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _HEAD % crc32(rest):
        raise ValueError("the text is damaged: it has another checksum")
    return json.loads(b"{" + rest)
