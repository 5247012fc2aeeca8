"""A raw kernel, its call, headers and compilers; kernels as launcher and cache have them; the sizes of launches."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime import dtypes, errors
from be_runtime.call import attributes, resolve, signature
from be_runtime.jax.arrays import ArraySpec, Split, check_aliases, check_outs, check_vmap_method, match_aliases
from be_runtime.kernels import geometry, launcher, nvrtc, raw, raw_compiler
from be_runtime.kernels.sizes import Sizes, read_sizes
from be_runtime.load.process import PROCESS
from be_runtime.signature.model import Param, Role
from be_runtime.store import cache, keys
from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.machine.local_system import LocalSystem
from tests.support.machines import SITE, File, MemorySystem
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

X, Y, BYTES = (
    ArraySpec(dtypes.BY_NAME[name], shape)
    for name, shape in (("float32", (3, 4)), ("float64", (5,)), ("uint8", (256,)))
)
GOLDEN = Path(__file__).parent / "golden"
PARAMS = "const float* x, int n, double* y, float by"


def bound(params: str = PARAMS, inputs: Any = (X,), outs: Any = (Y,), scratch: Any = (), **scalars: Any) -> list[Any]:
    """The parameters of a call, whose scalars are checked as those of every call."""
    kernel = raw_compiler.RawKernel(f"__global__ void f({params}) {{}}", raw_compiler.parse_name("f"))
    layout = raw.layout_of(kernel)
    given = ({"n": 7, "by": 0.5} | scalars) if params is PARAMS else scalars
    converted = dict(attributes.convert_attributes("f", layout.scalars, given))
    call = resolve.Resolved([], inputs, (*outs, *scratch), len(scratch), False, (), {}, Split((), ()), ())
    return [*layout.bind(call, converted).params]


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
        array = (ArraySpec(dtypes.BY_NAME[dtype], (13,)),)
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
    asked = raw_compiler.for_nvrtc(raw_compiler.RawKernel("SOURCE", raw_compiler.parse_name("f"), flags))
    assert asked.flags == ("-DX=1", "-I/inc")
    included = "".join(f'#include "{name}"\n' for name in ("a.h", "b.h", "/c/c.h", "d.h"))
    assert asked.source == f'{included}#line 1 "f.cu"\nSOURCE'
    assert raw_compiler.instantiated("s", raw_compiler.parse_name("f")) == "s"
    assert "&f<float>" in raw_compiler.instantiated("s", raw_compiler.parse_name("f<float>")), (
        "only instances need help from the source"
    )


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
        found = {
            name: answer(raw_compiler.entry_in_cubin, cubin, raw_compiler.parse_name(name)) for name in names.split()
        }
        rows += [f"{name} in {entries}\n  {text}\n" for name, text in found.items()]
    check_golden(GOLDEN / "entries.txt", "".join(rows))


def test_bad_arguments():
    unnamed, misnamed = (f"__global__ void f({params}) {{}}" for params in ("float* y", "float* y, int outs"))
    sources = ("kernel.cu", Path("kernel.cu"), "/a/kernel.cuh", unnamed)
    rows = [answer(raw.cuda_kernel, source, "f", grid=1, block=1) for source in sources]
    rows.append(answer(raw.cuda_kernel, misnamed, "f", lambda: np.zeros(1), grid=1, block=1))
    rows += [answer(check_aliases, aliases) for aliases in ({0: -1}, {"a": 0}, {0: True}, [0], 3)]
    rows += [answer(match_aliases, *each) for each in (({0: 0}, [X], [X]), ({0: 0}, [X], [Y]), ({1: 0}, [X], [X]))]
    rows += [*(answer(check_outs, outs) for outs in ([], [3])), answer(check_vmap_method, "all")]
    check_golden(GOLDEN / "bad_arguments.txt", "\n".join(rows) + "\n")


@pytest.mark.parametrize("what", ["outs", "grid", "block", "shared_mem"])
def test_a_function_that_does_not_take_the_inputs_is_named(what: str):
    arguments: dict[str, Any] = {"outs": np.ones(3, np.float32), "grid": 1, "block": 1, what: lambda x, y: 1}
    kernel = raw.cuda_kernel("__global__ void scale(const float* x, float* y) {}", "scale", **arguments)
    with pytest.raises(TypeError, match=f"^{what} of scale: .*missing 1 required positional argument: 'y'"):
        kernel(np.ones(3, np.float32))


def test_a_toolkit_for_clang_has_nothing_for_raw_kernels(tmp_path: Path):
    machine = MemorySystem(environ={"HOME": "/home/ada", "PATH": "/usr/bin"})
    machine.gxx("/usr/bin/g++")
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    session = PROCESS.session()._replace(system=machine, record_dir=tmp_path)
    message = r"neither NVRTC nor nvcc.*sm_90\nhint: .*nvrtc; .*nvidia-cuda-nvrtc-cu12"
    with pytest.raises(CudaNotFoundError, match=message):
        raw_compiler.compile_raw(
            raw_compiler.RawKernel("", raw_compiler.parse_name("f")), (Arch(9, 0),), session, tmp_path
        )


SOURCE = """
// __global__ void commented(float* x);
#define UNUSED 1
template <typename T, int N = 4> __device__ T helper(T x) { return x; }
namespace ops {
template <class T, unsigned N, typename U>
__global__ void __launch_bounds__(256, 2) scale(const T* __restrict__ x, U const *y, T* out, const U by, long long n) {}
}
extern "C" __global__ void plain(const unsigned char* mask, const void* any, double *out, bool flag, float by = 1) {}
__global__ void declared(const __nv_bfloat16* x, __half* y);
__device__ void not_a_kernel(float* x) {}
__global__ void takes_struct(const float* x, float* y, Config config) {}
__global__ void takes_table(const float** x, float* y) {}
namespace v1 { template <class T> __global__ void twice(const T* x, T* y, int by) {} }
namespace v2 { template <class T> __global__ void twice(const T* x, T* y, float by) {} }
namespace lib { inline namespace now { __global__ void add(float* y, int n); } }
namespace lib { inline namespace now { __global__ void add(float *out, const int count) {} } }
__global__ void both(double* y) {}
namespace v1 { __global__ void both(float* y) {} }
template <class T> __global__ void mixed(T* y) {}
__global__ void mixed(double* y) {}
__global__ void over(float* y) {}
__global__ void over(double* y) {}
#ifdef SWAPPED
__global__ void chosen(float* y, int rows, int columns) {}
#else
__global__ void chosen(float* y, int columns, int rows) {}
#endif
"""
NAMES = """
ops::scale<float, 8u, int>; plain; declared; both; v1::both; mixed; mixed<int>
v1::twice<float>; v2::twice<float>; ::v2 :: twice<float>; lib::add; lib::now::add; add; alias::add
commented; missing; not_a_kernel; scale; plain<int>; takes_struct; takes_table; a b; f(int)
twice<float>; alias::twice<float>; over; chosen
"""


def shown(name: str) -> str:
    def one(param: launcher.KernelParam) -> str:
        kind = ("const*" if param.is_const else "*") if param.is_pointer else ""
        return f"{param.dtype.name if param.dtype is not None else 'any'}{kind} {param.name}"

    return ", ".join(map(one, raw_compiler.read_prototype(SOURCE, raw_compiler.parse_name(name))))


def test_parameters_of_kernels_or_why_they_can_not_be_launched():
    names = [name.strip() for name in NAMES.strip().replace("\n", ";").split(";")]
    rows = "".join(f"{name}\n  {answer(shown, name)}\n" for name in names)
    check_golden(GOLDEN / "prototypes.txt", rows)
    assert raw_compiler.parse_name("f<std::pair<int, float>, (1, 2)>").arguments == ("std::pair<int, float>", "(1, 2)")


def find(source: str, *folders: Path, own: tuple[Path, ...] = ()) -> cache.BuildOutput:
    return nvrtc.find_headers(source, "k.cu", folders, own, LocalSystem())


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_headers_are_followed_and_each_read_once(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    write(first / "a.h", '#include "b.h"\n  #  include <sub/c.h>\n#include <missing.h>')
    write(first / "b.h", '#include "a.h"')
    write(second / "sub" / "c.h", '#include "d.h"')
    write(second / "sub" / "d.h")
    found = find('#include "a.h"\n', first, second)
    assert sorted(Path(path).name for path in found.dependencies) == ["a.h", "b.h", "c.h", "d.h"]
    assert found.unknown == ()
    assert {first / "missing.h", first / "sub" / "c.h"} <= set(found.absent)


SPELLINGS = (
    *("#include <{}>", '#include_next "{}"', '%:include "{}"', '\f#\v include "{}"', '#if 0\n#include "{}"\n#endif'),
    *('#inc\\\nlude "{}"', '#inc\\\r\nlude "{}"\r\n', '/* a\n b */ # /* c */ include /* d */ "{}" // e'),
    "#if defined(__has_include) && __has_include( <{}> )\n#endif",
)


def test_every_spelling_is_found_and_words_that_are_no_directive_are_not(tmp_path: Path):
    header = write(tmp_path / "x.h")
    for spelling in SPELLINGS:
        assert (
            find(spelling.format("x.h"), tmp_path) == find(spelling.format(header)) == cache.BuildOutput((), (header,))
        )
    for line in ("// we include HEADER", "include HEADER", 'puts("#include HEADER");', "#ifdef include"):
        assert find(line) == cache.BuildOutput(())


def test_a_header_in_any_folder_may_be_meant(tmp_path: Path):
    """`#include_next`, and `<>` beside `""`, pass over what a plain search would find first."""
    headers = [write(tmp_path / name / "x.h") for name in ("a", "b")]
    assert find("#include <x.h>", tmp_path / "a", tmp_path / "b").dependencies == tuple(headers)


def test_paths_that_grow_end(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    write(tmp_path / "x.h", '#include "sub/../x.h"')
    write(tmp_path / "y.h")
    (tmp_path / "link").symlink_to(".")
    write(tmp_path / "z.h", '#include "link/z.h"\n#include "link/y.h"')
    assert len(find('#include "x.h"\n#include "z.h"', tmp_path).dependencies) < 8


@pytest.mark.parametrize("line", ["#include HEADER", "  # include S(x)", "#if __has_include(HEADER)\n#endif"])
def test_a_macro_in_place_of_a_name_is_said(line: str, tmp_path: Path):
    header = write(tmp_path / "x.h", line)
    (said,) = find('#include "x.h"', tmp_path).unknown
    assert said.startswith(f"the header that {header} names as ")
    assert len(find(line).unknown) == 1
    assert find('#include "x.h"', own=(tmp_path,)).unknown == (), "CUDA's own lead to headers of one release"


def test_cudas_own_headers_are_read_but_not_waited_for(tmp_path: Path):
    own = write(tmp_path / "cuda" / "c.h", "#include <other.h>\n#include <cstdint>")
    found = find("#include <c.h>", tmp_path / "mine", own=(tmp_path / "cuda",))
    assert found.dependencies == (own,)
    assert set(found.absent) == {tmp_path / "mine" / "c.h", tmp_path / "mine" / "other.h"}


def test_flags_that_are_not_understood_may_name_a_folder():
    found = raw_compiler.named_paths(("-isystem=/a b", "--new-option", "/c", "-x/d", "plain"))
    assert found == (Path("/a b"), Path("/c"), Path("/d"))


@pytest.mark.parametrize(("machine", "target"), [("x86_64", "x86_64-linux"), ("aarch64", "sbsa-linux")])
def test_places_are_those_of_the_machine(machine: str, target: str):
    found = list(nvrtc.places(MemorySystem(machine=machine, prefixes=(Path("/conda"),)), [Path("/opt/cuda")]))
    folders = [str(place.folder) for place in found]
    assert folders[0] == f"{SITE}/nvidia/cu13/lib"
    assert folders.index("/conda/lib") < folders.index("/opt/cuda/lib64") < folders.index("/usr/local/cuda/lib64")
    assert f"/opt/cuda/targets/{target}/lib" in folders
    assert folders[-1] == f"/usr/lib/{machine}-linux-gnu"
    include = Path(f"/conda/targets/{target}/include")
    assert found[folders.index("/conda/lib")].includes[:2] == (include, include / "cccl")
    wheel = found[folders.index(f"{SITE}/nvidia/cuda_nvrtc/lib")]  # of CUDA 12, with headers in folders of their own
    parts = ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "curand")
    assert {Path(f"{SITE}/nvidia/{part}/include") for part in parts} < set(wheel.includes)


def test_libraries_are_the_newest_first():
    names = ("libnvrtc.so.9", "libnvrtc.so.13", "libnvrtc.so", "libnvrtc-builtins.so.13.0")
    system = MemorySystem(files={f"/lib/{name}": File() for name in names})
    assert [path.name for path in nvrtc.libraries(Path("/lib"), system)] == ["libnvrtc.so.13", "libnvrtc.so.9"]


def test_a_missing_header_of_cuda_names_its_wheel():
    """An author's header is in no wheel, nor has conda's NVRTC any. Since 13.3, CCCL's wheel has its own versions."""
    cuda = ["cuda/std/array", "nv/target", "cub/block/block_reduce.cuh", "curand_kernel.h", "crt/mma.h", "cuda_fp16.h"]
    rows = []
    for header in (*cuda, "mine.h", "cuda/mine.h", "custom.h", "cutlass/cutlass.h"):
        log = f'f.cu(1): catastrophic error: cannot open source file "{header}"\n'
        for folder, version in (("nvidia/cu13", (13, 0)), ("nvidia/cuda_nvrtc", (12, 9)), ("/conda", (13, 0))):
            found = nvrtc.Nvrtc(Path(SITE, folder, f"lib/libnvrtc.so.{version[0]}"), version, (), None)
            rows.append(f"{header}, {Path(folder).name}: {'; '.join(nvrtc.missing_header_hints(found, log))}\n")
    check_golden(GOLDEN / "missing_headers.txt", "".join(rows))
    newer = found._replace(path=Path(SITE, "nvidia/cu13/lib/libnvrtc.so.13"), version=(13, 5))
    log = 'cannot open source file "{}"'
    hints = [nvrtc.missing_header_hints(newer, log.format(header))[0] for header in ("cub/cub.cuh", "crt/mma.h")]
    assert [hint.partition(" brings")[0] for hint in hints] == [
        "pip install 'nvidia-cuda-cccl'",
        "pip install 'nvidia-cuda-crt==13.5.*'",
    ]


def explicit(**given: Any) -> str:
    return str(geometry.explicit_geometry(**({"grid": 4, "block": 32} | given)).encode())


def choose(**given: Any) -> str:
    """With the defaults of `numba_cuda_kernel`."""
    arguments = {"grid": None, "block": None, "launch_dims": None, "threads_per_block": 256, "shared_mem": 0} | given
    return str(geometry.choose_geometry(**arguments, is_empty=False).encode())


EXPLICIT: list[dict[str, Any]] = [
    {"grid": (2, 3), "block": 64, "shared_mem": 100, "cluster": (2, 1)},
    {"grid": 0, "is_empty": True},
    *({"grid": grid} for grid in (0, -4, (1, 70_000), 2**31 - 1, 2**31, (1, 1, 1, 1), (), 1.5, "4", True, None)),
    *({"block": block} for block in (2048, (1, 1, 128), (32, 33))),
    *({"shared_mem": size} for size in (256 * 1024 - 1, -1, 256 * 1024, (100, 200), "48k")),
    *({"cluster": cluster} for cluster in (32, 3)),
]
CHOSEN: list[dict[str, Any]] = [
    *({}, {"grid": 1}, {"block": 1}, {"grid": 1, "block": 1, "launch_dims": 1}, {"launch_dims": 0}),
    *({"launch_dims": 8, "threads_per_block": threads} for threads in (4, 2000, (16, 16))),
    *({"grid": 4, "block": (16, 4), "threads_per_block": threads} for threads in (256, 64, 32, 0, "many", 2000)),
    {"launch_dims": (16, 2_000_000)},
]


def test_numbers_become_a_geometry_or_are_refused():
    """Numbers and tuples are filled up with ones; what some GPU may have is left to the launcher."""
    rows = [f"{given}\n  {answer(explicit, **given)}\n" for given in EXPLICIT]
    rows += [f"{given}\n  {answer(choose, **given)}\n" for given in CHOSEN]
    for launch in ({"grid": 0}, {"block": 2048}, {"shared_mem": 10**6}, {"shared_mem": "48k"}):
        arguments = {"outs": lambda: np.zeros(1), "grid": 1, "block": 32} | launch
        made = answer(raw.cuda_kernel, "__global__ void f(float* y) {}", "f", **arguments)
        rows.append(f"a raw kernel of {launch}\n  {made}\n")
    check_golden(GOLDEN / "geometries.txt", "".join(rows))
    assert explicit(block=np.int64(64)) == explicit(block=64)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=3), st.integers(1, 1024))
def test_automatic_grids_cover_the_dimensions(dims: list[int], threads: int):
    found = geometry.automatic_geometry(tuple(dims), threads)
    for size, blocks, width in zip(dims, found.grid, found.block, strict=False):
        assert blocks * width >= size
        assert (blocks - 1) * width < max(size, 1)
    assert np.prod(found.block) <= threads


@given(st.integers(1, 3), st.integers(0, 10))
def test_powers_of_two_are_used_up(ndim: int, bits: int):
    assert np.prod(geometry.automatic_block(ndim, 2**bits)) == 2**bits


SCALARS = tuple(
    Param(role=Role.ATTR, name=n, dtype=dtypes.BY_NAME[t]) for n, t in (("bins", "int32"), ("by", "float32"))
)
SIGNATURE = signature.read_signature("f", "arg[n k] ret[n]", scalars=SCALARS)
EXPRESSIONS = {"grid": ("ceil(n/16)", 2), "block": "min(n,64)", "shared_mem": "4*attr.bins"}


def sizes(**given: Any) -> Sizes:
    return read_sizes("f", {"grid": 1, "block": 32, "shared_mem": 0} | given, SIGNATURE, geometry.explicit_geometry)


def launch_dims(*dims: object) -> Sizes:
    given = {"grid": None, "block": None, "launch_dims": dims, "threads_per_block": 256, "shared_mem": 0}
    return read_sizes("f", given, SIGNATURE, geometry.choose_geometry)


def call(n: int, k: int = 7) -> resolve.Resolved:
    f32 = dtypes.BY_NAME["float32"]
    values = {"n": n, "k": k, "attr.bins": 5}
    return resolve.Resolved(
        [], (ArraySpec(f32, (n, k)),), (ArraySpec(f32, (n,)),), 0, False, (), values, Split((), ()), ()
    )


SIZES: list[tuple[int, dict[str, Any]]] = [
    *((n, {"grid": ("ceil(n/16)", 2, "k"), "block": "min(n,64)", "shared_mem": "4*attr.bins"}) for n in (100, 17)),
    (0, {"grid": "ceil(n/256)"}),
    (3, {"grid": "n-3"}),
    (1000, {"block": "n*k"}),
    (1, {"shared_mem": "k*10**0*n"}),
    *((10, {"grid": grid}) for grid in ("n/4", "1-n", (1, "ceil(m/256)"), (1, "attr.by"))),
]


def test_expressions_follow_the_call_and_an_error_has_their_values():
    def encoded(n: int, given: dict[str, Any]) -> str:
        return str(sizes(**given).geometry(call(n)).encode())

    rows = [f"{given} with n = {n}\n  {answer(encoded, n, given)}\n" for n, given in SIZES]
    rows.append(f"no signature\n  {answer(read_sizes, 'f', {'grid': 'n'}, None, geometry.explicit_geometry)}\n")
    check_golden(GOLDEN / "sizes.txt", "".join(rows))
    assert launch_dims("n", "k").geometry(call(100)).grid == (7, 1, 1)


def test_sizes_that_never_change_are_checked_at_once():
    for never in ({"grid": 0}, {"block": 2048}):
        with pytest.raises(errors.ArgumentError):
            sizes(**never).check(None)
    sizes(grid="n-n").check(None)


def test_sizes_of_one_device_are_arithmetic():
    found = sizes(**EXPRESSIONS)
    local = found.local(found.geometry(call(100)))
    assert local == ("ceil(n/16)", "2", "1", "min(n,64)", "1", "1", "4*attr.bins", "1", "1", "1", "0", "0")
    split = Split((("n", "k"),), (("n",),), places=(("n", (0, 0)),), integers=(("attr.bins", 5),))
    computed = split._replace(computed=(("launch", local),)).attributes([(17, 7)])
    assert computed == {"launch": list(found.geometry(call(17)).encode())}
    found = launch_dims("n", 32)
    assert (found.local(found.geometry(call(100))) or ())[:6] == ("ceil((n)/16)", "2", "1", "16", "16", "1")
    assert sizes(grid=lambda x: x.shape[0]).local(geometry.explicit_geometry(7, 32)) is None, (
        "a function's are not known"
    )


IMAGES = (
    launcher.KernelImage(Arch(9, 0, "a"), "f", b"\x7fELF"),
    launcher.KernelImage(
        Arch(9, 0, "a"), "g", b"// PTX", is_ptx=True, form=launcher.Form.BATCH, batch_axis=2, is_cooperative=True
    ),
)
SAID = ("NVRTC 13.0", "Cuda compilation tools, release 13.0, V13.0.88")
MADE = launcher.Compiled(IMAGES, compiler=SAID)


def obtain(
    place: Path, made: launcher.Compiled = MADE, *, source: str = "f", folder: Path | None = None
) -> launcher.Kernel:
    """A kernel out of a cache and by a key that belong to a place."""
    session = PROCESS.session()._replace(module_store=cache.Cache(place / "cache"))
    origin = launcher.Origin(keys.make_key("kernel", ("source", source)), () if folder is None else (folder,))
    key = keys.make_key("kernel", ("place", str(place)))
    return launcher.obtain_kernel(key, origin, lambda _staging: made, "f", session)


def test_images_come_back_as_they_were(tmp_path: Path):
    found = obtain(tmp_path)
    assert found.images == IMAGES
    assert obtain(tmp_path, launcher.Compiled(())) == found, "from the cache"


@pytest.mark.parametrize("field", ["entry", "batch_axis", "is_ptx", "is_cooperative", "form"])
def test_a_row_of_other_types_is_no_image(field: str):
    row = {"name": "k", "images": [{"image": "00", "arch": "9.0", "entry": "k", field: ["x"]}]}
    with pytest.raises((TypeError, ValueError)):
        launcher.kernel_of("id", row, lambda digest: b"")


def test_the_id_holds_the_source_and_what_the_compiler_says_but_not_the_place(tmp_path: Path):
    newer = launcher.Compiled(IMAGES, compiler=(SAID[0], SAID[1].replace("88", "89")))
    first, second, *others = (
        obtain(tmp_path / "a").id,
        obtain(tmp_path / "b").id,
        obtain(tmp_path / "c", source="g").id,
        obtain(tmp_path / "d", newer).id,
    )
    assert first == second
    assert len({first, *others}) == 3


def test_the_id_holds_headers_by_their_content_and_their_name_below_a_folder(tmp_path: Path):
    ids = []
    for number, (name, text) in enumerate([("x/a.h", "1"), ("x/a.h", "1"), ("y/a.h", "1"), ("x/a.h", "2")]):
        folder = tmp_path / f"headers{number}"
        header = folder / name
        header.parent.mkdir(parents=True)
        header.write_text(text)
        ids.append(
            obtain(
                tmp_path / str(number), launcher.Compiled(IMAGES, cache.BuildOutput((), (header,))), folder=folder
            ).id
        )
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_id_of_what_is_uncertain_holds_what_was_made(tmp_path: Path):
    made = (
        launcher.Compiled((launcher.KernelImage(Arch(9, 0), "f", code),), cache.BuildOutput((), unknown=("a header",)))
        for code in (b"a", b"b")
    )
    one, other = (obtain(tmp_path / str(number), each) for number, each in enumerate(made))
    assert one.id != other.id


@given(st.binary(min_size=1, max_size=8))
def test_a_scalar_keeps_its_bytes(value: bytes):
    assert struct.pack("<q", geometry.scalar_param(value)[1])[: len(value)] == value


@given(st.tuples(st.text(max_size=4), st.binary(max_size=4)), st.tuples(st.text(max_size=4), st.binary(max_size=4)))
def test_content_tells_images_apart(one: tuple[str, bytes], other: tuple[str, bytes]):
    ids = [launcher.content_id([launcher.KernelImage(Arch(9, 0), *each)]) for each in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
    assert all(len(each) == 32 for each in ids)


def test_a_kernel_without_a_key_is_not_compiled_where_that_is_forbidden():
    session = PROCESS.session()
    image = launcher.KernelImage(Arch(9, 0), "f", b"x")
    made = launcher.compile_uncached("f", session, lambda _: launcher.Compiled((image,)))
    assert made.images == (image,)
    never = session._replace(settings=session.settings._replace(jit="never"))
    with pytest.raises(errors.LoadError, match="f was not built ahead of time"):
        launcher.compile_uncached("f", never, lambda _: launcher.Compiled((image,)))


def test_a_batch_needs_the_same_axis_on_every_architecture():
    single = [launcher.KernelImage(arch, "f", b"x") for arch in (Arch(9, 0), Arch(8, 0))]
    batch = [image._replace(form=launcher.Form.BATCH, batch_axis=2) for image in single]
    for images, axis in ((single, 0), ((*single, *batch), 2), ((*single, batch[0]), 0)):
        assert launcher.Kernel("0", "f", tuple(images)).batch_axis == axis
