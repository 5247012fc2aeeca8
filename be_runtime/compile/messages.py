"""Diagnosis of the output of compilers and linkers: the first real error at the author's line, warnings, and hints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from be_runtime import errors, own_files
from be_runtime.request import build_tools, options
from be_toolchain.machine.system import System


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
    """Return the hint for a missing header: the wheel that has CUDA's header, or the option for another's folder."""
    header = found["gcc"] or found["edg"] or found["clang"]
    wheel = wheel_of(header)
    if wheel is None:
        return "a header was not found: name its folder in extra_include_paths"
    release = "" if wheel.is_library else "; use the compiler's release"
    return f"pip install {wheel.cuda13} brings {header}; with CUDA 12, {wheel.cuda12}{release}"


def _about_library(found: re.Match[str]) -> str:
    """Return the hint for a library that the linker did not find: the wheel that has CUDA's, or its folder."""
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


_PLACE = r"^(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?:"
_GNU_ERROR = re.compile(rf"{_PLACE} (?:fatal )?error: (?P<message>.*)$")
_EDG_ERROR = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
_LINKER = re.compile(
    r"(undefined reference to|multiple definition of|cannot find -l|cannot find |undefined symbol: |duplicate symbol: "
    r"|error: linker command failed|file not recognized)"
)
_TOOL = re.compile(
    r"^(?:nvcc fatal\s*:|ptxas (?:fatal|error)\s*|ptxas .*error|cc1plus: .*error|(?:\S*g\+\+|\S*clang\S*): error:"
    r"|catastrophic error|nvlink error|.*: not found$|.*[Pp]ermission denied)"
)
_NEXT = re.compile(r"^\S.*?(?::\d+(?::\d+)?: (?:fatal )?(?:error|warning): |\(\d+\): (?:error|warning))")
_NOTE = re.compile(r"^(?P<file>\S.*?)(?::\d+(?::\d+)?:|\(\d+\):)\s+note(?: #[\w-]+)?: (?P<message>.*)$")
_COUNT = re.compile(r"^\d+ (?:error|warning)s? (?:and \d+ errors? )?generated")
_ASIDE = re.compile(r"^In file included from |^compilation terminated|^\S.*: (?:In|At) |^collect2|^ninja:")

_CALLERS = (
    re.compile(rf"{_PLACE}\s+(?:recursively )?required (?:from|by) "),
    re.compile(rf"{_PLACE} note: in instantiation of .* requested here"),
    re.compile(r"\binstantiation of .* at line (?P<line>\d+) of \"?(?P<file>[^\"]+)\"?$"),
)
"""Lines of g++, clang and nvcc about the instantiation of a template, from the inside out."""

_ARG_SPEC = "the arg_spec may not fit the C++ signature: compare their order and number"
_MAX_LINES = 12
_WIDEST = 240
_LONGEST, _MOST_LINES = 2000, 20_000
"""Limits on the characters of a line, and on the lines: the time of some patterns grows with the square of them."""
_AROUND = 200
"""Lines before and after an error that may belong to it."""
_MOST_ERRORS = 5

_GNU_UNDEFINED = re.compile(r"undefined reference to [`'](?P<symbol>.*)'")
_LLVM_UNDEFINED = re.compile(r"undefined symbol: (?P<symbol>.*)$")
_GOLD_PLACE = re.compile(r"(?P<object>\S+)\.o:[^:]*:function (?P<function>.*): error: undefined")
_LD_PLACE = re.compile(r"(?P<object>\S+)\.o: in function `(?P<function>.*)':$")
_LLVM_PLACE = re.compile(r"^>>>\s+(?P<object>\S+)\.o:\((?:function )?(?P<function>.*)\)")
_ENTRY = re.compile(r"\bbe_(?:entry|call)_(\w+)")
_STEM = re.compile(r"(?:\.\w+|\[\d+\])$")
_MOST_SYMBOLS = 5
_MOST_REFERRERS = 20

_WARNING = re.compile(r"^\S[^\n]*?(?::\d+(?::\d+)?: warning|\(\d+\): warning(?: #[\w-]+)?): ")
_MOST_WARNINGS = 10
_DEVICE_CODE = re.compile(r"\): warning #2001[1-5]-D: ")
_FOLDER = re.compile(r"^[^\n(]*/(?=[^/(]+\(\d+\): )")

_SYSTEM = Path("/usr/include")
_ALIKE = 0.8
"""Least similarity of two names by `difflib.SequenceMatcher.ratio`."""


def near_header(header: str, request: options.BuildRequest, tools: build_tools.BuildTools, system: System) -> str:
    """Find a header on a request's search path whose name is similar to the given one; empty if there is none."""
    own = [unit.path.parent for unit in request.units if unit.path is not None]
    cuda = tools.cuda.include_dirs if tools.cuda is not None else ()
    standard = [_SYSTEM / "c++" / release for release in system.list_dir(_SYSTEM / "c++")]
    places = [*own, *request.compile.include_paths, own_files.INCLUDE_DIR, *cuda, *standard, _SYSTEM]
    found = []
    for part in header.split("/"):
        names = {name: None for place in places for name in system.list_dir(place)}
        close = [part] if part in names else get_close_matches(part, names, n=1, cutoff=_ALIKE)
        if not close:
            return ""
        found += close
        places = [place / close[0] for place in places]
    return "/".join(found) if found != header.split("/") else ""


class _Missing(NamedTuple):
    symbol: str
    function: str
    object: str


def undefined_symbols(lines: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Write a line for each missing symbol, with the function that uses it.

    Parameters
    ----------
    lines : sequence of str
        Output of the linker.
    names : iterable of str
        Names of the author's sources.

    Examples
    --------
    >>> said = (
    ...     "obj/m.o:m.cc:function BE::detail::be_run<be_entry_f, &(be_call_f())>: error: undefined reference to 'g()'"
    ... )
    >>> undefined_symbols([said], ["m"])
    ("undefined reference to 'g()', used by the entry point f in m",)
    """
    first: dict[str, _Missing] = {}
    for each in _missing(lines):
        first.setdefault(each.symbol, each)
    sources = {_STEM.sub("", name.rpartition("/")[2]): name for name in names}
    shown = [_describe(each, sources) for each in list(first.values())[:_MOST_SYMBOLS]]
    return (*shown, *([f"and {len(first) - _MOST_SYMBOLS} more"] if len(first) > _MOST_SYMBOLS else []))


def _missing(lines: Sequence[str]) -> Iterator[_Missing]:
    """Find missing symbols and their users: ld names the function before the symbol, gold beside it, lld below it."""
    function = target = ""
    for index, line in enumerate(lines):
        place = _LD_PLACE.search(line) or _GOLD_PLACE.search(line)
        if place is not None:
            function, target = place["function"], place["object"]
        found = _GNU_UNDEFINED.search(line) or _LLVM_UNDEFINED.search(line)
        if found is None:
            continue
        below = takewhile(lambda line: line.startswith(">>>"), islice(lines, index + 1, index + 1 + _MOST_REFERRERS))
        after = next(filter(None, map(_LLVM_PLACE.match, below)), None)
        if after is not None:
            yield _Missing(found["symbol"], after["function"], after["object"])
        else:
            yield _Missing(found["symbol"], function, target)


def _describe(missing: _Missing, sources: Mapping[str, str]) -> str:
    stem = missing.object.rpartition("/")[2]
    entry = _ENTRY.search(missing.function)
    user = missing.function.partition(" [clone ")[0]
    if entry is not None:
        user = "the entry point " + entry[1].removeprefix(f"{stem}_")
    elif "BE::detail" in user:
        user = ""
    source = sources.get(stem, "")
    text = f"undefined reference to '{missing.symbol}'" + (f", used by {user}" if user else "")
    return text + (f" in {source}" if source else "")


def find_warnings(outputs: Iterable[str]) -> tuple[str, ...]:
    r"""Find the warnings in the output of g++, clang and nvcc, each once.

    Examples
    --------
    >>> find_warnings(["k.cc: In function 'f':\nk.cc:3:5: warning: unused variable 'a'\n    3 | int a;"])
    ("k.cc:3:5: warning: unused variable 'a'",)
    """
    return tuple(dict.fromkeys(line for output in outputs for line in output.splitlines() if _WARNING.match(line)))


def device_code_warnings(outputs: Iterable[str]) -> tuple[str, ...]:
    r"""Find nvcc's warnings about device code that may compute nothing, each with the name of the file and the line.

    The numbers are of nvcc's front end: https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc.

    Examples
    --------
    >>> device_code_warnings(['/a/k.cu(5): warning #20011-D: calling a __host__ function("f") is not allowed\n'])
    ('k.cu(5): warning #20011-D: calling a __host__ function("f") is not allowed',)
    """
    return tuple(dict.fromkeys(_FOLDER.sub("", line) for line in find_warnings(outputs) if is_about_device_code(line)))


def is_about_device_code(warning: str) -> bool:
    """Return whether `device_code_warnings` has a warning."""
    return _DEVICE_CODE.search(warning) is not None


def warnings_text(name: str, warnings: tuple[str, ...]) -> str:
    """Write warnings for a terminal, below the name of their module.

    Examples
    --------
    >>> print(warnings_text("m", ("m:3:5: warning: unused variable 'a'",)))
    be_runtime: m: the compiler warns
      m:3:5: warning: unused variable 'a'
    """
    lines = [f"be_runtime: {name}: the compiler warns", *(f"  {each}" for each in warnings[:_MOST_WARNINGS])]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"  and {len(warnings) - _MOST_WARNINGS} more, which module.report() lists")
    return "\n".join(lines)


class Diagnosis(NamedTuple):
    """The first real error of an output, hints for the reader, and the errors after the first, one line each."""

    first_error: str
    hints: tuple[str, ...]
    further: tuple[str, ...] = ()


def diagnose(
    output: str,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    is_cuda: bool = False,
) -> Diagnosis:
    """Find the first real error in the output of a failed build.

    Parameters
    ----------
    output : str
        Output of the command that failed.
    sources : mapping of str to str
        Sources of the author, by their names in messages. A source need not be a file.
    trampoline_lines : sequence of (str, int)
        Name and line in messages about the call of each entry point: an error there is about the arg_spec.
    is_cuda : bool
        Whether the source is CUDA.
    """
    lines = [line[:_LONGEST] for line in output.splitlines()]
    lines = [*lines[: _MOST_LINES // 2], *lines[_MOST_LINES // 2 :][-_MOST_LINES // 2 :]]
    start = _first_error_line(lines)
    if start is None:
        return Diagnosis("\n".join(lines[-_MAX_LINES:]).strip(), hints(_near(lines, len(lines)), is_cuda=is_cuda))
    match = _GNU_ERROR.match(lines[start]) or _EDG_ERROR.match(lines[start])
    missing = undefined_symbols(lines, sources) if match is None else ()
    if missing:
        return Diagnosis("\n".join(missing), hints(_near(lines, start), is_cuda=is_cuda))
    block = _block(lines, start, sources)
    found = hints("\n".join(block), is_cuda=is_cuda) or hints(_near(lines, start), is_cuda=is_cuda)
    if match is not None:
        around = "\n".join((*lines[max(0, start - _AROUND) : start], *block))
        # The generated call has the author's line.
        if (match["file"], int(match["line"])) in trampoline_lines and "be_call" in around:
            found = found or (_ARG_SPEC,)
        is_expanded = any(len(line) > _WIDEST or "be_call" in line for line in block[1:])
        if len(block) == 1 or is_expanded:
            block = [block[0], *_excerpt(sources, match)]
        block = _led_by_caller(block, match, lines, start, sources)
    return Diagnosis("\n".join(map(_clipped, block)), found, _further(lines, start))


def _near(lines: Sequence[str], start: int) -> str:
    return "\n".join(map(_clipped, lines[max(0, start - _AROUND) : start + _AROUND]))


def explained(
    error: errors.BuildError,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    is_cuda: bool,
    where: str = "",
) -> errors.BuildError:
    """Return the failure with a diagnosis of its output, and with `where` at the end of its message."""
    diagnosis = diagnose(error.output, sources, trampoline_lines, is_cuda=is_cuda)
    return type(error)(
        error.message + where,
        command=error.command,
        output=error.output,
        first_error=diagnosis.first_error,
        further="\n".join(diagnosis.further),
        hints=error.hints or diagnosis.hints,
    )


def _first_error_line(lines: Sequence[str]) -> int | None:
    for pattern in (_GNU_ERROR, _EDG_ERROR, _TOOL, _LINKER):
        for index, line in enumerate(lines):
            if pattern.search(line) and not line.lstrip().startswith("collect2"):
                return index
    return None


def _block(lines: Sequence[str], start: int, sources: Mapping[str, str]) -> list[str]:
    """Return the error's line and its details, up to the next diagnostic or a note about other code."""
    block = [lines[start]]
    for line in lines[start + 1 : start + _MAX_LINES]:
        ends = any(pattern.match(line) for pattern in (_NEXT, _COUNT, _ASIDE))
        if ends or not line.strip() or _LINKER.search(line) or _is_foreign_note(line, sources):
            break
        block.append(line)
    return block


def _is_foreign_note(line: str, sources: Mapping[str, str]) -> bool:
    """Return whether a note is about a header or the expansion of a macro."""
    note = _NOTE.match(line)
    return note is not None and (note["file"] not in sources or " macro '" in note["message"])


def _excerpt(sources: Mapping[str, str], place: re.Match[str]) -> list[str]:
    """Show the author's line in gcc's format, with a caret if the column, counted in bytes, is known."""
    rows = sources.get(place["file"], "").split("\n")
    line, column = int(place["line"]), place.groupdict().get("column")
    if not 0 < line <= len(rows) or not rows[line - 1].strip():
        return []
    row = rows[line - 1].rstrip("\r")
    shown = [f"{line:5d} | {row}"]
    before = row.encode(errors="surrogateescape")[: int(column or 0) - 1].decode(errors="replace")
    if column is not None and len(before) < len(row):  # a column of generated code may be behind the author's line
        shown.append("      | " + "".join("\t" if char == "\t" else " " for char in before) + "^")
    return shown


def _led_by_caller(
    block: list[str], match: re.Match[str], lines: Sequence[str], start: int, sources: Mapping[str, str]
) -> list[str]:
    """Put the author's line first if the error is in a template of others that the line instantiates."""
    folders = tuple(f"{folder}/" for name in sources if (folder := name.rpartition("/")[0]))
    if match["file"] in sources or match["file"].startswith(folders):
        return block
    caller = next((each for each in _callers(lines, start) if each["file"] in sources), None)
    if caller is None:
        return block
    column = caller.groupdict().get("column")
    place = f"{caller['file']}:{caller['line']}:{column}" if column else f"{caller['file']}({caller['line']})"
    return [f"{place}: error: {match['message']}", *_excerpt(sources, caller), *block]


def _callers(lines: Sequence[str], start: int) -> Iterator[re.Match[str]]:
    """Find the instantiations that belong to an error: g++ prints them before the error, other compilers after it."""
    low, high = max(-1, start - _AROUND), min(len(lines), start + _AROUND)
    first = next(
        (at + 1 for at in range(start - 1, low, -1) if _NEXT.match(lines[at]) or _NOTE.match(lines[at])), low + 1
    )
    last = next((at for at in range(start + 1, high) if _NEXT.match(lines[at])), high)
    for line in lines[first:last]:
        yield from filter(None, (pattern.search(line) for pattern in _CALLERS))


def _further(lines: Sequence[str], start: int) -> tuple[str, ...]:
    """Return the next few errors, without repeated messages."""
    found: dict[str, str] = {}
    for line in lines[start:]:
        match = _GNU_ERROR.match(line) or _EDG_ERROR.match(line)
        if match is not None:
            found.setdefault(match["message"], line)
        if len(found) > _MOST_ERRORS:
            break
    return tuple(map(_clipped, found.values()))[1:]


def _clipped(line: str) -> str:
    """Shorten a line to a few lines of a terminal."""
    return line if len(line) <= _WIDEST else line[:_WIDEST] + " ..."
