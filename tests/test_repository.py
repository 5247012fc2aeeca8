"""What holds for the repository as a whole and no linter checks."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from pathlib import Path

import be_runtime
import be_toolchain
from tests.conftest import TIERS

ROOT = Path(__file__).resolve().parent.parent
_CODE = (path for package in ("be_toolchain", "be_runtime") for path in (ROOT / package).rglob("*.py"))
MODULES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in _CODE}
FOLDERS = ("benchmarks", "constraints", "docker", "docs", "recipe", "release")
PAGES = {
    page: page.read_text()
    for page in (*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md")))
    if "generated" not in page.parts  # what the site is made from, see docs/extensions/repository_pages.py
}
# All others get what they need from it as arguments: process makes the settings, execute hands it to ninja, and system
# is a port.
READERS_OF_ENVIRON = {
    *("be_runtime/load/process.py", "be_runtime/compile/execute.py", "be_toolchain/machine/local_system.py"),
}
PATH = re.compile(r"(?<![\w./<-])(?:[\w.-]+/)*[\w.-]+\.(?:py|h|cc|c|sh|toml|hcl|md|yml)\b(?!/)|(?<=`)[\w./-]+/(?=`)")
"""A file, wherever the page names it, and a folder between backticks."""
UNFINISHED = re.compile("|".join(["NotImplemented" + "Error", "TO" + "DO", "FIX" + "ME", "XX" + "X"]))


def _reads_environ(node: ast.AST) -> bool:
    is_of_os = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    return is_of_os and getattr(node, "attr", "") in {"environ", "getenv", "environb"}


def test_few_modules_read_the_environment():
    readers = {
        name for name, text in MODULES.items() if any(_reads_environ(node) for node in ast.walk(ast.parse(text)))
    }
    assert readers == READERS_OF_ENVIRON


def test_a_wheel_has_every_source_folder():
    folders = {(ROOT / name).parent for name in MODULES}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert [folder for folder in folders if folder.name == "build"] == [], "tools skip folders of this name"


def test_both_packages_and_the_changelog_name_one_version():
    assert be_runtime.__version__ == be_toolchain.__version__
    assert f"## [{be_toolchain.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_is_left_unfinished():
    assert [name for name, text in MODULES.items() if UNFINISHED.search(text)] == []


def test_the_architecture_names_paths_that_exist_and_the_layers_that_are_enforced():
    architecture = PAGES[ROOT / "ARCHITECTURE.md"]
    for section in re.split(r"^(?=##)", architecture, flags=re.MULTILINE):
        bases = [ROOT, *(ROOT / name for name in re.findall(r"`(be_\w+)/`", section.partition("\n")[0]))]
        paths = PATH.findall(section)
        assert [path for path in paths if not any((base / path).exists() for base in bases)] == []
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    enforced = [f"{each['containers'][0]} {' → '.join(each['layers'])}" for each in contracts if "layers" in each]
    assert " ".join(architecture.split("```")[3].split()) == " ".join(enforced)


def test_links_between_pages_and_the_make_targets_that_they_name_lead_somewhere():
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page, text in PAGES.items():
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)  # C++ has lambdas
        links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", prose)
        assert [link for link in links if not (page.parent / link).exists()] == [], page
        assert set(re.findall(r"\bmake ((?!\w+ )[a-z-]+)`", text)) <= known, page


def test_each_folder_of_tests_is_a_tier_and_ci_runs_them():
    tests = ROOT / "tests"
    assert {path.relative_to(tests).parts[0] for path in tests.glob("*/**/test_*.py")} == {*TIERS}
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "exec make test"


def test_what_only_make_test_full_runs_is_listed():
    listed = tuple(re.findall(r"^\| `(tests/[^`]+)`", PAGES[ROOT / "docs" / "contributing.md"], re.MULTILINE))
    marked = re.compile(r"mark\.full|in_full\(|^@longer|first_of\(", re.MULTILINE)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    files = [name for name, text in texts.items() if marked.search(text)]
    assert files
    assert [name for name in files if not name.startswith((*listed, "tests/test_repository"))] == []
