"""The site has every public name, header and page, and says what CI tests."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path, PurePosixPath

import ci_versions
import pytest
import repository_links
import yaml

import be_runtime
import be_toolchain
from docs.words import prose

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TRACKED = sorted(page for page in DOCS.rglob("*.md") if DOCS / "generated" not in page.parents)
PAGES = [*TRACKED, *(ROOT / page for page in repository_links.PAGES)]
INCLUDE = ROOT / "be_runtime" / "include"
SERVING = {"element_types.h", "index.h", "portability.h", "stream_to_text.h", "text.h", "type_names.h"}
"""Headers that only serve others."""


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_says_first_whom_it_is_for_and_what_they_will_have(page: Path):
    text = re.sub(r"\A---\n.*?\n---\n+", "", read(page), flags=re.DOTALL)
    opening = " ".join(text.split("\n\n")[1].split())
    first, _, second = re.sub(r"\.(?=\w)", "·", opening).partition(". ")
    assert re.match(r"This (page|site|example|notebook) is for ", first), opening
    assert re.search(r"\byou\b", second.partition(". ")[0], re.IGNORECASE), opening


def test_the_readme_points_to_the_site():
    readme = read(ROOT / "README.md")
    assert {"make demo", "make test", "make docs", "](docs/index.md)"} <= set(
        re.findall(r"make \w+|\]\([^)]+\)", readme)
    )


@pytest.mark.parametrize("package", [be_runtime, be_toolchain], ids=lambda package: package.__name__)
def test_the_python_reference_has_every_public_name(package: object):
    shown = set(re.findall(r"\.\. auto\w+:: ([\w.]+)", read(DOCS / "reference" / "python.md")))
    name = getattr(package, "__name__")  # noqa: B009 - a module, to mypy an object
    public = {f"{name}.{each}" for each in getattr(package, "__all__") if each != "__version__"}  # noqa: B009
    assert public - shown == set()
    assert {each for each in shown if each.startswith(f"{name}.")} - public == set()


def test_the_cpp_reference_has_every_header_for_authors():
    headers = {*INCLUDE.glob("*.h"), *(INCLUDE / "brainevent").glob("*.h")}
    wanted = {each.relative_to(INCLUDE).as_posix() for each in headers if each.name not in SERVING}
    shown = re.findall(r"^```{cpp-header} (\S+)$", read(DOCS / "reference" / "cpp.md"), re.MULTILINE)
    assert set(shown) == wanted
    listed = re.search(r"^HEADERS = \((.*?)^\)", read(DOCS / "extensions" / "cpp_headers.py"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert re.findall(r'"(\S+)"', listed[1]) == shown


def test_the_command_reference_has_both_parsers():
    shown = re.findall(r"^```{command-line} (\S+)$", read(DOCS / "reference" / "commands.md"), re.MULTILINE)
    assert shown == ["be_toolchain.cli.parser:build_parser", "be_runtime.cli.parser:build_parser"]


def test_the_page_of_versions_says_what_ci_tests():
    workflows = [yaml.safe_load(read(ROOT / ".github" / "workflows" / f"{name}.yml")) for name in ("ci", "release")]
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    page = read(DOCS / "supported-versions.md")
    assert ci_versions.render_tested(workflows) in page
    assert ci_versions.render_bounds(project) in page
    pythons = [text.rpartition(" :: ")[2] for text in project["classifiers"] if " Python :: 3." in text]
    assert f"| Python | {pythons[0]} to {pythons[-1]} |" in page


def test_the_doctests_of_the_extensions_pass():
    results = [doctest.testmod(module) for module in (repository_links, prose)]
    assert all(each.attempted and not each.failed for each in results)


def test_links_out_of_docs_lead_to_pages_of_the_site():
    page = PurePosixPath("docs/caching.md")
    text = "[a](../docker/README.md#running) [b](../examples/demo.py) [c](settings.md) [d](https://x.org) [e](#here)"
    assert repository_links.rewrite_links(text, page, ROOT) == (
        "[a](/generated/repository/docker/README.md#running) [b](/generated/repository/examples/demo.py.md) "
        "[c](settings.md) [d](https://x.org) [e](#here)"
    )
    readme = PurePosixPath("docker/README.md")
    assert repository_links.rewrite_links("[a](../docs/packages.md)", readme, ROOT) == "[a](/packages.md)"
    dead = "[a](../no/such.md)"
    assert repository_links.rewrite_links(dead, page, ROOT) == dead, "Sphinx warns of it"


def test_whatever_pages_link_to_has_a_page():
    tracked = [PurePosixPath(page.relative_to(ROOT).as_posix()) for page in TRACKED]
    found = repository_links.find_linked(tracked, ROOT)
    names = {str(each) for each in found}
    assert set(repository_links.PAGES) <= names
    assert {"examples/sparse.py", "examples/mykernels/conda/recipe.yaml", "benchmarks/kernels/large.cu"} <= names
    assert "literalinclude" in found[PurePosixPath("examples/sparse.py")]
