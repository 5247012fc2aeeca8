"""Sessions with the commands of the cache: golden files of the lines that are typed and of all that they print."""

from __future__ import annotations

import os
import re
import shlex
import threading
from pathlib import Path

import pytest

import be_runtime
from be_runtime.cache import BuildOutput, Store, make_key
from be_runtime.cache.validity.manifest import parse_manifest, render_manifest
from be_runtime.cli import main as cli
from be_runtime.cli.cache.command import COMMANDS
from be_runtime.cli.parser import build_parser
from be_runtime.load.own_code import own_code_digest
from be_runtime.own_files import INCLUDE_DIR
from tests.unit.be_runtime.cli.cache.conftest import Shell


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_a_session(golden: Path, shell: Shell):
    """``BE_UPDATE_GOLDEN=1`` writes what is printed now into the files."""
    typed = re.findall(r"^\$ (.*)$", golden.read_text(), re.MULTILINE)
    told = "".join(f"$ {line}\n{shell.run(line)}" for line in typed)
    if "BE_UPDATE_GOLDEN" in os.environ:
        golden.write_text(told)
    assert told == golden.read_text()


@pytest.mark.parametrize(
    "words", [[], ["prune", "--max-size", "-1"], ["prune", "--max-age", "soon"], ["prune", "--max-size", "1.5"]]
)
def test_a_command_is_required_and_a_limit_a_whole_number(words: list[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["cache", *words])
    assert left.value.code == 64


@pytest.mark.parametrize(("generator", "goes"), [("", True), ("another release", False)])
def test_headers_of_another_release_are_in_an_environment_of_its_own(shell: Shell, generator: str, goes: bool):
    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").touch()
        return BuildOutput(("m.so",), absent=(INCLUDE_DIR / "none.h",))

    key = make_key("module", ("name", "add"), ("generator", generator or own_code_digest()))
    Store(shell.root).get_or_build(key, build)
    manifest = next(shell.root.rglob("manifest.json"))
    changed = parse_manifest(manifest.read_bytes())
    rows = tuple(row._replace(mtime_ns=0, names=("brainevent/common.h",)) for row in changed.absent)
    manifest.write_text(render_manifest(changed._replace(absent=rows)))
    assert shell.run("cache prune --stale").startswith("removed 1 entry" if goes else "removed 0 entries")


def test_clear_removes_what_killed_builds_left(shell: Shell):
    shell.put("add")
    left = shell.root / "kernels-v1" / "staging" / "0123456789abcdef.01234567.1.01234567"
    left.mkdir()
    os.utime(left, (1, 1))
    shell.run("cache clear --dry-run")
    assert left.exists()
    shell.run("cache clear")
    assert not left.exists()


def test_a_file_that_is_damaged_at_its_end_leaves_nothing_and_one_that_is_no_export_is_named(shell: Shell):
    shell.archive("add", "scale")
    path = shell.folder / "kernels.be"
    whole = bytearray(path.read_bytes())
    whole[whole.rindex(b"code")] ^= 1
    for content in (bytes(whole), b"", b"hello", b"PK\x03\x04cut"):
        path.write_bytes(content)
        said = shell.run("cache import TMP/kernels.be")
        assert said.startswith("BE101: TMP/kernels.be is ")
        assert said.endswith("[1]\n")
        if content != whole:
            assert "TMP/kernels.be is no export of the cache, or is damaged" in said
            assert "python -m be_runtime cache export writes" in said
    assert not shell.root.exists()


def test_a_name_with_control_characters_stays_in_its_row(shell: Shell):
    shell.put("a\nb\x1b[2J")
    assert "a\\x0ab\\x1b[2J" in shell.run("cache list")


def test_the_page_shows_every_command():
    page = (Path(__file__).parents[5] / "docs" / "caching.md").read_text(encoding="utf-8")
    lines = re.findall(r"^python -m be_runtime (cache .*)", page, re.MULTILINE)
    shown = [build_parser().parse_args(shlex.split(line, comments=True)).subcommand for line in lines]
    assert sorted(shown) == sorted(COMMANDS)


EACH = (
    *("list --all", "stats", "verify", "show a --files", "why a", "export TMP/entries.be", "import TMP/entries.be"),
    *("prune --max-size 0", "clear --all"),
)


def test_each_command_works_beside_a_process_that_clears_the_cache(shell: Shell):
    """What is gone is left out, and nothing looks damaged."""
    over = threading.Event()

    def build_and_clear() -> None:
        while not over.is_set():
            shell.put("a")
            shell.put("b")
            Store(shell.root).clear()

    thread = threading.Thread(target=build_and_clear)
    thread.start()
    try:
        for _ in range(15):
            for words in EACH:
                printed = shell.run(f"cache {words}")
                assert "internal error" not in printed, words
                assert "damaged" not in printed.replace("0 damaged", ""), words
            be_runtime.write_compile_commands(shell.folder / "compile_commands.json")
    finally:
        over.set()
        thread.join()
