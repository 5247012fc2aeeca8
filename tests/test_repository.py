"""What holds for the repository as a whole and no linter checks."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import be_runtime
import be_toolchain

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("be_toolchain", "be_runtime")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
FOLDERS = ("benchmarks", "constraints", "docker", "docs", "recipe", "release")
PAGES = sorted(
    page
    for page in (*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")))
    if "generated" not in page.parts  # what the site is made from, see docs/extensions/repository_pages.py
)
PYPROJECT = (ROOT / "pyproject.toml").read_text()
# All others get what they need from it as arguments: process makes the settings, execute hands it to ninja, and system
# is a port.
READERS_OF_ENVIRON = {
    "be_runtime/frames.py",
    "be_runtime/load/process.py",
    "be_runtime/compile/run/execute.py",
    "be_toolchain/machine/local_system.py",
}
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
PATH = re.compile(r"(?<![\w./<-])(?:[\w.-]+/)*[\w.-]+\.(?:py|h|cc|c|sh|toml|hcl|md|yml)\b(?!/)|(?<=`)[\w./-]+/(?=`)")
"""A file, wherever the page names it, and a folder between backticks."""
QUESTION = re.compile(r"(What|Whether|How|Which|Why|Where|When|Who|Those|Such)\b")
UNFINISHED = re.compile("|".join(["NotImplemented" + "Error", "TO" + "DO", "FIX" + "ME", "XX" + "X"]))


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _reads_environ(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in {"environ", "getenv", "environb"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        for node in ast.walk(tree)
    )


def test_few_modules_read_the_environment():
    readers = {_name(path) for path in MODULES if _reads_environ(ast.parse(path.read_text()))}
    assert readers <= READERS_OF_ENVIRON


def test_tests_share_what_lies_in_support():
    texts = {_name(path): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    assert texts
    imported = re.compile(r"^\s*from tests\.[\w.]*\btest_\w+ import", re.MULTILINE)
    assert [name for name, text in texts.items() if imported.search(text)] == []


MOST_FILES = 14
SHARED_NAMES = {"__init__", "errors", "model"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_folder_holds_few_files_and_says_what_they_are(package: str):
    folders = Counter(path.parent for path in MODULES if path.is_relative_to(ROOT / package))
    assert folders
    assert {_name(folder): count for folder, count in folders.items() if count > MOST_FILES} == {}
    texts = {folder: ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) for folder in folders}
    assert [_name(folder) for folder, text in texts.items() if not text] == []
    assert [_name(folder) for folder in folders if folder.name == "build"] == [], "tools skip folders of this name"


@pytest.mark.parametrize("package", PACKAGES)
def test_a_files_name_occurs_once_in_a_package(package: str):
    names = Counter(path.stem for path in MODULES if path.is_relative_to(ROOT / package))
    assert {name for name, count in names.items() if count > 1} <= SHARED_NAMES


def test_a_public_class_has_a_name_of_its_own():
    classes = [
        node for path in MODULES for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]
    names = Counter(node.name for node in classes if not node.name.startswith("_"))
    assert names
    assert {name for name, count in names.items() if count > 1} == set()


def test_every_source_folder_is_a_package():
    missing = {_name(path.parent) for path in MODULES if not (path.parent / "__init__.py").is_file()}
    assert not missing


def test_both_packages_and_the_changelog_name_one_version():
    version = be_toolchain.__version__
    assert be_runtime.__version__ == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text()


def test_each_ignored_rule_has_its_reason():
    block = PYPROJECT.split("[tool.ruff.lint]")[1].split("[tool.ruff.lint.flake8-annotations]")[0]
    bare = [line for line in block.splitlines() if re.match(r'\s+"[A-Z]+\d*",', line) and "#" not in line]
    assert not bare


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_nothing_is_left_unfinished(path: Path):
    assert not UNFINISHED.findall(path.read_text())


def _docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """Each name with a docstring in a module, and the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{_name(path)}: {getattr(node, 'name', 'module')}", ast.get_docstring(node) or ""


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_begins_with_what_the_thing_is_or_does(package: str):
    modules = [path for path in MODULES if path.is_relative_to(ROOT / package)]
    texts = [(name, text) for path in modules for name, text in _docstrings(path)]
    assert texts
    failing = [f"{name}: {text.partition(chr(10))[0]}" for name, text in texts if QUESTION.match(text)]
    assert failing == [], "begin with a noun or an imperative verb:\n" + "\n".join(failing)


def _paths_of_the_architecture(text: str) -> set[Path | str]:
    """What a text names, below the package in the heading above it or below the root; a str for what is not there."""
    found: set[Path | str] = set()
    for section in re.split(r"^(?=##)", text, flags=re.MULTILINE):
        heading = section.partition("\n")[0]
        bases = [ROOT / base for base in re.findall(r"`(be_\w+)/`", heading)] + [ROOT]
        for name in PATH.findall(section):
            found.add(next((base / name for base in bases if (base / name).exists()), name))
    return found


def test_paths_in_the_architecture_lead_somewhere():
    paths = _paths_of_the_architecture(ARCHITECTURE)
    assert paths
    assert {path for path in paths if isinstance(path, str)} == set()


def test_each_module_is_in_a_row_of_the_architecture():
    rows = "\n".join(line for line in ARCHITECTURE.splitlines() if line.startswith(("|", "#")))
    modules = {path for path in MODULES if path.name != "__init__.py"}
    assert {_name(path) for path in modules - _paths_of_the_architecture(rows)} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_architecture_shows_each_folder_and_what_it_holds(package: str):
    """A line of the layout is the first sentence of the folder's docstring."""
    shown: dict[str, str] = {}
    above: list[str] = []
    for line in ARCHITECTURE.split("```")[1].splitlines():
        if match := re.fullmatch(r"( *)([\w]+)/ +(.+)", line):
            above = [*above[: len(match[1]) // 2], match[2]]
            shown["/".join(above)] = match[3]
    folders = {path.parent for path in MODULES if path.is_relative_to(ROOT / package)}
    texts = {_name(each): ast.get_docstring(ast.parse((each / "__init__.py").read_text())) or "" for each in folders}
    said = {name: re.split(r"\. (?=Imports)|\n", text)[0].rstrip(".") + "." for name, text in texts.items()}
    assert {name: shown.get(name) for name in said} == said
    beside = {name for name in shown if name.startswith(f"{package}/")} - set(said)
    assert [name for name in beside if not (ROOT / name).is_dir()] == []


def test_the_architecture_shows_the_layers_that_are_enforced():
    contracts = tomllib.loads(PYPROJECT)["tool"]["importlinter"]["contracts"]
    enforced = [f"{each['containers'][0]} {' → '.join(each['layers'])}" for each in contracts if "layers" in each]
    assert enforced
    assert " ".join(ARCHITECTURE.split("```")[3].split()) == " ".join(enforced)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_between_pages_lead_somewhere(page: Path):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)  # C++ has lambdas
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", text)
    assert not [target for target in targets if not (page.parent / target).exists()]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_make_targets_that_pages_name_exist(page: Path):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ((?!\w+ )[a-z-]+)`", page.read_text())) <= targets


def test_each_folder_of_tests_is_a_tier():
    folders = {path.parent.relative_to(ROOT / "tests").parts[0] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    assert folders <= {"unit", "compile", "faults", "cuda", "gpu", "packaging"}


def test_ci_runs_make_test():
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test"
