"""What tests of modules share: a module of each kernel, compiled once in the cache of the session, and looks at it."""

from __future__ import annotations

from typing import Any

import be_runtime
from tests.support.cuda import device_code, source

UNCOMPRESSED = "--no-compress"
"""Leaves the PTX and the machine code in the library readable."""

WARM_LOAD = """
import json, sys
import jax

started = []
events = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"}
sys.addaudithook(lambda event, args: started.append([event, str(args)]) if event in events else None)
import be_runtime
module = be_runtime.load_cuda_file(sys.argv[1])
from jax._src import xla_bridge

found = {"path": str(module.path), "hash": module.content_hash, "targets": be_runtime.list_registered_targets()}
print(json.dumps({**found, "started": started, "backend": xla_bridge.backends_are_initialized()}))
"""
"""A program for `run_json` that loads a file, and says which processes that started."""


def inline(name: str, text: str, *flags: str, **options: Any) -> be_runtime.CompiledModule:
    """The module of a source, under flags of nvcc."""
    given = {"extra_cuda_cflags": list(flags), "auto_register": False, **options}
    return be_runtime.load_cuda_inline(name, text, **given)


def built(name: str, *flags: str, **options: Any) -> be_runtime.CompiledModule:
    """The module of a kernel of tests/support, under flags of nvcc."""
    return inline(name, source(name), *flags, **options)


def images(module: be_runtime.CompiledModule) -> set[tuple[str, int]]:
    """The kind and the architecture of each image in a module's library."""
    return {(code.kind, code.arch) for code in device_code(module.path)}


def log(module: be_runtime.CompiledModule) -> str:
    """What the build ran and what was said."""
    return (module.path.parent / "build.log").read_text()
