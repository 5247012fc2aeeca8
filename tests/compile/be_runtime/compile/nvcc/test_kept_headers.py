"""A source is preprocessed after headers that are kept as it is with them; the compiler is the real one."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

import be_runtime
from be_runtime.compile.nvcc_preamble import are_left, header_macros, headers_text
from tests.support.runtime import real_compiler, script

SCRIPT = Path(be_runtime.__file__).parent / "native" / "with_kept_headers.sh"
SOURCE, EMPTY = "src/k.cu", "src/empty.cu"
FIRST = """\
#ifndef FIRST_H
#define FIRST_H
#include <stddef.h>
#define TWICE(x) ((x) + (x))
#define GONE 1
#undef GONE
#define CHANGED 1
#undef CHANGED
#define CHANGED 2
inline int first() { return TWICE(CHANGED); }
#endif
"""
AUTHORS = """\
#include "own.h"
#include "first.h"
#if defined(GONE) || !defined(NULL)
#error macros are not those of the header
#endif
int k = TWICE(CHANGED) + own() + __LINE__;
const char* file = __FILE__;
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder with an author's source, and what is kept of ``first.h`` in ``kept``."""
    for folder in ("inc", "src", "kept"):
        (tmp_path / folder).mkdir()
    (tmp_path / "inc/first.h").write_text(FIRST)
    (tmp_path / "inc/own.h").write_text("inline int own() { return CHANGED; }\n")
    (tmp_path / SOURCE).write_text(AUTHORS)
    (tmp_path / EMPTY).write_text("\n")
    headers = headers_text(preprocess(tmp_path, EMPTY).stdout, EMPTY)
    assert headers is not None
    (tmp_path / "kept/headers.ii").write_text(headers)
    (tmp_path / "kept/headers.ii.macros").write_text(header_macros(preprocess(tmp_path, EMPTY, "-dD").stdout))
    (tmp_path / "kept/read.d").write_text("empty.ii: /kept/first.h\n")
    return tmp_path


def command(*flags: str) -> tuple[str, ...]:
    return (real_compiler(), "-std=c++17", "-E", "-x", "c++", "-Iinc", "-include", "first.h", *flags)


def preprocess(folder: Path, source: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """As it is without anything kept; the text goes to standard output."""
    return subprocess.run(command(*flags, source), cwd=folder, capture_output=True, text=True, check=False)


def after_kept(folder: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], str]:
    argv = ("/bin/sh", str(SCRIPT), "kept", ".ii", SOURCE, "k.ii", *command(*flags, SOURCE, "-MD", "-MF", "k.ii.d"))
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    return done, (folder / "k.ii").read_text() if (folder / "k.ii").is_file() else ""


def tokens(text: str) -> list[str]:
    """What a compiler reads: without the lines that say where text comes from."""
    return re.sub(r"^#.*", "", text, flags=re.MULTILINE).split()


def test_the_text_and_the_depfile_are_those_of_reading_the_headers(build: Path):
    done, text = after_kept(build)
    assert (done.returncode, done.stderr) == (0, "")
    plain = preprocess(build, SOURCE).stdout
    assert tokens(text) == tokens(plain) != []
    assert text.splitlines()[0] == plain.splitlines()[0]
    assert text.count("int first()") == 1
    depfile = (build / "k.ii.d").read_text()
    assert "inc/own.h" in depfile
    assert depfile.endswith("empty.ii: /kept/first.h\n")
    assert "kept/headers" not in depfile


def test_the_headers_are_not_read(build: Path):
    (build / "inc/first.h").write_text(f"#ifndef FIRST_H\n{'int other;' * 3}\n#endif\n")
    done, text = after_kept(build)
    assert done.returncode == 0
    assert "int first()" in text
    assert "other" not in text


SAID = [
    ('#include "missing.h"\n', ()),
    ("#error mine\n", ()),
    ("#define TWICE 3\n", ()),
    ("#warning mine\n", ()),
    ("#if UNKNOWN\n#endif\n", ("-Wundef",)),
    ("#warning mine\n", ("-Werror",)),
]


@pytest.mark.parametrize(("text", "flags"), SAID)
def test_messages_are_those_of_reading_the_headers(build: Path, text: str, flags: tuple[str, ...]):
    (build / SOURCE).write_text(f"{AUTHORS}{text}")
    plain = preprocess(build, SOURCE, *flags)
    done, _ = after_kept(build, *flags)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    assert done.stderr != ""


@pytest.mark.parametrize("lost", ["headers.ii", "headers.ii.macros", "read.d"])
def test_what_is_lost_is_read_again(build: Path, lost: str):
    (build / "kept" / lost).unlink()
    done, text = after_kept(build)
    assert (done.returncode, done.stderr) == (0, "")
    assert text == preprocess(build, SOURCE, "-MD", "-MF", "k.ii.d").stdout


def test_a_compiler_that_marks_sources_otherwise_reads_everything(build: Path):
    compiler = script(build / "c++", f'{real_compiler()} "$@"', "sed -i '2,$s/k.cu/other.cu/' k.ii*")
    argv = ("/bin/sh", str(SCRIPT), "kept", ".ii", SOURCE, "k.ii", str(compiler), *command(SOURCE)[1:])
    subprocess.run(argv, cwd=build, check=True)
    assert "int k =" in (build / "k.ii").read_text()


DEFINES = [
    ("#define MORE 1", True),
    ("#define GLUED a##b", True),
    ('#define TEXT "a\x0cb\u2028c"', True),
    ("#define BACKSLASH \\/**/", False),
]


@pytest.mark.parametrize(("define", "are_the_same"), DEFINES)
def test_macros_that_do_not_read_back_are_noticed(build: Path, define: str, are_the_same: bool):
    """g++ writes the last of these with a backslash at the end, which takes the next line along."""
    (build / "inc/first.h").write_text(FIRST.replace("#define GONE 1", define, 1))
    defines = preprocess(build, EMPTY, "-dD").stdout
    (build / "again.macros").write_text(header_macros(defines))
    again = preprocess(build, EMPTY, "-imacros", "again.macros", "-dM").stdout
    assert are_left(defines, again) is are_the_same
