"""Releases that work together: uv solves each row of the table for each Python, and each CUDA extra is one release."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from release import ROOT, constraints
from release.problems import ReleaseError
from tests.packaging.wheel.conftest import Distribution, uv
from tests.support.fresh_environments import NO_INDEX

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel-ranges")]

ROWS = constraints.read_rows()
TOOLKITS = [row for row in ROWS.values() if row.toolkit]
CASES = [(row, python) for row in ROWS.values() for python in dict.fromkeys((row.pythons[0], row.pythons[-1]))]


def solve(
    wanted: Sequence[str], distribution: Distribution, python: str = "3.12", file: str = ""
) -> dict[str, Version]:
    """Solve requirements, with the wheel in the place of the project."""
    uv()
    project, wheel = "brainevent-toolchain", distribution.wheel.as_uri()
    named = [f"{each} @ {wheel}" if each.startswith(project) else each for each in wanted]
    try:
        return constraints.solve(named, python, ROOT / file if file else None)
    except ReleaseError as error:
        if any(sign in str(error) for sign in NO_INDEX):
            pytest.skip("no package index can be reached")
        raise


def pins(row: constraints.Row) -> dict[str, Requirement]:
    lines = (ROOT / row.file).read_text(encoding="utf-8").splitlines()
    return {each.name: each for line in lines if line[0] != "#" for each in [Requirement(line)]}


def broken(row: constraints.Row, solved: dict[str, Version]) -> list[str]:
    """The packages whose release the row does not hold."""
    return [name for name, pin in pins(row).items() if name in solved and not pin.specifier.contains(solved[name])]


@pytest.mark.parametrize(("row", "python"), CASES, ids=[f"{row.name}-{python}" for row, python in CASES])
def test_uv_solves_each_row_for_its_oldest_and_its_newest_python(
    row: constraints.Row, python: str, distribution: Distribution
):
    solved = solve(row.install, distribution, python, row.file)
    assert broken(row, solved) == []
    held = solved.keys() & pins(row)
    assert len(held) >= 10 if row.toolkit else held == set(pins(row))


@pytest.mark.parametrize("row", TOOLKITS, ids=[row.name for row in TOOLKITS])
def test_each_extra_is_one_release_and_the_file_has_all_libraries_of_the_release(
    row: constraints.Row, distribution: Distribution
):
    assert constraints.pins(row, ()) == [str(pin) for pin in pins(row).values()], "python -m release constraints"
    alone = solve(row.install[:1], distribution, row.pythons[-1])
    assert len(alone.keys() & pins(row)) >= 4
    assert [name for name in alone if name.startswith("nvidia-") and name not in pins(row)] == []
    assert broken(row, alone) == []


def test_files_combine_and_hold_no_jax_back_and_without_them_libraries_come_from_other_releases(
    distribution: Distribution, tmp_path: Path
):
    row, jax = ROWS["cuda13"], ROWS["jax-0.12"]
    free = solve(row.install, distribution, row.pythons[-1])
    assert broken(row, free) != [], "pip alone can: drop the file"
    held = solve(row.install, distribution, row.pythons[-1], row.file)
    assert held["jax"] == free["jax"]
    both = tmp_path / "both.txt"
    both.write_text("".join((ROOT / each.file).read_text(encoding="utf-8") for each in (row, jax)), encoding="utf-8")
    solved = solve(row.install, distribution, row.pythons[-1], str(both))
    assert broken(row, solved) == broken(jax, solved) == []
