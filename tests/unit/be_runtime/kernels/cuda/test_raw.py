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
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

X, Y, BYTES = (
    ArraySpec(BY_NAME[name], shape) for name, shape in (("float32", (3, 4)), ("float64", (5,)), ("uint8", (256,)))
)
GOLDEN = Path(__file__).parent / "golden"
PARAMS = "const float* x, int n, double* y, float by"


def bound(params: str = PARAMS, inputs: Any = (X,), outs: Any = (Y,), scratch: Any = (), **scalars: Any) -> list[Any]:
    """The parameters of a call, whose scalars are checked as those of every call."""
    prototype = read_prototype(f"__global__ void f({params}) {{}}", parse_name("f"))
    given = ({"n": 7, "by": 0.5} | scalars) if params is PARAMS else scalars
    converted = dict(convert_attributes("f", scalar_params(prototype), given))
    call = Resolved([], inputs, (*outs, *scratch), len(scratch), False, (), {}, Split((), ()))
    return [tuple(param) for param in bind_params("f", prototype, call, converted)]


CALLS: list[dict[str, Any]] = [
    *({}, {"inputs": ()}, {"inputs": (Y,)}, {"outs": (X,)}, {"m": 1}),
    *({"n": n} for n in (1.5, 2**31, "7x", np.inf)),
    *({"by": by} for by in (1e300, 2**24 + 1, 1 + 2j, None, [1.0, 2.0])),
    *({"params": f"const float* x, double* y, {room}* z", "scratch": (BYTES,)} for room in ("void", "const int")),
    {"params": "const float* x, double* y, void* z", "scratch": (BYTES, BYTES)},
    {"params": "const float* x, const double* y"},
    {"params": "float* x, double* y"},
    {"params": "__nv_fp8_e4m3 by, float* y"},
    {"params": "BE::int4x2_t by, float* y"},
]
SMALL = """
unsigned char* float8_e4m3b11fnuz; uint8_t* int2; unsigned char* uint4; __nv_fp8_e4m3* float8_e4m3fn
__nv_fp8_e5m2* float8_e5m2; __nv_fp8x4_e5m2* float8_e5m2; __nv_fp8_e8m0* float8_e8m0fnu; __nv_fp4x2_e2m1* float4_e2m1fn
BE::int4x2_t* int4; signed char* int4; __nv_fp8_e5m2* float8_e4m3fn; BE::uint4x2_t* int4; uint8_t* int8
"""


def test_params_follow_the_source_or_the_error_says_what_does_not_fit():
    """Scratch memory is a pointer of any type, and small elements are bytes, or of their own type."""
    rows = []
    for call in CALLS:
        given = (
            f"{key}={' '.join(map(str, each)) if isinstance(each, tuple) else each!r}" for key, each in call.items()
        )
        rows.append(f"{', '.join(given)}\n  {answer(bound, **call)}\n")
    for pair in SMALL.strip().replace("\n", "; ").split("; "):
        pointer, dtype = pair.split("* ")
        array = (ArraySpec(BY_NAME[dtype], (13,)),)
        rows.append(f"{pair}\n  {answer(bound, f'const {pointer}* x, {pointer}* y', array, array)}\n")
    check_golden(GOLDEN / "raw_calls.txt", "".join(rows))
    for complex_ in (np.complex64(7), np.complex64(1 + 2j)):
        assert "is not a valid" in answer(bound, n=complex_)
        assert "is not a valid" in answer(bound, by=complex_)


@pytest.mark.parametrize("by", [0.1, np.float64(0.1), 2, True, np.int8(-1), np.inf, np.nan, -0.0, 2**100])
def test_a_number_of_another_type_is_converted_where_the_parameter_holds_it(by: Any):
    (bits,) = struct.unpack("<i", np.float32(by).tobytes())
    assert bound(by=by)[3][1] == bits % 2**32


def test_headers_of_flags_are_included_by_the_source():
    """NVRTC looks for those in the process's folder too."""
    flags = ("-include", "a.h", "-DX=1", "--pre-include=b.h", "-include=/c/c.h", "--pre-include", "d.h", "-I/inc")
    asked = for_nvrtc(RawKernel("SOURCE", parse_name("f"), flags))
    assert asked.flags == ("-DX=1", "-I/inc")
    included = "".join(f'#include "{name}"\n' for name in ("a.h", "b.h", "/c/c.h", "d.h"))
    assert asked.source == f'{included}#line 1 "f.cu"\nSOURCE'


ENTRIES = [
    ("scale", "scale ops::scale"),
    ("_Z5scalePKfPf _Z6rescalePf", "scale"),
    ("_ZN3ops5scaleEPf", "ops::scale"),
    ("_Z5scaleIfEvPT_ _Z5scalePf", "scale<float> scale"),
    ("_ZN2v15scaleEPf _ZN2v25scaleEPf _Z5scalePf", "v2::scale scale"),
    ("_ZN2v15scaleIfEEvPT_ _ZN2v25scaleIfEEvPT_", "v1::scale<float>"),
    ("_ZN3lib2v25scaleEPf", "lib::scale"),
    ("_Z5scaleIfEvPT_ _Z5scaleIdEvPT_", "scale<float>"),
    ("_ZN2v15scaleIfEEvPT_", "v2::scale<float>"),
    ("", "scale<float>"),
]


def test_the_one_entry_is_found_by_its_mangled_name():
    rows = []
    for entries, names in ENTRIES:
        cubin = b"".join(b".text." + entry.encode() + b"\0" for entry in entries.split())
        rows += [
            f"{name} in {entries}\n  {answer(entry_in_cubin, cubin, parse_name(name))}\n" for name in names.split()
        ]
    check_golden(GOLDEN / "entries.txt", "".join(rows))


def test_only_instances_need_help_from_the_source():
    assert instantiated("s", parse_name("f")) == "s"
    assert "&f<float>" in instantiated("s", parse_name("f<float>"))


def test_bad_arguments():
    unnamed, misnamed = (f"__global__ void f({params}) {{}}" for params in ("float* y", "float* y, int outs"))
    sources = ("kernel.cu", Path("kernel.cu"), "/a/kernel.cuh", unnamed)
    rows = [answer(cuda_kernel, source, "f", grid=1, block=1) for source in sources]
    rows.append(answer(cuda_kernel, misnamed, "f", lambda: np.zeros(1), grid=1, block=1))
    rows += [answer(check_aliases, aliases) for aliases in ({0: -1}, {"a": 0}, {0: True}, [0], 3)]
    rows += [answer(match_aliases, *each) for each in (({0: 0}, [X], [X]), ({0: 0}, [X], [Y]), ({1: 0}, [X], [X]))]
    rows += [*(answer(check_outs, outs) for outs in ([], [3])), answer(check_vmap_method, "all")]
    check_golden(GOLDEN / "bad_arguments.txt", "\n".join(rows) + "\n")


@pytest.mark.parametrize("what", ["outs", "grid", "block", "shared_mem"])
def test_a_function_that_does_not_take_the_inputs_is_named(what: str):
    arguments: dict[str, Any] = {"outs": np.ones(3, np.float32), "grid": 1, "block": 1, what: lambda x, y: 1}
    kernel = cuda_kernel("__global__ void scale(const float* x, float* y) {}", "scale", **arguments)
    with pytest.raises(TypeError, match=f"^{what} of scale: .*missing 1 required positional argument: 'y'"):
        kernel(np.ones(3, np.float32))


def test_a_toolkit_for_clang_has_nothing_for_raw_kernels(tmp_path: Path):
    machine = MemorySystem(environ={"HOME": "/home/ada", "PATH": "/usr/bin"})
    machine.gxx("/usr/bin/g++")
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    session = new_session()._replace(system=machine, record_dir=tmp_path)
    message = r"neither NVRTC nor nvcc.*sm_90\nhint: .*nvrtc; .*nvidia-cuda-nvrtc-cu12"
    with pytest.raises(CudaNotFoundError, match=message):
        compile_raw(RawKernel("", parse_name("f")), (Arch(9, 0),), session, tmp_path)
