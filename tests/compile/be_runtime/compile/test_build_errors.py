"""A build that fails says where in the user's own source, first things first, and leaves the rest working."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError
from tests.support.runtime import PRINTING, call, environment, forwarding_compiler, libraries, run_python

GOOD = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { out.data_ptr<float>()[0] = 1; }\n'
TYPO = """#include "brainevent/common.h"

// @BE f
void f(const BE::Tensor x, BE::Tensor out) {
  float first = nothing_called_so;
  float second = another_one;
}
"""


def fail(source: str | list[str], name: str = "broken", **options: object) -> BuildError:
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_inline(name, source, **options)  # type: ignore[arg-type]
    return caught.value


def test_an_inline_source_is_called_by_the_module_s_name(tmp_cache: Path):
    error = fail(TYPO)
    assert error.first_error.splitlines()[0].startswith("broken:5:17: error:")
    assert "nothing_called_so" in error.first_error
    assert "another_one" not in error.first_error
    assert "another_one" in error.output
    assert not libraries(tmp_cache)


def test_the_message_shows_the_line_with_a_caret():
    """The compiler can't open an inline source, so the line comes from us."""
    _, line, caret = fail(TYPO).first_error.splitlines()
    assert line.endswith("float first = nothing_called_so;")
    assert line[caret.index("^") :] == "nothing_called_so;"


def test_a_check_with_a_comma_before_its_message_is_refused():
    """It would be a comma operator, and always true."""
    error = fail(GOOD.replace("out.data", 'BE_CHECK(out.numel() > 0, "empty"); out.data'))
    assert error.hints == ('the message of BE_CHECK follows it: BE_CHECK(condition) << "message"',)


@pytest.mark.parametrize("returns", ["Number", "auto", "std::vector<int>"])
def test_an_entry_point_whose_type_hides_a_result(returns: str):
    value = "1" if returns == "auto" else "{}"
    head = '#include <vector>\n#include "brainevent/common.h"\nusing Number = int;\n// @BE f ret\n'
    error = fail(f"{head}{returns} f(BE::Tensor out) {{ return {value}; }}\n")
    first, line, *_ = error.first_error.splitlines()
    assert first.startswith("broken:5:")
    assert "an entry point returns void: take each result as a BE::Tensor parameter" in first
    assert f"{returns} f(BE::Tensor out)" in line


@pytest.mark.parametrize("returns", ["Nothing", "auto", "std::enable_if_t<true>"])
def test_an_entry_point_whose_type_hides_void(returns: str, tmp_cache: Path):
    source = f"""#include <type_traits>
#include "brainevent/common.h"
using Nothing = void;
// @BE f ret
{returns} f(BE::Tensor out) {{ out.data_ptr<float>()[0] = 3; }}
"""
    name = f"hides_void_{len(returns)}"
    be_runtime.load_cpp_inline(name, source, extra_cflags=["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
    assert call(f"{name}.f", jax.ShapeDtypeStruct((), np.float32)) == 3


def test_the_text_begins_with_what_failed_and_ends_with_the_command():
    error = fail(TYPO)
    lines = str(error).splitlines()
    assert "broken" in lines[0]
    assert "nothing_called_so" in lines[1]
    assert error.command
    assert any(line.startswith("command: ") and "-fvisibility=hidden" in line for line in lines)
    assert "full output:" in lines


def test_the_message_is_the_same_whatever_variables_ask_programs_for(monkeypatch: pytest.MonkeyPatch):
    plain = fail(TYPO, "surrounded")
    for name, value in PRINTING.items():
        monkeypatch.setenv(name, value)
    assert str(fail(TYPO, "surrounded")) == str(plain)


@pytest.mark.parametrize(
    ("header", "near"),
    [
        ('"brainevent/comon.h"', "brainevent/common.h"),
        ('"brainevnt/common.h"', "brainevent/common.h"),
        ('"helpers.h"', "helper.h"),
        ("<strin.h>", "string.h"),
    ],
)
def test_a_misspelt_header_hints_at_the_name_that_is_near(header: str, near: str, tmp_path: Path):
    (tmp_path / "helper.h").touch()
    error = fail(f"#include {header}\n{GOOD}", extra_include_paths=[tmp_path])
    assert error.hints == (f"did you mean {near}?",)


def test_a_header_that_is_like_no_other_hints_at_its_folder():
    error = fail(f'#include "quaternion_tables.h"\n{GOOD}')
    assert error.hints == ("a header was not found: name its folder in extra_include_paths",)


def test_several_sources_are_told_apart():
    helper = "inline int helper() { return 1; }\n"
    assert fail([helper, TYPO]).first_error.startswith("broken[1]:5:17: error:")
    assert fail([TYPO, helper]).first_error.startswith("broken[0]:5:17: error:")


def test_a_source_without_a_last_newline_does_not_shift_the_next():
    assert fail(["int one;", "\n\n" + TYPO]).first_error.startswith("broken[1]:7:17: error:")


def test_a_file_is_called_by_its_path(tmp_path: Path):
    file = tmp_path / "kernel.cc"
    file.write_text(TYPO)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_file(file)
    assert caught.value.first_error.startswith(f"{file}:5:17: error:")


def test_a_file_with_odd_characters_in_its_path(tmp_path: Path):
    folder = tmp_path / "a 'b' \\n ü $x #:"
    folder.mkdir()
    file = folder / "kernel 1.cc"
    file.write_text(TYPO)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_file(file, name="broken")
    assert "kernel 1.cc:5:17: error:" in caught.value.first_error.splitlines()[0]
    file.write_text(GOOD)
    assert be_runtime.load_cpp_file(file, name="odd_path", auto_register=False).function_names == ["f"]


@pytest.mark.parametrize("name", ['a"b', "a\nb", "a\rb"])
def test_a_path_that_no_include_can_name(tmp_path: Path, name: str):
    file = tmp_path / f"{name}.cc"
    file.write_text(GOOD)
    with pytest.raises(ArgumentError, match="quote or a line break"):
        be_runtime.load_cpp_file(file, name="broken")


def test_an_error_in_a_header_is_found_there(tmp_path: Path):
    (tmp_path / "part.h").write_text("\n\nint x = oops;\n")
    file = tmp_path / "kernel.cc"
    file.write_text('#include "part.h"\n' + GOOD)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_file(file)
    first = next(line for line in caught.value.first_error.splitlines() if "error:" in line)
    assert first.startswith(f"{tmp_path}/part.h:3:9: error:")


def test_one_of_several_files_fails(tmp_path: Path):
    for name in "abc":
        (tmp_path / f"{name}.cc").write_text(GOOD.replace(" f", f" f{name}"))
    (tmp_path / "b.cc").write_text(TYPO)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_dir(tmp_path, name="broken")
    assert caught.value.first_error.startswith(f"{tmp_path}/b.cc:5:17: error:")
    assert "b.cc" in str(caught.value).splitlines()[0]


def test_warnings_before_the_error_are_not_the_first_error():
    source = TYPO.replace("{\n", "{\n  int unused;\n", 1)
    error = fail(source, extra_cflags=["-Wall"])
    assert "warning: unused variable" in error.output
    assert error.first_error.startswith("broken:6:17: error:")


def test_a_trampoline_that_does_not_fit_points_at_the_function():
    """What discovery can't tell, such as a parameter of an own type, the compiler says at the user's line."""
    source = (
        '#include "brainevent/common.h"\nstruct Own { Own(float, float) {} };\n\n'
        "// @BE f ret attr.x:float32\nvoid f(BE::Tensor out, Own x) {}\n"
    )
    error = fail(source)
    assert "broken:5" in error.first_error.splitlines()[0]
    assert any("arg_spec" in hint for hint in error.hints)


def test_a_missing_header_has_a_hint():
    error = fail('#include "no_such_header.h"\n' + GOOD)
    assert "broken:1:10: fatal error:" in error.first_error
    assert any("extra_include_paths" in hint for hint in error.hints)


def test_a_missing_include_of_ours_has_a_hint():
    error = fail("// @BE f\nvoid f(BE::Tensor out) {}\n")
    assert any("brainevent/common.h" in hint for hint in error.hints)


@pytest.mark.parametrize(
    "statement",
    [
        "x.data_ptr<float>()[0] = 99;",
        "float* p = x.data_ptr<float>(); p[0] = 99;",
        "float* p = static_cast<float*>(x.data_ptr()); p[0] = 99;",
        "static_cast<float*>(x.data())[0] = 99;",
        "const BE::Tensor& same = x; same.data_ptr<float>()[0] = 99;",
        "[=] { out.data_ptr<float>()[0] = 99; }();",
    ],
)
def test_nothing_is_written_through_a_const_tensor(statement: str):
    source = f'#include "brainevent/common.h"\n// @BE f\nvoid f(const BE::Tensor x, BE::Tensor out) {{ {statement} }}\n'
    assert "gives pointers to const" in " ".join(fail(source).hints)


def test_messages_do_not_depend_on_the_language(monkeypatch: pytest.MonkeyPatch):
    """Quotes change with the locale's encoding."""
    for locale in ("C", "C.UTF-8", "de_DE.UTF-8"):
        monkeypatch.setenv("LC_ALL", locale)
        monkeypatch.setenv("LANGUAGE", locale)
        error = fail("// @BE f\nvoid f(BE::Tensor out) {}\n")
        assert "'BE' has not been declared" in error.output
        assert any("brainevent/common.h" in hint for hint in error.hints)


UNDEFINED = """#include "brainevent/common.h"
extern "C" int defined_nowhere(int);
// @BE f
void f(BE::Tensor out) { out.data_ptr<int>()[0] = defined_nowhere(1); }
"""


def test_a_symbol_that_is_defined_nowhere():
    for _ in range(2):
        with pytest.raises(BuildError) as caught:
            be_runtime.load_cpp_inline("unlinked", UNDEFINED)
    assert "undefined reference to" in caught.value.first_error
    assert "defined_nowhere" in caught.value.first_error
    assert any("extra_ldflags" in hint for hint in caught.value.hints)
    assert "unlinked.f" not in be_runtime.list_registered_targets()


def test_an_undefined_symbol_is_told_in_the_author_s_names():
    """The functions that we generate around an entry point are no part of it."""
    error = fail(UNDEFINED, "unlinked")
    line = error.first_error
    assert line == "undefined reference to 'defined_nowhere', used by the entry point f in unlinked"
    assert "BE::detail" not in str(error)


def test_openmp_for_the_compiler_alone_says_that_the_linker_needs_it_too():
    source = GOOD.replace("out.data_ptr", "#pragma omp parallel\n  out.data_ptr").replace("{ #", "{\n#")
    error = fail(source, "parallel", extra_cflags=["-fopenmp"])
    assert "extra_ldflags=['-fopenmp']" in error.hints[0]


def test_a_mistake_in_a_dispatch_macro_is_one_screen():
    line = "BE_DISPATCH_ALL(out.dtype(), T, [&] { out.data_ptr<T>()[0] = nothing_called_so; });"
    error = fail(GOOD.replace("out.data_ptr<float>()[0] = 1;", f"\n{line}\n"))
    assert error.first_error.splitlines()[1] == f"    4 | {line}"
    assert error.first_error.startswith("broken:4:")
    assert len(error.output.splitlines()) > 100
    assert len(str(error).splitlines()) < 20
    assert len(str(error)) < 3000


def test_an_error_in_a_template_is_shown_at_the_author_s_line(tmp_path: Path):
    source = "#include <algorithm>\nstruct P { float a; };\ninline void g(P* p) {\n  std::sort(p, p + 3);\n}\n" + GOOD
    for error, name in ((fail(source), "broken"), (fail_file(tmp_path / "k.cc", source), f"{tmp_path}/k.cc")):
        first = error.first_error.splitlines()
        assert first[0].startswith(f"{name}:4:")
        assert "operator<" in first[0]
        assert first[1] == "    4 |   std::sort(p, p + 3);"
        assert any("predefined_ops.h" in line for line in first[2:])


def fail_file(file: Path, source: str) -> BuildError:
    file.write_text(source)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_file(file)
    return caught.value


def test_a_library_that_is_not_there():
    error = fail(GOOD, extra_ldflags=["-lno_such_library"])
    assert re.search("(cannot find|unable to find library) -lno_such_library", error.first_error)
    assert any("-L" in hint for hint in error.hints)
    assert "-lno_such_library" in error.command


def test_an_unknown_flag():
    error = fail(GOOD, extra_cflags=["-fno-such-flag-at-all"])
    assert "-fno-such-flag-at-all" in error.first_error
    assert "-fno-such-flag-at-all" in error.command


def test_the_next_load_works(tmp_cache: Path):
    fail(TYPO, "repaired")
    be_runtime.load_cpp_inline("repaired", GOOD)
    assert list(call("repaired.f", jax.ShapeDtypeStruct((1,), np.float32))) == [1.0]
    assert len(libraries(tmp_cache)) == 1


def test_a_failed_build_leaves_no_files(tmp_cache: Path):
    fail(TYPO)
    assert not [path for path in tmp_cache.rglob("*") if path.suffix in {".cc", ".o", ".d", ".ninja"}]


def test_errors_of_a_child_process_are_short(tmp_path: Path):
    """The traceback of a user's script ends with our text, not with an error inside the handling of an error."""
    code = f"import be_runtime\nbe_runtime.load_cpp_inline('broken', {TYPO!r})\n"
    done = run_python(code, check=False)
    assert done.returncode == 1
    assert "During handling" not in done.stderr
    assert "be_runtime.errors.BuildError" in done.stderr


def test_a_compiler_that_crashes(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = forwarding_compiler(tmp_path / "g++", "echo 'internal trouble' >&2; kill -SEGV $$")
    monkeypatch.setenv("BE_CXX", str(compiler))
    error = fail(GOOD, "crashing")
    assert "internal trouble" in str(error)
    assert str(compiler) in error.command


def test_a_compiler_that_prints_what_is_no_text(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = forwarding_compiler(tmp_path / "g++", "printf 'odd \\377\\376 bytes\\r\\n@be@nonsense\\n\\n'; exit 1")
    monkeypatch.setenv("BE_CXX", str(compiler))
    error = fail(GOOD, "odd")
    assert "odd" in error.output
    assert "bytes" in error.output
    str(error).encode(sys.stdout.encoding or "utf-8", "strict")


def test_ninja_is_missing(tmp_path: Path):
    code = f"""
import sysconfig, be_runtime
from pathlib import Path
real = sysconfig.get_path
sysconfig.get_path = lambda name, *rest, **more: {str(tmp_path)!r} if name == "scripts" else real(name, *rest, **more)
try:
    be_runtime.load_cpp_inline("no_ninja", {GOOD!r})
except be_runtime.BuildError as error:
    print(error)
"""
    compiler = forwarding_compiler(tmp_path / "g++")
    env = environment(PATH=str(tmp_path), BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"))
    done = run_python(code, env=env)
    assert "ninja is not installed" in done.stdout
    assert "pip install ninja" in done.stdout
