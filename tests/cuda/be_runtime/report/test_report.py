"""Reports of modules by nvcc and of kernels by NVRTC: spills, local memory; occupancy."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import be_runtime
from be_runtime.cli.main import main
from be_runtime.inspection import find_cuobjdump
from be_runtime.report import _MULTIPROCESSORS, KernelReport, ModuleReport, occupancy, report_library
from be_runtime.store.cache import BuildOutput
from be_runtime.store.publish import Building
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from tests.cuda.built import UNCOMPRESSED, built
from tests.support.cuda import instructions
from tests.support.docs import ROOT

SCALE = r"""
__global__ void scale(const float* x, float* y, float by, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = by * x[i];
}
"""
NAMES = ("rows<4>", "spilling", "local_array")


@pytest.fixture(scope="module")
def module() -> be_runtime.CompiledModule:
    return built("resources", compute_capability="7.5,9.0", line_info=True)


def kernel(report: ModuleReport, name: str, arch: str = "sm_90") -> KernelReport:
    (found,) = (each for each in report.kernels if (each.name, each.arch) == (name, arch))
    return found


def test_each_kernel_is_told_for_each_architecture(module: be_runtime.CompiledModule):
    report = module.report(block_sizes=(128, 1024))
    names = {(each.name, each.arch) for each in report.kernels}
    assert names == {(name, arch) for name in NAMES for arch in ("sm_75", "sm_90")}
    assert {phase.name for phase in report.phases} >= {"cicc", "ptxas", "cudafe++", "link"}
    assert all(phase.seconds > 0 for phase in report.phases if phase.name in {"cicc", "cudafe++"})
    spilling, local, rows = kernel(report, "spilling"), kernel(report, "local_array"), kernel(report, "rows<4>")
    assert (spilling.registers, spilling.shared) == (32, 1024)
    assert min(spilling.spill_stores or 0, spilling.spill_loads or 0) > 100
    assert (local.stack, local.spill_stores) == (256, 0)
    assert any("spills registers" in warning for warning in spilling.warnings)
    assert any("256 B of local memory" in warning for warning in local.warnings)
    assert rows.warnings == ()
    assert set(report.warnings) == {warning for each in report.kernels for warning in each.warnings}


def test_a_library_that_was_built_before_is_read_by_cuobjdump(module: be_runtime.CompiledModule):
    told, read = module.report(), report_library("read", module.path, LocalSystem(), (256,))
    fields = ("registers", "shared", "stack", "code_bytes")
    for name in NAMES:
        mine, theirs = kernel(told, name), kernel(read, name)
        assert [getattr(mine, field) for field in fields] == [getattr(theirs, field) for field in fields]
        assert theirs.spill_stores is None
    assert any("spills" in note for note in read.notes)


def test_without_the_tool_the_rest_is_told(module: be_runtime.CompiledModule):
    class Bare(LocalSystem):
        def is_program(self, path: Path) -> bool:
            return path.name != "cuobjdump" and super().is_program(path)

    assert find_cuobjdump(Bare()) is None
    found = report_library("bare", module.path, Bare(), (256,))
    assert found.kernels == ()
    assert all(word in found.notes[0] for word in ("cuobjdump", "brainevent-toolchain[inspect]"))


@pytest.mark.full
def test_the_page_on_profiling_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """But for seconds, and for the numbers of instructions, which another nvcc may change."""
    page = (ROOT / "docs/profiling.md").read_text()
    code, shown = (page.split(f"```{fence}\n")[1].split("```")[0].splitlines() for fence in ("cuda", "text"))
    (tmp_path / "smooth.cu").write_text("\n".join(code))
    monkeypatch.chdir(tmp_path)
    assert main(shown[0].split()[4:]) == 0
    printed = capsys.readouterr().out.splitlines()
    heads, wanted = ([line.split(": ")[0] for line in text if "  " not in line] for text in (printed, shown[1:]))
    assert heads == wanted
    assert [line for line in printed if line.startswith("warning")] == shown[-1:]


@pytest.mark.full
def test_lines_change_no_instruction_and_nvcc_as_a_whole_is_asked_too():
    plain, told = (built("resources", UNCOMPRESSED, line_info=line_info) for line_info in (False, True))
    assert [kernel.code_bytes for kernel in plain.report().kernels] == [k.code_bytes for k in told.report().kernels]
    assert instructions(plain.path) == instructions(told.path)
    report = built("resources", "-rdc=true").report()
    assert (kernel(report, "spilling").spill_stores or 0) > 100
    assert kernel(report, "rows<4>").code_bytes, "cuobjdump reads the library"


def test_a_report_is_kept_until_a_header_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "k.cuh").write_text(SCALE)
    (tmp_path / "k.cu").write_text('#include "brainevent/common.h"\n#include "k.cuh"\n')
    made: list[str] = []
    publish = Building.publish

    def watched(self: Building, output: BuildOutput) -> None:
        publish(self, output)
        assert self.entry is not None
        made.extend([self.entry.manifest.kind] if self.entry.manifest.kind == "report" else [])

    def report() -> ModuleReport:
        return be_runtime.load_cuda_file(tmp_path / "k.cu", [], auto_register=False).report()

    monkeypatch.setattr(Building, "publish", watched)
    first = report()
    assert report() == first
    assert made == ["report"]
    (tmp_path / "k.cuh").write_text(SCALE.replace("by * x[i]", "by * x[i] + sqrtf(x[i])"))
    assert report().kernels != first.kernels
    assert made == ["report", "report"]


def test_a_raw_kernel_has_a_report():
    scale = be_runtime.cuda_kernel(SCALE, "scale", outs=lambda x: x, grid=1, block=256)
    (found,) = scale.report(block_sizes=(256,)).kernels
    assert (found.name, (found.registers or 0) > 4) == ("scale", True)


PROGRAM = r"""
#include <cstdio>
#include "cuda_occupancy.h"
int main() {
  cudaOccDeviceProp device = {};
  device.maxThreadsPerBlock = 1024;
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 * 1024;
  device.numSms = 1;
  cudaOccFuncAttributes kernel = {};
  kernel.maxThreadsPerBlock = 1024;
  kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
  int block;
  while (scanf("%d %d %d %zu %zu %zu %d %zu %d", &device.computeMajor, &device.computeMinor,
               &device.maxThreadsPerMultiprocessor, &device.sharedMemPerMultiprocessor, &device.sharedMemPerBlockOptin,
               &device.reservedSharedMemPerBlock, &kernel.numRegs, &kernel.sharedSizeBytes, &block) == 9) {
    cudaOccDeviceState state = {};
    state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
    cudaOccResult result = {};
    auto status = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, block, 0);
    printf("%d\n", status == CUDA_OCC_SUCCESS ? result.activeBlocksPerMultiprocessor : -1);
  }
}
"""


def test_random_kernels_fill_multiprocessors_as_cuda_says(tmp_path: Path):
    """Beside CUDA's own arithmetic, cuda_occupancy.h."""
    toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert toolkit is not None
    (tmp_path / "all.cc").write_text(PROGRAM)
    includes = [f"-I{folder}" for folder in toolkit.include_dirs]
    subprocess.run(["g++", "-O1", *includes, "all.cc", "-o", "all"], cwd=tmp_path, check=True)
    draw = random.Random(18)  # noqa: S311 - test data
    cases = [
        (arch, draw.randint(1, 255), draw.choice((0, draw.randint(1, 48 << 10))), draw.randint(1, 1024))
        for arch in draw.choices(sorted(_MULTIPROCESSORS), k=20_000)
    ]
    limits = {
        arch: (row.warps * 32, row.shared_kib << 10, row.shared_kib - 1 << 10, 1024 if arch >= (8, 0) else 0)
        for arch, row in _MULTIPROCESSORS.items()
    }
    text = "".join(f"{' '.join(map(str, (*arch, *limits[arch], *rest)))}\n" for arch, *rest in cases)
    told = subprocess.run([tmp_path / "all"], input=text, capture_output=True, text=True, check=True).stdout.split()
    ours = [occupancy(Arch(*arch), registers=regs, shared=shared, block=block) for arch, regs, shared, block in cases]
    rows = zip(cases, map(int, told), ours, strict=True)
    assert [row for row in rows if row[2] is None or row[2].blocks != row[1]] == []
