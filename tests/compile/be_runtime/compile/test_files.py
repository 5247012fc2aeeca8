"""Files and folders of sources: their headers and names, what one file sees of the others, and what surrounds code.

An author's warnings, macros and pragmas don't reach what is generated around them.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.compile.be_runtime.load.sources import VALUE, source, value, write
from tests.support.requirements import in_full
from tests.support.runtime import call


def test_a_file_includes_its_siblings(tmp_path: Path):
    head = '#include "a.h"\n#include "below/b.h"\n'
    write(tmp_path / "below")
    for name, text in {
        "siblings.cc": source(head, value="A + B"),
        "a.h": "#define A 1\n",
        "below/b.h": '#include "../a.h"\n#include "c.h"\n#define B (A + C)\n',
        "below/c.h": "#define C 10\n",
    }.items():
        (tmp_path / name).write_text(text)
    module = be_runtime.load_cpp_file(tmp_path / "siblings.cc")
    assert (module.name, module.function_names) == ("siblings", ["value"])
    assert value("siblings.value") == 12


PLAIN = source(value=4).encode()
FILES = [
    ("ending", PLAIN),
    ("windows.cc", b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n")),
    ("latin.cc", "// Grüße\n".encode("latin-1") + PLAIN),
    ("my kernel (1)|&.cpp", PLAIN),
]


@pytest.mark.parametrize(("file", "content"), FILES)
def test_a_file_of_any_name_and_encoding_is_cpp(tmp_path: Path, file: str, content: bytes):
    (tmp_path / file).write_bytes(content)
    name = "given_" + "".join(filter(str.isalnum, file))
    assert be_runtime.load_cpp_file(tmp_path / file, name=name, target_prefix=f"other.{name}").name == name
    assert value(f"other.{name}.value") == 4


NAMES = ("be_handler", "be_handlers", "be_device_link", "link", "module", "build", "obj", "all")


def test_names_that_we_use_ourselves(tmp_path: Path):
    for name in NAMES[::4]:
        be_runtime.load_cpp_inline(name, source(value=6))
        assert value(f"{name}.value") == 6
    write(tmp_path, **{name: source(**{f"f{number}": number}) for number, name in enumerate(NAMES)})
    be_runtime.load_cpp_dir(tmp_path, name="named_like_ours")
    assert [value(f"named_like_ours.f{number}") for number in range(8)] == [*range(8)]


def entry_file(number: int) -> str:
    """One of four: `step` is in all, `half` in the even ones, `only<n>` in one; helpers share their names."""
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
int from_{(number + 1) % 4}();
// @BE step
void step(BE::Tensor out) {{
  out.data_ptr<int32_t>()[0] = helper() + 10 * c_helper() + 100 * Widget().get() + 1000 * twice<int>(table[0]);
}}
{even if number % 2 == 0 else ""}
// @BE only{number}
void only{number}(BE::Tensor out) {{ out.data_ptr<int32_t>()[0] = from_{(number + 1) % 4}() + 10000 * counted(); }}
"""


SHARED = """
#pragma once
template <class T>
T twice(T x) { return 2 * x; }
inline int counted() { static int calls = 0; return ++calls; }
"""


def test_a_folder_offers_every_entry_point_and_each_file_its_own_helpers(tmp_path: Path):
    """What one file alone defines the others can call, and an inline function's static variable is one for all."""
    (tmp_path / "shared.h").write_text(SHARED)
    write(tmp_path, **{f"file{number}": entry_file(number) for number in range(4)})
    module = be_runtime.load_cpp_dir(tmp_path, name="four")
    expected = {f"file{n}.step" for n in range(4)} | {f"only{n}" for n in range(4)} | {"file0.half", "file2.half"}
    assert set(module.function_names) == expected
    assert set(be_runtime.list_registered_targets()) >= {f"four.{name}" for name in expected}
    for number in range(4):
        assert value(f"four.file{number}.step") == number * (1 + 10 + 100 + 2000)
        assert value(f"four.only{number}") == (number + 1) % 4 * 101 + 10000 * (number + 1)
    assert [value(f"four.file{number}.half") for number in (0, 2)] == [1000, 1004]


def test_an_error_of_a_folder_s_function_names_its_file(tmp_path: Path):
    text = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { BE_CHECK(out.ndim() == 1) << "no"; }\n'
    be_runtime.load_cpp_dir(write(tmp_path, a=text, b=text), name="checked")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"checked\.b\.f: .*/b\.cc:3: "):
        jax.block_until_ready(call("checked.b.f", VALUE))


def test_two_folders_of_one_name(tmp_path: Path):
    for number, library in enumerate(("first", "second-lib")):
        write(tmp_path / library / "csrc", a=source(value=number))
    (tmp_path / "first" / "csrc" / "notes.txt").write_text("no source")
    assert be_runtime.load_cpp_dir(tmp_path / "first" / "csrc").name == "csrc"
    with pytest.raises(be_runtime.RegistrationError) as caught:
        be_runtime.load_cpp_dir(tmp_path / "second-lib" / "csrc")
    assert "target_prefix='second_lib_csrc'" in caught.value.hints[-1]
    be_runtime.load_cpp_dir(tmp_path / "second-lib" / "csrc", target_prefix="second_lib_csrc")
    assert (value("csrc.value"), value("second_lib_csrc.value")) == (0, 1)


def test_functions_of_a_folder_by_list_and_dict(tmp_path: Path):
    write(tmp_path, a=source(both=1, first=2), b=source(both=3, second=4))
    module = be_runtime.load_cpp_dir(tmp_path, ["both", "second"], name="listed")
    assert set(module.function_names) == {"a.both", "b.both", "second"}
    assert [value(f"listed.{name}") for name in ("a.both", "b.both", "second")] == [1, 3, 4]
    assert be_runtime.load_cpp_dir(tmp_path, {"first": ["ret"]}, name="mapped").function_names == ["first"]


def test_files_of_one_stem_and_of_helpers_only(tmp_path: Path):
    write(tmp_path, k=source("int helper();\n", value="helper()"), helpers="int helper() { return 1; }\n")
    (tmp_path / "k.cpp").write_text(source(value=2))
    (tmp_path / "K.cxx").write_text(source(value=3))
    module = be_runtime.load_cpp_dir(tmp_path, name="stems")
    assert set(module.function_names) == {"k.cc.value", "k.cpp.value", "K.value"}
    assert [value(f"stems.{name}") for name in ("k.cc.value", "k.cpp.value", "K.value")] == [1, 2, 3]


def test_odd_file_names_in_a_folder(tmp_path: Path):
    names = ["a b", "a$b", "a'b", "a|b", "a:b", "a#b", "a\\b", "-a", "ä", "a&b;", "(a)", "a%b", "a=b", "a\udcffb"]
    write(tmp_path, **{name: source(**{f"f{index}": index}) for index, name in enumerate(names)})
    module = be_runtime.load_cpp_dir(tmp_path, name="odd_names", optimization_level=0)
    assert set(module.function_names) == {f"f{index}" for index in range(len(names))}
    assert [value(f"odd_names.f{index}") for index in range(len(names))] == list(range(len(names)))


def test_two_modules_with_the_same_names_do_not_meet():
    """Helpers, globals and templates of one library are invisible to the other, and to the process."""
    for number in (1, 2):
        head = (
            f"int helper() {{ return {number}; }}\ninline int weak() {{ return {number}; }}\n"
            f"template <class T> T maker() {{ static T kept = {number}; return kept; }}\n"
        )
        text = source(head, value="helper() + 10 * weak() + 100 * maker<int>()")
        be_runtime.load_cpp_inline(f"separate{number}", text)
    assert (value("separate1.value"), value("separate2.value")) == (111, 222)
    assert not hasattr(ctypes.CDLL(None), "be_ffi_separate1_value")


PLACES = """
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
#define MAKE(NAME, VALUE) void made_##NAME(BE::Tensor out) { out.data_ptr<int32_t>()[0] = VALUE; }
// @BE made_five
MAKE(five, 5)
// @BE be_call ret attr.frame attr.entry attr.be_call
void be_call(BE::Tensor out, int frame, int entry, int be_call) {
  out.data_ptr<int32_t>()[0] = frame + 10 * entry + 100 * be_call;
}
"""


def test_entry_points_anywhere_and_with_names_that_generated_code_might_use():
    be_runtime.load_cpp_inline("places", source(PLACES, be_handle=6, handle=7))
    names = ("nested", "hidden", "anonymous", "external", "made_five", "be_handle", "handle")
    assert [value(f"places.{name}") for name in names] == [1, 2, 3, 4, 5, 6, 7]
    attrs = {"frame": np.int32(1), "entry": np.int32(2), "be_call": np.int32(3)}
    assert int(call("places.be_call", VALUE, **attrs)) == 321


@pytest.mark.parametrize("header", ["c_api.h", in_full("ffi.h")])
def test_a_kernel_may_include_xla_s_own_headers(header: str):
    name = f"own_{header.replace('.', '_')}"
    head = f'#include "xla/ffi/api/{header}"\nstatic_assert(sizeof(XLA_FFI_Buffer) > 0, "");\n'
    be_runtime.load_cpp_inline(name, source(head, value=14), optimization_level=0)
    assert value(f"{name}.value") == 14


WARNINGS = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Wold-style-cast"),
    *("-Wcast-qual", "-Wnull-dereference", "-Werror"),
)
KERNELS = {
    "strides": """
        for (int64_t i = 0; i < x.shape(0); ++i)
          for (int64_t j = 0; j < x.shape(1); ++j)
            out.data_ptr<float>()[i * out.stride(0) + j] = x.data_ptr<float>()[i * x.stride(0) + j * x.stride(-1)];""",
    "pointers": """
        BE_CHECK(x.ndim() == 2);
        const BE::Tensor copy = x;
        const int64_t *shape = copy.shape_ptr(), *strides = copy.strides_ptr();
        for (int64_t i = 0; i < shape[0] * strides[0]; ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];""",
    "elements": "for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];",
}
HEAD = '#include "brainevent/common.h"\n'
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def kernel(body: str, *, before: str = "", by: str = "&") -> str:
    return f"{HEAD}{before}\n// @BE f\nvoid f(const BE::Tensor{by} x, BE::Tensor{by} out) {{\n{body}\n}}\n"


def general_kernel(before: str = "") -> str:
    """A kernel whose generated code needs all of our headers."""
    return f"""
    #include <optional>
    #include <string_view>
    {HEAD}{before}
    enum class Mode {{ slow, fast }};
    struct Step {{ float rate = 0.5f; int n{{1}}; Mode mode = Mode::fast; }};
    // @BE f arg[n k] arg?[n] arg? arg... ret[n k] ret... attr.s attr.m attr.d attr.p attr.v
    void f(const BE::Tensor& x, const BE::Tensor*, std::optional<BE::Tensor>, const BE::Tensors&, BE::Tensor& out,
           BE::Tensors, std::string_view s = "a", Mode m = Mode::slow, BE::DType d = BE::DType::Int8, Step p = {{}},
           BE::Span<const float> v = {{}}) {{
      BE_CHECK(s == "a" && m == Mode::slow && d == BE::DType::Int8 && p.n == 1 && v[0] == 1.0f);
      {KERNELS["elements"]}
    }}
    """


GENERAL: dict[str, Any] = {"v": np.ones(1, np.float32), "be_present": np.int64(0)}
"""Attributes of that kernel."""


def check(name: str, text: str, flags: tuple[str, ...] = (), **attrs: Any) -> None:
    be_runtime.load_cpp_inline(name, text, extra_cflags=flags)
    np.testing.assert_array_equal(call(f"{name}.f", jax.ShapeDtypeStruct(X.shape, X.dtype), X, **attrs), X)


@pytest.mark.parametrize("level", [*map(in_full, ("-O0", "-O1", "-O2")), "-O3"])
@pytest.mark.parametrize("by", ["&", ""], ids=["reference", "value"])
@pytest.mark.parametrize("kind", KERNELS)
def test_no_warning_is_about_our_code(kind: str, by: str, level: str):
    name = f"warned_{kind}_{'value' if by == '' else 'reference'}_{level[1:]}"
    check(name, kernel(KERNELS[kind], by=by), (*WARNINGS, level))


@pytest.mark.parametrize("level", ["-O0", in_full("-O2")])
def test_no_warning_is_about_our_code_for_general_calls(level: str):
    check(f"warned_{level[1:]}", general_kernel(), (*WARNINGS, level), **GENERAL)


MACROS = (
    "dims rank view holds run Indices values known types api buffer from stage ctx ptr len message matched tensors "
    "code data dtype shape count size extension attrs rets call trampoline entry traits where XlaItems kWrong"
)


def test_macros_of_the_author_do_not_reach_generated_code():
    """They come before it, after our headers."""
    before = "".join(f"#define {macro} 3 +\n" for macro in MACROS.split())
    body = "float* to = out.data_ptr<float>(); for (int i = 0; i < 6; ++i) to[i] = x.data_ptr<float>()[i];"
    check("macros", kernel(body, before=before))
    check("general_macros", general_kernel(before).replace(KERNELS["elements"], body), **GENERAL)


def test_an_alignment_that_the_author_leaves_set_does_not_reach_xla_s_structures():
    check("packed", kernel(KERNELS["strides"], before="#pragma pack(push, 1)"))
    check("general_packed", general_kernel("#pragma pack(push, 1)"), **GENERAL)


@pytest.mark.parametrize(("entries", "inputs"), [(1, 0), in_full(1, 8), (1, 40), in_full(30, 1), (17, 2)])
def test_any_number_of_tensors(entries: int, inputs: int):
    names = [f"x{index}" for index in range(inputs)]
    total = " + ".join(["0.0f", *(f"{name}.data_ptr<float>()[0]" for name in names)])
    parameters = ", ".join([*(f"const BE::Tensor {name}" for name in names), "BE::Tensor out"])
    entry = f"// @BE f{{0}}\nvoid f{{0}}({parameters}) {{{{ out.data_ptr<float>()[0] = {{0}} + {total}; }}}}\n"
    module = f"many_{entries}_{inputs}"
    be_runtime.load_cpp_inline(module, HEAD + "".join(entry.format(index) for index in range(entries)))
    last = call(f"{module}.f{entries - 1}", jax.ShapeDtypeStruct((1,), np.float32), *[np.ones(1, np.float32)] * inputs)
    assert last.tolist() == [entries - 1 + inputs]
