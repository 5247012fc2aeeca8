"""The sources that rows load: made by rule, or large on purpose."""

from __future__ import annotations

import pytest

from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from benchmarks.bench import KERNELS
from benchmarks.build_log import perfect_seconds
from benchmarks.generated import folder_file, many_entries

LANGUAGES = pytest.mark.parametrize("language", ["cuda", "cpp"])


def _entries(text: str) -> list[str]:
    return [entry.name for entry in discover([SourceText(name="source", text=text)])]


@LANGUAGES
def test_each_file_of_a_folder_is_larger_and_has_names_of_its_own(language: str):
    texts = [folder_file(language, index) for index in range(16)]
    assert [_entries(text) for text in texts] == [[f"stage_{index}"] for index in range(16)]
    assert sorted(texts, key=len) == texts
    assert "@index@" not in texts[0]


@LANGUAGES
def test_an_edition_changes_a_constant_and_not_the_size(language: str):
    before, after = (folder_file(language, 8, edition).splitlines() for edition in (0, 1))
    assert len(before) == len(after)
    changed = [line for line, other in zip(before, after, strict=True) if line != other]
    assert changed
    assert all(line.strip().startswith("sum = sum * v") for line in changed)


@LANGUAGES
def test_many_entry_points(language: str):
    assert _entries(many_entries(language, 200)) == [f"scale_{index}" for index in range(200)]


def test_the_large_file_is_what_its_row_says():
    text = (KERNELS / "large.cu").read_text()
    assert 480 <= text.count("\n") <= 520
    assert len(_entries(text)) == 12


def test_perfect_scheduling_keeps_every_core_busy_and_links_after():
    log = "# compiling a.cu (1: cicc): 3.00 s\n$ cicc: 9.00 s\n# compiling b.cu: 1.00 s\n# linking: 0.25 s\n$ g++\n"
    assert perfect_seconds(log, cores=2) == pytest.approx(2.25)
    assert perfect_seconds(log, cores=4) == pytest.approx(1.25)


def test_a_log_without_times_is_refused():
    with pytest.raises(ValueError, match="no timed command"):
        perfect_seconds("# compiling a.cu\n$ nvcc\n", cores=2)
