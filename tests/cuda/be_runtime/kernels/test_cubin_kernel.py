"""Cubins and PTX of nvcc, read without a device: parameters, blocks, architectures, calls, and damaged files."""

from __future__ import annotations

import random
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, SpecError, cubin_kernel, export
from be_runtime.kernels.device_code import KernelFacts, kernel_facts, read_code
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import nvcc

SOURCE = """
struct Three { float numbers[3]; };
extern "C" __global__ void scale(const float* x, float* y, float by, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
extern "C" __global__ void __launch_bounds__(128) bounded(float* y, double d, signed char c, bool b, long long q) {
  y[threadIdx.x] = d + c + b + q;
}
extern "C" __global__ void by_value(float* y, Three by) { y[threadIdx.x] = by.numbers[threadIdx.x]; }
extern "C" __global__ void nothing() {}
__device__ __noinline__ float helper(float x) { return x * x + 1; }
namespace ops {
template <class T> __global__ void backwards(T* y, int n, const T* x, T* room) { y[n] = room[n] = helper(x[n]); }
template __global__ void backwards(float*, int, const float*, float*);
__global__ void grow(float* y, short by) { y[threadIdx.x] += by; }
}
"""
REQUIRED = """
.version 8.0
.target sm_80
.address_size 64
/* a comment with .entry g() { */
.visible .entry f(.param .u64 .ptr .global .align 1 f_0, .param .align 4 .b8 f_1[12], .param .f16 f_2)
.reqntid 64, 2
{ ret; } // .entry h() {
"""
X = np.arange(300, dtype=np.float32)
SCALE = "arg[n]:float32 ret[n] attr.by:float32 attr.n:int32"


class Files(NamedTuple):
    cubins: dict[str, Path]
    ptx: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("cubins")
    (folder / "k.cu").write_text(SOURCE)
    commands = {f"sm_{arch}": ["-cubin", f"-arch=sm_{arch}", "-o", f"{arch}.cubin"] for arch in ("80", "90", "90a")}
    commands["ptx"] = ["-ptx", "-arch=compute_80", "-o", "k.ptx"]
    commands["relocatable"] = ["-cubin", "-rdc=true", "-arch=sm_80", "-o", "relocatable.cubin"]
    for options in commands.values():
        subprocess.run([str(nvcc()), "k.cu", *options], cwd=folder, check=True)
    found = {name: folder / options[-1] for name, options in commands.items()}
    return Files(found, found.pop("ptx"))


def function(file: Any, name: str = "scale", signature: Any = SCALE, **options: Any) -> Any:
    defaults: dict[str, Any] = {"grid": "ceil(n/256)", "block": 256}
    return cubin_kernel(file, name, signature, **defaults | options)


def traced(call: Callable[..., Any], *arrays: Any) -> dict[str, Any]:
    (equation,) = kernel_calls(call, *arrays)
    return attributes(equation)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_a_cubin_states_its_architecture_and_its_kernels(files: Files, arch: str):
    code = read_code(files.cubins[arch].read_bytes(), "k.cubin")
    assert code.arch.sm == arch
    assert not code.is_ptx
    facts = {name: kernel_facts(code, name) for name in code.kernels}
    backwards, grow = "_ZN3ops9backwardsIfEEvPT_iPKS1_S2_", "_ZN3ops4growEPfs"
    assert facts == {
        "scale": KernelFacts((8, 8, 4, 4)),
        "bounded": KernelFacts((8, 8, 1, 1, 8), 128),
        "by_value": KernelFacts((8, 12)),
        "nothing": KernelFacts(()),
        backwards: KernelFacts((8, 4, 8, 8)),
        grow: KernelFacts((8, 2)),
    }, "device functions are no kernels"
    ptx = read_code(files.ptx.read_bytes(), "k.ptx")
    assert {name: kernel_facts(ptx, name) for name in ptx.kernels} == facts
    assert (ptx.arch.sm, ptx.is_ptx) == ("sm_80", True)


def test_ptx_with_comments_a_structure_and_a_required_block():
    code = read_code(REQUIRED.encode() + b"\0", "f.ptx")
    assert code.kernels == ("f",)
    assert kernel_facts(code, "f") == KernelFacts((8, 12, 2), None, (64, 2, 1))


def test_a_cubin_of_an_older_toolkit(files: Files):
    data = bytearray(files.cubins["sm_90a"].read_bytes())
    data[8] = 7
    for flags, arch in ((0x5A0D5A, "sm_90a"), (0x5A055A, "sm_90"), (0x500556, "sm_86")):
        struct.pack_into("<I", data, 48, flags)
        assert read_code(bytes(data), "k.cubin").arch.sm == arch


def test_a_call_for_cuda_has_the_parameters_in_the_order_of_the_kernel(files: Files):
    scale = function(files.cubins["sm_90"])
    given = traced(lambda x: scale(x, by=2, n=300), X)
    two = int(np.float32(2).view(np.int32))
    assert given["launch"].tolist() == [2, 1, 1, 256, 1, 1, 0, 1, 1, 1, 0, 0]
    assert given["params"].reshape(-1, 4).tolist() == [[0, 0, 1, 32], [0, 1, 1, 32], [2, two, 0, 0], [2, 300, 0, 0]]
    text = jax.jit(lambda x: scale(x, by=2, n=300)).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call @be_runtime.launch(%arg0)" in text
    assert f'kernel = "{given["kernel"]}"' in text
    assert "params = dense<[0, 0, 1, 32, 0, 1, 1, 32, 2, 1073741824, 0, 0, 2, 300, 0, 0]> : tensor<16xi64>" in text

    tokens = "ret[m] attr.n:int32 arg[m] scratch[4*m]"
    backwards = function(files.cubins["sm_90"], "ops::backwards<float>", tokens, grid="ceil(m/256)")
    params = traced(lambda x: backwards(x, n=7), X)["params"].reshape(-1, 4)
    assert params[:, :2].tolist() == [[0, 1], [2, 7], [0, 0], [0, 2]]
    without = traced(lambda x: scale(x, by=2), X)["params"]
    assert without.tolist() == given["params"].tolist(), "n is the extent of the axis n"


def test_an_array_that_changes_in_place_is_one_pointer_to_the_output(files: Files):
    grow = function(files.cubins["sm_90"], "ops::grow", "inout[n]:float32 attr.by:int16=-3", block="n", grid=1)
    assert traced(grow, X)["params"].reshape(-1, 4)[:, :2].tolist() == [[0, 1], [2, 2**16 - 3]]
    text = jax.jit(grow).trace(X).lower(lowering_platforms=("cuda",)).as_text()
    assert "output_operand_aliases" in text


def test_the_id_is_of_the_code_and_the_kernel(files: Files):
    def id_of(file: Any, name: str = "scale", signature: str = SCALE, **given: Any) -> Any:
        return traced(lambda x: function(file, name, signature)(x, **given), X)["kernel"]

    path = files.cubins["sm_90"]
    one = id_of(path, by=2, n=300)
    assert one == id_of(path.read_bytes(), by=2, n=300) == id_of(str(path), by=3, n=300)
    assert one != id_of(files.cubins["sm_80"], by=2, n=300)
    assert one != id_of(files.ptx, by=2, n=300)
    assert one != id_of(path, "ops::backwards<float>", "ret[n] attr.n:int32 arg[n] scratch[4*n]", n=300)


def test_vmap_is_one_call(files: Files):
    scale = function(files.cubins["sm_90"], signature="arg[... n]:float32 ret[... n] attr.by:float32 attr.n:int32")
    (call,) = kernel_calls(jax.vmap(lambda x: scale(x, by=2, n=300)), np.stack([X, X]))
    assert [str(var.aval) for var in call.outvars] == ["float32[2,300]"]
    assert attributes(call)["params"].reshape(-1, 4)[0].tolist() == [0, 0, 1, 32]


def test_an_export_has_the_code(files: Files):
    scale = function(files.cubins["sm_90"])
    made = export(jax.jit(lambda x: scale(x, by=2, n=300)), X, platforms=["cuda"])
    assert files.cubins["sm_90"].read_bytes() in bytes(made)


TOKENS = {
    "fewer": ("scale", "arg[n] ret[n]", r"scale in 90.cubin has 4 parameters of 8, 8, 4, 4 bytes, but .* has 2 tokens"),
    "more": ("nothing", "ret[2]:float32", "nothing in 90.cubin has 0 parameters, but the signature has 1 token"),
    "size": (
        "scale",
        "arg[n] ret[n] attr.by:float64 attr.n:int32",
        "2 has 4 bytes, but attr.by:float64 has 8",
    ),
    "pointer": (
        "scale",
        "arg[n] attr.by:float32 ret[n] attr.n:int32",
        "1 has 8 bytes, but attr.by:float32 has 4",
    ),
    "scalar": (
        "scale",
        "arg[n] ret[n] scratch[n] attr.n:int32",
        r"2 has 4 bytes, but scratch\[n\] has 8, a poi",
    ),
    "structure": ("by_value", "ret[3]:float32 attr.by:float32", "parameter 1 has 12 bytes"),
    "name": ("scall", SCALE, r"90.cubin has no kernel 'scall'; its kernels are: .*\n.*did you mean scale\?"),
    "template": ("backwards", "arg ret", "has no kernel 'backwards'"),
    "device": ("helper", "arg ret", "has no kernel 'helper'"),
    "untyped": ("scale", "arg[n] ret[n] attr.by attr.n", "'attr.by' needs the type of a number"),
    "large": ("scale", "arg[n] ret[n] attr.by:complex128 attr.n:int32", "at most 8 bytes"),
    "default": ("scale", "arg[n] ret[n] attr.by:float32 attr.n:int8=300", "can't be the default of int8"),
    "stream": ("scale", "arg[n] ret[n] stream", "a kernel has arg, ret, attr and scratch"),
    "zeros": ("scale", "arg[n] ret[n]=0 attr.by:float32 attr.n:int32", "write the zeros yourself"),
    "axis": ("scale", "arg[n] ret[n] scratch[4*k]", "has the axis 'k', which no 'arg' has"),
    "float": ("scale", "arg[n] ret[n] attr.by:float32 scratch[attr.by]", "which is not an integer attribute"),
}


@pytest.mark.parametrize("case", TOKENS)
def test_a_signature_that_does_not_fit_is_refused(files: Files, case: str):
    name, signature, message = TOKENS[case]
    with pytest.raises((ArgumentError, SpecError), match=message):
        function(files.cubins["sm_90"], name, signature, grid=1)


def test_the_block_is_compared_with_the_code(files: Files):
    signature = "ret[256]:float32 attr.d:float64 attr.c:int8 attr.b:bool attr.q:int64"
    with pytest.raises(ArgumentError, match=r"at most 128 threads, and block=\(16, 16, 1\) has 256"):
        function(files.cubins["sm_90"], "bounded", signature, grid=1, block=(16, 16))
    late = function(files.cubins["sm_90"], "bounded", signature, grid=1, block=lambda: 129)
    with pytest.raises(ArgumentError, match="at most 128 threads"):
        jax.make_jaxpr(lambda: late(d=1, c=1, b=True, q=1))()
    required = REQUIRED.replace(".param .align 4 .b8 f_1[12], ", "").encode()
    tokens = "ret[2]:float32 attr.h:float16"
    with pytest.raises(ArgumentError, match=r"f was compiled for a block of \(64, 2, 1\), not of \(128, 1, 1\)"):
        function(required, "f", tokens, grid=1, block=128)
    half = traced(lambda: function(required, "f", tokens, grid=1, block=(64, 2))(h=1.5))
    assert half["params"].reshape(-1, 4)[1].tolist() == [2, int(np.float16(1.5).view(np.uint16)), 0, 0]


def test_files_that_hold_no_kernel_are_refused(files: Files, tmp_path: Path):
    source = tmp_path / "k.cu"
    source.write_text(SOURCE)
    for file, message in (
        (tmp_path / "absent.cubin", "absent.cubin' can't be read: No such file"),
        (tmp_path, "can't be read: Is a directory"),
        (source, "k.cu is neither a cubin nor PTX"),
        (b"", "code of 0 bytes is neither a cubin nor PTX"),
        (b"\x50\xed\x55\xba" + bytes(60), "is a fat binary"),
        (Path("/proc/self/exe").resolve(), "is an ELF file, but not a cubin: its ELF machine is"),
        (files.cubins["relocatable"], "is relocatable"),
        (None, "path must be"),
        (7, "path must be"),
    ):
        with pytest.raises(ArgumentError, match=message):
            function(file)


def test_the_newer_form_of_parameters(files: Files):
    """The form of kernels that fetch descriptors: the size is a number of its own."""

    def newer(match: re.Match[bytes]) -> bytes:
        start, flags = struct.unpack("<8sI", match[1])
        return b"\x04\x45\x0c\x00" + struct.pack("<8sHH", start, flags >> 18, 0x400)

    data = files.cubins["sm_90"].read_bytes()
    code, found = (read_code(each, "k.cubin") for each in (data, re.sub(rb"(?s)\x04\x17\x0c\x00(.{12})", newer, data)))
    assert found.data != code.data
    for name in code.kernels:
        assert kernel_facts(found, name) == kernel_facts(code, name)


def read_all(data: bytes) -> bool:
    """Whether all of some code is understood; only our own error may say that it is not."""
    try:
        code = read_code(data, "damaged")
        for name in code.kernels:
            kernel_facts(code, name)
    except ArgumentError:
        return False
    return True


def test_damaged_code_raises_no_other_error(files: Files):
    for data in (files.cubins["sm_90"].read_bytes(), files.ptx.read_bytes()):
        draw = random.Random(0)  # noqa: S311
        tables = struct.unpack_from("<Q", data, 40)[0] if data.startswith(b"\x7fELF") else 0
        understood = 0
        for _ in range(3000):
            damaged = bytearray(data)
            for _ in range(draw.choice((1, 2, 8, 64))):
                start = draw.choice((0, 16, tables, data.find(b"\x04\x17\x0c\x00")))
                at = min(max(start, 0) + int(draw.expovariate(1 / 300)), len(data) - 1)
                damaged[draw.choice((at, draw.randrange(len(data))))] = draw.choice((0, 255, draw.randrange(256)))
            understood += read_all(bytes(damaged))
        assert 0 < understood < 3000
        for size in range(0, len(data), 61):
            read_all(data[:size])
    cubin = files.cubins["sm_90"].read_bytes()
    assert not any(read_all(cubin[:size]) for size in range(4, len(cubin), 61)), "the tables come last"
