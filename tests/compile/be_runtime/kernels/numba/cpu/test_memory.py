"""The native handler of host functions, under sanitizers and over buffers that are exactly as long as they say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from be_runtime.own_files import NATIVE_DIR
from be_runtime.xla.jax_port import ffi_include_dir
from tests.support import requirements

PROGRAM = Path(__file__).parent / "programs" / "guarded_calls.cc"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="module", autouse=True)
def _sanitizers(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A compiler can come without the sanitizers' libraries."""
    source = tmp_path_factory.mktemp("probe") / "main.cc"
    source.write_text("int main() { return 0; }\n")
    command = (str(requirements.host_compiler()), *SANITIZE, str(source), "-o", str(source.with_suffix("")))
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip(requirements.OPTIONAL + "the compiler's sanitizers")


def build(path: Path, *flags: str) -> None:
    compiler = requirements.host_compiler()
    assert compiler is not None, "the tier needs one"
    includes = (f"-I{ffi_include_dir()}", f"-I{NATIVE_DIR}")
    flags = ("-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZE, *flags)
    command = (compiler, *flags, *includes, str(PROGRAM), "-o", str(path))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_calls_and_batches_stay_within_their_buffers(tmp_path: Path):
    program = tmp_path / "program"
    build(program)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "all passed"


def test_the_program_would_notice(tmp_path: Path):
    """A function that touches one element too many is found."""
    program = tmp_path / "program"
    build(program, "-DONE_TOO_MANY")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
