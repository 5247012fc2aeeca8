"""Reports of modules by nvcc and of kernels by NVRTC: spills, local memory, loops and lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cache import Store
from be_runtime.cli.main import main
from be_runtime.reports.inspection_tools import find_inspection_tools
from be_runtime.reports.make_report import report_library
from be_runtime.reports.module_report import KernelReport, ModuleReport
from be_toolchain.machine.local_system import LocalSystem
from tests.support.cuda import KERNELS, instructions, source
from tests.support.docs import ROOT

SCALE = r"""
__global__ void scale(const float* x, float* y, float by, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = by * x[i];
}
"""


@pytest.fixture(scope="module")
def report() -> ModuleReport:
    module = be_runtime.load_cuda_inline("resources", source("resources"), compute_capability="7.5,9.0", line_info=True)
    return module.report(block_sizes=(128, 1024))


def kernel(report: ModuleReport, name: str, arch: str = "sm_90") -> KernelReport:
    (found,) = (each for each in report.kernels if (each.name, each.arch) == (name, arch))
    return found


def test_each_kernel_is_told_for_each_architecture(report: ModuleReport):
    names = {(each.name, each.arch) for each in report.kernels}
    assert names == {(name, arch) for name in ("rows<4>", "spilling", "local_array") for arch in ("sm_75", "sm_90")}
    assert {phase.name for phase in report.phases} >= {"cicc", "ptxas", "cudafe++", "link"}
    assert all(phase.seconds > 0 for phase in report.phases if phase.name in {"cicc", "cudafe++"})


def test_spills_and_local_memory_are_warned_of(report: ModuleReport):
    spilling, local = kernel(report, "spilling"), kernel(report, "local_array")
    assert (spilling.registers, spilling.shared) == (32, 1024)
    assert (spilling.spill_stores or 0) > 100
    assert (spilling.spill_loads or 0) > 100
    assert (local.stack, local.spill_stores) == (256, 0)
    assert any("spills registers" in warning for warning in spilling.warnings)
    assert any("256 B of local memory" in warning for warning in local.warnings)
    assert kernel(report, "rows<4>").warnings == ()
    assert set(report.warnings) == {warning for each in report.kernels for warning in each.warnings}


def test_the_hottest_loop_has_its_accesses_and_its_line(report: ModuleReport):
    loop = kernel(report, "rows<4>").loop
    assert loop is not None
    assert loop.kinds["global loads"] % 3 == 0, "column, value and vector"
    assert loop.bytes_read == 4 * loop.kinds["global loads"]
    assert any(line == "resources:7" for line in loop.lines)
    spilled = kernel(report, "spilling").loop
    assert spilled is not None
    assert spilled.kinds["local loads"] > 10


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
    assert [line.split(": ")[0] for line in printed if "  " not in line] == [
        line.split(": ")[0] for line in shown[1:] if "  " not in line
    ]
    assert [line for line in printed if line.startswith("warning")] == shown[-2:]
    assert "smooth.cu:6" in printed[4]


def test_lines_change_no_instruction():
    plain, told = (
        be_runtime.load_cuda_inline(
            name,
            source("resources"),
            compute_capability="9.0",
            line_info=line_info,
            auto_register=False,
            extra_cuda_cflags=["--no-compress"],
        )
        for name, line_info in (("lines_off", False), ("lines_on", True))
    )
    assert [kernel.code_bytes for kernel in plain.report().kernels] == [k.code_bytes for k in told.report().kernels]
    assert instructions(plain.path) == instructions(told.path)


def test_a_report_is_kept_until_a_header_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "k.cuh").write_text(SCALE)
    (tmp_path / "k.cu").write_text('#include "brainevent/common.h"\n#include "k.cuh"\n')
    built: list[str] = []
    get = Store.get_or_build

    def watched(self: Store, key: Any, *rest: Any, **options: Any) -> Any:
        entry = get(self, key, *rest, **options)
        built.extend([key.kind] if entry.built and key.kind == "report" else [])
        return entry

    monkeypatch.setattr(Store, "get_or_build", watched)
    load: dict[str, Any] = {"functions": [], "compute_capability": "9.0"}
    first = be_runtime.load_cuda_file(tmp_path / "k.cu", **load).report()
    again = be_runtime.load_cuda_file(tmp_path / "k.cu", **load).report()
    assert built == ["report"]
    assert again == first
    (tmp_path / "k.cuh").write_text(SCALE.replace("by * x[i]", "by * x[i] + sqrtf(x[i])"))
    changed = be_runtime.load_cuda_file(tmp_path / "k.cu", auto_register=False, **load).report()
    assert built == ["report", "report"]
    assert changed.kernels != first.kernels


def test_nvcc_as_a_whole_is_asked_too():
    module = be_runtime.load_cuda_inline(
        "resources_whole", source("resources"), compute_capability="9.0", extra_cuda_cflags=["-rdc=true"]
    )
    report = module.report()
    assert (kernel(report, "spilling").spill_stores or 0) > 100
    assert kernel(report, "rows<4>").loop is not None, "cuobjdump reads the library"


def test_a_library_that_was_built_before_is_read_by_cuobjdump():
    module = be_runtime.load_cuda_inline("resources_built", source("resources"), compute_capability="9.0")
    built, read = module.report(), report_library("read", module.path, LocalSystem(), (256,))
    for name in ("rows<4>", "spilling", "local_array"):
        mine, theirs = kernel(built, name), kernel(read, name)
        assert (mine.registers, mine.shared, mine.stack) == (theirs.registers, theirs.shared, theirs.stack)
        assert mine.code_bytes == theirs.code_bytes
        assert mine.loop == theirs.loop
        assert theirs.spill_stores is None
    assert any("spills" in note for note in read.notes)


def test_without_the_tools_the_rest_is_told(tmp_path: Path):
    class Bare(LocalSystem):
        def is_program(self, path: Path) -> bool:
            return path.name not in {"cuobjdump", "nvdisasm"} and super().is_program(path)

    module = be_runtime.load_cuda_inline("resources_bare", source("resources"), compute_capability="9.0")
    assert find_inspection_tools(Bare()) == (None, None)
    found = report_library("bare", module.path, Bare(), (256,))
    assert found.kernels == ()
    assert "cuobjdump" in found.notes[0]
    assert "brainevent-toolchain[inspect]" in found.notes[0]


def test_a_raw_kernel_has_a_report():
    scale = be_runtime.cuda_kernel(
        SCALE, "scale", outs=lambda x: x, grid=1, block=256, compute_capability="9.0", line_info=True
    )
    (found,) = scale.report(block_sizes=(256,)).kernels
    assert found.name == "scale"
    assert (found.registers or 0) > 4
    assert found.loop is not None
    assert found.loop.lines == ("scale.cu:3",)


def test_the_command_reports_a_file_as_json(capsys: pytest.CaptureFixture[str]):
    asked = ["report", str(KERNELS / "resources.cu"), "--arch", "9.0", "--blocks", "96", "--json"]
    assert main(asked) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    found = {each["name"]: each for each in module["kernels"]}
    assert found["spilling"]["spill_stores"] > 100
    assert found["spilling"]["warnings"]
    assert [each["block"] for each in found["rows<4>"]["occupancy"]] == [96]
