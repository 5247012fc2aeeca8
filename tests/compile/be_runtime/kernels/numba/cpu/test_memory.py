"""The native handler of host functions, under sanitizers and over buffers that are exactly as long as they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from be_runtime.own_files import NATIVE_DIR
from be_runtime.xla.jax_port import ffi_include_dir
from tests.support.requirements import OPTIONAL
from tests.support.runtime import real_compiler

PROGRAM = Path(__file__).parent / "programs" / "guarded_calls.cc"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(folder: Path, one_too_many: int) -> subprocess.CompletedProcess[str]:
    """Build the program and run it."""
    compiler = real_compiler()
    probe = (compiler, *SANITIZE, "-x", "c++", "-", "-o", str(folder / "probe"))
    if subprocess.run(probe, input=b"int main() {}", capture_output=True, check=False).returncode != 0:
        pytest.skip(OPTIONAL + "the compiler's sanitizers")
    flags = ("-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZE, f"-DONE_TOO_MANY={one_too_many}")
    command = (compiler, *flags, f"-I{ffi_include_dir()}", f"-I{NATIVE_DIR}", str(PROGRAM), "-o", str(folder / "main"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return subprocess.run([folder / "main"], capture_output=True, text=True, check=False)


def test_calls_and_batches_stay_within_their_buffers(tmp_path: Path):
    done = run(tmp_path, 0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all passed"


@pytest.mark.full
def test_the_program_would_notice(tmp_path: Path):
    """A function that touches one element too many is found."""
    done = run(tmp_path, 1)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
