"""What a module's key depends on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_runtime.load import identity
from be_runtime.load.identity import module_key, request_fields
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.request.tools import Tools
from be_runtime.sharing.roots import key_roots, movable_key, naming_flags
from be_runtime.source_text import SourceText
from be_toolchain.arch import Arch
from be_toolchain.model import HostCompiler, Toolchain

CXX = HostCompiler(
    path=Path("/usr/bin/g++"), family="gcc", version="12.2.0", target="x86_64-linux-gnu", found_via="PATH"
)
TOOLS = Tools(cxx=CXX, cuda=None, archs=(), ffi_include=Path("/site/jaxlib/include"))
TOOLCHAIN = Toolchain(cxx=CXX)
REQUEST = BuildRequest(
    name="kernels",
    language="cpp",
    units=(Unit(stem="kernels", sources=(SourceText(name="kernels", text="void f();"),)),),
    functions={"f": ["arg", "ret"]},
    compile=CompileOptions(),
)

UNIT = REQUEST.units[0]
OTHER_OPTIONS: dict[str, Any] = {
    "optimization_level": 1,
    "use_fast_math": True,
    "cflags": ("-g",),
    "ldflags": ("-lm",),
    "include_paths": (Path("/include"),),
    "native": "a1",
    "checked": True,
    "line_info": True,
    "sanitize": ("address",),
}
OTHER_REQUESTS = (
    *(REQUEST._replace(compile=CompileOptions(**{name: value})) for name, value in OTHER_OPTIONS.items()),
    *(REQUEST._replace(name="other"), REQUEST._replace(language="cuda")),
    *(REQUEST._replace(functions=each) for each in (None, {"f": ["ret", "arg"]}, ["f"], {"f": object()}, 3)),
    REQUEST._replace(units=(UNIT._replace(path=Path("/a/kernels.cc")),)),
    REQUEST._replace(units=(UNIT._replace(sources=(SourceText(name="kernels", text="void g();"),)),)),
)


def key_of(request: BuildRequest = REQUEST, tools: Tools = TOOLS, toolchain: Toolchain = TOOLCHAIN) -> str:
    return module_key(request, tools, toolchain).digest


def test_whatever_decides_the_code_changes_the_key(monkeypatch: pytest.MonkeyPatch):
    assert key_of(REQUEST._replace()) == key_of()
    assert [*OTHER_OPTIONS] == [*CompileOptions._fields]
    keys = [
        *(key_of(), *map(key_of, OTHER_REQUESTS), key_of(tools=TOOLS._replace(archs=(Arch(9, 0),)))),
        key_of(toolchain=TOOLCHAIN._replace(cxx=CXX._replace(version="13.1.0"))),
        key_of(toolchain=TOOLCHAIN._replace(environment=(("CPATH", "/x"),))),
    ]
    for name in ("ABI", "FFI_CLAIM"):
        monkeypatch.setattr(identity, name, "another")
        keys.append(key_of())
    assert len({*keys}) == len(keys)


def test_options_for_faults_leave_the_key_of_an_ordinary_load_as_it_is():
    labels = [label for label, _value in request_fields(REQUEST)]
    assert labels[4:] == [*list(OTHER_OPTIONS)[:6], "abi", "ffi"]


def test_jaxlib_is_in_the_key_of_sources_that_include_xla_alone():
    other = TOOLS._replace(ffi_include=Path("/other"))
    assert key_of(tools=other) == key_of()
    source = UNIT.sources[0]._replace(text='#include "xla/ffi/api/ffi.h"')
    request = REQUEST._replace(units=(UNIT._replace(sources=(source,)),))
    assert key_of(request, other) != key_of(request)


def test_the_architectures_are_a_field_of_the_key():
    key = module_key(REQUEST, TOOLS._replace(archs=(Arch(8, 0), Arch(9, 0, "a"))), TOOLCHAIN)
    assert key.texts("archs") == ("sm_80", "sm_90a")
    assert not any("sm_" in text for text in key.texts("tools"))


def test_a_flag_that_names_an_environments_headers_binds_the_key_to_it_but_not_to_the_machine():
    machine = [(str(INCLUDE_DIR.parent), "<be_runtime>")]
    key = module_key(REQUEST, TOOLS, TOOLCHAIN)
    flags = naming_flags(key_roots(key, machine), is_cuda=False)
    named = REQUEST._replace(compile=REQUEST.compile._replace(cflags=flags))
    bound = module_key(named, TOOLS, TOOLCHAIN)
    assert (key.texts("here"), bound.texts("here")) == ((), (str(INCLUDE_DIR.parent),))
    assert movable_key(bound, key_roots(bound, machine)) == movable_key(key, key_roots(key, machine))
