"""Bad arguments end in a typed error that names them, before anything is compiled."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime import ArgumentError, SourceNotFoundError, SpecError
from be_toolchain.errors import ToolchainError
from tests.compile.be_runtime.load.sources import write
from tests.support.runtime import without_compilers

SOURCE = '#include "brainevent/common.h"\n// @BE f\nvoid f(BE::Tensor out) {}\n'


@pytest.fixture(autouse=True)
def _nothing_is_built(tmp_cache: Path) -> Generator[None]:
    yield
    assert not list(tmp_cache.glob("**/images/*.so"))
    assert not any(target.startswith("bad.") for target in be_runtime.list_registered_targets())


def test_names():
    for name in ("", "a/b", "..", "a.", "-a", "a\n", "a\0b", "ä", "~", None, 3, b"a", Path("a"), ["a"]):
        with pytest.raises(ArgumentError, match="name") as caught:
            be_runtime.load_cpp_inline(name, SOURCE)  # type: ignore[arg-type]
        assert repr(name) in str(caught.value)


BAD_OPTIONS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("use_fast_math", "verbose", "force_rebuild", "auto_register"), (1,)),
    **dict.fromkeys(("extra_cflags", "extra_ldflags"), (b"-O2", [None])),
    "extra_include_paths": ("include", b"include", 3, ["/no/such/folder"], [3], [None]),
    "build_directory": ("", 3, b"build"),
    "optimization_level": (4,),
    "ninja_workers": (0,),
    "target_prefix": ("", "a/b", "a b", 3),
}


def test_options():
    for option, values in BAD_OPTIONS.items():
        for value in values:
            with pytest.raises(ArgumentError, match=option):
                be_runtime.load_cpp_inline("bad", SOURCE, **{option: value})
    with pytest.raises(ArgumentError, match=r"extra_cflags=\['-O2', '-g'\]"):
        be_runtime.load_cpp_inline("bad", SOURCE, extra_cflags="-O2 -g")


@pytest.mark.parametrize("language", ["cpp", "cuda"])
@pytest.mark.parametrize("kind", ["inline", "file", "dir"])
def test_unknown_options(language: str, kind: str, tmp_path: Path):
    """Those of CUDA are unknown for C++."""
    args = {"inline": ("bad", SOURCE), "file": (write(tmp_path, k=SOURCE) / "k.cc",), "dir": (tmp_path,)}[kind]
    cuda = {"allow_cuda_graph": True, "compute_capability": "sm_90", "extra_cuda_cflags": []}
    for option, value in {"optimisation_level": 3, "extra_flags": 3, **(cuda if language == "cpp" else {})}.items():
        with pytest.raises(TypeError, match=option) as caught:
            getattr(be_runtime, f"load_{language}_{kind}")(*args, **{option: value})
        assert f"load_{language}_{kind}" in str(caught.value)


def test_sources_and_cache_folders():
    for sources in ("", " \n\t", [], ["", " "], None, 3, b"int x;", [SOURCE, 3], [None]):
        with pytest.raises(ArgumentError, match="cpp_sources"):
            be_runtime.load_cpp_inline("bad", sources)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="name='my kern' is not allowed") as caught:
        be_runtime.load_cpp_file("my kern.cc")
    assert "pass another name=" in caught.value.hints[0]
    for call in (be_runtime.clear_cache, be_runtime.set_cache_dir, be_runtime.load_cpp_file, be_runtime.load_cpp_dir):
        for value in (3, b"x", ""):
            with pytest.raises(ArgumentError):
                call(value)  # type: ignore[arg-type]


PATHS = [
    ("file", "absent.cc", FileNotFoundError, "/absent.cc"),
    ("file", "bad", SourceNotFoundError, "(?s)is a folder.*load_cpp_dir"),
    ("file", "loop.cc", SourceNotFoundError, "can't be read"),
    ("file", "my kernel.cc", ArgumentError, "my kernel"),
    ("file", "bad/below/span.cc", SpecError, r"(?s)/below/span\.cc:5:24.*\^~~~~~~"),
    ("dir", "k.cc", SourceNotFoundError, "is not a folder"),
    ("dir", "absent", SourceNotFoundError, "no such folder"),
    ("dir", "bad", SourceNotFoundError, r"(?s)/bad.*\.cc, \.cpp, \.cxx"),
]


@pytest.mark.parametrize(("kind", "path", "error", "message"), PATHS)
def test_files_and_folders(kind: str, path: str, error: type[Exception], message: str, tmp_path: Path):
    write(tmp_path / "bad" / "below", k=SOURCE, span="\n\n" + SOURCE.replace("out", "out, float* p"))
    for name in ("k.cc", "my kernel.cc", "bad/k.cu", "bad/k.h"):
        (tmp_path / name).write_text(SOURCE)
    (tmp_path / "loop.cc").symlink_to(tmp_path / "loop.cc")
    with pytest.raises(error, match=message):
        getattr(be_runtime, f"load_cpp_{kind}")(tmp_path / path)


def test_functions_of_a_wrong_kind(tmp_path: Path):
    wrong: tuple[Any, ...] = ({"f": 5}, {"f": None}, {"f": [5]}, {5: ["ret"]}, {"f"}, 7, [5], [["f"]], b"f")
    for functions in wrong:
        with pytest.raises((ArgumentError, SpecError)):
            be_runtime.load_cpp_inline("bad", SOURCE, functions)
    write(tmp_path, a=SOURCE, b=SOURCE)
    for functions in [{"f": 5}, 7, "f", {"absent"}, ["absent"], deque(["absent"])]:
        with pytest.raises((ArgumentError, SpecError)):
            be_runtime.load_cpp_dir(tmp_path, functions, name="bad")  # type: ignore[arg-type]


def test_no_compiler_lists_the_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(ToolchainError, match="no-such-compiler"):
        be_runtime.load_cpp_inline("bad", SOURCE)
    for variable in ("CXX", "BE_CXX", "CC", "CONDA_PREFIX", "CUDAHOSTCXX", "NVCC_PREPEND_FLAGS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", without_compilers(tmp_path / "bin"))
    with pytest.raises(ToolchainError) as caught:
        be_runtime.load_cpp_inline("bad", SOURCE)
    assert all(word in str(caught.value) for word in ("g++", "PATH", "BE_CXX", "hint"))
