"""Which files a linker copies from, by the author's flags and the contents of folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.build.link_inputs import LinkInputs, link_inputs

SHARED = "\x7fELF" + "\x00" * 12 + "\x03"
OBJECT = "\x7fELF" + "\x00" * 12 + "\x01"
ARCHIVE = "!<arch>\n"
THIN = "!<thin>\n//" + " " * 46 + "20        `\nmembers/m.o/\n/abs/n.o/\n"

FILES = {
    "/a/libboth.so": SHARED,
    "/a/libboth.a": ARCHIVE,
    "/a/libone.a": ARCHIVE,
    "/b/libone.a": ARCHIVE,
    "/b/libfar.a": ARCHIVE,
    "/b/librunning.so": SHARED,
    "/b/libversions.so.13": SHARED,
    "/b/libscript.so": "/* GNU ld script, not libold.a */ GROUP ( libpart.a -lfar AS_NEEDED ( /a/libboth.so ) )",
    "/b/libpart.a": ARCHIVE,
    "/b/libloop.so": "INPUT(-lloop)",
    "/b/libthin.a": THIN,
    "/b/members/m.o": OBJECT,
    "/abs/n.o": OBJECT,
    "/abs/x.o": OBJECT,
    "/abs/x.map": "{ global: f; };",
    "/abs/x.so.1": SHARED,
    "/given/libgiven.a": ARCHIVE,
    "/usr/lib/libz.a": ARCHIVE,
}


def linked(*flags: str) -> LinkInputs:
    def list_folder(folder: Path) -> tuple[str, ...]:
        return tuple(sorted(path.name for path in map(Path, FILES) if path.parent == folder))

    def read(path: Path) -> str | None:
        return FILES.get(str(path))

    return link_inputs(flags, [Path("/given")], [Path("/usr/lib")], list_folder, read)


@pytest.mark.parametrize(
    ("flags", "files"),
    [
        ("-L/a -lone", "/a/libone.a"),
        ("-L /a -l one", "/a/libone.a"),
        ("-lone -L/a", "/a/libone.a"),
        ("-L/a -L/b -lfar", "/b/libfar.a"),
        ("-L/b -L/a -lone", "/b/libone.a"),
        ("-Wl,-L/a,-lone", "/a/libone.a"),
        ("-Wl,-L,/a -Xlinker -lone", "/a/libone.a"),
        ("--library-path=/a -Wl,--library,one", "/a/libone.a"),
        ("-L/a -l:libone.a", "/a/libone.a"),
        ("-lgiven", "/given/libgiven.a"),
        ("-lz", "/usr/lib/libz.a"),
        ("-L/a -lboth", ""),
        ("-L/a -l:libboth.a", "/a/libboth.a"),
        ("-L/a -Wl,-Bstatic -lboth -Wl,-Bdynamic", "/a/libboth.a"),
        ("-L/a -Wl,-Bstatic -lone -Wl,-Bdynamic -lboth", "/a/libone.a"),
        ("-L/b -lrunning -lversions -lnowhere", ""),
        ("-L/b -lscript", "/b/libscript.so /b/libpart.a /b/libfar.a"),
        ("-L/b -lloop", "/b/libloop.so"),
        ("-L/b -lthin", "/b/libthin.a /b/members/m.o /abs/n.o"),
        ("/a/libone.a /abs/x.o /abs/x.so.1", "/a/libone.a /abs/x.o"),
        ("-Wl,--whole-archive,/a/libone.a,--no-whole-archive", "/a/libone.a"),
        ("-Wl,--version-script=/abs/x.map", "/abs/x.map"),
        ("-Wl,--dynamic-list,/abs/x.map", "/abs/x.map"),
        # Written, not read.
        ("-Wl,-Map=/abs/x.map -Wl,-Map,/abs/x.map", ""),
        ("-L/a /gone/libone.a -rpath=/a -L=/a -pthread", ""),
    ],
)
def test_files(flags: str, files: str):
    assert [str(path) for path in linked(*flags.split()).files] == files.split()


@pytest.mark.parametrize(
    ("flags", "absent"),
    [
        ("-L/a -lone", "/a/libone.so"),
        ("-L/n -L/a -lboth", "/n/libboth.so /n/libboth.a"),
        ("-L/n -L/a -l:libone.a", "/n/libone.a"),
        ("-static -L/n -L/a -lone", "/n/libone.a"),
        ("-L/n -lz", "/n/libz.so /n/libz.a /given/libz.so /given/libz.a"),
        ("/a/libone.a", ""),
    ],
)
def test_what_would_come_first(flags: str, absent: str):
    assert [str(path) for path in linked(*flags.split()).absent] == absent.split()
