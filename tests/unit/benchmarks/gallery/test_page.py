"""Pages are read as cells, and run."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gallery import NOTEBOOKS, PAGES, page_path
from benchmarks.gallery.notebook import INSTALL, to_notebook
from benchmarks.gallery.page import Cell, Run, parse_page

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
