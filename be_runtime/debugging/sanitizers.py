"""The sanitizers of ``python -m be_runtime check``: their commands, and the findings in their reports."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from be_runtime.checks import Finding
from be_toolchain import ToolchainRequest, errors, resolve, values
from be_toolchain.machine.system import System

Tool = Literal["guard", "asan", "tsan", "valgrind", "memcheck", "racecheck", "initcheck"]

TOOLS: dict[Tool, str] = {
    "guard": "checked mode of be_runtime",
    "asan": "AddressSanitizer and UndefinedBehaviorSanitizer, for C++ modules",
    "tsan": "ThreadSanitizer, for C++ modules",
    "valgrind": "valgrind, 50 times as slow (`--tools` leaves it out): unset memory in C++ modules",
    "memcheck": "compute-sanitizer: accesses outside of an allocation, or misaligned",
    "racecheck": "compute-sanitizer: races in shared memory",
    "initcheck": "compute-sanitizer: reads of memory that was never written",
}
"""The tools that a program may run under, in this order, with descriptions."""

DEVICE_TOOLS: tuple[Tool, ...] = ("memcheck", "racecheck", "initcheck")

SANITIZED: tuple[Tool, ...] = ("asan", "tsan")
"""Tools for which C++ modules are compiled with instrumentation; their library handles faults itself."""

FAULTS: dict[Tool, str] = {
    "asan": "accesses outside of memory in C++ modules",
    "tsan": "races of threads in C++ modules",
    "valgrind": "memory that C++ modules read before they set it, except in results",
    "memcheck": "accesses outside of memory on the GPU",
    "racecheck": "races on the GPU",
    "initcheck": "memory of the GPU that is read before it is set",
}
"""The faults that are not checked if a tool is missing."""

_PADDING = 4096
"""Bytes of padding after each allocation, so that an access beyond the end does not hit the next allocation."""


class Invocation(NamedTuple):
    """A Python program and its arguments.

    Parameters
    ----------
    script : str
        Path of a script, or the name of a module if `is_module` is true.
    arguments : tuple of str
    is_module : bool
    """

    script: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False


class Detectors(NamedTuple):
    """The programs and libraries of sanitizers on this machine.

    Parameters
    ----------
    python : str
        The interpreter.
    preload : dict of str to tuple of str
        Libraries that a process under a tool of `SANITIZED` preloads; a tool whose library is missing has no key.
    valgrind, compute_sanitizer : str
        Path of the program; empty if it is missing.
    """

    python: str
    preload: Mapping[Tool, tuple[str, ...]] = {}
    valgrind: str = ""
    compute_sanitizer: str = ""


class Child(NamedTuple):
    """One process to run.

    Parameters
    ----------
    tool : Tool
    argv : tuple of str
    variables : dict of str to str
        Variables that are added to the environment of this process. ``BE_DEBUG`` is for processes that the program
        starts, where a finding is an error.
    record : str
        File that the program's process writes at its end, see `be_runtime.debugging.checked_script`.
    log : str
        Prefix of the names of the tool's own reports.
    """

    tool: Tool
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    record: str
    log: str


def plan_child(tool: Tool, program: Invocation, found: Detectors, folder: str) -> Child:
    """Return the process that runs a program under a tool, with its files in a folder.

    Examples
    --------
    >>> child = plan_child("guard", Invocation("train.py"), Detectors("python3"), "/x")
    >>> child.argv[-3:]
    ('/x/guard.json', 'script', 'train.py')
    """
    record, log = f"{folder}/{tool}.json", f"{folder}/{tool}.log"
    kind = "module" if program.is_module else "script"
    run = (found.python, "-m", "be_runtime.debugging.checked_script")
    argv = (*run, tool, record, kind, program.script, *program.arguments)
    if tool == "guard":
        return Child(tool, argv, {"BE_DEBUG": "all"}, record, log)
    if tool in SANITIZED:
        return Child(tool, argv, _sanitized_variables(tool, found.preload[tool], log), record, log)
    variables = {"BE_DEBUG": "guards", "BE_SANITIZE": "device", "XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}
    if tool == "valgrind":
        options = (f"--log-file={log}.%p", "--error-limit=no")
        return Child(tool, (found.valgrind, *options, *argv), variables, record, log)
    return Child(tool, (*_sanitizer_command(tool, found.compute_sanitizer, log), *argv), variables, record, log)


def _sanitized_variables(tool: Tool, preload: Sequence[str], log: str) -> dict[str, str]:
    """Return the variables of a process under a sanitizer of the host compiler.

    AddressSanitizer's gap of shadow memory would take addresses that the GPU's driver uses. ThreadSanitizer does not
    instrument Python and XLA. Without `intercept_tls_get_addr=0`, it guesses the size of thread-local memory and fails.
    """
    options = f"log_path={log}:log_exe_name=0:halt_on_error=0"
    variables = {"BE_DEBUG": "guards", "LD_PRELOAD": " ".join(preload)}
    if tool == "tsan":
        own = "exitcode=0:history_size=7:ignore_noninstrumented_modules=1:intercept_tls_get_addr=0"
        unwanted = "report_thread_leaks=0:report_signal_unsafe=0"
        return {**variables, "BE_SANITIZE": "thread", "TSAN_OPTIONS": f"{own}:{unwanted}:{options}"}
    return {
        **variables,
        "BE_SANITIZE": "address,undefined",
        "ASAN_OPTIONS": f"detect_leaks=0:protect_shadow_gap=0:{options}",
        "UBSAN_OPTIONS": f"print_stacktrace=1:{options}",
    }


def _sanitizer_command(tool: Tool, program: str, log: str) -> tuple[str, ...]:
    options = ["--log-file", f"{log}.%p", "--require-cuda-init", "no", "--check-exit-code", "no"]
    if tool == "memcheck":
        # An error ends its kernel, not the program, since the end of a program causes many other errors.
        options += ["--destroy-on-device-error", "kernel", "--padding", str(_PADDING), "--report-api-errors", "no"]
    if tool == "initcheck":
        options += ["--check-api-memory-access", "no"]  # a copy of a whole array may copy unwritten elements
    return (program, "--tool", tool, *options)


_RUNTIMES = {
    "gcc": ("lib{}.so",),
    "clang": ("libclang_rt.{}.so", "libclang_rt.{}-x86_64.so", "libclang_rt.{}-aarch64.so"),
}
"""Names of a sanitizer's library by family of compilers."""

_BELOW_TOOLKIT = ("bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer", "extras/compute-sanitizer")


def find_detectors(system: System, record_dir: Path) -> Detectors:
    """Find the sanitizers of this machine."""
    preload = {tool: _runtime(tool, system, record_dir) for tool in SANITIZED}
    return Detectors(
        sys.executable,
        {tool: libraries for tool, libraries in preload.items() if libraries},
        str(system.which("valgrind") or ""),
        _compute_sanitizer(system, record_dir),
    )


def _runtime(tool: Tool, system: System, record_dir: Path) -> tuple[str, ...]:
    """Return a sanitizer's library, and libstdc++, which it needs to intercept exceptions of later libraries."""
    try:
        compiler = resolve(ToolchainRequest(), system=system, record_dir=record_dir).cxx
    except errors.ToolchainError:
        return ()
    assert compiler is not None, "resolve() raises when there is no host compiler"
    names = [name.format(tool) for name in _RUNTIMES.get(compiler.family, ())]
    found = [path for name in (*names, "libstdc++.so.6") if (path := _library(compiler, name, system))]
    return tuple(found) if len(found) > 1 else ()


def _library(compiler: values.HostCompiler, name: str, system: System) -> str:
    """Return the path of a library of the compiler; empty if the compiler repeats the name, since it lacks it."""
    said = system.run((str(compiler.path), f"-print-file-name={name}")).stdout.strip()
    return said if Path(said).is_absolute() and system.is_file(Path(said)) else ""


def _compute_sanitizer(system: System, record_dir: Path) -> str:
    """Return the path of compute-sanitizer on PATH, else in the CUDA toolkit; empty if there is none."""
    on_path = system.which("compute-sanitizer")
    if on_path is not None:
        return str(on_path)
    try:
        toolkit = resolve(ToolchainRequest(need_cuda=True), system=system, record_dir=record_dir).cuda
    except errors.ToolchainError:
        return ""
    places = [toolkit.root / name for name in _BELOW_TOOLKIT] if toolkit is not None else []
    return next((str(place) for place in places if system.is_program(place)), "")


_MARK = "========="
_HEAD = re.compile(
    r"^(?:Error: |Warning: )?(?P<what>Invalid .*|Uninitialized .*|Race reported between .*|Barrier error.*|"
    r"Program hit .*|Potential .*hazard.*|Unused memory.*|Kernel .*deadlock.*|Address .* is .*)$"
)
_AT = re.compile(r"(?P<function>[^\s].*?)\+0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
_OLD_AT = re.compile(r"0x[0-9a-f]+ in (?:(?P<place>[^\s:]+:\d+):)?(?P<function>\S.*)")
_THREAD = re.compile(r"^by thread (?P<thread>\([\d,]+\)) in block (?P<block>\([\d,]+\))")
_NEAR = re.compile(r"^and is (?P<distance>[\d,]+ bytes (?:before|after)) the nearest .* of size (?P<size>[\d,]+)")
_SYMBOL = re.compile(r"\bbe_(?:call|entry|ffi|graph)_(?P<symbol>\w+)")
"""A function that is generated for a kernel."""
_ENTRY = re.compile(rb"\0be_ffi_(\w+)(?=\0)")
"""The handler of a kernel, in the table of a library's names."""

_KINDS = (
    ("misaligned", "misaligned"),
    ("Uninitialized", "uninitialised"),
    ("Race reported", "race"),
    ("write of size", "write"),
    ("read of size", "read"),
    ("Barrier", "barrier"),
    ("Program hit", "fault"),
)
"""Words of a report, each with the kind of finding; the first words that occur count."""


def read_device_report(text: str, tool: str) -> tuple[Finding, ...]:
    """Return the findings in a report of compute-sanitizer; equal kernels, lines and kinds are one, with a count.

    Examples
    --------
    >>> text = '''========= Invalid __global__ write of size 4 bytes
    ... =========     at over(float *)+0x90 in k.cu:12
    ... =========     by thread (32,0,0) in block (0,0,0)'''
    >>> [(found.kind, found.source) for found in read_device_report(text, "memcheck")]
    [('write', 'k.cu:12')]
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for block in _device_blocks(text.splitlines()):
        finding = _device_finding(block, tool)
        key = (finding.kind, finding.kernel, finding.source)
        found[key] = found[key]._replace(count=found[key].count + 1) if key in found else finding
    return tuple(found.values())


def entry_points(function: str, libraries: Iterable[bytes]) -> tuple[str, ...]:
    r"""Return the symbols of all kernels in the libraries that have a device function, as a race has no backtrace.

    Examples
    --------
    >>> library = b"\0_Z4racePf\0be_ffi_k_sort\0"
    >>> entry_points("race", [library]), entry_points("other", [library])
    (('k_sort',), ())
    """
    bare = re.split(r"[<(]", function.replace("(anonymous namespace)::", ""))[0]
    name = re.split(r"::| ", bare)[-1].encode()
    has_it = re.compile(rb"\0(?:_Z\w*?(?<!\d)%d%s\w*|%s)\0" % (len(name), re.escape(name), re.escape(name)))
    found = (match[1].decode() for library in libraries if has_it.search(library) for match in _ENTRY.finditer(library))
    return tuple(dict.fromkeys(found))


def _device_blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Split a report into errors without its line marks; an error ends at an empty line or at the next error."""
    block: list[str] = []
    for line in lines:
        text = line.removeprefix(_MARK).strip() if line.startswith(_MARK) else ""
        if not text or _HEAD.match(text):
            if block:
                yield block
            block = [text] if text else []
        elif block:
            block.append(text)
    if block:
        yield block


def _device_finding(block: Sequence[str], tool: str) -> Finding:
    head = _HEAD.match(block[0])
    assert head is not None, "a block begins with its head"
    text = "\n".join(block)
    place = next(filter(None, map(_access, block)), ("", ""))
    function = place[0].partition("(")[0].strip()
    symbol = next((match["symbol"] for line in block if (match := _SYMBOL.search(line))), "")
    kind = next((kind for words, kind in _KINDS if words in text), "fault")
    return Finding(
        kind=kind,
        kernel=symbol or function,
        message=f"{symbol or function or 'the GPU'}: {_sentence(block, head['what'], kind)}",
        count=1,
        source=place[1],
        device="gpu",
        tool=tool,
    )


def _access(line: str) -> tuple[str, str] | None:
    """Return the function and the line of an access; None if the line of the report names no access."""
    for words in ("at ", "Write access at ", "Read access at ", "access at "):
        rest = line.partition(words)[2] if words != "at " or line.startswith("at ") else ""
        match = _AT.match(rest) or _OLD_AT.match(rest)
        if rest and match is not None:
            return match["function"], match["place"] or ""
    return None


def _sentence(block: Sequence[str], what: str, kind: str) -> str:
    """Return the error in one line."""
    if kind == "race":
        places = [found for line in block if (found := _access(line))]
        lines = " and ".join(dict.fromkeys(place or function for function, place in places))
        return f"threads race in shared memory at {lines}: a __syncthreads() is missing between the accesses"
    parts = [what.rstrip(".")]
    for line in block[1:]:
        if match := _THREAD.match(line):
            parts.append(f"by thread {match['thread']} of block {match['block']}")
        elif match := _NEAR.match(line):
            parts.append(f"{match['distance']} an allocation of {match['size']} bytes")
    return ", ".join(parts)


_ADDRESS = re.compile(r"^==\d+==ERROR: AddressSanitizer: (?P<kind>[\w-]+)(?P<rest>.*)$")
_UNDEFINED = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$")
_FRAME = re.compile(r"^\s+#(?P<number>\d+) 0x[0-9a-f]+ in (?P<function>.+?)(?: (?P<place>\S+:\d+)(?::\d+)?| \(\S+\))$")
_RACE = "WARNING: ThreadSanitizer: data race"
_RACE_ACCESS = re.compile(r"^  (?P<what>.*(?:read|write)) of size \d+", re.IGNORECASE)
_RACE_FRAME = re.compile(r"^\s+#\d+ (?P<function>.+?) (?:(?P<place>\S+:\d+)(?::\d+)?|<null>|\S+) \(\S+\)$")
_PREFIX = re.compile(r"^==\d+== ?")
_VALGRIND_FRAME = re.compile(r"^ +(?:at|by) 0x[0-9A-F]+: (?P<function>.+) \((?:in \S+|(?P<place>[^()\s]+:\d+))\)$")
_END_OF_STATE = "be_delete_state"
"""A function that XLA calls after all calls of a kernel, an order that ThreadSanitizer can't see."""

_ACCESS = re.compile(r"^(?P<what>READ|WRITE) of size (?P<size>\d+)")
_REGION = re.compile(r"^0x[0-9a-f]+ is located (?P<where>\d+ bytes .+ of (?P<size>\d+)-byte region) ")
_BEYOND = re.compile(r"(?P<bytes>\d+) bytes (?:to the right|after)")
_BUILD = re.compile(r"^.*/staging/[^/]+/build/")
"""The folder in which a module was compiled."""

_HINTS = {
    "stack-overflow": "recursion has no end, or a local array is large: allocate it, or raise `ulimit -s`",
    "race": "let the parts of a parallel_for write elements of their own, or use atomics",
    "unset": "look for a local array or memory of malloc that is read before it is written",
    "SEGV": "the address is not allocated: a pointer was not set, or is far outside of its array",
}


class Frame(NamedTuple):
    """One line of a stack trace: a function, and its file and line or an empty text."""

    function: str
    place: str


def read_host_report(text: str) -> tuple[Finding, ...]:
    """Return the findings in a report of AddressSanitizer and UndefinedBehaviorSanitizer, one for a line and a kind.

    If there is an error in a kernel, errors outside of kernels are left out as its consequences.

    Examples
    --------
    >>> text = "k.cc:3:5: runtime error: division by zero" + chr(10) + "    #0 0x1 in be_call_k_f k.cc:3"
    >>> [(found.kernel, found.source, found.kind) for found in read_host_report(text)]
    [('k_f', 'k.cc:3', 'undefined')]
    """
    read = (_address_finding(block) or _undefined_finding(block) for block in _host_blocks(text.splitlines()))
    found = _one_for_each_line(filter(None, read))
    return tuple(each for each in found if each.kernel) or found


def read_race_report(text: str) -> tuple[Finding, ...]:
    """Return the races in a report of ThreadSanitizer, one for a line.

    Examples
    --------
    >>> text = '''WARNING: ThreadSanitizer: data race (pid=1)
    ...   Write of size 4 at 0x1 by thread T2:
    ...     #0 sum(float*) k.cc:3 (module.so+0x1)
    ...   Previous write of size 4 at 0x1 by thread T1:
    ...     #0 sum(float*) k.cc:3 (module.so+0x1)
    ...   Thread T2 (tid=3, running) created by main thread at:
    ...     #0 be_ffi_k_sum generated:5 (module.so+0x2)'''
    >>> [(found.kernel, found.message) for found in read_race_report(text)]
    [('k_sum', 'k_sum: race of two threads: write at k.cc:3, previous write at k.cc:3 in sum')]
    """
    found = []
    for block in text.split(_RACE)[1:]:
        lines = block.splitlines()
        heads = [
            (each["what"].lower(), number) for number, line in enumerate(lines) if (each := _RACE_ACCESS.match(line))
        ]
        traces = [_trace(lines[number + 1 :], _RACE_FRAME) for _, number in heads]
        if any(_END_OF_STATE in frame.function for trace in traces for frame in trace):
            continue
        places = [next((frame.place for frame in trace if frame.place), "unknown code") for trace in traces]
        accesses = ", ".join(f"{what} at {place}" for (what, _), place in zip(heads, places, strict=True))
        frames = traces[0] if traces else ()
        found.append(_host_finding("race", f"race of two threads: {accesses}", "thread", frames, block))
    return _one_for_each_line(found)


def read_valgrind_report(text: str) -> tuple[Finding, ...]:
    """Return the errors of kernels in a report of valgrind, one for a line and a kind.

    Examples
    --------
    >>> text = '''==7== Conditional jump or move depends on uninitialised value(s)
    ... ==7==    at 0x4A: f(BE::Tensor) (k.cc:5)
    ... ==7==    by 0x4B: be_call_k_f (k.cc:2)
    ... ==7==
    ... ==7== Process terminating with default action of signal 11 (SIGSEGV)
    ... ==7==    at 0x4A: raise (raise.c:5)
    ... ==7==    by 0x4B: be_call_k_f (k.cc:2)'''
    >>> [(found.kernel, found.source, found.kind) for found in read_valgrind_report(text)]
    [('k_f', 'k.cc:5', 'unset')]
    """
    found = []
    for block in re.split(r"\n *\n", "\n".join(_PREFIX.sub("", line) for line in text.splitlines())):
        lines = block.splitlines()
        first = next((number for number, line in enumerate(lines) if _VALGRIND_FRAME.match(line)), 0)
        frames = _trace(lines[first:], _VALGRIND_FRAME)
        is_error = first > 0 and not lines[first - 1].startswith("Process terminating")  # a fault has caused it
        if not is_error or not any(_SYMBOL.search(frame.function) for frame in frames):
            continue
        kind = "unset" if "ninitialised" in lines[first - 1] else "access"
        found.append(_host_finding(kind, lines[first - 1].strip(), "valgrind", frames))
    return _one_for_each_line(found)


def _one_for_each_line(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the first finding of each kind, kernel and line."""
    found: dict[tuple[str, str, str], Finding] = {}
    for each in findings:
        found.setdefault((each.kind, each.kernel, each.source), each)
    return tuple(found.values())


def _trace(lines: Sequence[str], pattern: re.Pattern[str]) -> list[Frame]:
    """Return the frames at the beginning of some lines."""
    return [_frame(match) for match in itertools.takewhile(bool, map(pattern.match, lines)) if match]


def _frame(match: re.Match[str]) -> Frame:
    return Frame(match["function"], _BUILD.sub("", match["place"] or ""))


def _host_blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Split a report into errors."""
    block: list[str] = []
    for line in lines:
        if _ADDRESS.match(line) or _UNDEFINED.match(line):
            yield block
            block = []
        block.append(line)
    yield block


def _address_finding(block: Sequence[str]) -> Finding | None:
    head = _ADDRESS.match(block[0]) if block else None
    if head is None:
        return None
    frames = _first_trace(block)
    kind = head["kind"]
    access = next(filter(None, map(_ACCESS.match, block)), None)
    region = next(filter(None, map(_REGION.match, block)), None)
    what = f"{kind}" if access is None else f"{kind}: {access['what'].lower()} of {access['size']} bytes"
    if region is not None:
        beyond = _BEYOND.match(region["where"])
        place = f"{beyond['bytes']} bytes past the end of" if beyond else "outside of"
        what += f", {place} memory of {region['size']} bytes"
    return _host_finding(kind, what, "address", frames)


def _undefined_finding(block: Sequence[str]) -> Finding | None:
    head = _UNDEFINED.match(block[0]) if block else None
    if head is None:
        return None
    kind = "misaligned" if "misaligned" in head["what"] else "undefined"
    what = re.sub(r" address 0x[0-9a-f]+", " address", head["what"])
    frames = _first_trace(block) or [Frame("", f"{head['file']}:{head['line']}")]
    return _host_finding(kind, what, "undefined", frames)


def _first_trace(block: Sequence[str]) -> list[Frame]:
    """Return the frames of the access; the frames of the memory's allocation follow them."""
    frames: list[Frame] = []
    for line in block:
        match = _FRAME.match(line)
        if match is not None:
            if int(match["number"]) < len(frames):
                break
            frames.append(_frame(match))
    return frames


def _host_finding(kind: str, what: str, tool: str, frames: Sequence[Frame], more: str = "") -> Finding:
    """Make a finding; the frames of the access name the kernel, or else the rest of the report."""
    texts = [*(frame.function for frame in frames), more]
    symbols = (match for text in texts if (match := _SYMBOL.search(text)))
    kernel = next((match["symbol"] for match in symbols), "")
    own = next((frame for frame in frames if frame.place and "/libsanitizer/" not in frame.place), None)
    function = own.function.partition("(")[0] if own is not None else ""
    inside = f" in {function}" if function not in ("", "operator") else ""
    hints = (_HINTS[kind],) if kind in _HINTS else ()
    return Finding(
        kind=kind,
        kernel=kernel,
        message=f"{kernel}: {what}{inside}" if kernel else f"{what}{inside}",
        source=own.place if own is not None else "",
        device="cpu",
        tool=tool,
        hints=hints,
    )


class ToolRun(NamedTuple):
    """The run of one tool in a check.

    Parameters
    ----------
    tool : str
    outcome : str
        ``"ran"``, ``"failed"`` if the process died, ``"stopped"`` if it took too long, or ``"missing"`` if the tool is
        not on this machine.
    seconds : float
    findings : tuple of Finding
    notes : tuple of str
    """

    tool: str
    outcome: str
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def with_names(findings: Iterable[Finding], targets: Iterable[str]) -> tuple[Finding, ...]:
    """Replace symbols of libraries, such as ``k_scale``, by the names of kernels, such as ``k.scale``."""
    names = {re.sub(r"\W", "_", name): name for name in reversed([*targets])}
    replaced = []
    for each in findings:
        kernel = names.get(each.kernel, each.kernel)
        message = kernel + each.message.removeprefix(each.kernel) if each.kernel else each.message
        replaced.append(each._replace(kernel=kernel, message=message))
    return tuple(replaced)


def with_callers(findings: Sequence[Finding], calls: Mapping[str, Sequence[str]]) -> tuple[Finding, ...]:
    """Add the lines that call a kernel, which a tool does not report: the line of another finding, or of all calls."""
    known = {name: " or ".join(lines) for name, lines in calls.items()}
    known |= {each.kernel: each.caller for each in reversed(findings) if each.caller}
    return tuple(each._replace(caller=each.caller or known.get(each.kernel, "")) for each in findings)


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Remove findings that another tool reports with the same text."""
    found: dict[tuple[str, str, str], Finding] = {}
    for each in findings:
        found.setdefault((each.kernel, each.kind, each.message), each)
    return tuple(found.values())
