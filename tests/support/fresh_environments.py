"""Fresh environments in which nothing but this checkout, `packaging`, `platformdirs` and what a test installs is."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import packaging
import platformdirs
import pytest

from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FileStamp

ROOT = Path(__file__).resolve().parents[2]
STRANGERS = ("nvidia-nvvm==13.5.37", "nvidia-cuda-crt==13.5.37", "nvidia-cuda-runtime==13.5.37")
NO_INDEX = ("No matching distribution found", "Temporary failure in name resolution", "Connection refused", "dns error")
HIDDEN = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit", "/opt/nvidia")


class WithoutSystemCuda(LocalSystem):
    """This machine with an environment's packages, and none of the CUDA toolkits outside of it."""

    def __init__(self, environ: Mapping[str, str], site: Path) -> None:
        super().__init__(environ)
        self.site_dirs = (site,)

    def stat(self, path: str | Path) -> FileStamp | None:
        return None if str(path).startswith(HIDDEN) else super().stat(path)

    def list_dir(self, path: Path) -> tuple[str, ...]:
        return tuple(name for name in super().list_dir(path) if not str(path / name).startswith(HIDDEN))


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A fresh virtual environment, and a store of its own."""

    python: Path
    site: Path
    store: Path
    path: str = "/usr/bin:/bin"

    @property
    def environ(self) -> dict[str, str]:
        """Variables as a user without a CUDA toolkit has them."""
        kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "TMP", "HOME", "LANG"))}
        return kept | {"PATH": self.path, "PYTHONPATH": str(ROOT), "BE_TOOLCHAINS_DIR": str(self.store)}

    @property
    def system(self) -> WithoutSystemCuda:
        """What a search sees."""
        return WithoutSystemCuda(self.environ, self.site)

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start ``python -m be_toolchain``."""
        command = [str(self.python), "-m", "be_toolchain", *map(str, arguments)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env=self.environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, cwd="/"
        )

    def run(self, *arguments: str | Path, timeout_s: float = 250) -> tuple[int, str]:
        """Run ``python -m be_toolchain``: its exit code and all it said."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout_s)
        return process.returncode, out + err

    def pip(self, *arguments: str | Path) -> None:
        """Run the environment's pip; skip where it needs an index and there is none."""
        command = (str(self.python), "-m", "pip", "--no-input", "--quiet", *map(str, arguments))
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, check=False)
        if done.returncode and any(sign in done.stderr for sign in NO_INDEX):
            pytest.skip(f"no package index that has {arguments[-1]} can be reached")
        assert done.returncode == 0, done.stderr


def make_environment(folder: Path, *options: str) -> Environment:
    """Make one in a folder, with options of ``python -m venv``."""
    subprocess.run((sys.executable, "-m", "venv", *options, str(folder / "env")), check=True, capture_output=True)
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    for module in (packaging, platformdirs):
        (site / module.__name__).symlink_to(Path(str(module.__file__)).parent)
    return Environment(python=folder / "env" / "bin" / "python", site=site, store=folder / "store")
