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


def key_of(request: BuildRequest = REQUEST, tools: Tools = TOOLS, toolchain: Toolchain = TOOLCHAIN) -> str:
    return module_key(request, tools, toolchain).digest


def test_the_same_inputs_have_the_same_key():
    assert key_of(REQUEST._replace()) == key_of()


@pytest.mark.parametrize("field", CompileOptions._fields)
def test_every_compile_option_changes_the_key(field: str):
    changed = REQUEST._replace(compile=REQUEST.compile._replace(**{field: OTHER_OPTIONS[field]}))
    assert key_of(changed) != key_of()


def test_options_for_faults_leave_the_key_of_an_ordinary_load_as_it_is():
    labels = [label for label, _value in request_fields(REQUEST)]
    assert labels[4:] == [*list(OTHER_OPTIONS)[:6], "abi", "ffi"]


@pytest.mark.parametrize(
    "changed",
    [
        REQUEST._replace(name="other"),
        REQUEST._replace(language="cuda"),
        REQUEST._replace(functions=None),
        REQUEST._replace(functions={"f": ["ret", "arg"]}),
        REQUEST._replace(functions=["f"]),
        REQUEST._replace(units=(REQUEST.units[0]._replace(path=Path("/a/kernels.cc")),)),
        REQUEST._replace(units=(REQUEST.units[0]._replace(sources=(SourceText(name="kernels", text="void g();"),)),)),
    ],
    ids=lambda request: repr(request)[:80],
)
def test_the_request_changes_the_key(changed: BuildRequest):
    assert key_of(changed) != key_of()


def test_the_tools_change_the_key():
    assert key_of(tools=TOOLS._replace(archs=(Arch(9, 0),))) != key_of()
    assert key_of(toolchain=TOOLCHAIN._replace(cxx=CXX._replace(version="13.1.0"))) != key_of()
    assert key_of(toolchain=TOOLCHAIN._replace(environment=(("CPATH", "/x"),))) != key_of()


def test_jaxlib_is_in_the_key_of_sources_that_include_xla_alone():
    other, source = TOOLS._replace(ffi_include=Path("/other")), REQUEST.units[0].sources[0]
    assert key_of(tools=other) == key_of()
    includes = REQUEST.units[0]._replace(sources=(source._replace(text='#include "xla/ffi/api/ffi.h"'),))
    request = REQUEST._replace(units=(includes,))
    assert key_of(request, other) != key_of(request)


@pytest.mark.parametrize("name", ["ABI", "FFI_CLAIM"])
def test_the_abi_and_the_claim_change_the_key(name: str, monkeypatch: pytest.MonkeyPatch):
    before = key_of()
    monkeypatch.setattr(identity, name, "another")
    assert key_of() != before


def test_the_architectures_are_a_field_of_the_key():
    key = module_key(REQUEST, TOOLS._replace(archs=(Arch(8, 0), Arch(9, 0, "a"))), TOOLCHAIN)
    assert key.texts("archs") == ("sm_80", "sm_90a")
    assert not any("sm_" in text for text in key.texts("tools"))


def test_functions_that_are_not_well_formed_have_a_key_too():
    assert key_of(REQUEST._replace(functions={"f": object()})) != key_of()
    assert key_of(REQUEST._replace(functions=3)) != key_of()


def test_a_flag_that_names_an_environments_headers_binds_the_key_to_it_but_not_to_the_machine():
    machine = [(str(INCLUDE_DIR.parent), "<be_runtime>")]
    key = module_key(REQUEST, TOOLS, TOOLCHAIN)
    flags = naming_flags(key_roots(key, machine), is_cuda=False)
    named = REQUEST._replace(compile=REQUEST.compile._replace(cflags=flags))
    bound = module_key(named, TOOLS, TOOLCHAIN)
    assert (key.texts("here"), bound.texts("here")) == ((), (str(INCLUDE_DIR.parent),))
    assert movable_key(bound, key_roots(bound, machine)) == movable_key(key, key_roots(key, machine))
