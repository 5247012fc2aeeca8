"""The load of modules that were built ahead of time with their package, in a new process without a compiler."""

from __future__ import annotations

from pathlib import Path

from be_runtime.ship.build import build_package
from be_runtime.ship.package import package_in

from ..bench import Bench
from ..figure import Figure, Row
from ..generated import SUFFIXES, folder_file

LANGUAGES = {"cpp": "C++", "cuda": "CUDA"}
ROUNDS = 15
MODULES, QUICK_MODULES = 50, 3
ONE_GOAL_S, ALL_GOAL_S = 3e-3, 20e-3


def measure(bench: Bench) -> tuple[Figure, ...]:
    """C++ everywhere, CUDA where nvcc is; the first module of a process alone, and all of them together."""
    languages = ("cpp", "cuda") if bench.cuda is not None else ("cpp",)
    return tuple(figure for language in languages for figure in _figures(bench, language))


def _figures(bench: Bench, language: str) -> tuple[Figure, Figure]:
    count = QUICK_MODULES if bench.quick else MODULES
    site, cache = bench.folder("site"), bench.folder("cache")
    root = _package(site, language, count)
    build_package(package_in(root), archs=[bench.arch])
    platforms = {} if language == "cuda" and bench.device is not None else {"JAX_PLATFORMS": "cpu"}
    taken = [
        bench.child("load_package.py", str(site), cache=cache, BE_JIT="never", PATH="/nowhere", **platforms)
        for _ in range(bench.rounds(ROUNDS))
    ]
    label = f"load of packaged {LANGUAGES[language]} modules"
    return (
        Figure(label=f"{label}, the first in a process", ours=tuple(each[0] for each in taken), goal=ONE_GOAL_S),
        Figure(label=f"{label}, all {count} of a package", ours=tuple(sum(each) for each in taken), goal=ALL_GOAL_S),
    )


def _package(site: Path, language: str, count: int) -> Path:
    """Write a package of modules with two kernels each."""
    root = site / "bench_package"
    root.mkdir()
    text = "from be_runtime import package_kernels\nops = package_kernels(__name__)\n"
    (root / "__init__.py").write_text(text, encoding="utf-8")
    rows = []
    for index in range(count):
        name = f"m{index}{SUFFIXES[language]}"
        (root / name).write_text(folder_file(language, index % 4, edition=index), encoding="utf-8")
        rows.append(f'[modules.m{index}]\nsources = "{name}"\n')
    (root / "kernels.toml").write_text("".join(rows), encoding="utf-8")
    return root


ROW = Row(measure=measure)
