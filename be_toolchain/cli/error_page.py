"""The page of errors, which lists each code's causes and remedies; it is installed with the package."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "errors.md"

_SECTION = re.compile(r"^## (\w+)\n+(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\(([\w-]+\.md)?[^)]*\)")


def read_sections(text: str) -> dict[str, str]:
    r"""Split a page into the sections of its codes; a link to a page is followed by the page's name.

    Examples
    --------
    >>> read_sections("# Errors\n\n## BE101\n\nSee [Calls](calling.md#shapes).\n")
    {'BE101': 'See Calls (docs/calling.md).'}
    """

    def plain(link: re.Match[str]) -> str:
        text, page = link.groups()
        return text if page is None else f"docs/{page}" if text == page else f"{text} (docs/{page})"

    return {code: _LINK.sub(plain, section).strip() for code, section in _SECTION.findall(text)}


def titles() -> dict[str, str]:
    """Return the first line of each code's section: the error's name, and when it is raised."""
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    return {code: text.partition("\n")[0].replace("`", "") for code, text in sections.items()}


def list_titles() -> str:
    """Return all codes with their titles, a line each."""
    return "\n".join(f"{code}  {title}" for code, title in titles().items())


def explain(code: str) -> str:
    """Return the causes and remedies of a code.

    Parameters
    ----------
    code : str
        As an error says it, such as ``BE301``, in letters of either case.

    Raises
    ------
    ValueError
        No error has that code; the message lists those that have one.
    """
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    if code.upper() not in sections:
        raise ValueError(f"no error has the code {code!r}; there are {', '.join(sections)}")
    return sections[code.upper()]
