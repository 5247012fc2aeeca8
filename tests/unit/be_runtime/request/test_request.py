"""Arguments to checked values: every name, flag and path, without touching a compiler."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime import load_cpp_inline, load_cuda_inline
from be_runtime.api import load_cpp_file, load_cuda_file
from be_runtime.errors import ArgumentError, SourceNotFoundError
from be_runtime.request.arguments import (
    CppOptions,
    CudaLoadArguments,
    CudaOptions,
    cpp_request,
    cuda_request,
    default_name,
    dir_units,
    file_units,
    inline_units,
    load_options,
)
from be_runtime.request.flag_paths import absolute_paths
from be_runtime.request.options import (
    check_bool,
    check_flags,
    check_include_paths,
    check_jobs,
    check_name,
    check_optimization_level,
    check_optional_path,
)


@pytest.mark.parametrize("name", ["a", "A", "_", "0", "my_kernels", "my-kernels", "a.b", "a.b-c.d_e", "x" * 200])
def test_good_names(name: str):
    assert check_name(name) == name


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + "./\\ -_\n\0$", max_size=8))
def test_a_name_is_always_a_plain_file_name(name: str):
    """What is accepted is one component of a path, whatever the text."""
    is_plain = Path(name).name == name and not name.startswith((".", "-")) and not set(name) & set("/\\ \n\0$")
    with contextlib.suppress(ArgumentError):
        check_name(name)
        assert is_plain


def test_a_source_in_the_place_of_a_name_or_path_is_noticed():
    text = "void f();\n" * 1000
    with pytest.raises(ArgumentError, match="the name comes first") as caught:
        check_name(text)
    assert len(str(caught.value)) < 1000
    with pytest.raises(ArgumentError, match="name has 300 characters, and 200 are allowed"):
        check_name("a" * 300)
    with pytest.raises(ArgumentError, match="load_cpp_inline") as caught:
        file_units(text)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "source",
    ["kernel.cc", "/my kernels/k.cu", "/csrc", Path("k.cc"), ["kernel.cu"], ["int x;", "a.h"], [Path("k.h")]],
)
def test_a_path_in_the_place_of_a_source_is_noticed(source: object):
    with pytest.raises(ArgumentError, match="is a path, not the text of a source") as caught:
        inline_units("m", source, "sources")
    assert "load_cpp_file" in caught.value.hints[0]


@pytest.mark.parametrize("source", [["// see a.h", "int x;"], ["A(x/y)", "B"], "#include <a.h>"])
def test_what_only_looks_like_a_path_is_a_source(source: object):
    assert inline_units("m", source, "sources")


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_good_levels(level: int):
    assert check_optimization_level(level) == level


@pytest.mark.parametrize("level", [-1, 4, True, False, "3", 3.0, None])
def test_bad_levels(level: object):
    with pytest.raises(ArgumentError, match="optimization_level must be an integer from 0 to 3"):
        check_optimization_level(level)


def test_flags_stay_what_they_are():
    odd = ["", " ", "a b", "a\nb", '"', "'", "$HOME", "\\", "-DX=-I"]
    assert check_flags(odd, "flags") == tuple(odd)
    assert check_flags(None, "flags") == check_flags([], "flags") == ()
    assert check_flags(("-a",), "flags") == ("-a",)


@pytest.mark.parametrize(
    ("value", "message"),
    [("-O2", "list of strings"), ([1], r"flags\[0\]"), (["a", "b\0"], r"flags\[1\].*null"), (7, "int"), ({"a"}, "set")],
)
def test_bad_flags(value: object, message: str):
    with pytest.raises(ArgumentError, match=message):
        check_flags(value, "flags")


@pytest.mark.parametrize(
    ("flag", "first", "second"),
    [
        ("-I /usr/include", "-I", "/usr/include"),
        ("-isystem  /x y", "-isystem", "/x y"),
        ("-DX Y", "-DX", "Y"),
        ("-O3 -g", "-O3", "-g"),
        ("-I/a -I/b", "-I/a", "-I/b"),
        ("-lm -lfoo", "-lm", "-lfoo"),
        ("-Xptxas -v", "-Xptxas", "-v"),
        ("-include a.h", "-include", "a.h"),
        ("-gencode arch=compute_90,code=sm_90", "-gencode", "arch=compute_90,code=sm_90"),
    ],
)
def test_two_flags_in_one(flag: str, first: str, second: str):
    with pytest.raises(ArgumentError, match="is two arguments in one") as caught:
        check_flags(["-O2", flag], "flags")
    assert caught.value.hints == (f"write {first!r}, {second!r}",)


def test_a_space_inside_a_value_is_no_second_flag():
    flags = ["-I/my folder", "-DMSG=a -b", "-Wl,-rpath,/a b", "-Xcompiler=-a -b", "-L/x y/z", "-D X=1"]
    assert check_flags(flags, "flags") == tuple(flags)


ABSOLUTE = [
    (["-Iinc"], ["-I/cwd/inc"]),
    (["-I", "inc"], ["-I", "/cwd/inc"]),
    (["-I."], ["-I/cwd"]),
    (["-I/abs", "-I", "/abs"], ["-I/abs", "-I", "/abs"]),
    (["-isysteminc", "-isystem", "inc"], ["-isystem/cwd/inc", "-isystem", "/cwd/inc"]),
    (["-iquote", "inc", "-idirafterinc"], ["-iquote", "/cwd/inc", "-idirafter/cwd/inc"]),
    (["--include-path=inc", "--library-path", "lib"], ["--include-path=/cwd/inc", "--library-path", "/cwd/lib"]),
    (["-Llib", "-L", "lib"], ["-L/cwd/lib", "-L", "/cwd/lib"]),
    (["-rpath=lib", "-rpath", "lib"], ["-rpath=/cwd/lib", "-rpath", "/cwd/lib"]),
    (["-rpath=$ORIGIN/lib", "-I=/sysroot", "-I="], ["-rpath=$ORIGIN/lib", "-I=/sysroot", "-I="]),
    (["-I=inc", "--include-path=inc"], ["-I=/cwd/inc", "--include-path=/cwd/inc"]),
    (["-include=there.h", "--pre-include=absent.h"], ["-include=/cwd/there.h", "--pre-include=absent.h"]),
    (["--pre-include", "there.h"], ["--pre-include", "/cwd/there.h"]),
    (
        ["there.a", "absent.a", "sub/there.so.1", "there.o"],
        ["/cwd/there.a", "absent.a", "/cwd/sub/there.so.1", "/cwd/there.o"],
    ),
    (["-include", "there.h", "-include", "absent.h"], ["-include", "/cwd/there.h", "-include", "absent.h"]),
    (["-DI=-Iinc", "-lm", "-Wl,-Llib", "-I", "-L"], ["-DI=-Iinc", "-lm", "-Wl,-Llib", "-I", "-L"]),
    (["-isysroot", "inc", "-O2", "", "-"], ["-isysroot", "inc", "-O2", "", "-"]),
]


@pytest.mark.parametrize(("flags", "expected"), ABSOLUTE, ids=str)
def test_relative_paths_in_flags(flags: list[str], expected: list[str]):
    found = absolute_paths(flags, Path("/cwd"), lambda path: path.stem.startswith("there"))
    assert found == tuple(expected)


@settings(deadline=None)
@given(st.lists(st.text(max_size=6)))
def test_flags_are_neither_lost_nor_joined(flags: list[str]):
    found = absolute_paths(flags, Path("/cwd"), lambda path: False)
    assert len(found) == len(flags)
    assert absolute_paths(found, Path("/other"), lambda path: False) == found


def test_include_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "inc").mkdir()
    monkeypatch.chdir(tmp_path)
    assert check_include_paths(["inc", Path("inc"), tmp_path]) == (tmp_path / "inc", tmp_path / "inc", tmp_path)
    with pytest.raises(ArgumentError, match=r"does not exist: .*absent"):
        check_include_paths(["absent"])
    for name in ("a,b", "a'b", 'a"b'):
        (tmp_path / name).mkdir()
        assert check_include_paths([tmp_path / name])
        with pytest.raises(ArgumentError, match="can't take in a folder's name"):
            cuda_request("m", (), None, extra_include_paths=[tmp_path / name])


def test_one_path_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real" / "sub")
    assert check_optional_path("../../real/k.cc", "path") == tmp_path / "real" / "k.cc"
    assert check_optional_path("./k.cc", "path") == tmp_path / "real" / "sub" / "k.cc"
    assert check_optional_path(str(tmp_path / "link" / "sub" / ".." / "k.cc"), "path") == tmp_path / "real" / "k.cc"
    assert check_optional_path(tmp_path / "link" / "k.cc", "path") == tmp_path / "link" / "k.cc", "a link stays"


@pytest.mark.parametrize("value", [1, 0, None, "True", []])
def test_what_only_looks_like_a_bool(value: object):
    with pytest.raises(ArgumentError, match="verbose must be True or False"):
        check_bool(value, "verbose")


@pytest.mark.parametrize("value", [0, -3, True, "4", 2.0])
def test_workers(value: object):
    assert (check_jobs(None), check_jobs(1), check_jobs(64)) == (None, 1, 64)
    with pytest.raises(ArgumentError, match="ninja_workers"):
        check_jobs(value)


def test_inline_sources_are_called_by_the_module():
    (unit,) = inline_units("m", "int x;", "sources")
    assert [source.name for source in unit.sources] == ["m"]
    (unit,) = inline_units("m", ["int x;", ""], "sources")
    assert [source.name for source in unit.sources] == ["m[0]", "m[1]"]
    assert unit.path is None


def test_files_and_folders(tmp_path: Path):
    for name in ("b.cc", "a.cpp", "c.cxx", "a.cc", "k.cu", "k.h", "k.CC"):
        (tmp_path / name).write_text(name)
    assert [unit.stem for unit in dir_units(tmp_path, "cpp")] == ["a.cc", "a.cpp", "b", "c"]
    assert [unit.stem for unit in dir_units(str(tmp_path), "cuda")] == ["k"]
    (unit,) = file_units(tmp_path / "k.h")
    assert (unit.stem, unit.path, unit.sources[0].text) == ("k", tmp_path / "k.h", "k.h")
    assert unit.sources[0].name == str(tmp_path / "k.h")
    with pytest.raises(SourceNotFoundError):
        file_units(tmp_path / "absent.cc")


@pytest.mark.parametrize("name", [".a-checkpoint.cc", "._a.cc", ".cc"])
def test_files_that_editors_and_systems_hide_are_no_sources(tmp_path: Path, name: str):
    (tmp_path / name).write_text("")
    with pytest.raises(SourceNotFoundError, match="holds no source files"):
        dir_units(tmp_path, "cpp")
    (tmp_path / "a.cc").write_text("")
    assert [unit.stem for unit in dir_units(tmp_path, "cpp")] == ["a"]


@pytest.mark.parametrize(
    "flags", [["-arch=sm_80"], ["-lineinfo", "-gencode", "arch=compute_80,code=sm_80"], ["--gpu-architecture=native"]]
)
def test_architectures_are_named_once(flags: list[str]):
    units = inline_units("m", "int x;", "sources")
    assert cuda_request("m", units, None, extra_cuda_cflags=flags).compile.cflags == tuple(flags)
    with pytest.raises(ArgumentError, match=r"compute_capability='9\.0' and '-.*' in extra_cuda_cflags both name"):
        cuda_request("m", units, None, extra_cuda_cflags=flags, compute_capability="9.0")


def test_bytes_that_are_no_text_survive(tmp_path: Path):
    (tmp_path / "k.cc").write_bytes(b"// \xff\xfe\r\nint x;")
    text = file_units(tmp_path / "k.cc")[0].sources[0].text
    assert text.encode("utf-8", "surrogateescape") == b"// \xff\xfe\r\nint x;"


def test_default_names(tmp_path: Path):
    (tmp_path / "folder.d").mkdir()
    assert default_name(tmp_path / "folder.d", None) == "folder.d"
    assert default_name(tmp_path / "kernel.v2.cu", None) == "kernel.v2"
    assert default_name(tmp_path / "a b.cu", "given") == "given"
    with pytest.raises(ArgumentError, match="'a b'"):
        default_name(tmp_path / "a b.cu", None)


def test_the_request_holds_what_was_given(tmp_path: Path):
    units = inline_units("m", "int x;", "sources")
    request = cpp_request(
        "m",
        units,
        ["f"],
        extra_cflags=["-a"],
        extra_ldflags=["-b"],
        extra_include_paths=[tmp_path],
        optimization_level=1,
        use_fast_math=True,
    )
    options = request.compile
    assert (options.cflags, options.ldflags, options.include_paths) == (("-a",), ("-b",), (tmp_path,))
    assert (options.optimization_level, options.use_fast_math) == (1, True)
    assert (request.name, request.language, request.units, request.functions) == ("m", "cpp", units, ["f"])
    cuda = cuda_request("m", units, None, extra_cuda_cflags=["-c"], compute_capability="sm_90")
    assert (cuda.compile.cflags, cuda.compute_capability, cuda.language) == (("-c",), "sm_90", "cuda")


def test_the_prefix_is_the_name_unless_given():
    assert load_options("m").target_prefix == "m"
    assert load_options("m", target_prefix="p.q").target_prefix == "p.q"


def options_of(function: Any) -> set[str]:
    import inspect

    return {
        name
        for name, row in inspect.signature(function).parameters.items()
        if row.kind is inspect.Parameter.KEYWORD_ONLY
    }


def test_files_and_folders_take_the_options_of_inline():
    """The typed keywords of load_cpp_file and load_cuda_file are written out once more for type checkers."""
    assert set(CppOptions.__annotations__) == options_of(load_cpp_inline)
    assert set(CudaOptions.__annotations__) == options_of(load_cuda_inline)
    assert options_of(load_cpp_file) == options_of(load_cuda_file) == {"name"}
    assert set(CudaLoadArguments.__annotations__) == options_of(load_options)


SEED_DEFAULTS = {
    "functions": None,
    "extra_cuda_cflags": None,
    "extra_ldflags": None,
    "extra_include_paths": None,
    "build_directory": None,
    "verbose": False,
    "compute_capability": None,
    "force_rebuild": False,
    "auto_register": True,
    "target_prefix": None,
    "ninja_workers": None,
    "optimization_level": 3,
    "use_fast_math": False,
    "allow_cuda_graph": True,
}


def test_the_documented_parameters_and_defaults():
    import inspect

    parameters = inspect.signature(load_cuda_inline).parameters
    assert list(parameters) == ["name", "cuda_sources", *SEED_DEFAULTS, "native", "line_info", "debug"]
    assert {name: row.default for name, row in parameters.items() if name in SEED_DEFAULTS} == SEED_DEFAULTS
    assert [row.kind.name for row in parameters.values()][:4] == ["POSITIONAL_OR_KEYWORD"] * 3 + ["KEYWORD_ONLY"]
