"""Checks pages, docstrings and messages by the rules of `docs/style-guide.md`. ``python -m docs.words.prose``.

``--proselint`` runs the checks of proselint that `prose.toml` does not leave out, which takes some seconds.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
LONGEST = 60
"""The maximum number of words in a sentence."""

CODE = re.compile(
    r"^(`{3,}).*?^\1`*$|^:{3,}[^\n]*$|\A---\n.*?^---$|^ *>>>.*?(?=\n *\n|\Z)|`+[^`\n]*`+|\]\([^)\n]*\)|<[^>\n]*>",
    re.MULTILINE | re.DOTALL,
)


class Text(NamedTuple):
    """A text to check.

    Parameters
    ----------
    kind : str
        ``"page"``, ``"docstring"``, ``"function"`` for the docstring of a function, or ``"message"``.
    file : Path
    line : int
        Line of the text's beginning.
    text : str
    """

    kind: str
    file: Path
    line: int
    text: str


class Rule(NamedTuple):
    """A rule of the style guide, as far as a pattern can hold it.

    Parameters
    ----------
    number : int
        Number in the style guide; 0 for words to leave out.
    pattern : re.Pattern
    advice : str
    kinds : frozenset of str
        Kinds of texts that the rule is for; none for all.
    """

    number: int
    pattern: re.Pattern[str]
    advice: str
    kinds: frozenset[str] = frozenset()


def read_rules(text: str) -> list[Rule]:
    r"""Parse the rules of `prose.toml`.

    Examples
    --------
    >>> [rule.advice for rule in read_rules("[instead]\nutilize = 'use'\n")]
    ["write 'use'"]
    """
    table = tomllib.loads(text)
    rules = [
        Rule(0, re.compile(rf"(?<![\w-]){re.escape(words)}(?![\w-])", re.IGNORECASE), _advice(better))
        for words, better in table["instead"].items()
    ]
    for row in table.get("rules", ()):
        pattern = re.compile(row["pattern"], re.MULTILINE)
        rules.append(Rule(row["rule"], pattern, row["advice"], frozenset(row.get("of", ()))))
    return rules


def _advice(better: str) -> str:
    return f"write '{better}'" if better else "leave it out"


def blank(text: str) -> str:
    """Replace code, the targets of links and the head of a notebook, so that lines stay where they are.

    Examples
    --------
    >>> blank("call `f` as [here](x.md)")
    'call . as [here.'
    """
    return CODE.sub(lambda match: "\n" * match[0].count("\n") or ".", text)


def check(text: Text, rules: list[Rule]) -> Iterator[tuple[int, str]]:
    r"""Yield the line and the problem of each finding in a text.

    Examples
    --------
    >>> page = Text("page", Path("x.md"), 1, "We utilize the the cache.")
    >>> list(check(page, read_rules("[instead]\nutilize = 'use'\n")))
    [(1, "'utilize': write 'use'"), (1, "'the' is there twice")]
    """
    prose = blank(text.text)

    def line(match: re.Match[str]) -> int:
        return text.line + prose.count("\n", 0, match.start())

    for rule in rules:
        if not rule.kinds or text.kind in rule.kinds:
            for match in rule.pattern.finditer(prose):
                number = f" (rule {rule.number})" if rule.number else ""
                yield line(match), f"{match[0].strip()!r}: {rule.advice}{number}"
    for match in re.finditer(r"\b(?!long\b)([A-Za-z]+)(?: +|\n)\1\b", prose):  # C++ has a long long
        yield line(match), f"{match[1]!r} is there twice"
    for match in re.finditer(r"(?<=[.!?:]\s)[A-Z][^.!?:|]+(?=[.!?:])", prose):
        if len(match[0].split()) > LONGEST:
            yield line(match), f"a sentence of {len(match[0].split())} words: {match[0][:40]}..."


def read_pages() -> Iterator[Text]:
    """Yield the pages of the repository."""
    below = (page for page in ROOT.glob("*/**/*.md") if "." not in page.relative_to(ROOT).parts[0])
    for page in sorted((*ROOT.glob("*.md"), *below)):
        if not {"generated", "build"} & set(page.relative_to(ROOT).parts) and not page.is_symlink():
            yield Text("page", page, 1, page.read_text(encoding="utf-8"))


def read_code() -> Iterator[Text]:
    """Yield the docstrings and the messages of both packages."""
    for package in ("be_toolchain", "be_runtime"):
        for file in sorted((ROOT / package).rglob("*.py")):
            yield from read_module(file, file.read_text(encoding="utf-8"))


def read_module(file: Path, source: str) -> Iterator[Text]:
    r"""Yield the docstrings and the messages of a module; a message has three words or more.

    Examples
    --------
    >>> found = read_module(Path("x.py"), 'def f():\n    "Return one."\n    raise E(f"the {name} is not there")')
    >>> [(text.kind, text.text) for text in found]
    [('function', 'Return one.'), ('message', 'the . is not there')]
    """
    waiting: list[ast.AST] = [ast.parse(source)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Constant | ast.JoinedStr):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "." for part in parts)
            if len(text.split()) > 2:
                yield Text("message", file, node.lineno, text)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield Text("docstring", file, node.lineno, node.value.value)
        else:
            children = list(ast.iter_child_nodes(node))
            if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and not node.decorator_list:
                doc = node.body[0]
                children.remove(doc)
                yield Text("function", file, doc.lineno, ast.get_docstring(node, clean=False) or "")
            waiting.extend(reversed(children))


def proselint_problems(text: Text, left_out: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the findings of proselint in a text, without the checks that are left out."""
    from proselint.tools import LintFile

    for found in LintFile(text.file, content=blank(text.text)).lint():
        if not found.check_result.check_path.startswith(tuple(left_out)):
            yield text.line + found.pos[0] - 1, f"{found.check_result.message} ({found.check_result.check_path})"


def main(arguments: list[str]) -> int:
    """Check pages, docstrings and messages, and print the findings."""
    settings = (HERE / "prose.toml").read_text(encoding="utf-8")
    table = tomllib.loads(settings)
    texts = [*read_pages(), *read_code()]
    if "--proselint" in arguments:
        from proselint.checks import __register__
        from proselint.registry import CheckRegistry

        CheckRegistry().register_many(__register__)
        left_out = table["proselint"]["left_out"]
        problems = [(text.file, *each) for text in texts for each in proselint_problems(text, left_out)]
    else:
        rules = read_rules(settings)
        problems = [(text.file, *each) for text in texts for each in check(text, rules)]
    for file, line, problem in sorted(problems):
        print(f"{file.relative_to(ROOT)}:{line}: {problem}")
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
