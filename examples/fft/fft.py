"""A batched FFT of our own: a plan for each call site, scratch memory, XLA's threads and options by name.

Run it: ``python fft.py [--ffi] [--repeat N]``. It compares results and times with those of ``jnp.fft``. With ``--ffi``
it also builds by_hand.cc, the same operation on XLA's own header, and prints lines and build seconds of both.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import by_hand  # type: ignore[import-not-found]  # it lies beside this program
import jax
import jax.numpy as jnp
import numpy as np

import be_runtime as brainevent
from be_toolchain import ToolchainRequest, resolve

HERE = Path(__file__).resolve().parent
FLAGS = ("-shared", "-O3", "-std=c++17", "-fPIC")
SHAPES = ((1, 64), (64, 1024), (4096, 256), (256, 1000), (1, 1 << 18), (64, 509))
Fft = Callable[..., jax.Array]


def noise(*shape: int) -> jax.Array:
    """Complex numbers."""
    real, imaginary = np.random.default_rng(0).standard_normal((2, *shape), np.float32)
    return jnp.asarray(real + 1j * imaginary)


def compare(name: str, fft: Fft) -> None:
    """Assert that results are those of jnp.fft, also of a batch, and in jit."""
    for n in (1, 2, 8, 60, 97, 128, 1000):
        for norm in ("backward", "ortho", "forward"):
            for length in (n, n + 3, max(1, n // 2)):
                x = noise(3, length)
                close(fft(x, n=n, norm=norm), jnp.fft.fft(x, n, norm=norm))
                close(fft(x, n=n, norm=norm, inverse=True), jnp.fft.ifft(x, n, norm=norm))
    x = noise(2, 3, 32)
    close(jax.vmap(lambda row: fft(row, n=32), in_axes=1)(x), jax.vmap(jnp.fft.fft, in_axes=1)(x))
    close(jax.jit(lambda x: fft(fft(x, n=32), n=32, inverse=True))(x), x)
    close(fft(noise(300, 128), n=128), jnp.fft.fft(noise(300, 128)))
    print(f"{name}: the results are those of jnp.fft")


def close(ours: jax.Array, theirs: jax.Array) -> None:
    """Assert that two results agree but for rounding."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 * max(1.0, float(jnp.abs(theirs).max())))


def print_times(functions: dict[str, Fft], repeat: int) -> None:
    """Print the median time of a call for each shape, the functions in turn."""
    print("rows x n".ljust(14), *(f"{name:>14}" for name in functions))
    for rows, n in SHAPES:
        x, times = noise(rows, n), {name: list[float]() for name in functions}
        calls = 1 + 200_000 // (rows * n)
        for turn in range(repeat + 1):
            for name, fft in functions.items():
                start = time.perf_counter()
                for _ in range(calls):
                    last = fft(x, n=n)
                last.block_until_ready()
                if turn > 0:
                    times[name].append((time.perf_counter() - start) / calls)
        print(f"{rows} x {n}".ljust(14), *(f"{1e6 * median(each):11.1f} us" for each in times.values()))


def build_by_hand(folder: Path) -> Path:
    """Compile by_hand.cc with the compiler and the flags of our build."""
    cxx = resolve(ToolchainRequest()).cxx
    assert cxx is not None, "resolve() raises when there is no host compiler"
    library = folder / "by_hand.so"
    command = (cxx.path, *FLAGS, f"-I{jax.ffi.include_dir()}", HERE / "by_hand.cc", "-o", library)
    subprocess.run([str(part) for part in command], check=True, stderr=subprocess.DEVNULL)  # ffi.h has warnings
    return library


def timed(build: Callable[[Path], object]) -> float:
    """Seconds of a build in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        build(Path(folder))
        return time.perf_counter() - start


def count_lines(file: str) -> int:
    """Lines that are neither blank nor a comment."""
    lines = (line.strip() for line in (HERE / file).read_text(encoding="utf-8").splitlines())
    return sum(bool(line) and not line.startswith(("//", '"""')) for line in lines)


def print_builds(repeat: int) -> None:
    """Print lines of code, and seconds of cold builds in turn."""
    seconds: dict[str, list[float]] = {"fft.cc": [], "by_hand.cc": []}
    for _ in range(repeat):
        seconds["fft.cc"].append(
            timed(lambda folder: brainevent.load_cpp_file(HERE / "fft.cc", build_directory=folder, force_rebuild=True))
        )
        seconds["by_hand.cc"].append(timed(build_by_hand))
    print(f"\nplan.h, which both use, has {count_lines('plan.h')} lines. Beside it:")
    print(f"{'':14}{'C++ lines':>12}{'Python lines':>14}{'build':>12}")
    for name, python in (("fft.cc", 1), ("by_hand.cc", count_lines("by_hand.py"))):
        print(f"{name:14}{count_lines(name):12}{python:14}{median(seconds[name]):10.2f} s")


def main() -> None:
    """Compare, and print times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ffi", action="store_true", help="also build and compare by_hand.cc")
    parser.add_argument("--repeat", type=int, default=5, help="how often to time each call, and each build (at most 3)")
    arguments = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")

    module = brainevent.load_cpp_file(HERE / "fft.cc")
    print(module.fft(jnp.ones(4, jnp.complex64), n=4, norm="ortho"))
    functions: dict[str, Fft] = {"fft.cc": module.fft}
    has_types = hasattr(jax.ffi, "register_ffi_type")
    if arguments.ffi and not has_types:
        print(f"JAX {jax.__version__} can't register the type that by_hand.cc keeps")
    if arguments.ffi and has_types:
        with tempfile.TemporaryDirectory() as folder:
            by_hand.register(build_by_hand(Path(folder)))
        functions["by_hand.cc"] = by_hand.fft
    for name, fft in functions.items():
        compare(name, fft)
    plain: Fft = jax.jit(jnp.fft.fft, static_argnames="n")
    print_times({**functions, "jnp.fft": plain}, arguments.repeat)
    if "by_hand.cc" in functions:
        print_builds(min(3, arguments.repeat))


if __name__ == "__main__":
    main()
