"""Checks the prose of the pages: words to leave out, repeated words, long sentences. ``python -m docs.words.prose``."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONGEST = 60
"""The most words of a sentence."""

CODE = re.compile(
    r"^(`{3,}).*?^\1`*$|^:{3,}[^\n]*$|\A---\n.*?^---$|`[^`\n]*`|\]\([^)\n]*\)|<[^>\n]*>", re.MULTILINE | re.DOTALL
)


def blank(text: str) -> str:
    """Replace code, the targets of links and the head of a notebook, so that lines stay where they are.

    Examples
    --------
    >>> blank("call `f` as [here](x.md)")
    'call . as [here.'
    """
    return CODE.sub(lambda match: "\n" * match[0].count("\n") or ".", text)


def check(text: str, instead: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield the line and the problem of each finding in a page.

    Examples
    --------
    >>> list(check("We utilize the the cache.", {"utilize": "use"}))
    [(1, "'utilize': write 'use'"), (1, "'the' is there twice")]
    """
    prose = blank(text)
    for words, better in instead.items():
        for match in re.finditer(rf"(?<![\w-]){re.escape(words)}(?![\w-])", prose, re.IGNORECASE):
            advice = f"write '{better}'" if better else "leave it out"
            yield _line(prose, match), f"{match[0]!r}: {advice}"
    for match in re.finditer(r"\b([A-Za-z]+)(?: +|\n)\1\b", prose):
        yield _line(prose, match), f"{match[1]!r} is there twice"
    for match in re.finditer(r"(?<=[.!?:]\s)[A-Z][^.!?:|]+(?=[.!?:])", prose):
        if len(match[0].split()) > LONGEST:
            yield _line(prose, match), f"a sentence of {len(match[0].split())} words: {match[0][:40]}..."


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start()) + 1


def main() -> int:
    """Check every page of the repository, and say what was found."""
    instead = tomllib.loads((HERE / "prose.toml").read_text(encoding="utf-8"))["instead"]
    below = (page for page in ROOT.glob("*/**/*.md") if "." not in page.relative_to(ROOT).parts[0])
    pages = [*ROOT.glob("*.md"), *below]
    found = 0
    for page in sorted(pages):
        if not {"generated", "build"} & set(page.relative_to(ROOT).parts):
            for line, problem in sorted(check(page.read_text(encoding="utf-8"), instead)):
                print(f"{page.relative_to(ROOT)}:{line}: {problem}")
                found += 1
    return min(found, 1)


if __name__ == "__main__":
    sys.exit(main())
