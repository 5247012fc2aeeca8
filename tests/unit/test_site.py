"""The site has every public name, header and page, and says what CI tests."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path, PurePosixPath

import ci_versions
import repository_links
import yaml

import be_runtime
import be_toolchain
from docs.words import prose

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INCLUDE = ROOT / "be_runtime" / "include"
SERVING = {"text.h"}
"""Headers that only serve others."""


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def test_the_references_have_every_public_name_header_for_authors_and_command():
    shown = set(re.findall(r"\.\. auto\w+:: ([\w.]+)", read("docs/reference/python.md")))
    for package in (be_runtime, be_toolchain):
        public = {f"{package.__name__}.{each}" for each in package.__all__ if each != "__version__"}
        assert {each for each in shown if each.startswith(f"{package.__name__}.")} == public
    headers = {*INCLUDE.glob("*.h"), *(INCLUDE / "brainevent").glob("*.h")}
    included = re.findall(r"^```{cpp-header} (\S+)$", read("docs/reference/cpp.md"), re.MULTILINE)
    assert {*included} == {each.relative_to(INCLUDE).as_posix() for each in headers if each.name not in SERVING}
    listed = re.search(r"^HEADERS = \((.*?)^\)", read("docs/extensions/cpp_headers.py"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert re.findall(r'"(\S+)"', listed[1]) == included
    commands = re.findall(r"^```{command-line} (\S+)$", read("docs/reference/commands.md"), re.MULTILINE)
    assert commands == ["be_toolchain.cli.parser:build_parser", "be_runtime.cli.parser:build_parser"]


def test_the_page_of_versions_says_what_ci_tests():
    workflows = [yaml.safe_load(read(".github/workflows", f"{name}.yml")) for name in ("ci", "release")]
    project = tomllib.loads(read("pyproject.toml"))["project"]
    page = read("docs/supported-versions.md")
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
    pages = [each.relative_to(ROOT) for each in DOCS.rglob("*.md") if DOCS / "generated" not in each.parents]
    found = repository_links.find_linked([PurePosixPath(each.as_posix()) for each in sorted(pages)], ROOT)
    linked = {"examples/sparse.py", "examples/mykernels/conda/recipe.yaml", "benchmarks/kernels/large.cu"}
    assert {*repository_links.PAGES, *linked} <= {str(each) for each in found}
    assert "literalinclude" in found[PurePosixPath("examples/sparse.py")]
