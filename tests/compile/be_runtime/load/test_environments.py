"""Environments with the same release share a cache, and an entry outlives the environment that built it."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.support.prefixes import Prefix
from tests.support.runtime import environment, forwarding_compiler, run_python

LOAD = """
import sys, be_runtime
for text in sys.argv[1:]:
    print(be_runtime.load_cpp_inline("shared", text, auto_register=False).path)
"""
PLAIN = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { (void)out; }\n'
XLA = f'#include "xla/ffi/api/c_api.h"\n{PLAIN}'


class Environments:
    """Environments with packages of their own, one cache, and a compiler that notes what it compiles."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes = folder, folder / "notes"
        self.compiler = forwarding_compiler(folder / "g++", f"echo \"$*\" >> '{self.notes}'")

    def make(self, name: str) -> Prefix:
        """Make one, with links to all of jaxlib but its headers."""
        made, jaxlib = Prefix(self.folder / name), Path(sysconfig.get_path("purelib"), "jaxlib")
        (made.site / "jaxlib").mkdir()
        shutil.copytree(jaxlib / "include", made.site / "jaxlib/include")
        for each in jaxlib.iterdir():
            if each.name not in ("include", "__pycache__"):
                (made.site / "jaxlib" / each.name).symlink_to(each)
        return made

    def load(self, prefix: Prefix, *texts: str) -> tuple[list[str], str]:
        """Load sources in a process of an environment: the libraries, and the compilers' commands."""
        self.notes.write_text("")
        variables = {"BE_CXX": str(self.compiler), "BE_CACHE_DIR": str(self.folder / "cache")}
        done = run_python(LOAD, *texts, env=environment(PYTHONPATH=str(prefix.site), **variables))
        return done.stdout.splitlines(), self.notes.read_text()


@pytest.fixture
def environments(tmp_path: Path) -> Environments:
    return Environments(tmp_path)


def test_a_module_outlives_the_environment_that_built_it(environments: Environments):
    first, second = environments.make("first"), environments.make("a second")
    built, commands = environments.load(first, PLAIN, XLA)
    assert "handler.cc" in commands
    shutil.rmtree(first.folder)
    assert environments.load(second, PLAIN, XLA) == (built, "")
    _, commands = environments.load(second, PLAIN + "// another\n")
    assert "shared.cc" in commands
    assert "handler.cc" not in commands, "of the parts that all modules share, that is as true"


def test_the_headers_of_the_environment_that_loads_count(environments: Environments):
    first, second = environments.make("first"), environments.make("second")
    built, _ = environments.load(first, PLAIN, XLA)
    header = second.site / "jaxlib/include/xla/ffi/api/c_api.h"
    header.write_text(f"{header.read_text()}// edited\n")
    found, _ = environments.load(second, PLAIN, XLA)
    assert (found[0] == built[0], found[1] == built[1]) == (True, False)
    (second.site / "jaxlib/include/new").write_text("#include_next <new>\n")
    assert environments.load(second, PLAIN)[0] != built[:1], "a header that would be found first"
    assert environments.load(first, PLAIN, XLA) == (built, ""), "where it was built nothing has changed"


def test_a_source_that_names_an_environment_is_of_that_one(environments: Environments):
    first, second = environments.make("first"), environments.make("second")
    text = XLA.replace('"xla', f'"{first.site}/jaxlib/include/xla')
    built, _ = environments.load(first, text)
    assert environments.load(second, text)[0] != built
