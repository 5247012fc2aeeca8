"""Ahead-of-time build of a Numba CPU kernel: a library for a baseline CPU that needs neither Numba nor Python."""

from __future__ import annotations

import json
import os
import platform
import sys
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.compile import flags
from be_runtime.compile.plan import BuildPlan, Edge, GeneratedFile, UnitFiles, compile_edge, link_edge
from be_runtime.errors import BuildError
from be_runtime.jax import port
from be_runtime.kernels.numba import cpu
from be_runtime.kernels.numba.cpu_handler import UNUSED, Signature, refusal
from be_runtime.kernels.numba.source import function_content
from be_runtime.load.identity import own_code_digest
from be_runtime.load.native_library import build_library
from be_runtime.load.obtain import Attempts
from be_runtime.load.registry import Session
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.store.cache import BuildOutput
from be_runtime.store.images import read_image
from be_runtime.store.index import Carried, CodeImage, carried_library
from be_runtime.store.keys import make_key
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.values import HostCompiler

_ORDER, _OBJECT = "kernel.pickle", "kernel.o"
_SOURCE, _HANDLER = "frame.cc", UnitFiles("frame", "frame.cc", "frame.o", "frame.d")


def handler_symbol(name: str, signature: Signature) -> str:
    """Return the symbol of a kernel's handler for a signature.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.kernels.numba.cpu_handler import Parameter
    >>> x = Parameter(BY_NAME["float32"], 1)
    >>> handler_symbol("decay", Signature((x,), (x,)))
    'be_ffi_decay_float32_float32'
    """
    arrays = (*signature.inputs, *signature.outputs)
    return "_".join(("be_ffi", name, *(each.dtype.name for each in arrays)))


def build_host_kernel(kernel: Any, signature: Signature, session: Session, baseline: str) -> Carried:
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
        Numba refuses the kernel, or its code needs more than the C library.
    ToolchainError
        There is no C++ compiler.
    """
    name = cpu.check_kernel(kernel).py_func.__name__
    content = function_content(kernel)
    if content.anchors:
        raise refusal(name, "it uses an object that only this process has", "pass its parts as inputs")
    if kernel.targetoptions.get("parallel"):
        raise refusal(name, "it runs in threads of Numba", "compile it without parallel=True")
    toolchain = resolve(ToolchainRequest(), system=session.system, record_dir=session.record_dir)
    assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
    layout, symbol = cpu.host_layout(session), handler_symbol(name, signature)
    processor = baseline or ("x86-64" if platform.machine() == "x86_64" else "generic")
    plan = _plan(name, signature, processor, toolchain.cxx)
    order = partial(cpu.write_order, kernel, signature, layout, symbol)
    key = make_key(
        "host-kernel",
        ("name", name),
        ("content", content.digest),
        ("signature", str(signature)),
        ("cpu", processor),
        ("versions", cpu.versions()),
        ("toolchain", toolchain.fingerprint),
        ("generator", own_code_digest()),
    )

    attempts, patience_s = Attempts(session), session.settings.lock_timeout_s
    while attempts.again():
        build = partial(_build, name, plan, order, session)
        entry = session.module_store.get_or_build(key, build, lock_timeout_s=patience_s)
        with attempts.using(entry):
            artifact = entry.artifact()
            data = read_image(artifact.path(artifact.table.image))
    image = CodeImage("library", port.PLATFORMS["cpp"], len(data), (), baseline)
    return carried_library(image, data, {"execute": symbol})


def _plan(name: str, signature: Signature, processor: str, compiler: HostCompiler) -> BuildPlan:
    """Plan the kernel's object, the C++ beside it, and the library of both."""
    kernel = Edge(
        argv=(sys.executable, "-m", cpu.__name__, _ORDER, _OBJECT),
        inputs=(_ORDER,),
        outputs=(_OBJECT,),
        description=f"compiling {name} for {processor}",
        tool="compile",
        environ=(
            ("NUMBA_CPU_NAME", processor),
            ("NUMBA_CPU_FEATURES", ""),
            ("PYTHONHASHSEED", "0"),
            ("PYTHONPATH", os.pathsep.join(filter(None, sys.path))),
        ),
    )
    command = flags.handler_compile(compiler, [NATIVE_DIR, INCLUDE_DIR, port.ffi_include_dir()])
    frame = compile_edge((*command, "-fno-exceptions"), _HANDLER, f"compiling the handler of {name}")
    link = flags.link(compiler, None, ("-Wl,--as-needed", "-lm", "-Wl,-s"), (), lambda _folder: [])
    return BuildPlan(
        files=(GeneratedFile(_SOURCE, frame_source(name, signature)),),
        edges=(kernel, frame),
        link=link_edge(link, (_OBJECT, _HANDLER.object), f"linking {name}"),
    )


def _build(name: str, plan: BuildPlan, order: Any, session: Session, staging: Path) -> BuildOutput:
    (staging / _ORDER).write_bytes(order())
    try:
        return build_library(name, plan, _HANDLER.depfile, session, staging)
    except BuildError as error:
        lines = [line for line in error.output.splitlines() if line.startswith(cpu.REFUSED)]
        if not lines:
            raise
        message, hints, output = json.loads(lines[0].removeprefix(cpu.REFUSED))
        raise BuildError(message, hints=tuple(hints), output=output) from None


def frame_source(name: str, signature: Signature) -> str:
    """Write the C++ of a library: the kernel's description, and the functions that its handler calls."""
    arrays = (*signature.inputs, *signature.outputs)
    rows = ", ".join(f"{{{each.dtype.xla_code}, {each.rank}, {each.dtype.size_bytes}}}" for each in arrays)
    inputs, extents = len(signature.inputs), sum(each.rank for each in arrays)
    return f"""#define BE_EXPORT [[maybe_unused]] static
#include "host_call.cc"

extern "C" int32_t {cpu.ENTRY}(void* const* data, const int64_t* extents, char* message);

static const Parameter parameters[] = {{{rows}}};
static const Kernel kernel{{"{name}", {cpu.ENTRY}, false, false, 0, {inputs}, {len(arrays)}, parameters, {extents}}};

extern "C" XLA_FFI_Error* {cpu.CALL}(XLA_FFI_CallFrame* frame, uint64_t) {{ return be_host_call(frame, &kernel); }}

extern "C" XLA_FFI_Error* {cpu.FAILED}(XLA_FFI_CallFrame* frame, uint64_t, const char* message) {{
  return be_host_failed(frame, &kernel, message);
}}

extern "C" void {UNUSED}(void*) {{ __builtin_trap(); }}
"""
