"""Finding the toolchain: from its record, from scratch as the third toolkit examined, and what the doctor takes."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from be_toolchain import CudaToolkit
from be_toolchain.values import Nvcc

from ..bench import Bench
from ..figure import Figure, Row, Unavailable

ROUNDS = 15
STRANGER = "99.5.1"
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
        assert told["mixed"] == 2, "the first two toolkits are examined, and lose"
        return tuple(told["taken"][1:])

    doctor = (sys.executable, "-m", "be_toolchain", "doctor", "--json")
    bench.timed(doctor)
    return (
        Figure(label="resolve() from the record", ours=resolved("record"), goal=RECORD_GOAL_S),
        Figure(label="resolve() from scratch, three toolkits examined", ours=resolved("scratch"), goal=SCRATCH_GOAL_S),
        Figure(label="doctor", ours=tuple(bench.timed(doctor) for _ in range(rounds)), goal=DOCTOR_GOAL_S),
    )


def three_toolkits(cuda: CudaToolkit, folder: Path) -> tuple[Path, Path]:
    """The found toolkit as a conda prefix and as wheels too, each with a record of a cicc from another release.

    Both come first in the search and lose, so that all three are examined.

    Returns
    -------
    site, prefix : Path
        A site-packages folder and a conda prefix.
    """
    site, prefix = folder / "site-packages", folder / "conda"
    wheels = site / "nvidia" / "cu13"
    _link_into(wheels, cuda, include=wheels / "include", lib=wheels / "lib")
    for name, version in (("cuda_nvcc", cuda.nvcc_version), ("nvvm", STRANGER), ("cuda_crt", cuda.nvcc_version)):
        (site / f"nvidia_{name}-{version}.dist-info").mkdir()
    target = prefix / "targets" / f"{os.uname().machine}-linux".replace("aarch64", "sbsa")
    _link_into(prefix, cuda, include=target / "include", lib=target / "lib")
    (prefix / "conda-meta").mkdir()
    for name, version in (("cuda-nvcc-tools", cuda.nvcc_version), ("cuda-nvvm-tools", STRANGER)):
        (prefix / "conda-meta" / f"{name}-{version}-h0_0.json").touch()
    return site, prefix


def _link_into(root: Path, cuda: CudaToolkit, *, include: Path, lib: Path) -> None:
    """A toolkit's files under another layout."""
    nvcc = cuda.compiler
    assert isinstance(nvcc, Nvcc)
    for folder, sources in (
        (root / "bin", tuple(nvcc.path.resolve().parent.iterdir())),
        (root / "nvvm" / "bin", (nvcc.cicc,)),
        (root / "nvvm" / "libdevice", (cuda.libdevice,)),
        (lib, (cuda.cudart_static or cuda.cudart_shared or cuda.libdevice,)),
    ):
        folder.mkdir(parents=True)
        for source in sources:
            (folder / source.name).symlink_to(source)
    # A link would be known as the same nvcc, and not examined again.
    (root / "bin" / nvcc.path.name).unlink()
    shutil.copy2(nvcc.path, root / "bin")
    include.parent.mkdir(parents=True, exist_ok=True)
    include.symlink_to(cuda.include_dirs[0])


ROW = Row(measure=measure)
