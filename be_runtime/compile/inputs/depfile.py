r"""Parser of depfiles: the files that a compiler read, in the make rule that it wrote.

The format is that of GNU make's rules as gcc, clang and nvcc write them: ``target: file file \`` with spaces escaped by
a backslash, backslashes before them doubled, ``#`` escaped by a backslash and ``$`` doubled. Only spaces separate
words, not tabs or Unicode's other spaces.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"(?:\\[\s\S]|\$\$|[^ \\])+")
_ESCAPE = re.compile(r"((?:\\\\)*)\\([ \t])|\\([#:])|\$(\$)")


def parse_depfile(text: str) -> tuple[str, ...]:
    r"""Return the prerequisites of every rule, in order, each once.

    Parameters
    ----------
    text : str
        A depfile.

    Examples
    --------
    >>> parse_depfile("k.o: k.cu \\\n /opt/my\\ dir/a.h\nk.o: k.cu b.h\n")
    ('k.cu', '/opt/my dir/a.h', 'b.h')
    """
    found: dict[str, None] = {}
    for rule in text.replace("\\\n", " ").split("\n"):
        words = _WORD.findall(rule)
        target = next((index for index, word in enumerate(words) if word.endswith(":")), None)
        if target is None:
            continue
        for word in words[target + 1 :]:
            found[_ESCAPE.sub(_plain, word)] = None
    return tuple(found)


def _plain(escaped: re.Match[str]) -> str:
    """Return the text that an escape stands for."""
    backslashes, blank, sign, dollar = escaped.groups()
    return backslashes[::2] + blank if blank else sign or dollar
