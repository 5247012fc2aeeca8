"""What makes nvcc run again, what doesn't, and what a warm load starts: nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from tests.support import requirements, runtime
from tests.support.cuda import KERNELS, device_code, run_json
from tests.support.requirements import in_full

pytestmark = pytest.mark.usefixtures("tmp_cache")

LOAD = """
import json, sys

import jax

started = []
events = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system"}
sys.addaudithook(lambda event, args: started.append([event, str(args)]) if event in events else None)

import be_runtime

module = be_runtime.load_cuda_file(sys.argv[1])

from jax._src import xla_bridge

print(json.dumps({
    "path": str(module.path),
    "hash": module.content_hash,
    "started": started,
    "backend": xla_bridge.backends_are_initialized(),
}))
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A copy of the kernel that includes a sibling header."""
    for name in ("sibling.cu", "sibling.cuh"):
        shutil.copy(KERNELS / name, tmp_path / name)
    return tmp_path / "sibling.cu"


def load(kernel: Path, **options: Any) -> Path:
    return be_runtime.load_cuda_file(kernel, auto_register=False, **options).path


def test_a_warm_load_in_a_new_process_starts_nothing(kernel: Path):
    cold, warm = (run_json(LOAD, str(kernel), JAX_PLATFORMS="cpu") for _ in range(2))
    assert any("ninja" in str(event) for event in cold["started"])
    assert warm == {**cold, "started": [], "backend": False}
    assert cold["backend"] is False


def test_an_edited_header_rebuilds_and_its_old_content_does_not(kernel: Path):
    header = kernel.with_name("sibling.cuh")
    before = header.read_text()
    first = load(kernel)
    header.write_text(before.replace("3.0f", "4.0f"))
    second = load(kernel)
    assert second != first
    header.write_text(before)
    assert load(kernel) == first


def test_an_edited_source_rebuilds(kernel: Path):
    first = load(kernel)
    kernel.write_text(kernel.read_text().replace("(n + 63) / 64, 64", "(n + 31) / 32, 32"))
    assert load(kernel) != first


@pytest.mark.parametrize(
    "options",
    [
        {"compute_capability": "8.0"},
        in_full({"optimization_level": 2}),
        in_full({"use_fast_math": True}),
        in_full({"extra_cuda_cflags": ["-maxrregcount=32"]}),
        in_full({"extra_ldflags": ["-lm"]}),
        in_full({"extra_include_paths": [KERNELS]}),
    ],
    ids=lambda options: next(iter(options)),
)
def test_every_option_of_the_compiler_has_an_entry_of_its_own(kernel: Path, options: dict[str, Any]):
    first = load(kernel)
    other = load(kernel, **options)
    assert other != first
    assert (load(kernel), load(kernel, **options)) == (first, other)


def test_options_that_compile_nothing(kernel: Path):
    first = load(kernel)
    assert load(kernel, allow_cuda_graph=False) == first
    assert load(kernel, ninja_workers=1, verbose=True, target_prefix="other") == first


@pytest.mark.parametrize("variable", ["NVCC_APPEND_FLAGS", in_full("NVCC_PREPEND_FLAGS")])
def test_flags_from_nvcc_s_own_variables(kernel: Path, variable: str, monkeypatch: pytest.MonkeyPatch):
    plain = load(kernel)
    monkeypatch.setenv(variable, "--no-compress -DUSED=1")
    with_flags = load(kernel)
    assert with_flags != plain
    assert b".visible .entry" in with_flags.read_bytes()  # the flag took effect
    assert b".visible .entry" not in plain.read_bytes()
    monkeypatch.delenv(variable)
    assert load(kernel) == plain


def test_a_forced_rebuild_runs_nvcc(kernel: Path, capfd: pytest.CaptureFixture[str]):
    load(kernel)
    capfd.readouterr()
    load(kernel, verbose=True)
    assert "from the cache" in capfd.readouterr().err
    load(kernel, verbose=True, force_rebuild=True)
    printed = capfd.readouterr().err
    assert "from the cache" not in printed
    assert "sm_90" in printed


def test_another_nvcc_has_entries_of_its_own(kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    nvcc = requirements.nvcc()
    assert nvcc is not None
    log = tmp_path / "calls"
    shim = runtime.script(tmp_path / "nvcc", f"echo called >> {log}", f'exec {nvcc} "$@"')
    monkeypatch.setenv("BE_NVCC", str(shim))
    first = load(kernel)
    assert log.exists()
    log.unlink()
    assert load(kernel) == first
    assert not log.exists()


def test_a_damaged_entry_is_built_again(kernel: Path):
    path = load(kernel)
    image = bytearray(path.read_bytes())
    path.chmod(0o644)
    path.unlink()
    path.write_bytes(bytes(image[: len(image) // 2]))
    again = load(kernel)
    assert {code.kind for code in device_code(again)} == {"elf", "ptx"}


def test_clearing_removes_a_module(kernel: Path):
    path = load(kernel)
    assert be_runtime.clear_cache("sibling") == 1
    assert not path.exists()
    assert load(kernel).exists()
