"""Files and folders of sources: their headers, their names, and what one file of a folder sees of the others."""

from __future__ import annotations

import ctypes
from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import call, libraries

VALUE = jax.ShapeDtypeStruct((), np.int32)


def value_source(expression: str, name: str = "value", head: str = "") -> str:
    """An entry point that writes one number."""
    return (
        f'{head}#include "brainevent/common.h"\n// @BE {name}\n'
        f"void {name}(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = {expression}; }}\n"
    )


def value(target: str) -> int:
    return int(call(target, VALUE))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_a_file_includes_its_siblings(tmp_path: Path):
    write(
        tmp_path,
        {
            "siblings.cc": value_source("A + B", head='#include "a.h"\n#include "below/b.h"\n'),
            "a.h": "#define A 1\n",
            "below/b.h": '#include "../a.h"\n#include "c.h"\n#define B (A + C)\n',
            "below/c.h": "#define C 10\n",
        },
    )
    module = be_runtime.load_cpp_file(tmp_path / "siblings.cc")
    assert module.name == "siblings"
    assert module.function_names == ["value"]
    assert value("siblings.value") == 12


def test_a_file_by_a_relative_path_and_from_elsewhere(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, {"k/moving.cc": value_source("3"), "elsewhere/x": ""})
    monkeypatch.chdir(tmp_path)
    be_runtime.load_cpp_file("k/moving.cc")
    monkeypatch.chdir(tmp_path / "elsewhere")
    be_runtime.load_cpp_file(Path("../k/moving.cc"))
    be_runtime.load_cpp_file(str(tmp_path / "k" / "moving.cc"))
    assert value("moving.value") == 3


@pytest.mark.parametrize("suffix", [".cc", ".cpp", ".cxx", ".txt", ""])
def test_a_file_of_any_ending_is_cpp(tmp_path: Path, suffix: str):
    file = tmp_path / f"ending{suffix}"
    file.write_text(value_source("4"))
    be_runtime.load_cpp_file(file, name=f"ending_{suffix.strip('.') or 'none'}")
    assert value(f"ending_{suffix.strip('.') or 'none'}.value") == 4


def test_a_file_s_name_can_be_given(tmp_path: Path):
    write(tmp_path, {"my kernel (1)|&.cc": value_source("5")})
    module = be_runtime.load_cpp_file(tmp_path / "my kernel (1)|&.cc", name="given", target_prefix="other.prefix")
    assert module.name == "given"
    assert value("other.prefix.value") == 5


@pytest.mark.parametrize(
    "name", ["be_handler", "be_handlers", "be_device_link", "link", "module", "build", "obj", "all"]
)
def test_names_that_we_use_ourselves(name: str, tmp_path: Path, tmp_cache: Path):
    be_runtime.load_cpp_inline(name, value_source("6"))
    assert value(f"{name}.value") == 6
    write(tmp_path / "folder", {f"{name}.cc": value_source("7", "seven"), "other.cc": value_source("8", "eight")})
    be_runtime.load_cpp_dir(tmp_path / "folder", name=f"{name}_in_folder")
    assert value(f"{name}_in_folder.seven") == 7


def test_windows_line_ends_and_a_byte_order_mark(tmp_path: Path):
    file = tmp_path / "windows.cc"
    file.write_bytes(b"\xef\xbb\xbf" + value_source("9").replace("\n", "\r\n").encode())
    be_runtime.load_cpp_file(file)
    assert value("windows.value") == 9


def test_a_source_that_is_not_utf_8(tmp_path: Path):
    file = tmp_path / "latin.cc"
    file.write_bytes("// Grüße\n".encode("latin-1") + value_source("10").encode())
    be_runtime.load_cpp_file(file)
    assert value("latin.value") == 10


def entry_file(number: int) -> str:
    """One of eight: `step` is in all, `half` in the even ones, `only<n>` in one; helpers share their names."""
    even = "// @BE half\nvoid half(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 1000 + helper() + table[0]; }\n"
    return f"""
#include "brainevent/common.h"
#include "shared.h"

int table[] = {{{number}}};
int helper() {{ return {number}; }}
extern "C" int c_helper() {{ return {number}; }}
struct Widget {{ int value; Widget(); int get(); }};
Widget::Widget() : value({number}) {{}}
int Widget::get() {{ return value; }}
int from_{number}() {{ return {number} * 100 + helper(); }}
int from_{(number + 1) % 8}();

// @BE step
void step(BE::Tensor out) {{
  out.data_ptr<int32_t>()[0] = helper() + 10 * c_helper() + 100 * Widget().get() + 1000 * twice<int>(table[0]);
}}

{even if number % 2 == 0 else ""}

// @BE only{number}
void only{number}(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = from_{(number + 1) % 8}() + 10000 * counted(); }}
"""


SHARED = """
#pragma once
template <class T>
T twice(T x) { return 2 * x; }
inline int counted() { static int calls = 0; return ++calls; }
"""


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> be_runtime.CompiledModule:
    folder = tmp_path_factory.mktemp("eight")
    write(folder, {"shared.h": SHARED, **{f"file{number}.cc": entry_file(number) for number in range(8)}})
    return be_runtime.load_cpp_dir(folder, name="eight")


def test_a_folder_of_eight_files_offers_every_entry_point(eight: be_runtime.CompiledModule):
    expected = {f"file{n}.step" for n in range(8)} | {f"file{n}.half" for n in range(0, 8, 2)}
    assert set(eight.function_names) == expected | {f"only{n}" for n in range(8)}
    assert set(be_runtime.list_registered_targets()) >= {f"eight.{name}" for name in eight.function_names}


@pytest.mark.parametrize("number", range(8))
def test_each_file_of_a_folder_uses_its_own_helpers(eight: be_runtime.CompiledModule, number: int):
    assert value(f"eight.file{number}.step") == number * (1 + 10 + 100 + 2000)
    if number % 2 == 0:
        assert value(f"eight.file{number}.half") == 1000 + 2 * number


def test_what_one_file_alone_defines_the_others_can_call(eight: be_runtime.CompiledModule):
    """And an inline function's static variable is one for all files."""
    for calls, number in enumerate(range(8), start=1):
        following = (number + 1) % 8
        assert value(f"eight.only{number}") == following * 101 + 10000 * calls


def test_an_error_of_a_folder_s_function_names_its_file(tmp_path: Path):
    text = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { BE_CHECK(out.ndim() == 1) << "no"; }\n'
    write(tmp_path, {"a.cc": text, "b.cc": text})
    be_runtime.load_cpp_dir(tmp_path, name="checked")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"checked\.b\.f: .*/b\.cc:3: "):
        jax.block_until_ready(call("checked.b.f", VALUE))


def test_a_folder_s_own_name_and_headers(tmp_path: Path):
    folder = write(
        tmp_path / "my_folder",
        {"a.cc": value_source("A", "a", '#include "a.h"\n'), "a.h": "#define A 3\n", "notes.txt": "no source"},
    )
    assert be_runtime.load_cpp_dir(folder).name == "my_folder"
    assert value("my_folder.a") == 3


def test_two_folders_of_one_name(tmp_path: Path):
    for number, library in enumerate(("first", "second-lib")):
        write(tmp_path / library / "csrc", {"a.cc": value_source(str(number))})
    be_runtime.load_cpp_dir(tmp_path / "first" / "csrc")
    with pytest.raises(be_runtime.RegistrationError) as caught:
        be_runtime.load_cpp_dir(tmp_path / "second-lib" / "csrc")
    assert "target_prefix='second_lib_csrc'" in caught.value.hints[-1]
    be_runtime.load_cpp_dir(tmp_path / "second-lib" / "csrc", target_prefix="second_lib_csrc")
    assert (value("csrc.value"), value("second_lib_csrc.value")) == (0, 1)


def test_functions_of_a_folder_by_list_and_dict(tmp_path: Path):
    body = "(BE::Tensor out) { out.data_ptr<int32_t>()[0] = %d; }\n"
    head = '#include "brainevent/common.h"\n'
    write(
        tmp_path,
        {
            "a.cc": head + "void both" + body % 1 + "void first" + body % 2,
            "b.cc": head + "void both" + body % 3 + "void second" + body % 4,
        },
    )
    module = be_runtime.load_cpp_dir(tmp_path, ["both", "second"], name="listed")
    assert set(module.function_names) == {"a.both", "b.both", "second"}
    assert [value(f"listed.{name}") for name in ("a.both", "b.both", "second")] == [1, 3, 4]
    module = be_runtime.load_cpp_dir(tmp_path, {"first": ["ret"]}, name="mapped")
    assert module.function_names == ["first"]
    assert value("mapped.first") == 2
    with pytest.raises(be_runtime.EntryPointNotFoundError, match="third"):
        be_runtime.load_cpp_dir(tmp_path, ["both", "third"], name="unlisted")


def test_files_of_one_stem(tmp_path: Path):
    write(tmp_path, {"k.cc": value_source("1"), "k.cpp": value_source("2"), "K.cxx": value_source("3")})
    module = be_runtime.load_cpp_dir(tmp_path, name="stems")
    assert set(module.function_names) == {"k.cc.value", "k.cpp.value", "K.value"}
    assert [value(f"stems.{name}") for name in ("k.cc.value", "k.cpp.value", "K.value")] == [1, 2, 3]


def test_odd_file_names_in_a_folder(tmp_path: Path):
    names = ["a b", "a$b", "a'b", "a|b", "a:b", "a#b", "a\\b", "-a", "ä", "a&b;", "(a)", "a%b", "a=b", "a\udcffb"]
    files = {f"{name}.cc": value_source(str(index), f"f{index}") for index, name in enumerate(names)}
    write(tmp_path, files)
    module = be_runtime.load_cpp_dir(tmp_path, name="odd_names")
    assert set(module.function_names) == {f"f{index}" for index in range(len(names))}
    assert [value(f"odd_names.f{index}") for index in range(len(names))] == list(range(len(names)))


def test_a_folder_of_one_file(tmp_path: Path):
    write(tmp_path, {"single.cc": value_source("11")})
    assert be_runtime.load_cpp_dir(tmp_path, name="one_file").function_names == ["value"]
    assert value("one_file.value") == 11


def test_a_folder_with_a_file_of_helpers_only(tmp_path: Path):
    write(
        tmp_path,
        {"a.cc": value_source("helper()", head="int helper();\n"), "helpers.cc": "int helper() { return 12; }\n"},
    )
    be_runtime.load_cpp_dir(tmp_path, name="with_helpers")
    assert value("with_helpers.value") == 12


def test_a_file_added_to_a_folder_is_seen(tmp_path: Path, tmp_cache: Path):
    folder = write(tmp_path / "growing", {"a.cc": value_source("1", "a")})
    assert be_runtime.load_cpp_dir(folder).function_names == ["a"]
    write(folder, {"b.cc": value_source("2", "b")})
    assert be_runtime.load_cpp_dir(folder, target_prefix="grown").function_names == ["a", "b"]
    assert value("grown.b") == 2
    assert len(libraries(tmp_cache)) == 2


def test_two_modules_with_the_same_names_do_not_meet():
    """Helpers, globals and templates of one library are invisible to the other."""
    for number in (1, 2):
        source = (
            f"int helper() {{ return {number}; }}\ninline int weak() {{ return {number}; }}\n"
            f"template <class T> T maker() {{ static T kept = {number}; return kept; }}\n"
        )
        be_runtime.load_cpp_inline(
            f"separate{number}", value_source("helper() + 10 * weak() + 100 * maker<int>()", head=source)
        )
    assert value("separate1.value") == 111
    assert value("separate2.value") == 222


def test_a_module_s_names_are_not_the_process_s():
    be_runtime.load_cpp_inline("unseen", value_source("1", "seen_by_its_handle_only"))
    assert not hasattr(ctypes.CDLL(None), "be_ffi_unseen_seen_by_its_handle_only")


def test_entry_points_in_namespaces_and_static(tmp_path: Path):
    source = """
#include "brainevent/common.h"
namespace ops { namespace inner {
// @BE nested
void nested(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 1; }
} }
// @BE hidden
static void hidden(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 2; }
namespace {
// @BE anonymous
void anonymous(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 3; }
}
// @BE external
extern "C" void external(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 4; }
#define MAKE(NAME, VALUE) \\
  void made_##NAME(BE::Tensor out) { out.data_ptr<int32_t>()[0] = VALUE; }
// @BE made_five
MAKE(five, 5)
"""
    be_runtime.load_cpp_inline("places", source)
    names = ("nested", "hidden", "anonymous", "external", "made_five")
    assert [value(f"places.{name}") for name in names] == [1, 2, 3, 4, 5]


def test_names_that_the_generated_code_might_use():
    source = """
#include "brainevent/common.h"
// @BE be_call ret attr.frame attr.entry attr.be_call
void be_call(BE::Tensor out, int frame, int entry, int be_call) {
  out.data_ptr<int32_t>()[0] = frame + 10 * entry + 100 * be_call;
}
// @BE be_handle
void be_handle(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 7; }
// @BE handle
void handle(BE::Tensor out) { out.data_ptr<int32_t>()[0] = 8; }
"""
    be_runtime.load_cpp_inline("clashing", source)
    attrs = {"frame": np.int32(1), "entry": np.int32(2), "be_call": np.int32(3)}
    assert int(call("clashing.be_call", VALUE, **attrs)) == 321
    assert value("clashing.be_handle") == 7
    assert value("clashing.handle") == 8


@pytest.mark.parametrize("header", ["c_api.h", "ffi.h"])
def test_a_kernel_may_include_xla_s_own_headers(header: str):
    name = f"own_{header.replace('.', '_')}"
    head = f'#include "xla/ffi/api/{header}"\nstatic_assert(sizeof(XLA_FFI_Buffer) > 0, "");\n'
    be_runtime.load_cpp_inline(name, value_source("14", head=head), optimization_level=0)
    assert value(f"{name}.value") == 14
