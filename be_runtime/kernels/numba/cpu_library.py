"""Ahead-of-time build of a Numba CPU kernel: a library for a baseline CPU, without Numba and Python.

As a program, this module compiles a kernel to an object file.
"""

from __future__ import annotations

import json
import os
import pickle
import platform
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime import errors, own_files
from be_runtime.compile import flags
from be_runtime.compile.plan import BuildPlan, Edge, GeneratedFile, UnitFiles, compile_edge, link_edge
from be_runtime.jax import port
from be_runtime.kernels.content import function_content
from be_runtime.kernels.numba import cpu
from be_runtime.load import identity, obtain, registry
from be_runtime.load.native_library import build_library
from be_runtime.store import cache, images, index, keys
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.values import HostCompiler

CALL, FAILED, ENTRY = "be_kernel_call", "be_kernel_failed", "be_kernel_entry"
"""Symbols of the calls between the handler and the C++ beside it."""

REFUSED = "be refused: "
"""Prefix of the output line in which the program reports an error of this package."""

ADDRESSES = "numba.dynamic.globals"
"""Prefix of Numba's names for addresses of the compiling process."""

UNUSED = "NRT_MemInfo_call_dtor"
"""Function that frees an allocated array, which code without allocations never calls."""

_MEANINGS = (
    (re.escape(ADDRESSES), "it uses a C function by its address, or a global array of more than a megabyte",
     "pass the array as an input"),
    (r"numba_parallel|(numba_)?[gs]et_num_threads|(get_|numba_.*)thread|do_sched",
     "it runs in threads of Numba", "compile it without parallel=True"),
    (r"numba_(x|ez_|raw_)", "it calls linear algebra of SciPy", "write the loops, or use jnp for that part"),
    (r"NRT_MemInfo_(alloc\w*aligned|new_varsize)", "it allocates an array",
     "write into its outputs, or declare scratch[bytes] in the signature"),
    (r"_?Py|numba_(gil|unpickle|do_raise|runtime)", "it calls Python: it prints, or uses objects",
     "remove print and what needs objects"),
    (cpu.VALUE_RAISED, "it raises an exception with a value of run time",
     "raise it with a constant text, as in ValueError('text')"),
    (r"__svml|_ZGV", "it calls Intel's SVML", "uninstall icc_rt where it is built"),
    (r"numba_|NRT_(?!MemInfo_call_dtor)", "it calls a function of Numba's own library", "compute that in the kernel"),
)  # fmt: skip
"""Patterns of functions that a C library lacks, with their meaning and advice. The first matching pattern counts."""

_ORDER, _OBJECT = "kernel.pickle", "kernel.o"
_SOURCE, _HANDLER = "frame.cc", UnitFiles("frame", "frame.cc", "frame.o", "frame.d")


def check_needs(kernel: str, needed: Sequence[str]) -> None:
    """Refuse a kernel whose code needs more than the C library.

    Raises
    ------
    BuildError
        The code needs more; the message has the first such function and its meaning.

    Examples
    --------
    >>> check_needs("f", ["sinf", "__svml_sinf8"])
    Traceback (most recent call last):
    be_runtime.errors.BuildError: the kernel f can't be built ahead of time: it calls Intel's SVML (__svml_sinf8)
    hint: uninstall icc_rt where it is built
    causes and remedies: python -m be_runtime explain BE301
    """
    for pattern, meaning, advice in _MEANINGS:
        name = next((each for each in needed if re.match(pattern, each)), None)
        if name is not None:
            raise refusal(kernel, f"{meaning} ({name})", advice)


def refusal(kernel: str, reason: str, *hints: str) -> errors.BuildError:
    """Return the error for a kernel that works only in the process that compiled it."""
    return errors.BuildError(f"the kernel {kernel} can't be built ahead of time: {reason}", hints=hints)


def handler_symbol(name: str, signature: cpu.Signature) -> str:
    """Return the symbol of a kernel's handler for a signature.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.kernels.numba.cpu import Parameter, Signature
    >>> x = Parameter(BY_NAME["float32"], 1)
    >>> handler_symbol("decay", Signature((x,), (x,)))
    'be_ffi_decay_float32_float32'
    """
    arrays = (*signature.inputs, *signature.outputs)
    return "_".join(("be_ffi", name, *(each.dtype.name for each in arrays)))


def build_host_kernel(kernel: Any, signature: cpu.Signature, session: registry.Session, baseline: str) -> index.Carried:
    """Build the library of a kernel for a signature.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    session : Session
        Session that finds the compiler, and whose cache keeps the library.
    baseline : str
        Level of CPU instructions, see `be_runtime.store.images`; LLVM names CPUs in this way.

    Raises
    ------
    BuildError
        Numba can't compile the kernel, or its code needs more than the C library.
    ToolchainError
        No C++ compiler was found.
    """
    name = cpu.check_kernel(kernel).py_func.__name__
    content = function_content(kernel)
    if content.anchors:
        raise refusal(name, "it uses an object that only this process has", "pass its parts as inputs")
    if kernel.targetoptions.get("parallel"):
        raise refusal(name, "it runs in threads of Numba", "compile it without parallel=True")
    toolchain = resolve(ToolchainRequest(), system=session.system, record_dir=session.record_dir)
    assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
    symbol = handler_symbol(name, signature)
    processor = baseline or ("x86-64" if platform.machine() == "x86_64" else "generic")
    plan = _plan(name, signature, processor, toolchain.cxx)
    key = keys.make_key(
        "host-kernel",
        *(("name", name), ("content", content.digest), ("signature", str(signature)), ("cpu", processor)),
        ("versions", cpu.versions()),
        *(("toolchain", toolchain.fingerprint), ("generator", identity.own_code_digest())),
    )

    attempts, patience_s = obtain.Attempts(session), session.settings.lock_timeout_s
    while attempts.should_try():
        build = partial(_build, (kernel, signature, symbol), plan, session)
        entry = session.module_store.get_or_build(key, build, lock_timeout_s=patience_s)
        with attempts.using(entry):
            artifact = entry.artifact()
            data = images.read_image(artifact.path(artifact.table.image))
    image = index.CodeImage("library", port.PLATFORMS["cpp"], len(data), (), baseline)
    return index.carried_library(image, data, {"execute": symbol})


def _plan(name: str, signature: cpu.Signature, processor: str, compiler: HostCompiler) -> BuildPlan:
    """Plan the kernel's object, the C++ beside it, and the library of both."""
    path = os.pathsep.join(filter(None, sys.path))
    environ = {"NUMBA_CPU_NAME": processor, "NUMBA_CPU_FEATURES": "", "PYTHONHASHSEED": "0", "PYTHONPATH": path}
    kernel = Edge(
        argv=(sys.executable, "-m", "be_runtime.kernels.numba.cpu_library", _ORDER, _OBJECT),
        inputs=(_ORDER,),
        outputs=(_OBJECT,),
        description=f"compiling {name} for {processor}",
        tool="compile",
        environ=tuple(environ.items()),
    )
    command = flags.handler_compile(compiler, [own_files.NATIVE_DIR, own_files.INCLUDE_DIR, port.ffi_include_dir()])
    frame = compile_edge((*command, "-fno-exceptions"), _HANDLER, f"compiling the handler of {name}")
    link = flags.link(compiler, None, ("-Wl,--as-needed", "-lm", "-Wl,-s"), (), lambda _folder: [])
    return BuildPlan(
        files=(GeneratedFile(_SOURCE, frame_source(name, signature)),),
        edges=(kernel, frame),
        link=link_edge(link, (_OBJECT, _HANDLER.object), f"linking {name}"),
    )


def _build(
    order: tuple[Any, cpu.Signature, str], plan: BuildPlan, session: registry.Session, staging: Path
) -> cache.BuildOutput:
    """Build the library; `order` has the arguments of `make_object`."""
    from numba.core import serialize

    # Pickle by value, so that another process can read a notebook's kernel.
    (staging / _ORDER).write_bytes(bytes(serialize.dumps(order)))
    try:
        return build_library(order[0].py_func.__name__, plan, session, staging)
    except errors.BuildError as error:
        lines = [line for line in error.output.splitlines() if line.startswith(REFUSED)]
        if not lines:
            raise
        message, hints, output = json.loads(lines[0].removeprefix(REFUSED))
        raise errors.BuildError(message, hints=tuple(hints), output=output) from None


def frame_source(name: str, signature: cpu.Signature) -> str:
    """Write the C++ of a library: the kernel's description, and the functions that its handler calls."""
    arrays = (*signature.inputs, *signature.outputs)
    rows = ", ".join(f"{{{each.dtype.xla_code}, {each.rank}, {each.dtype.size_bytes}}}" for each in arrays)
    inputs, extents = len(signature.inputs), sum(each.rank for each in arrays)
    return f"""#define BE_EXPORT [[maybe_unused]] static
#include "host_call.cc"

extern "C" int32_t {ENTRY}(void* const* data, const int64_t* extents, char* message);

static const Parameter parameters[] = {{{rows}}};
static const Kernel kernel{{"{name}", {ENTRY}, false, false, 0, {inputs}, {len(arrays)}, parameters, {extents}}};

extern "C" XLA_FFI_Error* {CALL}(XLA_FFI_CallFrame* frame, uint64_t) {{ return be_host_call(frame, &kernel); }}

extern "C" XLA_FFI_Error* {FAILED}(XLA_FFI_CallFrame* frame, uint64_t, const char* message) {{
  return be_host_failed(frame, &kernel, message);
}}

extern "C" void {UNUSED}(void*) {{ __builtin_trap(); }}
"""


def _main(argv: Sequence[str]) -> int:
    """Read the arguments of `make_object` from one file, and write the object to another."""
    source, target = map(Path, argv)
    try:
        target.write_bytes(make_object(*pickle.loads(source.read_bytes())))  # noqa: S301 - `_build` wrote it
    except errors.BeRuntimeError as error:
        said = [error.message, list(error.hints), getattr(error, "output", "")]
        print(REFUSED + json.dumps(said))  # noqa: T201 - the parent process reads it
        return 1
    return 0


def make_object(kernel: Any, signature: cpu.Signature, symbol: str) -> bytes:
    """Compile a kernel and its handler to an object for Numba's CPU of this process.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    symbol : str
        Name of the handler.

    Raises
    ------
    BuildError
        Numba can't compile the kernel, or its code needs Numba or Python at run time.
    """
    numba = cpu.import_numba()
    from llvmlite import binding
    from numba import types

    from be_runtime.kernels.numba import cpu_handler

    cpu_handler.raise_texts()
    word = types.uint64
    for needed in (CALL, FAILED, cpu.VALUE_RAISED):
        binding.add_symbol(needed, 1)  # Numba's linker requires it, and never runs the code
    function = cpu_handler.compile_entry(kernel, signature, cpu_handler.report_text)
    call = types.ExternalFunction(CALL, word(word, word))
    native = cpu_handler.Native(0, call, types.ExternalFunction(FAILED, word(word, word, word)))
    handler = cpu_handler.compile_handler(native, signature, function.guarded, cpu_handler.report_text)
    module = _module(handler, symbol)
    module.link_in(_module(function.owner, ENTRY))
    module.get_function(ENTRY).visibility = "hidden"
    check_needs(kernel.py_func.__name__, _needed(module))
    target = binding.Target.from_default_triple()  # the module was optimized for Numba's CPU; a library needs PIC
    options = {"cpu": numba.config.CPU_NAME, "features": numba.config.CPU_FEATURES, "opt": 3}
    machine = target.create_target_machine(reloc="pic", codemodel="default", **options)
    return bytes(machine.emit_object(module))


def _module(compiled: Any, name: str) -> Any:
    """Return the optimized code of a C function under a name, with private symbols otherwise."""
    from llvmlite import binding

    module = binding.parse_assembly(str(compiled._library._final_module))  # noqa: SLF001 - no public name
    own = compiled._wrapper_name  # noqa: SLF001
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != own:
            each.linkage = "internal"
    module.get_function(own).name = name
    return module


def _needed(module: Any) -> list[str]:
    """List the names that a module requires from other libraries, and Numba's names of addresses of this process."""
    names = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    addresses = [ADDRESSES for each in module.global_variables if each.name.startswith(ADDRESSES)]
    return addresses + [each for each in names if not each.startswith("llvm.") and each not in (CALL, FAILED)]


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
