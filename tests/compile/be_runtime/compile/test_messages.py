"""What a build says: where it failed in the user's own source, and what it does if that is asked."""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError
from be_runtime.load.obtain import Waiting
from be_runtime.store.lock import THIS_PROCESS
from tests.compile.be_runtime.load.sources import source, value
from tests.support.requirements import in_full
from tests.support.runtime import PRINTING, call, forwarding_compiler, libraries, real_compiler
from tests.support.terminals import Terminal

HEAD = '#include "brainevent/common.h"\n'
GOOD = HEAD + "// @BE f\nvoid f(BE::Tensor out) { out.data_ptr<float>()[0] = 1; }\n"
TYPO = f"""{HEAD}
// @BE f
void f(const BE::Tensor x, BE::Tensor out) {{
  float first = nothing_called_so;
  float second = another_one;
}}
"""


def fail(text: str | list[str], name: str = "broken", **options: Any) -> BuildError:
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_inline(name, text, **options)
    return caught.value


def fail_file(file: Path, text: str) -> BuildError:
    file.write_text(text)
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cpp_file(file, name="broken")
    return caught.value


def test_the_first_error_comes_first_and_the_next_load_works(tmp_cache: Path):
    """The compiler can't open an inline source, so its line comes from us."""
    error = fail(TYPO, "repaired")
    first, line, caret = error.first_error.splitlines()
    assert first.startswith("repaired:5:17: error:")
    assert line.endswith("float first = nothing_called_so;")
    assert line[caret.index("^") :] == "nothing_called_so;"
    assert "another_one" in error.output
    lines = str(error).splitlines()
    assert "repaired" in lines[0]
    assert lines[1] == first
    assert "full output:" in lines
    assert any(line.startswith("command: ") and "-fvisibility=hidden" in line for line in lines)
    assert {each.filename for each in traceback.extract_tb(error.__traceback__)} == {__file__}
    assert "During handling" not in "".join(traceback.format_exception(error))
    assert not libraries(tmp_cache)
    assert not [path for path in tmp_cache.rglob("*") if path.suffix in {".cc", ".o", ".d", ".ninja"}]
    be_runtime.load_cpp_inline("repaired", source(f=1))
    assert value("repaired.f") == 1
    assert len(libraries(tmp_cache)) == 1


BROKEN_COMPILERS = [
    ("echo 'internal trouble' >&2; kill -SEGV $$", ("internal trouble",)),
    ("printf 'odd \\377\\376 bytes\\r\\n@be@nonsense\\n\\n'; exit 1", ("odd", "bytes")),
]


@pytest.mark.parametrize("returns", [*map(in_full, ("Number", "std::vector<int>")), "auto"])
def test_an_entry_point_whose_type_hides_a_result(returns: str):
    head = f"#include <vector>\n{HEAD}using Number = int;\n// @BE f ret\n"
    text = f"{head}{returns} f(BE::Tensor out) {{ return {'1' if returns == 'auto' else '{}'}; }}\n"
    first, line, *_ = fail(text).first_error.splitlines()
    assert first.startswith("broken:5:")
    assert "an entry point returns void: take each result as a BE::Tensor parameter" in first
    assert f"{returns} f(BE::Tensor out)" in line


@pytest.mark.parametrize("returns", [*map(in_full, ("Nothing", "std::enable_if_t<true>")), "auto"])
def test_an_entry_point_whose_type_hides_void(returns: str):
    head, name = f"#include <type_traits>\n{HEAD}using Nothing = void;\n// @BE f ret\n", f"hides_void_{len(returns)}"
    text = f"{head}{returns} f(BE::Tensor out) {{ out.data_ptr<float>()[0] = 3; }}\n"
    be_runtime.load_cpp_inline(name, text, extra_cflags=["-Wall", "-Wextra", "-Wpedantic", "-Werror"])
    assert call(f"{name}.f", jax.ShapeDtypeStruct((), np.float32)) == 3


def test_the_message_is_the_same_whatever_variables_ask_programs_for(monkeypatch: pytest.MonkeyPatch):
    """Quotes change with the locale's encoding."""
    error = fail("// @BE f\nvoid f(BE::Tensor out) {}\n")
    assert "'BE' has not been declared" in error.output
    assert any("brainevent/common.h" in hint for hint in error.hints)
    for variables in (PRINTING, {"LC_ALL": "C", "LANGUAGE": "C"}, {"LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de_DE.UTF-8"}):
        for name, text in variables.items():
            monkeypatch.setenv(name, text)
        assert str(fail("// @BE f\nvoid f(BE::Tensor out) {}\n")) == str(error)


OWN = "struct Own { Own(float, float) {} };\n// @BE f ret attr.x:float32\nvoid f(BE::Tensor out, Own x) {}\n"
CHECKED = GOOD.replace("out.data", 'BE_CHECK(out.numel() > 0, "empty"); out.data')
UNUSED = TYPO.replace("{\n", "{\n  int unused;\n", 1)
PARALLEL = GOOD.replace("{ out", "{\n#pragma omp parallel\n  out")
SORTING = f"#include <algorithm>\nstruct P {{ float a; }};\ninline void g(P* p) {{\n  std::sort(p, p + 3);\n}}\n{GOOD}"
NEAR = r"^did you mean brainevent/common\.h\?$"
FAILURES: list[tuple[str, dict[str, Any], str, str]] = [
    (f'#include "brainevent/comon.h"\n{GOOD}', {}, "broken:1:10: fatal error:", NEAR),
    (f'#include "quaternions.h"\n{GOOD}', {}, "", "^a header was not found: name its folder in extra_include_paths$"),
    (CHECKED, {}, "", '^the message of BE_CHECK follows it: BE_CHECK\\(condition\\) << "message"$'),
    (HEAD + OWN, {}, "broken:4", "arg_spec"),
    (UNUSED, {"extra_cflags": ["-Wall"]}, "broken:6:17: error:", ""),
    (PARALLEL, {"extra_cflags": ["-fopenmp"]}, "", r"extra_ldflags=\['-fopenmp'\]"),
    (GOOD, {"extra_ldflags": ["-lno_such_library"]}, ".*(cannot find|unable to find library) -lno_such_library", "-L"),
    (GOOD, {"extra_cflags": ["-fno-such-flag-at-all"]}, ".*-fno-such-flag-at-all", ""),
    (SORTING, {}, r"broken:4:.*operator<.*\n    4 \|   std::sort\(p, p \+ 3\);\n(.*\n)*.*predefined_ops\.h", ""),
]
"""Sources and options, how the first error begins, and what a hint says."""


@pytest.mark.parametrize(("text", "options", "first", "hint"), FAILURES)
def test_a_failure_is_placed_and_explained(text: str, options: dict[str, Any], first: str, hint: str):
    error = fail(text, **options)
    assert re.match(first, error.first_error)
    assert re.search(hint, error.hints[0]) if hint else not error.hints
    assert not first or {flag for flags in options.values() for flag in flags} <= {*error.command}


def test_a_misspelt_header_of_the_author_hints_at_the_name_that_is_near(tmp_path: Path):
    (tmp_path / "helper.h").touch()
    assert fail(f'#include "helpers.h"\n{GOOD}', extra_include_paths=[tmp_path]).hints == ("did you mean helper.h?",)


def test_several_sources_are_told_apart():
    helper = "inline int helper() { return 1; }\n"
    assert fail([helper, TYPO]).first_error.startswith("broken[1]:5:17: error:")
    assert fail([TYPO, helper]).first_error.startswith("broken[0]:5:17: error:")
    without_newline = ["int one;", "\n\n" + TYPO]
    assert fail(without_newline).first_error.startswith("broken[1]:7:17: error:")


def test_a_file_is_called_by_its_path(tmp_path: Path):
    folder = tmp_path / "a 'b' \\n ü $x #:"
    folder.mkdir()
    assert "kernel 1.cc:5:17: error:" in fail_file(folder / "kernel 1.cc", TYPO).first_error.splitlines()[0]
    (folder / "kernel 1.cc").write_text(GOOD)
    module = be_runtime.load_cpp_file(folder / "kernel 1.cc", name="odd_path", auto_register=False)
    assert module.function_names == ["f"]
    (tmp_path / "part.h").write_text("\n\nint x = oops;\n")
    for name in ('a"b.cc', "a\nb.cc", "a\rb.cc"):
        (tmp_path / name).write_text(GOOD)
        with pytest.raises(ArgumentError, match="quote or a line break"):
            be_runtime.load_cpp_file(tmp_path / name, name="broken")
    lines = fail_file(tmp_path / "kernel.cc", '#include "part.h"\n' + GOOD).first_error.splitlines()
    assert next(line for line in lines if "error:" in line).startswith(f"{tmp_path}/part.h:3:9: error:")


WRITING = [
    "x.data_ptr<float>()[0] = 99;",
    "const BE::Tensor& same = x; static_cast<float*>(same.data())[0] = 99;",
    "[=] { out.data_ptr<float>()[0] = 99; }();",
]


@pytest.mark.parametrize("statement", WRITING)
def test_nothing_is_written_through_a_const_tensor(statement: str):
    text = f"{HEAD}// @BE f\nvoid f(const BE::Tensor x, BE::Tensor out) {{ {statement} }}\n"
    assert "gives pointers to const" in " ".join(fail(text).hints)


def test_a_symbol_that_is_defined_nowhere_is_told_in_the_author_s_names():
    """The functions that we generate around an entry point are no part of it."""
    for _ in range(2):
        error = fail(source('extern "C" int defined_nowhere(int);\n', f="defined_nowhere(1)"), "unlinked")
    assert error.first_error == "undefined reference to 'defined_nowhere', used by the entry point f in unlinked"
    assert "BE::detail" not in str(error)
    assert any("extra_ldflags" in hint for hint in error.hints)
    assert "unlinked.f" not in be_runtime.list_registered_targets()


def test_a_c_compiler_in_place_of_the_cpp_one_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CXX", re.sub(r"g\+\+(?=[^/]*$)", "gcc", real_compiler()))
    with pytest.raises(BuildError, match="linking failed") as caught:
        be_runtime.load_cpp_inline("c_driver", source("", f="1"))
    assert "as in BE_CXX=g++" in caught.value.hints[0]


def test_a_mistake_in_a_dispatch_macro_is_one_screen():
    line = "BE_DISPATCH_ALL(out.dtype(), T, [&] { out.data_ptr<T>()[0] = nothing_called_so; });"
    error = fail(GOOD.replace("out.data_ptr<float>()[0] = 1;", f"\n{line}\n"))
    assert error.first_error.splitlines()[1] == f"    4 | {line}"
    assert error.first_error.startswith("broken:4:")
    assert len(error.output.splitlines()) > 100
    assert len(str(error).splitlines()) < 20
    assert len(str(error)) < 3000


@pytest.mark.parametrize(("line", "said"), BROKEN_COMPILERS, ids=["crashes", "prints what is no text"])
def test_a_broken_compiler(line: str, said: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    compiler = forwarding_compiler(tmp_path / "g++", line)
    monkeypatch.setenv("BE_CXX", str(compiler))
    error = fail(GOOD, "crashing")
    assert all(word in error.output and word in str(error) for word in said)
    assert str(compiler) in error.command
    str(error).encode(sys.stdout.encoding or "utf-8", "strict")


UNUSED_INT = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) { int unused; }\n'


def test_quiet_and_verbose_builds(tmp_cache: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    module = be_runtime.load_cpp_inline("talking", UNUSED_INT, auto_register=False)
    be_runtime.load_cpp_inline("talking", UNUSED_INT, auto_register=False)
    assert capfd.readouterr() == ("", "")
    be_runtime.load_cpp_inline("talking", UNUSED_INT, verbose=True, auto_register=False)
    err = capfd.readouterr().err
    assert "talking: from the cache" in err
    assert str(module.path.parents[1]) in err
    monkeypatch.setenv("BE_VERBOSE", "1")
    module = be_runtime.load_cpp_inline(
        "talking", UNUSED_INT, extra_cflags=["-Wall", "-DTEXT=a b"], auto_register=False
    )
    out, err = capfd.readouterr()
    assert out == ""
    commands = [line for line in err.splitlines() if line.startswith("$ ")]
    assert any(" -Wall '-DTEXT=a b' " in line and "src/talking.cc" in line for line in commands)
    assert any(" -shared " in line for line in commands)
    assert "talking:3:30: warning: unused variable 'unused'" in err
    assert "talking: built, since it was not in the cache\n  cflags: added '-Wall'; added '-DTEXT=a b'\n" in err
    log = (module.path.parent / "build.log").read_text()
    assert "warning: unused variable" in log
    assert re.search(r"^# compiling talking: \d+\.\d\d s\n\$ ", log, re.MULTILINE)


def test_what_a_failed_build_printed_is_shown_where_that_is_asked_for(capfd: pytest.CaptureFixture[str]):
    for verbose in (True, False):
        with pytest.raises(BuildError) as caught:
            be_runtime.load_cpp_inline("shown", UNUSED_INT.replace("{", "{ oops;", 1), verbose=verbose)
        err = capfd.readouterr().err
        assert caught.value.output in err if verbose else err == ""


@pytest.mark.parametrize("fails", [False, in_full(True)])
def test_a_long_build_shows_a_line_on_a_terminal_alone(
    fails: bool, tmp_path: Path, tmp_cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """The compiler goes on when the line is shown, or for a pipe after two seconds."""
    shown = tmp_path / "shown"
    wait = f"for i in $(seq 100); do [ -e '{shown}' ] && break; sleep 0.02; done; {'exit 1' if fails else ':'}"
    monkeypatch.setenv("BE_CXX", str(forwarding_compiler(tmp_path / "g++", wait)))
    monkeypatch.setenv("TERM", "xterm")
    build = partial(be_runtime.load_cpp_inline, "slow", UNUSED_INT, auto_register=False)
    with contextlib.suppress(BuildError):
        build()
    assert capsys.readouterr() == ("", ""), "no terminal"
    with capsys.disabled(), Terminal() as terminal, terminal.file() as file, ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr("sys.stderr", file)
        told = pool.submit(terminal.await_text, "building slow")
        told.add_done_callback(lambda _: shown.touch())
        with pytest.raises(BuildError) if fails else contextlib.nullcontext():
            build(force_rebuild=True)
        told.result()
    built = re.search(r"built slow in \d+\.\d s, (linking|compiling [\w ]+) took \d+\.\d s of it", terminal.text)
    assert (built is None) == fails
    assert "\x1b[?25h" in terminal.text, "the cursor is there again"


WAITS = [
    (1.0, THIS_PROCESS, ""),
    (10.0, THIS_PROCESS, "another thread of this process, which is building it (10 s)\n"),
    (1.0, "process 7", "process 7, which is building it (1 s)\n"),
]


@pytest.mark.parametrize(("seconds", "builder", "said"), WAITS)
def test_a_load_that_waits_says_so(seconds: float, builder: str, said: str, capsys: pytest.CaptureFixture[str]):
    """A thread says so only after long."""
    Waiting("slow").report(seconds, builder)
    assert capsys.readouterr().err == (said and f"be_runtime: slow: waiting for {said}")
