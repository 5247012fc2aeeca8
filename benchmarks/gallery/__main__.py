"""``python -m benchmarks.gallery``: measure the pages, draw their figures, write notebooks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..report import compact
from . import FOLDER, NOTEBOOKS, PAGES, page_path
from .measure import measure
from .notebook import to_notebook
from .page import parse_page

PARAMETERS = "ROUNDS = 10"
"""More than a page itself runs: it is also run where its times don't count."""
RESULTS = FOLDER / "figures"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the status is 1 if a page could not be measured."""
    options = _parser().parse_args(arguments)
    return int(options.run(options))


def _measure(options: argparse.Namespace) -> bool:
    def save(found: Mapping[str, object]) -> None:
        options.out.write_text(compact(found, "pages"), encoding="utf-8")

    found = measure(options.pages or PAGES, options.parameters, options.commit, save)
    return len(found["pages"]) < len(options.pages or PAGES)


def _draw(_options: argparse.Namespace) -> bool:
    from .draw import draw_pages

    draw_pages(RESULTS)
    return False


def _thumbnails(_options: argparse.Namespace) -> bool:
    from .thumbnails import draw_thumbnails

    draw_thumbnails(RESULTS)
    return False


def _notebooks(options: argparse.Namespace) -> bool:
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in NOTEBOOKS:
        text = json.dumps(to_notebook(parse_page(page_path(name).read_text(encoding="utf-8"))), indent=1)
        (options.folder / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")
    return False


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gallery", description="Run the pages of the gallery.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("measure", help="run pages, and write all samples as JSON")
    command.add_argument("--out", type=Path, required=True, help="the JSON file")
    command.add_argument(
        "--parameters", default=PARAMETERS, help=f'Python that sets parameters of each page; by default "{PARAMETERS}"'
    )
    command.add_argument("--commit", help="what to record as the commit where git can't tell")
    command.add_argument("pages", nargs="*", metavar="PAGE", help=f"some of {', '.join(PAGES)}; by default all")
    command.set_defaults(run=_measure)
    command = commands.add_parser("draw", help="pictures and tables from the JSON in docs/gallery/figures")
    command.set_defaults(run=_draw)
    command = commands.add_parser("thumbnails", help="small pictures of the pages' figures; runs the pages")
    command.set_defaults(run=_thumbnails)
    command = commands.add_parser("notebooks", help=f"notebooks of {', '.join(NOTEBOOKS)}")
    command.add_argument("folder", type=Path)
    command.set_defaults(run=_notebooks)
    return parser


if __name__ == "__main__":
    sys.exit(main())
