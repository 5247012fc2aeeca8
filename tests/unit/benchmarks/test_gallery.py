"""Pages of the gallery are read as cells and run; samples become comparisons, and these become tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gallery import FOLDER, NOTEBOOKS, PAGES, page_path
from benchmarks.gallery.comparison import compare
from benchmarks.gallery.draw import CARDS
from benchmarks.gallery.notebook import INSTALL, to_notebook
from benchmarks.gallery.page import Cell, Run, parse_page
from benchmarks.gallery.tables import cards, machine_name, page_table, summary_table

PAGE = """\
---
file_format: mystnb
---

# A page

Text.

```{code-cell} ipython3
:tags: [parameters]

size = 3
```
```{code-cell} ipython3
text = \"\"\"
+++
\"\"\"
```

```{code-cell} ipython3
:tags: [figure, wide]
raise RuntimeError(size)
```

+++ {"tags": ["site"]}

## For the site

```sh
ls
```

+++

The end.
"""


def test_a_page_is_text_and_code_with_lines_and_tags():
    assert parse_page(PAGE) == (
        Cell(source="# A page\n\nText.", line=5, is_code=False),
        Cell(source="size = 3", line=12, is_code=True, tags=("parameters",)),
        Cell(source='text = """\n+++\n"""', line=15, is_code=True),
        Cell(source="raise RuntimeError(size)", line=22, is_code=True, tags=("figure", "wide")),
        Cell(source="## For the site\n\n```sh\nls\n```", line=27, is_code=False, tags=("site",)),
        Cell(source="The end.", line=35, is_code=False),
    )


def test_a_run_takes_parameters_leaves_cells_out_and_stops_at_a_name(tmp_path: Path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    assert Run(path, "size = 7", without=("figure",)).until()["size"] == 7
    run = Run(path)
    assert "text" not in run.until("size")
    with pytest.raises(RuntimeError, match="3") as raised:
        run.until()
    assert raised.traceback[-1].path == path
    assert raised.traceback[-1].lineno == 21, "the page's line, counted from 0"


def test_a_notebook_installs_and_has_what_is_not_for_the_site_alone():
    cells = to_notebook(parse_page(PAGE))["cells"]
    assert ["".join(cell["source"]) for cell in cells] == [
        INSTALL,
        "# A page\n\nText.",
        "size = 3",
        'text = """\n+++\n"""',
        "raise RuntimeError(size)",
        "The end.",
    ]
    assert [cell["cell_type"] for cell in cells] == ["code", "markdown", "code", "code", "code", "markdown"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_of_the_gallery_has_no_notation_of_the_site(name: str):
    cells = to_notebook(parse_page(page_path(name).read_text()))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert texts
    assert [text for text in texts if "```{" in text or "](" in text or "+++" in text] == []


@pytest.mark.parametrize("name", PAGES)
def test_each_page_of_the_gallery_has_the_parts_that_its_tools_look_for(name: str):
    cells = parse_page(page_path(name).read_text())
    assert [sum(tag in cell.tags for cell in cells) for tag in ("parameters", "figure", "site")] == [1, 1, 1]
    assert f"figures/{name}.svg" in cells[-1].source


RESULTS = sorted((FOLDER / "figures").glob("*.json"))


def record(backend: str, *seconds: float) -> dict[str, Any]:
    return {"label": "10 items", "backend": backend, "seconds": list(seconds), "error": ""}


def operation(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": "sum", "records": list(records)}]


def test_a_kernel_is_compared_with_the_fastest_plain_form():
    [found] = compare(operation(record("cuda", 1, 2, 1), record("jax, a", 9, 9, 9), record("jax, b", 3, 6, 3)))
    assert (found.best, found.kernel, found.gain.value, found.is_faster) == ("jax, b", 1, 3, True)


@pytest.mark.parametrize(("seconds", "verdict"), [((0.5, 0.5, 0.5), False), ((0.5, 1, 2), None), ((1.004,) * 3, None)])
def test_a_kernel_that_is_not_faster_is_called_so(seconds: tuple[float, ...], verdict: bool | None):
    [found] = compare(operation(record("cpp", 1, 1, 1), record("jax", *seconds)))
    assert found.is_faster is verdict


def test_a_time_below_zero_is_refused():
    with pytest.raises(ValueError, match=r"sum, 10 items: times of \['cpp'\] below zero; measure again"):
        compare(operation(record("cpp", -1, 1, 1), record("jax", 2, 2, 2)))


@pytest.mark.parametrize("records", [[record("cpp", 1.0)], [record("jax", 1.0)], [record("cpp"), record("jax", 1.0)]])
def test_half_a_comparison_is_refused(records: list[dict[str, Any]]):
    with pytest.raises(ValueError, match="sum, 10 items"):
        compare(operation(*records))


def test_tables_have_times_gains_and_verdicts():
    found = compare(operation(record("cpp", 1, 1), record("jax, sort", 0.5, 0.5)))
    assert page_table({"A": found}).splitlines()[2] == (
        "| A | 10 items | 1e+03 ms | 500 ms (sort) | 0.50 [0.50, 0.50] | **plain JAX** |"
    )
    assert summary_table({"scan": {"A": found}, "lif": {}}).splitlines()[2:] == [
        "| [scan with a gradient](scan.md) | 0.5 |",
        "| [spiking network](lif.md) | not measured |",
    ]


def test_the_tables_of_the_gallery_are_those_of_its_figures():
    found = [json.loads(path.read_text()) for path in RESULTS]
    assert found
    pages = {
        name: {
            machine_name(each["machine"]): compare(each["pages"][name]["operations"])
            for each in found
            if name in each["pages"]
        }
        for name in PAGES
    }
    folder: Path = FOLDER / "figures"
    assert (folder / "summary.inc").read_text() == summary_table(pages)
    assert (folder / "cards.inc").read_text() == cards(pages, CARDS)
    assert {name: (folder / f"{name}.inc").read_text() for name in PAGES} == {
        name: page_table(machines) for name, machines in pages.items()
    }
    pictures = [folder / f"{name}{kind}" for name in PAGES for kind in (".svg", ".png")]
    assert [path.name for path in pictures if path.stat().st_size > 100_000] == []
