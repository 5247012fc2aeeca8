"""A raw kernel's parameters in one call, its source, its name in a cubin, and who compiles it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from be_runtime.call.attributes import convert_attributes
from be_runtime.call.resolve import Resolved
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, BuildError, SpecError
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype
from be_runtime.kernels.cuda.raw import cuda_kernel
from be_runtime.kernels.cuda.raw_calls import bind_params, scalar_params
from be_runtime.kernels.cuda.raw_compiler import compile_raw
from be_runtime.kernels.cuda.raw_source import RawKernel, entry_in_cubin, for_nvrtc, instantiated
from be_runtime.xla.arrays import ArraySpec, check_aliases, check_outs, check_vmap_method, match_aliases
from be_runtime.xla.split import Split
from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError
from tests.support.machines import MemorySystem

PROTOTYPE = read_prototype("__global__ void f(const float* x, int n, double* y, float by) {}", parse_name("f"))
X, Y = ArraySpec(BY_NAME["float32"], (3, 4)), ArraySpec(BY_NAME["float64"], (5,))


def bound(inputs: Any = (X,), outs: Any = (Y,), scratch: Any = (), prototype: Any = PROTOTYPE, **scalars: Any) -> Any:
    """The parameters of a call, whose scalars are checked as those of every call."""
    given = ({"n": 7, "by": 0.5} | scalars) if prototype is PROTOTYPE else scalars
    converted = dict(convert_attributes("f", scalar_params(prototype), given))
    call = Resolved([], inputs, (*outs, *scratch), len(scratch), False, (), {}, Split((), ()))
    return bind_params("f", prototype, call, converted)


def test_params_follow_the_source():
    half = struct.unpack("<i", struct.pack("<f", 0.5))[0]
    assert [tuple(param) for param in bound()] == [(0, 0, 2, 32), (2, 7, 0, 0), (0, 1, 1, 64), (2, half, 0, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": ()}, "takes 2 pointers, but the call has 0 inputs and 1 outputs"),
        ({"inputs": (Y,)}, r"input 0 is float64\[5\], but the parameter is const float"),
        ({"outs": (X,)}, r"output 0 is float32\[3,4\], but the parameter is double"),
        ({"m": 1}, r"f has no attribute 'm'; it takes \(n: int32, by: float32\)"),
        ({"n": 1.5}, "f: n is 1.5, which is not a valid int32"),
        ({"n": 2**31}, "f: n is .*, which is not a valid int32"),
        ({"n": "7x"}, "f: n is .*, which is not a valid int32"),
        ({"n": np.inf}, "f: n is .*, which is not a valid int32"),
        ({"n": np.complex64(7)}, "f: n is .*, which is not a valid int32"),
        ({"by": 1e300}, "is not a valid float32"),
        ({"by": 2**24 + 1}, "is not a valid float32"),
        ({"by": 1 + 2j}, "is not a valid float32"),
        ({"by": np.complex64(1 + 2j)}, "is not a valid float32"),
        ({"by": None}, "f: by is None, which is not a valid float32"),
        ({"by": [1.0, 2.0]}, "is not a valid float32"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str):
    with pytest.raises(ArgumentError, match=message):
        bound(**arguments)


def test_scratch_memory_is_a_pointer_of_any_type_after_the_outputs():
    bytes_ = ArraySpec(BY_NAME["uint8"], (256,))
    three = read_prototype("__global__ void f(const float* x, double* y, void* room) {}", parse_name("f"))
    assert [tuple(param) for param in bound(scratch=(bytes_,), prototype=three)][2] == (0, 2, 1, 8)
    constant = read_prototype("__global__ void f(const float* x, double* y, const int* room) {}", parse_name("f"))
    with pytest.raises(ArgumentError, match=r"scratch 0 is passed as .*, which the kernel can't write"):
        bound(scratch=(bytes_,), prototype=constant)
    with pytest.raises(ArgumentError, match=r"takes 3 pointers, but .* 1 inputs and 1 outputs and 2 of scratch memory"):
        bound(scratch=(bytes_, bytes_), prototype=three)


def test_a_scalar_that_every_call_has_already_is_refused():
    with pytest.raises(SpecError, match="scale: a scalar can't be called outs"):
        cuda_kernel("__global__ void scale(float* y, int outs) {}", "scale", lambda: Y, grid=1, block=1)


def test_a_kernel_needs_to_know_its_results():
    with pytest.raises(ArgumentError, match="scale: neither outs nor a signature says what the results are"):
        cuda_kernel("__global__ void scale(float* y) {}", "scale", grid=1, block=1)


@pytest.mark.parametrize("by", [0.1, np.float64(0.1), 2, True, np.int8(-1), np.inf, np.nan, -0.0, 2**100])
def test_a_number_of_another_type_is_converted_where_the_parameter_holds_it(by: Any):
    (bits,) = struct.unpack("<i", np.float32(by).tobytes())
    assert bound(by=by)[3].first == bits % 2**32


@pytest.mark.parametrize(
    ("pointer", "dtype"),
    [
        ("unsigned char", "float8_e4m3b11fnuz"),
        ("uint8_t", "int2"),
        ("unsigned char", "uint4"),
        ("__nv_fp8_e4m3", "float8_e4m3fn"),
        ("__nv_fp8_e5m2", "float8_e5m2"),
        ("__nv_fp8x4_e5m2", "float8_e5m2"),
        ("__nv_fp8_e8m0", "float8_e8m0fnu"),
        ("__nv_fp4x2_e2m1", "float4_e2m1fn"),
        ("BE::int4x2_t", "int4"),
    ],
)
def test_small_elements_are_passed_as_bytes_or_as_their_own_type(pointer: str, dtype: str):
    prototype = read_prototype(f"__global__ void f(const {pointer}* x, {pointer}* y) {{}}", parse_name("f"))
    spec = ArraySpec(BY_NAME[dtype], (13,))
    assert [tuple(param) for param in bound((spec,), (spec,), prototype=prototype)] == [
        (0, 0, 1, spec.dtype.bits),
        (0, 1, 1, spec.dtype.bits),
    ]


@pytest.mark.parametrize(
    ("pointer", "dtype"),
    [("signed char", "int4"), ("__nv_fp8_e5m2", "float8_e4m3fn"), ("BE::uint4x2_t", "int4"), ("uint8_t", "int8")],
)
def test_small_elements_of_another_type_are_refused(pointer: str, dtype: str):
    prototype = read_prototype(f"__global__ void f(const {pointer}* x, {pointer}* y) {{}}", parse_name("f"))
    spec = ArraySpec(BY_NAME[dtype], (13,))
    with pytest.raises(ArgumentError, match=rf"input 0 is {dtype}\[13\], but the parameter is const {pointer}"):
        bound((spec,), (spec,), prototype=prototype)


@pytest.mark.parametrize("scalar", ["__nv_fp8_e4m3", "BE::int4x2_t"])
def test_a_small_element_is_no_scalar(scalar: str):
    with pytest.raises(SpecError, match=f"the scalar {scalar} by can't be passed"):
        read_prototype(f"__global__ void f({scalar} by, float* y) {{}}", parse_name("f"))


def test_const_says_which_is_which():
    outs_const = read_prototype("__global__ void f(const float* x, const float* y) {}", parse_name("f"))
    with pytest.raises(ArgumentError, match=r"output 0 is passed as .*, which the kernel can't write"):
        bound(outs=(X,), prototype=outs_const)
    inputs_writable = read_prototype("__global__ void f(float* x, float* y) {}", parse_name("f"))
    with pytest.raises(ArgumentError, match="declare it 'const float"):
        bound(outs=(X,), prototype=inputs_writable)


def test_headers_of_flags_are_included_by_the_source():
    """NVRTC looks for those in the process's folder too."""
    flags = ("-include", "a.h", "-DX=1", "--pre-include=b.h", "-include=/c/c.h", "--pre-include", "d.h", "-I/inc")
    asked = for_nvrtc(RawKernel("SOURCE", parse_name("f"), flags))
    assert asked.flags == ("-DX=1", "-I/inc")
    assert asked.source.splitlines() == [
        *(f'#include "{name}"' for name in ("a.h", "b.h", "/c/c.h", "d.h")),
        '#line 1 "f.cu"',
        "SOURCE",
    ]


@pytest.mark.parametrize(
    ("entries", "name", "expected"),
    [
        (["scale"], "scale", "scale"),
        (["_Z5scalePKfPf", "_Z6rescalePf"], "scale", "_Z5scalePKfPf"),
        (["_ZN3ops5scaleEPf"], "ops::scale", "_ZN3ops5scaleEPf"),
        (["_Z5scaleIfEvPT_", "_Z5scalePf"], "scale<float>", "_Z5scaleIfEvPT_"),
        (["_Z5scaleIfEvPT_", "_Z5scalePf"], "scale", "_Z5scalePf"),
        (["_ZN2v15scaleEPf", "_ZN2v25scaleEPf", "_Z5scalePf"], "v2::scale", "_ZN2v25scaleEPf"),
        (["_ZN2v15scaleEPf", "_ZN2v25scaleEPf", "_Z5scalePf"], "scale", "_Z5scalePf"),
        (["_ZN2v15scaleIfEEvPT_", "_ZN2v25scaleIfEEvPT_"], "v1::scale<float>", "_ZN2v15scaleIfEEvPT_"),
        (["_ZN3lib2v25scaleEPf"], "lib::scale", "_ZN3lib2v25scaleEPf"),
        (["scale"], "ops::scale", "scale"),
    ],
)
def test_entry_is_found_by_its_mangled_name(entries: list[str], name: str, expected: str):
    cubin = b"".join(b".text." + entry.encode() + b"\0" for entry in entries)
    assert entry_in_cubin(cubin, parse_name(name)) == expected


@pytest.mark.parametrize("entries", [[], ["_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_"], ["_ZN2v15scaleIfEEvPT_"]])
def test_no_or_several_entries_are_an_error(entries: list[str]):
    cubin = b"".join(b".text." + entry.encode() + b"\0" for entry in entries)
    with pytest.raises(BuildError, match="kernel"):
        entry_in_cubin(cubin, parse_name("v2::scale<float>" if len(entries) == 1 else "scale<float>"))


def test_only_instances_need_help_from_the_source():
    assert instantiated("s", parse_name("f")) == "s"
    assert "&f<float>" in instantiated("s", parse_name("f<float>"))


@pytest.mark.parametrize("source", ["kernel.cu", Path("kernel.cu"), "/a/kernel.cuh"])
def test_a_path_in_the_place_of_a_source_is_noticed(source: Any):
    with pytest.raises(ArgumentError, match=r"is a path, not the text of a source\n.*read_text\(\)"):
        cuda_kernel(source, "f", Y, grid=1, block=1)


@pytest.mark.parametrize("what", ["outs", "grid", "block", "shared_mem"])
def test_a_function_that_does_not_take_the_inputs_is_named(what: str):
    arguments: dict[str, Any] = {"outs": np.ones(3, np.float32), "grid": 1, "block": 1, what: lambda x, y: 1}
    kernel = cuda_kernel("__global__ void scale(const float* x, float* y) {}", "scale", **arguments)
    with pytest.raises(TypeError, match=f"^{what} of scale: .*missing 1 required positional argument: 'y'"):
        kernel(np.ones(3, np.float32))


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


def test_a_toolkit_for_clang_has_nothing_for_raw_kernels(tmp_path: Path):
    machine = MemorySystem(environ={"HOME": "/home/ada", "PATH": "/usr/bin"})
    machine.gxx("/usr/bin/g++")
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    session = new_session()._replace(system=machine, record_dir=tmp_path)
    with pytest.raises(
        CudaNotFoundError, match=r"neither NVRTC nor nvcc.*sm_90\nhint: .*nvrtc; .*nvidia-cuda-nvrtc-cu12"
    ):
        compile_raw(RawKernel("", parse_name("f")), (Arch(9, 0),), session, tmp_path)
