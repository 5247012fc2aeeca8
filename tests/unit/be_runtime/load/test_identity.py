"""What a module's key depends on, what a request for other machines keeps, and what identifies our own code."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime.load import identity
from be_runtime.load.identity import checkout_digest, module_key, portable_request, request_fields, shipped_name
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.arguments import cpp_request, inline_units
from be_runtime.request.build_tools import BuildTools
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.signature import SourceText
from be_runtime.store.index import Demand
from be_runtime.store.sharing import key_roots, movable_key, naming_flags
from be_toolchain import __version__
from be_toolchain.arch import Arch
from be_toolchain.values import HostCompiler, Toolchain
from tests.support.hostile_files import KINDS, plant, refused_at_once
from tests.support.runtime import environment, run_python

CXX = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu", "PATH")
TOOLS = BuildTools(cxx=CXX, cuda=None, archs=(), ffi_include=Path("/site/jaxlib/include"))
TOOLCHAIN = Toolchain(cxx=CXX)
REQUEST = cpp_request("kernels", inline_units("kernels", "void f();", "sources"), {"f": ["arg", "ret"]})
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
    "active": "positive",
    "default_stream": "xla",
}
OTHER_REQUESTS = (
    *(REQUEST._replace(compile=CompileOptions(**{name: value})) for name, value in OTHER_OPTIONS.items()),
    *(REQUEST._replace(name="other"), REQUEST._replace(language="cuda")),
    *(REQUEST._replace(functions=each) for each in (None, {"f": ["ret", "arg"]}, ["f"], {"f": object()}, 3)),
    REQUEST._replace(units=(UNIT._replace(path=Path("/a/kernels.cc")),)),
    REQUEST._replace(units=(UNIT._replace(sources=(SourceText(name="kernels", text="void g();"),)),)),
)


def key_of(request: BuildRequest = REQUEST, tools: BuildTools = TOOLS, toolchain: Toolchain = TOOLCHAIN) -> str:
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


FILE = Path("/home/me/ops.cc")
PORTABLE = REQUEST._replace(
    name="ops",
    units=(Unit("ops", (SourceText(str(FILE), "void f();"),), FILE),),
    compile=CompileOptions(cflags=("-march=znver4",), native="a1"),
)


def test_the_level_comes_after_the_authors_own_and_folders_have_the_modules_name():
    options = portable_request(PORTABLE, Demand("x86-64-v3")).compile
    assert [flag for flag in options.cflags if flag.startswith("-march")] == ["-march=znver4", "-march=x86-64-v3"]
    assert "-ffile-prefix-map=/home/me=ops" in options.cflags
    assert options.native == ""


def test_a_module_without_libraries_keeps_none_so_its_handlers_are_compiled_with_its_functions():
    assert portable_request(PORTABLE, Demand("")).compile.ldflags == ()
    linked = PORTABLE._replace(compile=CompileOptions(ldflags=("-lfoo",)))
    assert portable_request(linked, Demand("")).compile.ldflags == ("-lfoo", "-rpath=")


SITE = Path(__file__).parents[4]
CODE = "from be_runtime.load.identity import own_code_digest; print(own_code_digest())"
SHIPPED = "from be_runtime.load.identity import shipped_folder; print(shipped_folder())"


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A copy of the packages."""
    copied = tmp_path / "site"
    for package in ("be_runtime", "be_toolchain"):
        shutil.copytree(SITE / package, copied / package, ignore=shutil.ignore_patterns("__pycache__", "shipped"))
    return copied


def digest(site: Path, memo: Path, later_s: int = 0) -> str:
    return checkout_digest(site, memo, time.time_ns() + later_s * 10**9)


CHANGED = (
    *("be_toolchain/arch.py", "be_runtime/native/xla_call.h", "be_runtime/native/looked_at.c"),
    *("be_runtime/native/with_kept_headers.sh", "be_runtime/include/brainevent/detail/entry.h"),
)


def test_a_change_anywhere_is_another_identity(site: Path, tmp_path: Path):
    before = {digest(site, tmp_path / "memo")}
    for name in (*CHANGED, "be_runtime/signature/more/deep/module.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        with (site / name).open("a") as file:
            file.write("\n")
        assert digest(site, tmp_path / "memo") not in before, name
        before.add(digest(site, tmp_path / "memo"))
    (site / "be_runtime" / "aside").mkdir()
    (site / "be_runtime" / "control.py").rename(site / "be_runtime" / "aside" / "control.py")
    assert digest(site, tmp_path / "memo") not in before


def test_a_wheel_and_another_checkout_have_the_identity_of_a_checkout(site: Path, tmp_path: Path):
    files = [path for path in site.rglob("*") if path.is_file()]
    record = site / f"brainevent_toolchain-{__version__}.dist-info" / "RECORD"
    record.parent.mkdir()
    hashes = (base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode() for path in files)
    rows = [f"{path.relative_to(site)},sha256={each.rstrip('=')},1" for path, each in zip(files, hashes, strict=True)]
    record.write_text("\n".join([*rows, f"{record.parent.name}/RECORD,,", "be_runtime/__pycache__/api.pyc,,", ""]))
    installed = run_python(CODE, cwd=site, env=environment(PYTHONPATH=str(site))).stdout.strip()
    assert installed == digest(site, tmp_path / "memo") == digest(SITE, tmp_path / "other")


@pytest.mark.parametrize("place", ["site-packages/be_runtime/native/shipped", "../brainevent-toolchain"])
def test_compiled_files_are_found_beside_the_code_that_they_are_of(site: Path, tmp_path: Path, place: str):
    """Wheels have them among the sources, conda in the environment's ``lib``."""
    lib = tmp_path / "lib" / "python3"
    lib.mkdir(parents=True)
    site = site.rename(lib / "site-packages")
    made = (lib / place).resolve() / shipped_name(os.uname().machine, digest(site, tmp_path / "memo"))
    made.mkdir(parents=True)
    environ = environment(PYTHONPATH=str(site))
    assert run_python(SHIPPED, cwd=site, env=environ).stdout == f"{made}\n"
    made.rename(made.with_name(f"{made.name[:-1]}-"))
    assert run_python(SHIPPED, cwd=site, env=environ).stdout == "None\n"


def test_what_is_kept_serves_until_a_file_changes(site: Path, tmp_path: Path):
    memo, file = tmp_path / "memo", site / "be_runtime" / "control.py"
    true = digest(site, memo)
    assert not memo.exists(), "files that changed just now may change again and keep their stat"
    assert digest(site, memo, later_s=3) == true
    memo.write_text(memo.read_text().replace(true, "kept"))
    assert digest(site, memo) == "kept"
    times, text = file.stat(), file.read_text()
    file.write_text(text.replace("CUDA", "cuda", 1))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest(site, memo) not in (true, "kept")


def test_a_damaged_memo_is_of_no_use_and_written_again(site: Path, tmp_path: Path):
    memo = tmp_path / "memo.json"
    true = digest(site, memo, later_s=10)
    for text in ("", "[]", "{}", '{"seen": 1, "digest": 2}', "\0", "[" * 100_000):
        memo.write_text(text)
        assert digest(site, memo, later_s=10) == true
        assert memo.read_text() != text


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_memo_is_not_waited_for(site: Path, tmp_path: Path, kind: str):
    with refused_at_once():
        assert digest(site, plant(tmp_path / "memo", kind)) == digest(site, tmp_path / "none")
