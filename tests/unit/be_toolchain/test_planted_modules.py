"""The command does not import from the folder that it is called in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import be_toolchain

NAMES = (
    "__future__ argparse json re tomllib rich typing pathlib collections enum shlex hashlib tempfile subprocess string "
    "packaging shtab fcntl_ ctypes threading socket select be_runtime jax numpy dataclasses inspect "
    "traceback copy"
)
ENVIRON = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
COMMAND = ["-m", "be_toolchain", "doctor"]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    for name in NAMES.split():
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        )
    return tmp_path


def run(folder: Path, *arguments: str, **environ: str) -> str:
    """What ran of the planted modules."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=ENVIRON | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    ran = (folder / "ran").read_text() if (folder / "ran").exists() else ""
    assert ran or "be_toolchain 0" in done.stdout, done.stderr
    return ran


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that the package is in, by a name that is not the current folder's."""
    link = tmp_path_factory.mktemp("path") / "link"
    link.symlink_to(Path(be_toolchain.__file__).parents[1])
    return str(link)


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"]])
def test_a_planted_module_does_not_run(planted: Path, package: str, options: list[str]):
    if options == ["-I"]:  # which leaves PYTHONPATH out
        options = [
            "-I",
            "-c",
            f"import sys; sys.path.append({package!r}); from be_toolchain.cli.main import main; main(['doctor'])",
        ]
        assert run(planted, *options) == ""
    else:
        assert run(planted, *options, *COMMAND, PYTHONPATH=package) == ""


def test_a_planted_module_does_not_run_in_a_checkout(planted: Path, package: str):
    """The package itself is found by way of the current folder."""
    (planted / "be_toolchain").symlink_to(f"{package}/be_toolchain")
    assert run(planted, *COMMAND) == ""


def test_what_the_user_asked_for_stays_on_the_path(planted: Path, package: str, tmp_path: Path):
    code = "import sys, runpy; sys.argv[1:] = ['which', 'none']; before = sys.path[:]"
    code += "\ntry: runpy.run_module('be_toolchain', run_name='__main__', alter_sys=True)\nexcept SystemExit: pass"
    code += "\nprint(sys.path == before, file=sys.stderr)"
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        cwd=tmp_path / "elsewhere",
        env=ENVIRON | {"PYTHONPATH": package},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.endswith("True\n")
