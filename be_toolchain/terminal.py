"""Output for people and programs: exit codes, and escapes that make any text safe for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

WORKS, NO_CUDA, NO_CXX, INTERNAL = 0, 1, 2, 3
"""Everything works; CUDA code can't be built; C++ code can't be built; internal error."""

USAGE_ERROR = 64
"""The arguments are invalid (``EX_USAGE``)."""

NOT_WRITTEN = 74
"""The output can't be written, as on a full disk (``EX_IOERR``)."""

INTERRUPTED_BY_USER, READER_GONE = 130, 141
"""Ctrl-C was pressed; the reader of the output, such as ``head``, has ended. Shells use these codes for signals."""


_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_UNDECODED = range(0xDC80, 0xDCA0)  # bytes that are no UTF-8, and controls on terminals of eight bits
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))

_ESCAPES = {code: f"\\x{code:02x}" for code in _CONTROLS}
_ESCAPES |= {code: f"\\u{code:04x}" for code in (*_BIDI, *_SEPARATORS)}
_ESCAPES |= {code: f"\\x{code - 0xDC00:02x}" for code in _UNDECODED}
_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    r"""Escape control characters, and characters that reorder others; line ends and tabs stay.

    Examples
    --------
    >>> print(printable("\x1b]0;title\x07 of \x9b2J"))
    \x1b]0;title\x07 of \x9b2J
    """
    return text if text.isprintable() else _encodable(text.replace("\r\n", "\n").translate(_IN_LINES))


def printable_line(text: str) -> str:
    r"""Escape as `printable` does, and also line ends and tabs.

    Examples
    --------
    >>> print(printable_line("a\nb"))
    a\x0ab
    """
    return text if text.isprintable() else _encodable(text.translate(_ESCAPES))


def _encodable(text: str) -> str:
    """Escape surrogates, which JSON may contain and no stream accepts."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns of rows; the first row has the headings.

    Examples
    --------
    >>> print(table([("name", "size"), ("negation", "1 KiB")]))
    name      size
    negation  1 KiB
    """
    shown = [[printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)
    return "\n".join(line.rstrip() for line in lines)


def shown_url(text: str) -> str:
    """Return the parts of a URL that are not secret; only the scheme if the URL can't be split reliably.

    Examples
    --------
    >>> shown_url("https://ci:secret@cache.example.org/kernels")
    'https://...@cache.example.org/kernels'
    >>> shown_url("https://cache.example.org/kernels?sig=secret")
    'https://cache.example.org/kernels?...'
    >>> shown_url("https://ci:sec?ret@cache.example.org"), shown_url("https://ci:sec/ret@cache.example.org")
    ('https://...', 'https://...')
    """
    import re

    if "://" not in text:
        return "..." if "@" in text else re.sub(r"([?#]).+", r"\1...", text, flags=re.DOTALL)
    server = r"((?:[^/?#@:\[\]]*|\[[\da-fA-F:.]*\])(?::\d{0,5})?)"
    split = re.fullmatch(rf"([\w+.-]*://)([^/?#]*@)?{server}((?:/[^?#@]*)?)([?#][^@]*)?", text)
    if split is None:  # such as a password with a sign that ends the server's name
        scheme = re.match(r"[\w+.-]*://", text)
        return f"{scheme[0] if scheme else ''}..."
    begins, user, server, path, more = split.groups()
    return f"{begins}{'...@' if user else ''}{server}{path}{f'{more[0]}...' if more else ''}"


def url_secrets(text: str) -> tuple[str, ...]:
    """List the forms in which a server receives the credentials of a URL, to remove them from quoted answers.

    Examples
    --------
    >>> url_secrets("https://ci:a%20b@cache.example.org"), url_secrets("https://cache.example.org")
    (('Y2k6YSBi', 'ci:a b', 'a%20b', 'a b'), ())
    """
    import base64
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(text)
    except ValueError:
        return ()
    secret = parts.password or parts.username or ""  # a token alone stands for both
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    encoded = base64.b64encode(user.encode("utf-8", "surrogatepass")).decode().rstrip("=")
    return tuple(dict.fromkeys((encoded, user, secret, unquote(secret)))) if secret else ()


def shown_key(text: str) -> str:
    """Return the name of a file with a key; if the text is itself a private key, return only its kind.

    Examples
    --------
    >>> shown_key("~/be-cache.key"), shown_key("private-ed25519:c2VjcmV0")
    ('~/be-cache.key', 'private-ed25519:...')
    """
    kind, mark, _ = text.partition(":")
    return f"{kind}:..." if mark and kind.startswith("private-") else text


def say(text: object, file: TextIO | None = None) -> None:
    """Print a text for people."""
    print(f"{printable(str(text))}\n", end="", file=file)  # one call, since other threads may print, too


def say_error(text: object) -> None:
    """Print an error to standard error; on a terminal, it begins in red."""
    import sys

    if not sys.stderr.isatty():
        say(f"error: {text}", sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    Console(stderr=True).print(Text("error:", "bold red"), Text(printable(str(text))), soft_wrap=True)


def say_markdown(text: str) -> None:
    """Print Markdown: formatted and in color on a terminal, and wrapped elsewhere."""
    import sys

    if not sys.stdout.isatty():
        say(wrap_markdown(text))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(highlight=False).print(Markdown(text))


def wrap_markdown(text: str, width: int = 80) -> str:
    r"""Wrap the paragraphs and lists of Markdown, but not its tables and code.

    Examples
    --------
    >>> print(wrap_markdown("one two three\n- four five\n\n```\nsix  seven\n```", width=9))
    one two
    three
    - four
      five
    <BLANKLINE>
    ```
    six  seven
    ```
    """
    import re
    import textwrap

    kept = re.compile(r"(^```.*?^```\n*|^[|#][^\n]*\n*|\n{2,}|\n(?=- ))", re.MULTILINE | re.DOTALL)
    return "".join(
        part
        if place % 2
        else textwrap.fill(
            re.sub(r"\n +", "\n", part),
            width,
            subsequent_indent="  " * part.startswith("- "),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for place, part in enumerate(kept.split(text))
    )


def hand_over(text: str) -> None:
    """Print a text for programs unchanged; on a terminal, escape it."""
    import sys

    print(printable(text) if sys.stdout.isatty() else text)  # noqa: T201 - the same


def many(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    Examples
    --------
    >>> many(1, "entry", "entries"), many(0, "day")
    ('1 entry', '0 days')
    """
    return f"{count} {noun if count == 1 else plural or f'{noun}s'}"
