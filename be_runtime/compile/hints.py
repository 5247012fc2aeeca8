"""Hints for messages of compilers and linkers: a table of patterns, and the wheels that have CUDA's headers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple


class HeaderWheel(NamedTuple):
    """The wheel that has a header.

    Parameters
    ----------
    cuda13, cuda12 : str
        Names of the wheel for CUDA 13 and CUDA 12.
    is_library : bool
        True for a wheel of a library, whose release may differ from the compiler's.
    """

    cuda13: str
    cuda12: str
    is_library: bool = False


_LIBRARIES = ("curand", "cublas", "cusparse", "cusolver", "cufft")
_WHEELS = (
    (r"(?:cuda|nv)/[\w/]+|(?:cub|thrust)/.*", HeaderWheel("nvidia-cuda-cccl", "nvidia-cuda-cccl-cu12")),
    (r"crt/.*", HeaderWheel("nvidia-cuda-crt", "nvidia-cuda-nvcc-cu12")),
    (
        r"cuda_\w+\.h|cooperative_groups.*|mma\.h|cuComplex\.h|math_constants\.h",
        HeaderWheel("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"),
    ),
    (r"nvtx3/.*|nvToolsExt\w*\.h", HeaderWheel("nvidia-nvtx", "nvidia-nvtx-cu12")),
    *((rf"{name}\w*\.h", HeaderWheel(f"nvidia-{name}", f"nvidia-{name}-cu12", is_library=True)) for name in _LIBRARIES),
)


def wheel_of(header: str) -> HeaderWheel | None:
    """Find the wheel of CUDA that has a header, by the name in the ``#include``; None if the header is not CUDA's.

    Examples
    --------
    >>> wheel_of("curand_kernel.h").cuda13
    'nvidia-curand'
    """
    return next((wheel for names, wheel in _WHEELS if re.fullmatch(names, header)), None)


class _Rule(NamedTuple):
    """A pattern and the hint for it."""

    pattern: str
    hint: str | Callable[[re.Match[str]], str]
    cuda_only: bool = False


_UNDEFINED = r"undefined (?:reference to [`']|symbol: )"
_LATER_NAMES = (
    "span ranges views format source_location jthread barrier latch counting_semaphore bit_cast endian popcount "
    "countl_zero midpoint lerp numbers remove_cvref_t type_identity_t same_as integral floating_point strong_ordering"
).replace(" ", "|")
_LATER = (
    rf"'(?:{_LATER_NAMES})' is not a member of 'std|namespace \"std\" has no member \"(?:{_LATER_NAMES})\""
    rf"|no member named '(?:{_LATER_NAMES})' in namespace 'std|'concept' does not name a type"
    r"|identifier \"concept\" is undefined|only available (?:with|from) .{0,9}[cC]\+\+2"
)
_HEADER = (
    r"error: (?P<gcc>[^\s:]+): No such file or directory"
    r"|(?:could not|cannot) open source file \"(?P<edg>[^\"]+)\""
    r"|'(?P<clang>[^']+)' file not found"
)


def missing_header(text: str) -> str:
    """Return the header that a compiler did not find; empty for any other failure.

    Examples
    --------
    >>> missing_header("k.cc:1:10: fatal error: near.h: No such file or directory")
    'near.h'
    """
    found = re.search(_HEADER, text)
    return found["gcc"] or found["edg"] or found["clang"] if found is not None else ""


def _about_header(found: re.Match[str]) -> str:
    """Return the hint for a missing header: the wheel of a header of CUDA, or the option for the folder of another."""
    header = found["gcc"] or found["edg"] or found["clang"]
    wheel = wheel_of(header)
    if wheel is None:
        return "a header was not found: name its folder in extra_include_paths"
    release = "" if wheel.is_library else "; use the compiler's release"
    return f"pip install {wheel.cuda13} brings {header}; with CUDA 12, {wheel.cuda12}{release}"


def _about_library(found: re.Match[str]) -> str:
    """Return the hint for a missing library: the wheel of a library of CUDA, or the option for another's folder."""
    name = found[1]
    if name == "cuda":
        return (
            "libcuda comes with the driver: get its functions by cudaGetDriverEntryPointByVersion, or link the stub of "
            "the toolkit, extra_ldflags=['-L/its/lib64/stubs', '-lcuda']"
        )
    if name == "nvToolsExt":
        return "CUDA 13 has no libnvToolsExt: include <nvtx3/nvToolsExt.h>, of the wheel nvidia-nvtx, and link nothing"
    wheel = wheel_of(f"{name}.h")
    if wheel is not None and wheel.is_library:
        return f"pip install {wheel.cuda13} brings lib{name}; with CUDA 12, {wheel.cuda12}"
    return "name the library's folder with extra_ldflags=['-L/its/folder', ...]"


_INTEGERS = "u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?int(?:ptr|max)_t"
_RULES: tuple[_Rule, ...] = (
    _Rule(
        r"No space left on device|Disk quota exceeded|signal 7 \[Bus error\]",
        "the disk is full; free some of it, such as with be_runtime.clear_cache(), or set BE_CACHE_DIR and TMPDIR to a "
        "folder with room",
    ),
    _Rule(
        r"cuda_runtime\.h: No such file|cudaStream_t. (?:was not declared|does not name)"
        r"|__(?:global|device)__' does not name|unknown type name '__(?:global|device)__",
        "load_cuda_inline, load_cuda_file and load_cuda_dir compile CUDA, and such a source includes <cuda_runtime.h> "
        "itself; C++ sources are compiled without CUDA's headers",
    ),
    _Rule(
        rf"'(?:std::)?(?:{_INTEGERS})' (?:(?:in namespace 'std' )?does not name|was not declared|is not a member)"
        rf"|(?:identifier|has no member) \"(?:{_INTEGERS})\"|(?:type name|member named) '(?:{_INTEGERS})'",
        "include <cstdint>: newer compilers no longer bring it with other headers",
    ),
    _Rule(
        r"use of undeclared identifier 'BE'|'BE' (?:has not been declared|does not name a type)"
        r"|name followed by \"::\" must be a class|explicit type is missing.*\n.*\bBE::",
        'include "brainevent/common.h" to use BE::Tensor',
    ),
    _Rule(
        r"'parallel_for' is not a member of|\"BE\" has no member \"parallel_for|no member named 'parallel_for'",
        'include "brainevent/parallel.h" to use BE::parallel_for',
    ),
    _Rule(
        r"(?:incomplete type|undefined template)[^\n]*(?:float16_t|BE::Complex|__half|__nv_bfloat16)"
        r"|BE::(?:b?float16_t|complex)[^\n]*has incomplete type",
        'include "brainevent/dispatch.h", which defines the 16-bit and complex types, where they are named',
    ),
    _Rule(
        r"argument of type \"(?:int64_t|long)\".* with parameter of type \"(?:CUstream_st \*|cudaStream_t)"
        r"|(?:'cudaStream_t'|'CUstream_st \*').*(?:lvalue of type|from) '(?:const )?(?:int64_t|long)"
        r"|(?:conversion|convert).*'(?:int64_t|long)[^\n]*'(?:cudaStream_t|CUstream_st ?\*)",
        "the stream comes as an int64_t: launch on (cudaStream_t)stream",
    ),
    _Rule(
        r"read-only location '[^'\n]*BE::Tensor::data|invalid conversion from 'const ([^'\n]*)\*' to '\1\*'"
        r"|\"const [^\"\n]* \*\".*(?:entity|parameter) of type \"(?!const)[^\"\n]*\*\"|casts away qualifiers"
        r"|(?:modifiable lvalue|invalid type conversion)\n.*\bdata(?:_ptr)?\b"
        r"|with an rvalue of type 'const [^'\n]*\*'|would lose const qualifier|'data_ptr<.*' returns a const",
        "a const BE::Tensor is an argument and gives pointers to const: take `const T*`, also in kernels; declare a "
        "result as BE::Tensor without const",
    ),
    _Rule(
        r"(?:to|from 'BE::Tensor' to|type) ['\"]std::vector<|no (?:viable|suitable)[^\n]*BE::Tensor[^\n]*std::vector<",
        "an entry point takes an array as BE::Tensor, and an attribute of numbers as BE::Span<const T>",
    ),
    _Rule(r"requires --extended-lambda|--expt-extended-lambda", "pass extra_cuda_cflags=['--extended-lambda']"),
    _Rule(
        _LATER, "sources are compiled as C++17; for a later one pass extra_cuda_cflags=['-std=c++20']", cuda_only=True
    ),
    _Rule(_LATER, "sources are compiled as C++17; for a later one pass extra_cflags=['-std=c++20']"),
    _Rule(
        r"of non-class type 'const BE::DType'|class type but it has type \"const BE::DType\"",
        "BE_DISPATCH_SIGNED_INDEX_PAIR takes two dtypes, then two names, then the code; the others one of each",
    ),
    _Rule(
        r"treated as compound expression in functional cast|expected a \"\)\"\n.*__builtin_expect\(bool\("
        r"|excess elements in scalar initializer[^\n]*\n[^\n]*BE_CHECK",
        'the message of BE_CHECK follows it: BE_CHECK(condition) << "message"',
    ),
    _Rule(
        r"unsupported GNU version|unsupported clang version|#error -- unsupported",
        "this nvcc does not accept the host compiler; `python -m be_toolchain doctor` lists the ones that it accepts, "
        "BE_CXX chooses one",
    ),
    _Rule(
        r"Unsupported \.version|unsupported PTX|PTX .* was compiled with an unsupported toolchain",
        "the CUDA components are of different releases; run `python -m be_toolchain doctor`",
    ),
    _Rule(
        r"Unsupported gpu architecture|Value '(?:sm|compute)_\w+' is not defined",
        "this nvcc can't compile for that architecture; `nvcc --list-gpu-arch` lists the ones it can",
    ),
    _Rule(
        rf"{_UNDEFINED}(?:GOMP_|omp_|__kmpc_)",
        "OpenMP must be linked too: pass extra_ldflags=['-fopenmp'] beside extra_cflags=['-fopenmp']; g++ comes with "
        "OpenMP's library, clang++ and zig do not",
    ),
    _Rule(
        rf"{_UNDEFINED}__(?:asan|lsan|msan|tsan|ubsan|sanitizer)_",
        "a sanitizer must be linked too: pass the -fsanitize=... of extra_cflags in extra_ldflags too; for `address`, "
        "start Python with LD_PRELOAD=$(g++ -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0",
    ),
    _Rule(
        rf"{_UNDEFINED}(?:__cxa_|__gxx_|std::|operator (?:new|delete))",
        "the compiler does not link C++'s library: name g++ or clang++ instead of gcc or clang, as in BE_CXX=g++",
    ),
    _Rule(
        _UNDEFINED,
        "a function is declared but never defined: define it in the source, or link its library with "
        "extra_ldflags=['-lNAME']",
    ),
    _Rule(
        r"Unresolved extern function",
        "a __device__ function is declared but not defined in this source; for one that another source of the folder "
        "defines, pass extra_cuda_cflags=['-rdc=true']",
    ),
    _Rule(
        r"uses too much shared data",
        "__shared__ arrays of a fixed size share 48 KiB; for more use extern __shared__ memory, and "
        "cudaFuncSetAttribute to allow it",
    ),
    _Rule(
        r"elfLink linker library load error",
        "this toolkit lacks the nvvm/lib64/libnvvm.so that -dlto needs; leave -dlto out, or use a complete toolkit",
    ),
    _Rule(r"(?:cannot find|unable to find library) -l(\w+)", _about_library),
    _Rule(
        r"cannot find |unable to find library ",
        "name the library's folder with extra_ldflags=['-L/its/folder', ...]",
    ),
    _Rule(
        r"multiple definition of|duplicate symbol: ",
        "two sources define the same function; make it static or inline",
    ),
    _Rule(_HEADER, _about_header, cuda_only=True),
    _Rule(
        r"No such file or directory|could not open source file|cannot open source file|file not found",
        "a header was not found: name its folder in extra_include_paths",
    ),
    _Rule(
        r"Killed signal terminated program|virtual memory exhausted|out of memory|signal 9",
        "the compiler ran out of memory; build with fewer jobs: ninja_workers=1 or BE_MAX_JOBS=1",
    ),
    _Rule(
        r"(?m)^(?:.*: )?(?:sh: )?.*: not found$",
        "a program that the compiler needs is missing; run `python -m be_toolchain doctor`",
    ),
)


def hints(text: str, *, is_cuda: bool = False) -> tuple[str, ...]:
    """Return the hint of the first rule that matches; empty if none does.

    Parameters
    ----------
    text : str
        Output of the compiler or linker.
    is_cuda : bool
        Whether the source is CUDA.

    Examples
    --------
    >>> hints('k.cu(3): error: cannot open source file "cublas_v2.h"', is_cuda=True)
    ('pip install nvidia-cublas brings cublas_v2.h; with CUDA 12, nvidia-cublas-cu12',)
    """
    for rule in _RULES:
        found = re.search(rule.pattern, text) if is_cuda or not rule.cuda_only else None
        if found is not None:
            return (rule.hint if isinstance(rule.hint, str) else rule.hint(found),)
    return ()
