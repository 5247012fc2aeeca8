"""Sessions with the commands of the cache: golden files of the lines that are typed and of all that they print."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import threading
import time
import zlib
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import be_runtime
from be_runtime.cli import cache_common as cache_text
from be_runtime.cli import cache_show, parser
from be_runtime.cli import main as cli
from be_runtime.load.identity import own_code_digest
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.store import artifact, cache, keys, places
from be_runtime.store.manifest import parse_manifest, render_manifest
from tests.support.artifacts import CODE, packed, table
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_a_session(golden: Path, shell: Shell):
    typed = re.findall(r"^\$ (.*)$", golden.read_text(), re.MULTILINE)
    check_golden(golden, "".join(f"$ {line}\n{shell.run(line)}" for line in typed))


@pytest.mark.parametrize(
    "words", [[], ["prune", "--max-size", "-1"], ["prune", "--max-age", "soon"], ["prune", "--max-size", "1.5"]]
)
def test_a_command_is_required_and_a_limit_a_whole_number(words: list[str]):
    with pytest.raises(SystemExit) as left:
        cli.main(["cache", *words])
    assert left.value.code == 64


@pytest.mark.parametrize(("generator", "goes"), [("", True), ("another release", False)])
def test_headers_of_another_release_are_in_an_environment_of_its_own(shell: Shell, generator: str, goes: bool):
    def build(staging: Path) -> cache.BuildOutput:
        (staging / "m.so").touch()
        return cache.BuildOutput(("m.so",), absent=(INCLUDE_DIR / "none.h",))

    key = keys.make_key("module", ("name", "add"), ("generator", generator or own_code_digest()))
    cache.Cache(shell.root).get_or_build(key, build)
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
    shell.packed("add", "scale")
    path = shell.folder / "kernels.be"
    whole = bytearray(path.read_bytes())
    whole[whole.rindex(b"code")] ^= 1
    for content in (bytes(whole), b"", b"hello", b"PK\x03\x04cut"):
        path.write_bytes(content)
        said = shell.run("cache import TMP/kernels.be")
        assert said.startswith("error: BE101: TMP/kernels.be is ")
        assert said.endswith("[1]\n")
        if content != whole:
            assert "TMP/kernels.be is not an export of the cache, or is damaged" in said
            assert "python -m be_runtime cache export writes" in said
    path.write_bytes(artifact.MAGIC)
    assert "TMP/kernels.be is an exported program" in shell.run("cache import TMP/kernels.be")
    assert not shell.root.exists()


def test_a_name_with_control_characters_stays_in_its_row(shell: Shell):
    shell.put("a\nb\x1b[2J")
    assert "a\\x0ab\\x1b[2J" in shell.run("cache list")


def test_the_page_shows_every_command():
    page = (Path(__file__).parents[5] / "docs" / "caching.md").read_text(encoding="utf-8")
    lines = re.findall(r"^python -m be_runtime (cache .*)", page, re.MULTILINE)
    shown = [parser.build_parser().parse_args(shlex.split(line, comments=True)).subcommand for line in lines]
    assert sorted({f"cache {name}" for name in shown}) == sorted(name for name in cli.COMMANDS if "cache " in name)


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
            cache.Cache(shell.root).clear()

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


class Shell:
    """Runs lines as a person types them: commands of the cache, and methods of this class, which prepare something."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys
        self.root, self.header = folder / "cache", folder / "x.h"
        self.entries: dict[str, cache.Entry] = {}
        self.digests: list[str] = []
        self.began_s = self.now_s = time.time()
        monkeypatch.setenv("BE_CACHE_DIR", str(self.root))
        monkeypatch.setattr(cache_text, "time", SimpleNamespace(time=lambda: self.now_s))
        monkeypatch.setattr(cache_show, "ago", self._ago)
        self.edit("one")

    def run(self, line: str) -> str:
        """Run a line, and return what it prints: with a number for each digest, and an exit code that is not 0."""
        line = re.sub(r"digest-0*(\d+)", lambda match: self.digests[int(match[1]) - 1], line)
        name, *words = shlex.split(line.replace("TMP", str(self.folder)))
        if name != "cache":
            getattr(self, name)(*words)
            return ""
        code = cli.main(["cache", *words])
        printed = self.capsys.readouterr()
        assert not (printed.out and printed.err)
        return self._plain(printed.out + printed.err) + f"[{code}]\n" * bool(code)

    def _ago(self, then_s: float, now_s: float) -> str:
        """Say of what was built in this test that it was now, however long the test takes."""
        return "now" if now_s == self.now_s and abs(then_s - self.began_s) < 3600 else "at another time"

    def _plain(self, text: str) -> str:
        """Take out of a text what differs from one run or machine to another."""
        text = text.replace(str(self.folder), "TMP").replace(platform.node(), "HOST")
        text = re.sub(r"kernels-v1/[0-9a-f/-]+", "kernels-v1/ENTRY", text)
        text = re.sub(r"\d{4}-\d\d-\d\d(T[\d:]+\+00:00)?", lambda match: "TIME" if match[1] else "DAY", text)
        text = re.sub(r"(HOST in |\"(?:seconds|mtime_ns|ctime_ns|inode)\": )\d[\d.e-]*", r"\1N", text)
        return re.sub(r"\b[0-9a-f]{12}(?:[0-9a-f]{52})?\b", self._digest, text)

    def _digest(self, match: re.Match[str]) -> str:
        digest = match[0][:12]
        self.digests += [digest] * (digest not in self.digests)
        return f"digest-{self.digests.index(digest) + 1:05}"

    def put(self, name: str, kind: str = "module", size: str = "4", *flags: str) -> cache.Entry:
        """Put an entry into the cache."""

        def build(staging: Path) -> cache.BuildOutput:
            (staging / "m.so").write_bytes(b"x" * int(size))
            return cache.BuildOutput(outputs=("m.so",), dependencies=(self.header,))

        store = cache.Cache(self.root / "toolchain" if kind == "handler" else self.root)
        fields = (("name", name), ("flags", flags), ("sources", ["int f();\n" * 40]), ("archs", ["sm_80", "sm_90"]))
        self.entries[name] = entry = store.get_or_build(keys.make_key(kind, *fields), build)
        if threading.current_thread() is threading.main_thread() and not (entry.path / "images").exists():
            index = table(keys.make_key(kind))._replace(inputs=None)
            artifact.write_images(entry.path, index, {index.image: CODE})  # no output: the sizes are the bytes of m.so
        self.use(name, "0")
        return self.entries[name]

    def use(self, name: str, days_ago: str) -> None:
        """Set the last use of an entry, unless another thread has removed it."""
        used_s = self.now_s - int(days_ago) * 86400
        with contextlib.suppress(FileNotFoundError):
            os.utime(self.entries[name].path / "manifest.json", (used_s, used_s))

    def later(self, days: str) -> None:
        """Let days pass."""
        self.now_s += int(days) * 86400

    def edit(self, text: str = "") -> None:
        """Write the header that entries are made from, or remove it, in a tick of the clock before that of a build."""
        if text:
            self.header.write_text(text)
            later = self.folder / "later"
            later.touch()
            while later.stat().st_mtime_ns <= self.header.stat().st_mtime_ns:
                later.touch()
        else:
            self.header.unlink()

    def spoil(self, name: str, file: str, text: str = "") -> None:
        """Write other bytes into a file of an entry, and leave its times as they are."""
        path = self.entries[name].path / file
        status = path.stat()
        path.write_text(text)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def drop(self, name: str, file: str) -> None:
        """Remove a file of an entry."""
        (self.entries[name].path / file).unlink()

    def chmod(self, mode: str) -> None:
        """Change who may write into the cache."""
        self.root.chmod(int(mode, 8))

    def set(self, name: str, value: str) -> None:
        """Give an environment variable a value."""
        self.monkeypatch.setenv(name, value)

    def packed(self, *names: str) -> None:
        """Write kernels.be, as an export of another machine, of the same size whatever the zlib."""
        self.monkeypatch.setattr(zlib, "compress", partial(zlib.compress, level=0))
        with places.ExportWriter(self.folder / "kernels.be") as export:
            for name in names:
                key = keys.make_key("module", ("name", name))
                export.add(key.digest, packed(key, b"code", host="ci", seconds=0.5))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, monkeypatch, capsys)
