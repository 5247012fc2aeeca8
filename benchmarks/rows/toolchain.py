"""Finding the toolchain: from its record, from scratch among three toolkits, and what the doctor takes."""

from __future__ import annotations

import sys
from pathlib import Path

from be_toolchain import CudaToolkit

from ..bench import Bench
from ..figure import Figure, Row, Unavailable

ROUNDS = 15
RECORD_GOAL_S, SCRATCH_GOAL_S, DOCTOR_GOAL_S = 1e-3, 150e-3, 300e-3


def measure(bench: Bench) -> tuple[Figure, ...]:
    """On a warm file cache: what runs first is not counted."""
    if bench.cuda is None:
        raise Unavailable("no CUDA toolkit")
    site, prefix = three_toolkits(bench.cuda, bench.folder("toolkits"))
    rounds = bench.rounds(ROUNDS)

    def resolved(mode: str) -> tuple[float, ...]:
        records = str(bench.folder("records"))
        told = bench.child("toolchain.py", mode, records, str(site), str(prefix), str(rounds + 1), cache=bench.scratch)
        return tuple(told["taken"][1:])

    doctor = (sys.executable, "-m", "be_toolchain", "doctor", "--json")
    bench.timed(doctor)
    return (
        Figure(label="resolve() from the record", ours=resolved("record"), goal=RECORD_GOAL_S),
        Figure(label="resolve() from scratch, three toolkits", ours=resolved("scratch"), goal=SCRATCH_GOAL_S),
        Figure(label="doctor", ours=tuple(bench.timed(doctor) for _ in range(rounds)), goal=DOCTOR_GOAL_S),
    )


def three_toolkits(cuda: CudaToolkit, folder: Path) -> tuple[Path, Path]:
    """The found toolkit once more, by links, as wheels and as a conda prefix; the first may be the system's.

    Returns
    -------
    site, prefix : Path
        A site-packages folder and a conda prefix.
    """
    site, prefix = folder / "site-packages", folder / "conda"
    wheels = site / "nvidia" / "cu13"
    _link_into(wheels, cuda, include=wheels / "include", lib=wheels / "lib")
    for name in ("cuda_nvcc", "nvvm", "cuda_crt"):
        (site / f"nvidia_{name}-{cuda.nvcc_version}.dist-info").mkdir()
    target = prefix / "targets" / "x86_64-linux"
    _link_into(prefix, cuda, include=target / "include", lib=target / "lib")
    (prefix / "conda-meta").mkdir()
    for name in ("cuda-nvcc-tools", "cuda-nvvm-tools", "cuda-crt-dev_linux-64"):
        (prefix / "conda-meta" / f"{name}-{cuda.nvcc_version}-h0_0.json").touch()
    return site, prefix


def _link_into(root: Path, cuda: CudaToolkit, *, include: Path, lib: Path) -> None:
    """A toolkit's files under another layout."""
    for folder, sources in (
        (root / "bin", tuple(cuda.nvcc.resolve().parent.iterdir())),
        (root / "nvvm" / "bin", (cuda.cicc,)),
        (root / "nvvm" / "libdevice", (cuda.libdevice,)),
        (lib, (cuda.cudart_static or cuda.cudart_shared or cuda.libdevice,)),
    ):
        folder.mkdir(parents=True)
        for source in sources:
            (folder / source.name).symlink_to(source)
    include.parent.mkdir(parents=True, exist_ok=True)
    include.symlink_to(cuda.include_dirs[0])


ROW = Row(measure=measure)
