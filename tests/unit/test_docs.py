"""The documentation and its site state what the code knows."""

from __future__ import annotations

import doctest
import html
import inspect
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, get_args, get_type_hints

import ci_versions
import pytest
import repository_links
import yaml

import be_runtime
import be_toolchain
from be_runtime.cli.main import main as runtime_main
from be_runtime.errors import BeRuntimeError
from be_runtime.settings import Settings
from be_toolchain.cli.main import explain
from be_toolchain.cli.main import main as toolchain_main
from be_toolchain.errors import ToolchainError
from be_toolchain.settings import RUNTIME, SEARCH, Setting
from benchmarks import bars, report
from docs.pictures import terminal
from docs.words import prose
from release import constraints, links
from tests.support.error_types import error_types
from tests.support.planted.table import FAULTS, RESULTS, render_table
from tests.support.planted.try_all import kernels
from tests.support.terminals import Terminal

DOCS = Path(__file__).resolve().parents[2] / "docs"
SETTINGS = (DOCS / "settings.md").read_text(encoding="utf-8")
KINDS: tuple[type[BeRuntimeError | ToolchainError], ...] = (*error_types(BeRuntimeError), *error_types(ToolchainError))
TITLES = {kind: (kind.__doc__ or "").splitlines()[0] for kind in KINDS}
COMMANDS = {"be_runtime": runtime_main, "be_toolchain": toolchain_main}


def _rows(head: str) -> list[list[str]]:
    """The cells of the table of settings with these columns."""
    table = SETTINGS.partition(f"\n| {head} |")[2].partition("\n\n")[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]


def _variables(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in setting.variables)


def _default(value: Any) -> str:
    if value in {None, "", ()}:
        return "words"
    return f"`{value}`" if isinstance(value, str) else f"`{value:g}`"


def test_the_page_of_settings_has_the_variables_and_the_default_of_each():
    rows, search = _rows("variable | type | default | effect"), _rows("variable | type | effect")
    assert [row[0] for row in rows] == [_variables(setting) for setting in RUNTIME.values()]
    assert [row[0] for row in search] == [_variables(setting) for setting in SEARCH]
    defaults = {name: row[2] if "`" in row[2] else "words" for name, row in zip(RUNTIME, rows, strict=True)}
    assert defaults == {name: _default(value) for name, value in Settings._field_defaults.items()}
    sources = "".join(path.read_text() for path in (DOCS.parent / "be_toolchain").rglob("*.py"))
    names = re.findall(r'"((?:BE|BRAINEVENT)_[A-Z_]+)"', sources)
    assert [name for name in names if f"`{name}`" not in SETTINGS] == []


def test_the_page_of_debugging_has_every_planted_fault_as_it_was_measured():
    results = json.loads(RESULTS.read_text())
    assert render_table(results) in (DOCS / "debugging.md").read_text()
    assert {*FAULTS} == {kernel.stem for language in ("cpp", "cuda") for kernel in kernels(language)}
    for language, rows in results.items():
        assert [*rows] == [kernel.stem for kernel in kernels(language)]
        assert [name for name, row in rows.items() if not row["check"]["findings"]] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_the_text_of_an_error_names_the_command_that_prints_its_cause_and_remedy(
    kind: type[BeRuntimeError | ToolchainError], capsys: pytest.CaptureFixture[str]
):
    page = (DOCS / "errors.md").read_text()
    assert f"| [`{kind.code}`](#{kind.code.lower()}) | `{kind.__name__}` | {TITLES[kind]} |" in page
    package, *words = str(kind("it failed")).splitlines()[-1].removeprefix("causes and remedies: python -m ").split()
    assert COMMANDS[package](words) == 0
    section = capsys.readouterr().out
    assert section.startswith(f"`{kind.__name__}`: ")
    assert re.search(r"\n\*\*Cause\.\*\* .*\n\*\*Remedy\.\*\* ", section, re.DOTALL)
    assert "\n## " not in section


@pytest.mark.parametrize("package", ["be_runtime", "be_toolchain"])
def test_explain_fits_a_terminal_and_a_pipe(
    package: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert COMMANDS[package](["explain", "BE601"]) == 0
    piped = capfd.readouterr().out
    assert max(map(len, piped.splitlines())) <= 80
    assert piped.split() == explain("BE601").split()
    assert not re.search(r"\S  +\S", piped)  # the lines of a list item are joined by one space
    monkeypatch.setenv("COLUMNS", "50")
    with capfd.disabled(), Terminal() as terminal, terminal.file() as file:
        monkeypatch.setattr("sys.stdout", file)
        assert COMMANDS[package](["explain", "BE601"]) == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.text)
    assert shown != terminal.text
    assert not [mark for mark in ("**Cause", "```") if mark in shown]
    assert max(map(len, shown.splitlines())) <= 50


@pytest.mark.parametrize(("package", "status"), [("be_runtime", 1), ("be_toolchain", 64)])
def test_explain_lists_each_code_with_its_title_and_names_them_for_one_that_there_is_not(
    package: str, status: int, capsys: pytest.CaptureFixture[str]
):
    assert COMMANDS[package](["explain"]) == 0
    rows = [f"{kind.code}  {kind.__name__}: {title}" for kind, title in TITLES.items()]
    assert capsys.readouterr().out.splitlines() == sorted(rows)
    assert COMMANDS[package](["explain", "BE999"]) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert "no error has the code 'BE999'; the codes are BE000, BE101" in said.err


ROOT = Path(__file__).resolve().parents[2]
DOCS_SITE = ROOT / "docs"
INCLUDE = ROOT / "be_runtime" / "include"
SERVING = {"text.h"}
"""Headers that only serve others."""


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def _summaries(page: str) -> list[str]:
    """The names in the tables of a page of the Python reference."""
    table = re.compile(r"currentmodule:: (\w+)\n\.\. autosummary::\n   :nosignatures:\n\n((?:   \S+\n)+)")
    return [f"{module}.{name}" for module, rows in table.findall(page) for name in rows.split()]


def _parameters(function: Any) -> Iterator[str]:
    """The parameters of a function, and the keyword arguments that it takes as a dictionary."""
    for name, parameter in inspect.signature(function).parameters.items():
        if str(parameter.annotation).startswith("Unpack["):
            (options,) = get_args(get_type_hints(function)[name])
            yield from options.__annotations__
        else:
            yield name


@pytest.mark.parametrize("package", [be_runtime, be_toolchain], ids=lambda package: package.__name__)
def test_public_functions_document_their_parameters_and_have_an_example(package: Any):
    lacking = []
    for name in package.__all__:
        public = getattr(package, name)
        text = inspect.getdoc(public) or ""
        if not inspect.isfunction(public):
            continue
        lacking += [f"{name}: Examples"] * (">>> " not in text)
        documented = re.findall(r"^(\S[^:\n]*?)(?: :.*)?\n    \S", text, re.MULTILINE)
        names = {each.strip("* ") for group in documented for each in group.split(",")}
        lacking += [f"{name}: {each}" for each in _parameters(public) if each not in names]
    assert lacking == []


def test_the_references_have_every_public_name_header_for_authors_and_command():
    overview, names = _summaries(read("docs/reference/python.md")), list[str]()
    for page in sorted((DOCS / "reference" / "python").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        assert re.findall(r"\.\. (?:py:data|auto(?!summary)\w+):: ([\w.]+)", text) == _summaries(text), page.name
        assert f"](python/{page.name})" in read("docs/reference/python.md")
        names += _summaries(text)
    assert sorted(names) == sorted(overview)
    public = {f"{each.__name__}.{name}" for each in (be_runtime, be_toolchain) for name in each.__all__}
    other = {"be_runtime.numpy.functions", "be_runtime.torch.functions"}
    assert {*names} == public - {"be_runtime.__version__", "be_toolchain.__version__"} | other
    aliases = re.findall(
        r"py:data:: be_runtime.(\w+)\n\n   The same class as `+(?:[\w.]+\.)?(\w+)`+\.",
        read("docs/reference/python/errors.md"),
    )
    assert aliases
    assert [each for each in aliases if getattr(be_runtime, each[0]).__name__ != each[1]] == []
    headers = {*INCLUDE.glob("*.h"), *(INCLUDE / "brainevent").glob("*.h")}
    included = re.findall(r"^```{cpp-header} (\S+)$", read("docs/reference/cpp.md"), re.MULTILINE)
    assert {*included} == {each.relative_to(INCLUDE).as_posix() for each in headers if each.name not in SERVING}
    listed = re.search(r"^HEADERS = \((.*?)^\)", read("docs/extensions/cpp_headers.py"), re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert re.findall(r'"(\S+)"', listed[1]) == included
    commands = re.findall(r"^```{command-line} (\S+)$", read("docs/reference/commands.md"), re.MULTILINE)
    assert commands == ["be_toolchain.cli.parser:build_parser", "be_runtime.cli.parser:build_parser"]


def test_the_page_of_versions_says_what_ci_tests_and_which_releases_work_together():
    workflows = [yaml.safe_load(read(".github/workflows", f"{name}.yml")) for name in ("ci", "release")]
    project = tomllib.loads(read("pyproject.toml"))["project"]
    page = read("docs/supported-versions.md")
    assert ci_versions.render_tested(workflows) in page
    assert ci_versions.render_bounds(project) in page
    pythons = [text.rpartition(" :: ")[2] for text in project["classifiers"] if " Python :: 3." in text]
    assert f"| Python | {pythons[0]} to {pythons[-1]} |" in page
    rows = constraints.read_rows()
    assert constraints.versions_table(rows) in page, "python -m release constraints"
    assert {python for row in rows.values() for python in row.pythons} == set(pythons)
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "constraints").glob("*.txt")}
    assert files == {row.file for row in rows.values()}
    for row in rows.values():
        text = read(row.file)
        lines = [line for line in text.splitlines() if line[0] != "#"]
        expected = lines if row.toolkit else constraints.pins(row, project["dependencies"])
        assert text == constraints.constraints_text(row, expected), "python -m release constraints"


def test_the_doctests_of_the_extensions_pass():
    results = [doctest.testmod(module) for module in (repository_links, prose, links)]
    assert all(each.attempted and not each.failed for each in results)


@pytest.mark.parametrize(
    ("kind", "rule", "bad", "good"),
    [
        ("page", 0, "You can easily load it.", "You can load it."),
        ("docstring", 1, "The dtype is that of the input.", "The dtype is the input's, so that offline use works."),
        ("message", 1, "x.so is no shared library", "x.so is not a library, and there is no longer one, and no GPU"),
        ("page", 2, "It prints what is missing.", "It prints the missing tools: what the caller needs."),
        ("page", 3, "The load says why, and the\nerror tells you more.", "The load prints the reason: a live target."),
        ("docstring", 3, "XLA knows the target.", "say : callable\n    Known to XLA, which looks up a name."),
        ("page", 8, "| a | the same | b |", "| a | the same call | b |"),
        ("page", 9, "See [calling.md](calling.md).", "See [Call a kernel](calling.md)."),
        ("page", 10, "This page is for authors. You will learn it.", "Ship kernels in a wheel."),
        ("function", 10, "The names of a module.", "Return the names of a module."),
    ],
)
def test_prose_finds_what_the_style_guide_forbids(kind: str, rule: int, bad: str, good: str):
    rules = prose.read_rules((ROOT / "docs/words/prose.toml").read_text(encoding="utf-8"))
    own = [each for each in rules if each.number == rule]

    def count(text: str, by: list[prose.Rule]) -> int:
        return len(list(prose.check(prose.Text(kind, ROOT, 1, text), by)))

    assert count(bad, own)
    assert not count(good, rules)
    assert not count(f"`{bad}`" if "\n" not in bad else f"```\n{bad}\n```", own), "code is not prose"


def test_the_style_guide_has_the_rules_that_are_checked():
    page = read("docs/style-guide.md")
    rules = prose.read_rules(read("docs/words/prose.toml"))
    assert [int(each) for each in re.findall(r"^\*\*(\d+)\. ", page, re.MULTILINE)] == list(range(1, 11))
    assert {each.number for each in rules} <= set(range(11))


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
    pages = [each.relative_to(ROOT) for each in DOCS_SITE.rglob("*.md") if DOCS_SITE / "generated" not in each.parents]
    found = repository_links.find_linked([PurePosixPath(each.as_posix()) for each in sorted(pages)], ROOT)
    linked = {"examples/sparse.py", "examples/mykernels/conda/recipe.yaml", "benchmarks/kernels/large.cu"}
    assert {*repository_links.PAGES, *linked} <= {str(each) for each in found}
    assert "literalinclude" in found[PurePosixPath("examples/sparse.py")]


def test_tables_of_figures_name_rows_that_their_file_has():
    table = re.compile(r"^```{benchmark-table} (\S+)\n:rows: (.+)\n(?::label: (.+)\n)?```$", re.MULTILINE)
    found = [each for page in DOCS.glob("*.md") for each in table.findall(page.read_text(encoding="utf-8"))]
    assert found
    for file, rows, label in found:
        figures = json.loads(read(file))["figures"]
        named = [each["row"] for each in figures if each["label"].startswith(tuple(label.split("|")))]
        assert {*rows.split()} <= {*named}, (file, rows, label)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_pages_have_figures_of_the_results(page: str):
    text = read(page)
    h100 = json.loads(read("benchmarks/results/h100.json"))
    assert bars.bar_chart(h100) == bars.PICTURE.read_text(), "python -m benchmarks.bars"
    assert "pictures/builds.svg" in text
    summary = read("docs/gallery/figures/summary.inc")
    rows = [[each.strip() for each in line.strip("|").split("|")[1:]] for line in summary.splitlines()[2:]]
    cpu, gpu = ([float(end) for row in rows for end in row[place].split(" to ")] for place in (0, 1))
    ends = [f"{end:g}" for end in (min(gpu), max(gpu), min(cpu), max(cpu))]
    assert re.search(rf"{ends[0]} to\s+{ends[1]}\b.*{ends[2]}\s+to\s+{ends[3]}\b", text, re.DOTALL)
    if page == "docs/index.md":
        times = {
            (each["label"], each["baseline"]): tuple(each[side]["median"] for side in ("ours", "theirs"))
            for each in h100["figures"]
            if each["row"] in {"peers", "calls", "cold_cuda"} and each["theirs"]
        }
        builds = next(label for label in bars.LABELS if (label, "bare compiler") in times)
        build = times[builds, "handler on ffi.h"]
        call = times["call, GPU, graphs on, unrolled", "handler on ffi.h"]
        torch = times[builds, "torch 2.11.0"]
        bare = times[builds, "bare compiler"]
        first = times["cold load_cuda_inline, first on the machine", "bare nvcc -O3 -shared"]
        shown = [report.duration(seconds) for seconds in (*build, torch[1], *call, bare[1], *first)]
        assert [each for each in shown if each not in text] == []


def test_the_recorded_terminal_has_the_commands_and_no_path_of_the_machine():
    shown = re.sub(r"<[^>]+>", "", html.unescape(read("docs/pictures/terminal.svg"))).replace("\xa0", " ")
    assert [command for command, _ in terminal.COMMANDS if command not in shown] == []
    assert re.findall(r"/(?:home|root|tmp|work)/\S*|https?://\S*", shown) == []


def test_a_built_readme_has_links_that_hold_anywhere(tmp_path: Path):
    for name in ("README.md", "pyproject.toml"):
        (tmp_path / name).write_text(read(name).replace('repository = ""', 'repository = "https://x.org/a/b"'))
    links.write_links(tmp_path, "1.2")
    readme = (tmp_path / "README.md").read_text()
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    pictures = {f"https://x.org/a/b/raw/v1.2/docs/pictures/{name}.svg" for name in ("builds", "terminal")}
    assert pictures <= set(targets)
    assert [each for each in targets if not each.startswith("https://")] == []
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["urls"]["Source"] == "https://x.org/a/b"
