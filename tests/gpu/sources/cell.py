"""One cell of the table of sources: ``WHO SOURCE CAPABILITY FOLDER``. It prints an object of JSON, or dies.

`WHO` is ``ours`` or ``bridge``. The process works in `FOLDER`, an empty folder, where its caches are too.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

GRAPHS = (
    "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE --xla_gpu_graph_min_graph_size=1 "
    "--xla_dump_to=dumped"
)
COMPILERS = ("triton", "cutlass", "cuda.tile", "numba_cuda_mlir", "numba_cuda")
SIZE = 1000


def function(who: str, source: str) -> Any:
    """The function under test."""
    return importlib.import_module(f"tests.gpu.sources.{'ours' if who == 'ours' else 'bridges'}").function(source)


def arrays(*shape: int) -> tuple[Any, Any]:
    """Two arrays, made without the function."""
    import jax.numpy as jnp
    import numpy as np

    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    return jnp.asarray(x), jnp.asarray(1 + x % 7)


def is_right(found: Any, x: Any, y: Any) -> None:
    """Compare a result with numpy's."""
    import numpy as np

    np.testing.assert_array_equal(np.asarray(found), 2 * np.asarray(x) + np.asarray(y))


def jit(who: str, source: str) -> dict[str, Any]:
    import jax

    start = time.perf_counter()
    call = jax.jit(function(who, source))
    x, y = arrays(SIZE)
    is_right(call(x, y), x, y)
    return {"seconds": round(time.perf_counter() - start, 2)}


def graphs(who: str, source: str) -> dict[str, Any]:
    import jax

    call = function(who, source)

    @jax.jit
    def chain(x: Any, y: Any) -> Any:
        for _ in range(20):
            x = call(x, y) / 2
        return x

    x, y = arrays(SIZE)
    for _ in range(3):
        assert abs(chain(x, y) - (x + 10 * y)).max() < 1e-2, "wrong"
    texts = [path.read_text(errors="replace") for path in Path("dumped").glob("*.txt")]
    thunks = [text for text in texts if "kCommandBuffer" in text]
    assert thunks, f"not recorded; dumped: {sorted({path.name[-40:] for path in Path('dumped').iterdir()})}"
    return {}


def vmap(who: str, source: str) -> dict[str, Any]:
    import jax

    x, y = arrays(3, SIZE)
    is_right(jax.jit(jax.vmap(function(who, source)))(x, y), x, y)
    return {}


def derivative(who: str, source: str) -> dict[str, Any]:
    import jax

    call: Any = function(who, source)
    if who == "ours":
        call.defvjp(None, lambda _inputs, g, **_attributes: (2 * g, g))
    x, y = arrays(SIZE)
    dx, dy = jax.grad(lambda x, y: call(x, y).sum(), argnums=(0, 1))(x, y)
    assert (dx == 2).all()
    assert (dy == 1).all()
    return {}


def sharding(who: str, source: str) -> dict[str, Any]:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec

    from tests.support.jax_names import make_mesh

    if len(jax.devices()) < 2:
        return {"reason": "one GPU"}
    count = len(jax.devices())
    split = NamedSharding(make_mesh((count,), "d"), PartitionSpec("d"))
    x, y = (jax.device_put(each, split) for each in arrays(2 * count, SIZE))
    rows = function(who, source)
    call = jax.jit(jax.vmap(rows) if source == "numba" else rows)  # a kernel of Numba has arrays of one rank
    is_right(call(x, y), x, y)
    text = str(call.lower(x, y).compile().as_text())
    collectives = [word for word in ("all-gather", "all-reduce", "all-to-all", "collective-permute") if word in text]
    added = ", ".join(collectives)
    return {"reason": f"XLA adds {added}, and each device computes the whole result"} if added else {}


def checked(who: str, source: str) -> dict[str, Any]:
    if who != "ours":
        return {"reason": "none"}
    import be_runtime
    from tests.gpu.sources import ours

    x, y = arrays(SIZE)
    with be_runtime.debug():
        is_right(function(who, source)(x, y), x, y)
    with pytest.raises(be_runtime.FindingError, match="does not write all of result 0"), be_runtime.debug():
        ours.function(source, less=1)(x, y)
    return {}


def again(who: str, source: str) -> dict[str, Any]:
    first, second = (run(who, source, "jit", {}, timeout=300) for _ in range(2))
    if "seconds" not in first:
        return first
    if who == "ours":
        second = run(who, source, "jit", {"BE_JIT": "never"}, timeout=300)
    if "seconds" not in second:
        return second
    return {"times": f"{first['seconds']} s, then {second['seconds']} s", "is_proven": who == "ours"}


def wheel(who: str, source: str) -> dict[str, Any]:
    if who != "ours":
        return {"reason": "none"}
    from tests.gpu.sources import ours

    ours.write_package(source, Path.cwd())
    paths = os.pathsep.join([os.getcwd(), *os.environ["PYTHONPATH"].split(os.pathsep)])
    build = {**os.environ, "PYTHONPATH": os.pathsep.join([paths, str(ours.LANGUAGES)])}
    made = subprocess.run(
        [sys.executable, "-m", "be_runtime", "build", "axpy_ops"],
        env=build,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        return {"reason": made.stderr.strip()[-300:]}
    for path in Path("axpy_ops").glob("*.c*"):
        path.unlink()
    away = {"PYTHONPATH": paths, "BE_JIT": "never", "BE_CACHE_DIR": str(Path.cwd() / "other"), "PATH": "/usr/bin:/bin"}
    return run(who, source, "packaged", away | runtime_of(who, source))


def runtime_of(who: str, source: str) -> dict[str, str]:
    """Where CuTe DSL's run-time library is, which its license lets nobody pass on."""
    if (who, source) != ("ours", "cute"):
        return {}
    from cutlass import cute

    found = cute.runtime.find_runtime_libraries(enable_tvm_ffi=True)
    return {"LD_LIBRARY_PATH": os.pathsep.join({str(Path(each).parent) for each in found})}


def packaged(_who: str, _source: str) -> dict[str, Any]:
    import axpy_ops
    import jax

    x, y = arrays(SIZE)
    is_right(jax.jit(axpy_ops.ops.axpy)(x, y), x, y)
    assert not sys.modules.keys() & {*COMPILERS}, "a compiler was imported"
    return {}


def export(who: str, source: str) -> dict[str, Any]:
    import jax

    call = jax.jit(function(who, source))
    x, y = arrays(SIZE)
    if who == "ours":
        import be_runtime

        Path("axpy.be").write_bytes(be_runtime.export(call, x, y))
    else:
        names = set(re.findall(r"custom_call @([\w.]+)", call.lower(x, y).as_text()))
        checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in sorted(names)]
        made = jax.export.export(call, disabled_checks=checks)(x, y)
        Path("axpy.be").write_bytes(made.serialize())
    away = {"BE_JIT": "never", "BE_CACHE_DIR": str(Path.cwd() / "other"), "PATH": "/usr/bin:/bin"}
    return run(who, source, "exported", away | runtime_of(who, source))


def exported(who: str, source: str) -> dict[str, Any]:
    import jax

    if source in ("cute", "tvm_ffi"):
        import tvm_ffi  # noqa: F401 - the library that it was built with
    if who == "ours":
        import be_runtime

        program: Any = be_runtime.load_exported("axpy.be")
    else:
        _import_bridge(source)
        program = jax.export.deserialize(bytearray(Path("axpy.be").read_bytes()))
    x, y = arrays(SIZE)
    is_right(program.call(x, y), x, y)
    assert who != "ours" or not sys.modules.keys() & {*COMPILERS}, "a compiler was imported"
    return {}


def _import_bridge(source: str) -> None:
    names = {"tvm_ffi": "jax_tvm_ffi", "triton": "jax_triton", "cute": "cutlass.jax", "cutile": "cuda.tile.jax"}
    importlib.import_module(names[source])


CELLS: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "jit": jit,
    "CUDA graphs": graphs,
    "vmap": vmap,
    "derivative": derivative,
    "sharding": sharding,
    "checked mode": checked,
    "second process": again,
    "wheel": wheel,
    "exported program": export,
}
PARTS = {"packaged": packaged, "exported": exported}


def run(who: str, source: str, capability: str, environ: dict[str, str], timeout: float = 400) -> dict[str, Any]:
    """Run a cell in a process of its own: what it prints, or why it has no answer."""
    command = [sys.executable, "-m", "tests.gpu.sources.cell", who, source, capability]
    try:
        done = subprocess.run(
            command, env={**os.environ, **environ}, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return {"reason": f"not finished after {timeout:.0f} s"}
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    lines = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith((" ", "-", "For simpl"))]
    last = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), (lines or ["?"])[-1])
    killed = f"killed by signal {-done.returncode}: " if done.returncode < 0 else ""
    return {"reason": f"{killed}{last[:300]}", "stderr": done.stderr[-6000:]}


if __name__ == "__main__":
    sys.stdout.write(json.dumps({**CELLS, **PARTS}[sys.argv[3]](sys.argv[1], sys.argv[2])) + "\n")
