"""Cache keys of fields with labels and lengths, which can't collide for different inputs and can be compared. Pure."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from posixpath import commonprefix

_FORMAT = b"be-cache-key-1"
_TEXT, _BYTES, _ITEMS = b"s", b"b", b"l"
_LONGEST_SHOWN, _LONGEST_ITEM, _LONGEST_LINE = 80, 100, 300


class CacheKey:
    """The inputs of a build that are known before it starts.

    Parameters
    ----------
    kind : str
        Kind of the cached data. Keys of different kinds never share an entry.
    fields : tuple of (str, bytes)
        Labels and encoded values, as `make_key` writes them.

    Attributes
    ----------
    digest : str
        SHA-256, 64 hexadecimal digits, over the length-framed kind, labels and values.

    Examples
    --------
    >>> old = make_key("module", ("name", "add"), ("flags", ("-O2", "-g")))
    >>> new = make_key("module", ("name", "add"), ("flags", ("-O3", "-g")))
    >>> old.digest == new.digest
    False
    >>> old.explain(new)
    ("flags: removed '-O2'; added '-O3'",)
    """

    __slots__ = ("digest", "fields", "kind")

    def __init__(self, kind: str, fields: tuple[tuple[str, bytes], ...]) -> None:
        labels = [label for label, _ in fields]
        for text in (kind, *labels):
            _require_label(text)
        if len(set(labels)) != len(labels):
            twice = next(label for label, after in itertools.pairwise(sorted(labels)) if label == after)
            raise ValueError(f"the cache key has the field {twice!r} twice")
        parts = [_FORMAT, kind.encode()]
        for label, value in fields:
            parts += (label.encode(), value)
        self.kind, self.fields = kind, fields
        self.digest = hashlib.sha256(_frame(parts)).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CacheKey) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"CacheKey(kind={self.kind!r}, name={self.name!r}, digest={self.digest!r})"

    @property
    def name(self) -> str:
        """Text of the field ``name``, which names the key's module; empty without that field."""
        value = dict(self.fields).get("name", b"")
        return value[1:].decode("utf-8", "replace") if value[:1] == _TEXT else ""

    def texts(self, label: str) -> tuple[str, ...]:
        """Return the text or texts of a field; an empty tuple if the key has no such field, or the field is no text."""
        found = _decode(dict(self.fields).get(label, b""))
        return (found,) if isinstance(found, str) else found or ()

    def with_texts(self, texts: Mapping[str, Sequence[str]]) -> CacheKey:
        """Return a key with other texts, by the labels of its fields; fields that are no text remain."""
        fields = []
        for label, value in self.fields:
            found = _decode(value)
            new = texts[label][0] if isinstance(found, str) else list(texts[label])
            fields.append((label, value if found is None else _encode(label, new)))
        return CacheKey(self.kind, tuple(fields))

    def explain(self, other: CacheKey) -> tuple[str, ...]:
        """Describe the changes from this key to `other`, one line per field, which begins with the field's label."""
        here, there = dict(self.fields), dict(other.fields)
        lines = [] if self.kind == other.kind else [f"kind: {self.kind!r} -> {other.kind!r}"]
        for label in (*here, *(label for label in there if label not in here)):
            if label not in there:
                lines.append(f"{label}: removed {_shown(here[label])}")
            elif label not in here:
                lines.append(f"{label}: added {_shown(there[label])}")
            elif here[label] != there[label]:
                lines.append(f"{label}: {_changed(here[label], there[label])}")
        return tuple(_cut(line, _LONGEST_LINE) for line in lines)

    def to_json(self) -> str:
        """Return the whole key as JSON, with text left readable; `from_json` is its inverse."""
        rows = [{"label": label, **_to_document(value)} for label, value in self.fields]
        return json.dumps({"kind": self.kind, "fields": rows}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> CacheKey:
        """Parse the text of `to_json`.

        Raises
        ------
        ValueError
            The text is not such a key.
        """
        try:
            document = json.loads(text)
            fields = tuple((row["label"], _from_document(row)) for row in document["fields"])
            return cls(document["kind"], fields)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not a cache key: {error!r}") from error


def make_key(kind: str, *fields: tuple[str, str | bytes | Sequence[str]]) -> CacheKey:
    """Make a key from labeled values; the order of the fields does not matter.

    Parameters
    ----------
    kind : str
        Kind of the cached data, such as ``"module"``.
    *fields : tuple of (str, str or bytes or list or tuple of str)
        A label and its value. The field ``name`` names the module for listing and clearing.
        ``"a"``, ``b"a"`` and ``("a",)`` are three different values.

    Raises
    ------
    TypeError
        A value has another type, such as None, a number, a path or a set.
    ValueError
        A label is empty, not printable, or given twice.
    """
    return CacheKey(kind, tuple(sorted((label, _encode(label, value)) for label, value in fields)))


def _require_label(text: str) -> None:
    """Check a label or kind, which messages show, and which has the same bytes in every encoding."""
    if not isinstance(text, str):
        raise TypeError(f"a cache key's labels are str, not {type(text).__name__}")
    if not text or not text.isprintable():
        raise ValueError(f"a cache key's labels are printable and not empty: {text!r}")


def _frame(parts: Sequence[bytes]) -> bytes:
    """Join the parts, each after its length, so that the bytes can be split in only one way."""
    return b"".join([len(part).to_bytes(8, "little") + part for part in parts])


def _unframe(data: bytes) -> Iterator[bytes]:
    """Split the bytes that `_frame` joined; raise ValueError for other data."""
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at : at + 8], "little")
        if end > len(data) or at + 8 > len(data):
            raise ValueError("a frame is longer than its data")
        yield data[at + 8 : end]
        at = end


def _encode(label: str, value: object) -> bytes:
    """Encode a value as a tag for its type, followed by its content."""
    if isinstance(value, str):
        return _TEXT + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes):
        return _BYTES + value
    if isinstance(value, tuple | list) and all(isinstance(item, str) for item in value):
        return _ITEMS + _frame([item.encode("utf-8", "surrogatepass") for item in value])
    raise TypeError(
        f"the cache key's field {label!r} is {value!r}: only str, bytes and lists of str can be observed exactly"
    )


def _decode(value: bytes) -> str | tuple[str, ...] | None:
    """Return the text or texts in an encoded value; None if they would not encode back to the same bytes."""
    try:
        if value[:1] == _TEXT:
            return value[1:].decode("utf-8")
        if value[:1] == _ITEMS:
            return tuple(part.decode("utf-8") for part in _unframe(value[1:]))
    except ValueError:
        return None
    return None


def _to_document(value: bytes) -> dict[str, object]:
    """Return an encoded value as a JSON object, readable if it is text."""
    plain = _decode(value)
    if plain is None:
        return {"hex": value.hex()}
    return {"text": plain} if isinstance(plain, str) else {"items": plain}


def _from_document(row: dict[str, object]) -> bytes:
    """Return the encoded value of a JSON object; the inverse of `_to_document`."""
    if "hex" in row:
        return bytes.fromhex(str(row["hex"]))
    return _encode(str(row["label"]), row["text"] if "text" in row else row["items"])


def _shown(value: bytes) -> str:
    """Format a value for a message, in full if it is short, otherwise as its size and the start of its hash."""
    plain = _decode(value)
    text = repr(plain) if plain is not None else repr(value[1:])
    if len(text) <= _LONGEST_SHOWN:
        return text
    return f"<{len(value) - 1} bytes, sha256 {hashlib.sha256(value).hexdigest()[:12]}>"


def _changed(old: bytes, new: bytes) -> str:
    """Describe the difference between two values of one field."""
    here, there = _decode(old), _decode(new)
    if isinstance(here, tuple) and isinstance(there, tuple):
        return _changed_texts(here, there) or _changed_items(here, there) or f"{_shown(old)} -> {_shown(new)}"
    if isinstance(here, str) and isinstance(there, str) and ("\n" in here or "\n" in there):
        return _changed_line(here, there)
    return f"{_shown(old)} -> {_shown(new)}"


def _changed_items(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """Describe the items that only one of the lists has; empty if only their order or number differs."""
    before, after = set(old), set(new)
    gone = [f"removed {_cut(repr(item), _LONGEST_ITEM)}" for item in old if item not in after]
    come = [f"added {_cut(repr(item), _LONGEST_ITEM)}" for item in new if item not in before]
    return "; ".join(gone + come)


def _changed_texts(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    """Compare lists of the names and texts of files item by item; return an empty text for other lists."""
    at_differences = [at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]]
    if len(old) != len(new) or not any("\n" in old[at] + new[at] for at in at_differences):
        return ""
    parts = []
    for at in at_differences:
        if "\n" in old[at] + new[at]:
            file = next((text for text in reversed(new[:at]) if text and "\n" not in text), "")
            parts.append(f"{file}: {_changed_line(old[at], new[at])}" if file else _changed_line(old[at], new[at]))
        else:
            parts.append(" -> ".join(_cut(repr(items[at]), _LONGEST_ITEM) for items in (old, new)))
    return "; ".join(parts)


def _changed_line(old: str, new: str) -> str:
    """Describe the first line that differs."""
    here, there = old.split("\n"), new.split("\n")
    at = next((i for i, pair in enumerate(zip(here, there, strict=False)) if pair[0] != pair[1]), None)
    if at is None:
        at = min(len(here), len(there))
    shown = [text[at].strip() if at < len(text) else None for text in (here, there)]
    start = max(len(commonprefix([line or "" for line in shown])) - _LONGEST_SHOWN // 2, 0)
    lines = ("its end" if line is None else _cut(repr(line), _LONGEST_ITEM, start) for line in shown)
    return f"line {at + 1}: " + " -> ".join(lines)


def _cut(text: str, most: int, start: int = 0) -> str:
    """Shorten a text to `most` characters; a text that is too long is shown from `start` on."""
    if len(text) <= most:
        return text
    text = f"…{text[start:]}" if start else text
    return text if len(text) <= most else f"{text[: most - 1]}…"
