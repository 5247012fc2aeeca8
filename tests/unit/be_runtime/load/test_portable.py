"""A request for other machines: the level holds, nothing of this machine stays, and calls cost what they cost here."""

from __future__ import annotations

from pathlib import Path

from be_runtime.bundle.carried import Demand
from be_runtime.load.portable import portable_request
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.source_text import SourceText

FILE = Path("/home/me/ops.cc")
REQUEST = BuildRequest(
    name="ops",
    language="cpp",
    units=(Unit("ops", (SourceText(str(FILE), "void f();"),), FILE),),
    functions=None,
    compile=CompileOptions(cflags=("-march=znver4",), native="a1"),
)


def test_the_level_comes_after_the_authors_own_and_folders_have_the_modules_name():
    options = portable_request(REQUEST, Demand("x86-64-v3")).compile
    assert [flag for flag in options.cflags if flag.startswith("-march")] == ["-march=znver4", "-march=x86-64-v3"]
    assert "-ffile-prefix-map=/home/me=ops" in options.cflags
    assert options.native == ""


def test_a_module_without_libraries_keeps_none_so_its_handlers_are_compiled_with_its_functions():
    assert portable_request(REQUEST, Demand("")).compile.ldflags == ()
    linked = REQUEST._replace(compile=CompileOptions(ldflags=("-lfoo",)))
    assert portable_request(linked, Demand("")).compile.ldflags == ("-lfoo", "-rpath=")
