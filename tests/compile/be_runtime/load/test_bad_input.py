"""Bad arguments end in a typed error that names them, before anything is compiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import ArgumentError, DuplicateEntryPointError, EntryPointNotFoundError, SourceNotFoundError, SpecError
from tests.support.runtime import environment, run_python, without_compilers

SOURCE = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) {}\n'


@pytest.fixture(autouse=True)
def _nothing_is_built(tmp_cache: Path) -> Generator[None]:
    yield
    assert not list(tmp_cache.glob("**/module.so"))
    assert not any(target.startswith("bad.") for target in be_runtime.list_registered_targets())


BAD_NAMES = [
    "", " ", "a/b", "/a", "a/", "..", ".", "../a", "a..b", "a b", " a", "a ", "a\n", "a\tb", ".a", "a.", "-a", "a\0b",
    "a$b", "a'b", 'a"b', "a:b", "ä", "a\\b", "a*", "~",
]  # fmt: skip


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 3, b"a", Path("a"), ["a"]], ids=repr)
def test_names(name: Any):
    with pytest.raises(ArgumentError) as caught:
        be_runtime.load_cpp_inline(name, SOURCE)
    assert "name" in str(caught.value)
    assert repr(name) in str(caught.value)


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", 3], ids=repr)
def test_prefixes(prefix: Any):
    with pytest.raises(ArgumentError, match="target_prefix"):
        be_runtime.load_cpp_inline("bad", SOURCE, target_prefix=prefix)


BAD_OPTIONS: list[tuple[str, Any]] = [
    *(("optimization_level", value) for value in (4, -1, "3", True, 2.0, None, [3])),
    *(
        (option, value)
        for option in ("use_fast_math", "verbose", "force_rebuild", "auto_register")
        for value in (1, 0, "yes", None, "")
    ),
    *((option, value) for option in ("extra_cflags", "extra_ldflags") for value in ("-O2", 3, b"-O2", {"-O2"})),
    *((option, value) for option in ("extra_cflags", "extra_ldflags") for value in (["-O2", 3], [None], ["a\0b"])),
    *(("extra_include_paths", value) for value in ("include", b"include", 3, ["/no/such/folder"], [3], [None])),
    *(("build_directory", value) for value in ("", 3, b"build")),
    *(("ninja_workers", value) for value in (0, -1, "2", 1.5, True)),
]


@pytest.mark.parametrize(("option", "value"), BAD_OPTIONS, ids=repr)
def test_options(option: str, value: Any):
    with pytest.raises(ArgumentError) as caught:
        be_runtime.load_cpp_inline("bad", SOURCE, **{option: value})
    assert option in str(caught.value)


def test_a_string_of_flags_says_how_to_write_it():
    with pytest.raises(ArgumentError, match=r"extra_cflags=\['-O2', '-g'\]"):
        be_runtime.load_cpp_inline("bad", SOURCE, extra_cflags="-O2 -g")


@pytest.mark.parametrize(
    "load",
    [
        *(be_runtime.load_cpp_inline, be_runtime.load_cpp_file, be_runtime.load_cpp_dir),
        *(be_runtime.load_cuda_inline, be_runtime.load_cuda_file, be_runtime.load_cuda_dir),
    ],
    ids=lambda load: load.__name__,
)
@pytest.mark.parametrize("option", ["optimisation_level", "extra_flags"])
def test_unknown_options(load: Any, option: str, tmp_path: Path):
    file = tmp_path / "k.cc"
    file.write_text(SOURCE)
    args = {"file": (file,), "dir": (tmp_path,)}.get(load.__name__.rpartition("_")[2], ("bad", SOURCE))
    with pytest.raises(TypeError) as caught:
        load(*args, **{option: 3})
    assert option in str(caught.value)
    assert load.__name__ in str(caught.value)


@pytest.mark.parametrize(
    "load",
    [be_runtime.load_cpp_inline, be_runtime.load_cpp_file, be_runtime.load_cpp_dir],
    ids=lambda load: load.__name__,
)
@pytest.mark.parametrize(
    "option", [{"allow_cuda_graph": True}, {"compute_capability": "sm_90"}, {"extra_cuda_cflags": []}], ids=str
)
def test_options_of_cuda_are_none_of_cpp(load: Any, option: dict[str, Any], tmp_path: Path):
    file = tmp_path / "k.cc"
    file.write_text(SOURCE)
    args = {"file": (file,), "dir": (tmp_path,)}.get(load.__name__.rpartition("_")[2], ("bad", SOURCE))
    with pytest.raises(TypeError, match=next(iter(option))):
        load(*args, **option)


@pytest.mark.parametrize("sources", ["", " \n\t", [], ["", " "], None, 3, b"int x;", [SOURCE, 3], [None]], ids=repr)
def test_sources(sources: Any):
    with pytest.raises(ArgumentError, match="cpp_sources"):
        be_runtime.load_cpp_inline("bad", sources)


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(SourceNotFoundError) as caught:
        be_runtime.load_cpp_file(tmp_path / "absent.cc")
    assert str(tmp_path / "absent.cc") in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)


def test_a_folder_as_a_file(tmp_path: Path):
    with pytest.raises(SourceNotFoundError, match="is a folder") as caught:
        be_runtime.load_cpp_file(tmp_path, name="bad")
    assert "load_cpp_dir" in str(caught.value)


def test_a_file_as_a_folder(tmp_path: Path):
    file = tmp_path / "k.cc"
    file.write_text(SOURCE)
    with pytest.raises(SourceNotFoundError, match="is not a folder"):
        be_runtime.load_cpp_dir(file, name="bad")


def test_a_missing_folder(tmp_path: Path):
    with pytest.raises(SourceNotFoundError, match="no such folder"):
        be_runtime.load_cpp_dir(tmp_path / "absent")


def test_a_folder_without_sources(tmp_path: Path):
    folder = tmp_path / "bad"
    (folder / "below").mkdir(parents=True)
    (folder / "below" / "k.cc").write_text(SOURCE)
    (folder / "k.cu").write_text(SOURCE)
    (folder / "k.h").write_text(SOURCE)
    with pytest.raises(SourceNotFoundError) as caught:
        be_runtime.load_cpp_dir(folder)
    assert str(folder) in str(caught.value)
    assert ".cc, .cpp, .cxx" in str(caught.value)


def test_an_unreadable_file(tmp_path: Path):
    file = tmp_path / "k.cc"
    file.symlink_to(file)
    with pytest.raises(SourceNotFoundError, match="can't be read"):
        be_runtime.load_cpp_file(file)


@pytest.mark.parametrize("path", [None, 3, "", b"k.cc"], ids=repr)
def test_paths_that_are_none(path: Any):
    for load in (be_runtime.load_cpp_file, be_runtime.load_cpp_dir):
        with pytest.raises(ArgumentError):
            load(path)


def test_a_file_whose_name_is_no_module_name(tmp_path: Path):
    file = tmp_path / "my kernel.cc"
    file.write_text(SOURCE)
    with pytest.raises(ArgumentError, match="my kernel"):
        be_runtime.load_cpp_file(file)


def test_two_entry_points_of_one_name():
    source = SOURCE + "// @BE f ret\n"
    with pytest.raises(DuplicateEntryPointError, match="f") as caught:
        be_runtime.load_cpp_inline("bad", source)
    assert caught.value.span is not None
    assert (caught.value.span.file, caught.value.span.line) == ("bad", 4)


def test_two_functions_of_one_name():
    with pytest.raises(SpecError, match=r"f: two functions .* bad:3:6 and .* bad:5:6"):
        be_runtime.load_cpp_inline("bad", SOURCE + "namespace other {\nvoid f(BE::Tensor out) {} }\n")


def test_no_entry_points():
    with pytest.raises(EntryPointNotFoundError, match="@BE"):
        be_runtime.load_cpp_inline("bad", "int x;")


def test_an_entry_point_that_is_not_there():
    with pytest.raises(EntryPointNotFoundError, match="gg"):
        be_runtime.load_cpp_inline("bad", SOURCE, ["gg"])


def test_an_error_in_a_file_points_at_the_file(tmp_path: Path):
    file = tmp_path / "k.cc"
    file.write_text("\n\n" + SOURCE.replace("BE::Tensor out", "BE::Tensor out, float* p"))
    with pytest.raises(SpecError) as caught:
        be_runtime.load_cpp_file(file)
    assert f"{file}:5:24" in str(caught.value)
    assert "^~~~~~~" in str(caught.value)


def test_an_error_in_the_second_of_several_sources():
    with pytest.raises(SpecError) as caught:
        be_runtime.load_cpp_inline("bad", ["int x;", "// @BE f rte\nvoid f(BE::Tensor out) {}\n"])
    assert "bad[1]:1:10" in str(caught.value)


@pytest.mark.parametrize(
    "functions", [{"f": 5}, {"f": None}, {"f": [5]}, {5: ["ret"]}, {"f"}, 7, [5], [["f"]], b"f"], ids=repr
)
def test_functions_of_a_wrong_kind(functions: Any):
    with pytest.raises((ArgumentError, SpecError)):
        be_runtime.load_cpp_inline("bad", SOURCE, functions)


def test_functions_of_a_wrong_kind_in_a_folder(tmp_path: Path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.cc").write_text(SOURCE)
    wrong: tuple[Any, ...] = ({"f": 5}, 7, "f", {"absent"}, ["absent"], deque(["absent"]))
    for functions in wrong:
        with pytest.raises((ArgumentError, SpecError)):
            be_runtime.load_cpp_dir(tmp_path, functions, name="bad")


@pytest.mark.parametrize("call", [be_runtime.clear_cache, be_runtime.set_cache_dir], ids=lambda call: call.__name__)
@pytest.mark.parametrize("value", [3, b"x", ""], ids=repr)
def test_cache_functions(call: Any, value: Any):
    with pytest.raises(ArgumentError):
        call(value)


@pytest.mark.parametrize(("variable", "value"), [("BE_COMPILE_TIMEOUT_S", "soon"), ("BE_MAX_JOBS", "0")])
def test_settings(variable: str, value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ArgumentError) as caught:
        be_runtime.load_cpp_inline("bad", SOURCE)
    assert variable in str(caught.value)
    assert repr(value) in str(caught.value)


NO_COMPILER = f"""
import be_runtime
from be_toolchain.errors import ToolchainError
try:
    be_runtime.load_cpp_inline("bad", {SOURCE!r})
except ToolchainError as error:
    print(type(error).__name__, error)
"""


def test_no_compiler_lists_the_places(tmp_path: Path):
    path = without_compilers(tmp_path / "bin")
    variables = ("CXX", "BE_CXX", "CC", "CONDA_PREFIX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS")
    env = environment(**dict.fromkeys(variables), PATH=path)
    done = run_python(NO_COMPILER, env=env)
    assert "g++" in done.stdout
    assert "PATH" in done.stdout
    assert "BE_CXX" in done.stdout
    assert "hint" in done.stdout


def test_a_named_compiler_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from be_toolchain.errors import ToolchainError

    monkeypatch.setenv("BE_CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(ToolchainError, match="no-such-compiler"):
        be_runtime.load_cpp_inline("bad", SOURCE)
