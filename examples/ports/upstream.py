"""Fetch the published sources that the ports compile, each at a pinned commit, into `build/ports`."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parents[2] / "build" / "ports"


class Upstream(NamedTuple):
    """A repository and its commit.

    `bound_by` names what binds the same kernels to PyTorch: files, and the lines of them from one text up to another.
    """

    url: str
    commit: str
    licence: str
    bound_by: tuple[tuple[str, str, str], ...]


UPSTREAMS = {
    "torch-ngp": Upstream(
        "https://github.com/ashawkey/torch-ngp",
        "b6e080468925f0bb44827b4f8f0ed08291dcf8a9",
        "MIT",
        (
            ("gridencoder/src/gridencoder.h", "", ""),
            ("gridencoder/src/bindings.cpp", "", ""),
            ("gridencoder/backend.py", "", ""),
            ("gridencoder/grid.py", "class _grid_encode", "class GridEncoder"),
        ),
    ),
    "mamba": Upstream(
        "https://github.com/state-spaces/mamba",
        "e9594ce1c732d97440f0332fdc43170a2294dbfa",
        "Apache-2.0",
        (
            ("csrc/selective_scan/selective_scan.cpp", "std::vector<at::Tensor>\nselective_scan_fwd", ""),
            ("mamba_ssm/ops/selective_scan_interface.py", "class SelectiveScanFn", "def rms_norm_forward"),
        ),
    ),
    "pytorch_scatter": Upstream(
        "https://github.com/rusty1s/pytorch_scatter",
        "648dda3cf964731ffb4de11eafc445a83133eda4",
        "MIT",
        (
            ("csrc/cuda/scatter_cuda.cu", "std::tuple<torch::Tensor", ""),
            ("csrc/scatter.cpp", "torch::Tensor broadcast", "class ScatterMul"),
            ("csrc/scatter.cpp", "class ScatterMax", "SCATTER_API torch::Tensor"),
        ),
    ),
}


def fetch(name: str) -> Path:
    """Return the folder of an upstream's sources; clone its commit if it is not there.

    Raises
    ------
    SystemExit
        git is missing, or the repository can't be reached.
    """
    upstream = UPSTREAMS[name]
    folder = FOLDER / f"{name}-{upstream.commit[:12]}"
    if not folder.exists():
        print(f"fetching {upstream.url} ({upstream.licence}) at {upstream.commit[:12]} into {folder}", flush=True)
        FOLDER.mkdir(parents=True, exist_ok=True)
        clone = Path(tempfile.mkdtemp(dir=FOLDER))
        try:
            fetching = ("fetch", "-q", "--depth", "1", upstream.url, upstream.commit)
            for command in (("init", "-q"), fetching, ("checkout", "-q", "FETCH_HEAD")):
                subprocess.run(("git", "-C", str(clone), *command), check=True)  # noqa: S607 - the user's git
            clone.rename(folder)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(clone, ignore_errors=True)
            raise SystemExit(f"{upstream.url} could not be fetched: {error}") from error
    return folder


def count_lines(text: str) -> int:
    r"""Count the lines that are neither blank nor comments; all lines of a declaration count.

    Examples
    --------
    >>> count_lines("// a kernel")
    0
    >>> count_lines("// @BE f arg[n] \\\\\n//     ret[n]\n\nvoid f();")
    3
    """
    total, is_declaration = 0, False
    for line in map(str.strip, text.splitlines()):
        is_declaration = line.startswith("// @BE") or is_declaration
        total += is_declaration or bool(line and not line.startswith(("//", "# ", "/*", "*")))
        is_declaration = is_declaration and line.endswith("\\")
    return total


def torch_lines(name: str) -> int:
    """Count the lines that bind the same kernels to PyTorch upstream."""
    folder, total = fetch(name), 0
    for path, first, end in UPSTREAMS[name].bound_by:
        text = (folder / path).read_text(encoding="utf-8")
        begin = text.index(first)
        stop = text.index(end, begin + 1) if end else len(text)
        total += count_lines(text[begin:stop])
    return total
