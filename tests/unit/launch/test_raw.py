"""A raw kernel's parameters in one call, its headers, and its name in a cubin."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from be_runtime.arrays import ArraySpec, check_aliases, check_outs, check_vmap_method, match_aliases
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.launch.prototype import parse_name, read_prototype
from be_runtime.launch.raw import bind_params
from be_runtime.launch.raw_source import entry_in_cubin, included_files, instantiated

PROTOTYPE = read_prototype("__global__ void f(const float* x, int n, double* y, float by) {}", parse_name("f"))
X, Y = ArraySpec(BY_NAME["float32"], (3, 4)), ArraySpec(BY_NAME["float64"], (5,))


def bound(inputs: Any = (X,), outs: Any = (Y,), **scalars: Any) -> Any:
    return bind_params("f", PROTOTYPE, inputs, outs, {"n": 7, "by": 0.5} | scalars)


def test_params_follow_the_source():
    half = struct.unpack("<i", struct.pack("<f", 0.5))[0]
    assert [tuple(param) for param in bound()] == [(0, 0, 2, 4), (2, 7, 0, 0), (0, 1, 1, 8), (2, half, 0, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": ()}, "takes 2 pointers, but the call has 0 inputs and 1 outputs"),
        ({"inputs": (Y,)}, r"input 0 is float64\[5\], but the parameter is const float"),
        ({"outs": (X,)}, r"output 0 is float32\[3,4\], but the parameter is double"),
        ({"m": 1}, r"takes the scalars \(n, by\), but the call passes \(n, by, m\)"),
        ({"n": 1.5}, "n=1.5 is no int32"),
        ({"n": 2**31}, "is no int32"),
        ({"n": "7x"}, "is no int32"),
        ({"by": None}, "by=None is no float32"),
        ({"by": [1.0, 2.0]}, "is no float32"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        bound(**arguments)


def test_const_says_which_is_which():
    outs_const = read_prototype("__global__ void f(const float* x, const float* y) {}", parse_name("f"))
    with pytest.raises(ArgumentError, match=r"output 0 is passed as .*, which the kernel can't write"):
        bind_params("f", outs_const, (X,), (X,), {})
    inputs_writable = read_prototype("__global__ void f(float* x, float* y) {}", parse_name("f"))
    with pytest.raises(ArgumentError, match="declare it 'const float"):
        bind_params("f", inputs_writable, (X,), (X,), {})


def test_headers_are_followed_and_each_read_once(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    (second / "sub").mkdir(parents=True)
    first.mkdir()
    (first / "a.h").write_text('#include "b.h"\n  #  include <sub/c.h>\n#include <missing.h>')
    (first / "b.h").write_text('#include "a.h"')
    (second / "sub" / "c.h").write_text('#include "d.h"')
    (second / "sub" / "d.h").write_text("")

    def read(path: Path) -> str | None:
        return path.read_text() if path.is_file() else None

    found = included_files('#include "a.h"\n', [first, second], read)
    assert sorted(path.name for path in found) == ["a.h", "b.h", "c.h", "d.h"]


@pytest.mark.parametrize(
    ("entries", "name", "expected"),
    [
        (["scale"], "scale", "scale"),
        (["_Z5scalePKfPf", "_Z6rescalePf"], "scale", "_Z5scalePKfPf"),
        (["_ZN3ops5scaleEPf"], "ops::scale", "_ZN3ops5scaleEPf"),
        (["_Z5scaleIfEvPT_", "_Z5scalePf"], "scale<float>", "_Z5scaleIfEvPT_"),
        (["_Z5scaleIfEvPT_", "_Z5scalePf"], "scale", "_Z5scalePf"),
    ],
)
def test_entry_is_found_by_its_mangled_name(entries: list[str], name: str, expected: str):
    cubin = b"".join(b".text." + entry.encode() + b"\0" for entry in entries)
    assert entry_in_cubin(cubin, parse_name(name)) == expected


@pytest.mark.parametrize("entries", [[], ["_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_"]])
def test_no_or_several_entries_are_an_error(entries: list[str]):
    cubin = b"".join(b".text." + entry.encode() + b"\0" for entry in entries)
    with pytest.raises(BuildError, match="kernel"):
        entry_in_cubin(cubin, parse_name("scale<float>"))


def test_only_instances_need_help_from_the_source():
    assert instantiated("s", parse_name("f")) == "s"
    assert "&f<float>" in instantiated("s", parse_name("f<float>"))


@pytest.mark.parametrize("aliases", [{0: -1}, {"a": 0}, {0: True}, [0], 3])
def test_bad_aliases(aliases: object):
    with pytest.raises(ArgumentError, match="input_output_aliases must map"):
        check_aliases(aliases)


def test_aliases_join_equal_arrays():
    match_aliases({0: 0}, [X], [X])
    with pytest.raises(ArgumentError, match=r"input 0 is float32\[3,4\] and can't be output 0"):
        match_aliases({0: 0}, [X], [Y])
    with pytest.raises(ArgumentError, match="there are 1 inputs and 1 outputs"):
        match_aliases({1: 0}, [X], [X])


def test_bad_outs_and_methods():
    with pytest.raises(ArgumentError, match="at least one output"):
        check_outs([])
    with pytest.raises(ArgumentError, match=r"outs\[0\] is 3, which has no shape"):
        check_outs([3])
    with pytest.raises(ArgumentError, match="vmap_method='all' is not one of"):
        check_vmap_method("all")
