"""What holds for the repository as a whole and no linter checks."""

from __future__ import annotations

import ast
import itertools
import os
import re
from collections.abc import Iterable
from pathlib import Path

import be_runtime
import be_toolchain
from tests.conftest import TIERS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("be_toolchain", "be_runtime")
_CODE = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
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
    "be_toolchain/machine/files.py",  # is a mapping this process's?
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


def test_the_life_of_a_load_is_in_the_picture():
    module = ast.parse(MODULES["be_runtime/load/load.py"])
    load = next(each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == "load")
    called = sorted((node for node in ast.walk(load) if isinstance(node, ast.Call)), key=lambda call: call.lineno)
    names = [ast.unparse(call.func).removeprefix("obtain.") for call in called]
    functions = [name for name in names if name.isidentifier() and name.islower()]
    assert re.findall(r"^[├└]─ (\w+)", PAGES[ROOT / "ARCHITECTURE.md"], re.MULTILINE) == functions


def test_a_wheel_has_every_source_folder():
    folders = {(ROOT / name).parent for name in MODULES}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert [folder for folder in folders if folder.name == "build"] == [], "tools skip folders of this name"


def test_both_packages_and_the_changelog_name_one_version():
    assert be_runtime.__version__ == be_toolchain.__version__
    assert f"## [{be_toolchain.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_is_left_unfinished():
    assert [name for name, text in MODULES.items() if UNFINISHED.search(text)] == []


def test_the_architecture_names_paths_that_exist():
    paths = PATH.findall(PAGES[ROOT / "ARCHITECTURE.md"])
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _room(module: str) -> str:
    """Name the folder or root module that a module belongs to, as in ``be_runtime.load``."""
    return ".".join(module.split(".")[:2])


def _imported_rooms() -> set[tuple[str, str]]:
    """List the imports between rooms, as pairs. A room of the other package counts as that package."""
    names = {name: name.removesuffix(".py").replace("/", ".") for name in MODULES if not name.endswith("/__main__.py")}
    rooms = {_room(module) for module in names.values() if not module.endswith(".__init__")}
    found = set()
    for name, module in names.items():
        for node in ast.walk(ast.parse(MODULES[name])):
            match node:
                case ast.ImportFrom(module=str(base)):
                    imported = [f"{base}.{each.name}" for each in node.names]
                case ast.Import():
                    imported = [each.name for each in node.names]
                case _:
                    continue
            for each in map(_room, imported):
                package = each.partition(".")[0]
                found.add((_room(module), each if module.startswith(f"{package}.") else package))
    targets = {*rooms, *PACKAGES}
    return {(room, each) for room, each in found if room in rooms and each in targets and room != each}


def _drawn_arrows(page: str) -> list[tuple[str, str]]:
    """List the arrows of a page's only picture, as pairs; ``a --> b & c --> d`` are four."""
    (picture,) = re.findall(r"^```mermaid\nflowchart TD\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    chains = [[each.split(" & ") for each in line.strip().split(" --> ")] for line in picture.splitlines()]
    steps = [step for chain in chains for step in itertools.pairwise(chain)]
    return [arrow for step in steps for arrow in itertools.product(*step)]


def _reach(start: str, arrows: Iterable[tuple[str, str]]) -> set[str]:
    """Follow arrows, and return the rooms at their ends."""
    found: set[str] = set()
    left = [start]
    while left:
        room = left.pop()
        ends = {end for begin, end in arrows if begin == room} - found
        found |= ends
        left.extend(ends)
    return found


def test_the_picture_of_the_architecture_shows_the_imports():
    """An import against the arrows fails: rooms import what their arrows reach, and each arrow is needed."""
    arrows, imports = _drawn_arrows(PAGES[ROOT / "ARCHITECTURE.md"]), _imported_rooms()
    reached = {room: _reach(room, arrows) for room, _ in imports}
    others = {arrow: [each for each in arrows if each != arrow] for arrow in arrows}
    wrong = {
        "arrows that no import stands for": {*arrows} - imports,
        "imports without a path in the picture": {(room, end) for room, end in imports if end not in reached[room]},
        "rooms that import each other": {(room, room) for room, ends in reached.items() if room in ends},
        "arrows beside a longer path": {(room, end) for room, end in arrows if end in _reach(room, others[room, end])},
    }
    assert arrows
    assert [f"{problem}: {sorted(found)}" for problem, found in wrong.items() if found] == []


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
