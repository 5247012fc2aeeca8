r"""Which files a compiler read, from the make rule that it wrote.

The format is that of GNU make's rules as gcc, clang and nvcc write them: ``target: file file \`` with spaces escaped by
a backslash, ``#`` by a backslash and ``$`` doubled.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"(?:\\[\s\S]|\$\$|[^\s\\])+")
_ESCAPE = re.compile(r"\\([ #\\:])|\$(\$)")


def parse_depfile(text: str) -> tuple[str, ...]:
    r"""The prerequisites of every rule, in order, each once.

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
    for rule in text.replace("\\\r\n", " ").replace("\\\n", " ").splitlines():
        words = _WORD.findall(rule)
        target = next((index for index, word in enumerate(words) if word.endswith(":")), None)
        if target is None:
            continue
        for word in words[target + 1 :]:
            found[_ESCAPE.sub(lambda match: match[1] or match[2], word)] = None
    return tuple(found)
