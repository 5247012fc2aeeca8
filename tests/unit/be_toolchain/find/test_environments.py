"""A table of environments and what must be said of each, and what a table can't show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import ToolchainError
from be_toolchain.find.survey import survey
from be_toolchain.report.doctor import examine_machine
from be_toolchain.report.report_text import render_report
from tests.support.environments import ROWS, Row, machine_of
from tests.support.machines import SITE, MemorySystem

CONDA = (Path("/conda/envs/x"),)
PIP = f"{SITE}/nvidia/cu13"


def rows(field_name: str) -> pytest.MarkDecorator:
    """Those rows that say something in a field."""
    chosen = [row for row in ROWS if getattr(row, field_name) not in (None, "", [], {})]
    return pytest.mark.parametrize("row", chosen, ids=lambda row: row.name)


@rows("verdict")
@pytest.mark.filterwarnings("ignore::be_toolchain.settings.configuration.PassedOverWarning")
def test_found(row: Row):
    toolchain = resolve(row.request, system=machine_of(row))

    assert toolchain.cuda is not None
    found = {"root": toolchain.cuda.root, "via": toolchain.cuda.found_via, "release": toolchain.cuda.release}
    assert {name: str(value) for name, value in found.items()} | {
        "host": str(toolchain.cuda.host_compiler.path)
    } == row.verdict
    if row.warns is not None:
        assert len(toolchain.warnings) == len(row.warns)
        assert all(text in each.message for text, each in zip(row.warns, toolchain.warnings, strict=True))
    told = {part.name: f"{part.version} ({part.source})" for part in toolchain.cuda.components}
    assert {name: told[name] for name in row.parts} == row.parts


@rows("code")
def test_refused(row: Row):
    with pytest.raises(ToolchainError) as caught:
        resolve(row.request, system=machine_of(row))

    assert caught.value.code == row.code, str(caught.value)
    for text in row.says:
        assert text in str(caught.value)
    assert caught.value.hints


@rows("doctor")
def test_what_the_doctor_says(row: Row):
    report = examine_machine(machine_of(row))
    text = render_report(report, verbose=True)
    for part in row.doctor:
        assert part in text
    assert not any(part in text for part in row.silent)
    assert row.exit in (None, report.exit_code)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_place_says_why_it_won_or_lost_and_every_trouble_what_to_do(row: Row):
    report = examine_machine(machine_of(row))
    usual = {"TC301": 2, "TC102": 2, "": 0}.get(row.code, 1)
    assert report.exit_code == (usual if row.exit is None else row.exit) or row.cxx
    for _, probes in report.probes:
        assert all(probe.reason for probe in probes)
        assert sum(probe.chosen for probe in probes) <= 1
    assert all(finding.next_step for finding in report.findings if finding.status in ("warn", "fail"))


def test_a_row_is_in_the_table_once_and_there_are_enough():
    assert len({row.name for row in ROWS}) == len(ROWS) >= 25
    assert all(bool(row.verdict) != bool(row.code) for row in ROWS)


def test_a_search_for_cuda_ends_where_it_found_one():
    machine = machine_of(next(row for row in ROWS if row.name == "pip cu13 before a system toolkit"))
    found = survey(ToolchainRequest(need_cuda=True), machine)
    assert found.cuda_probes[-1].chosen
    assert not any(path.startswith("/usr/local/cuda") for path in machine.stats)


def test_wheels_of_mixed_releases_are_known_by_their_records_before_more_than_nvcc_has_run():
    machine = machine_of(next(row for row in ROWS if row.name == "pip cu13 of mixed releases"))
    with pytest.raises(ToolchainError, match="parts of different releases"):
        resolve(ToolchainRequest(need_cuda=True), system=machine)
    assert {Path(argv[0]).name for argv in machine.commands} == {"g++", "nvcc"}


def test_every_file_of_a_toolkit_exists():
    machine = machine_of(next(row for row in ROWS if row.name == "pip cu13"))
    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert toolkit is not None

    programs = ("nvcc", "cicc", "ptxas", "cudafe", "fatbinary", "nvlink")
    assert all(machine.is_program(toolkit.flat()[name]) for name in programs)
    assert all(machine.is_file(component.path) for component in toolkit.components)
    assert all(machine.is_dir(folder) for folder in (*toolkit.include_dirs, *toolkit.library_dirs))
    assert [str(folder) for folder in toolkit.library_dirs] == [f"{PIP}/lib"]
    assert str(toolkit.cudart_shared) == f"{PIP}/lib/libcudart.so.13"
    assert {component.name: component.version for component in toolkit.components}["nvvm"] == "13.0.88"
    assert [arch.sm for arch in toolkit.archs] == ["sm_80", "sm_90", "sm_90a", "sm_120", "sm_120f"]


def test_cxx_and_nvcc_share_a_compiler_unless_cxx_was_named():
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++", "16.1.0")
    machine.gxx("/usr/bin/g++-13", "13.2.0")
    machine.runfile("/usr/local/cuda")
    request = ToolchainRequest(need_cuda=True)

    shared = resolve(request, system=machine)
    machine.environ = {**machine.environ, "CXX": "g++"}
    apart = resolve(request, system=machine)

    assert shared.cxx is not None
    assert apart.cxx is not None
    assert str(shared.cxx.path) == "/usr/bin/g++-13"
    assert str(apart.cxx.path) == "/usr/bin/g++"
    assert apart.cuda is not None
    assert str(apart.cuda.host_compiler.path) == "/usr/bin/g++-13"


def test_no_cuda_search_unless_asked():
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    machine.runfile("/usr/local/cuda")

    toolchain = resolve(ToolchainRequest(), system=machine)

    assert toolchain.cuda is None
    assert not any("cuda" in path for path in machine.stats)
    assert {argv[0] for argv in machine.commands} == {"/usr/bin/g++"}


def test_aarch64_uses_its_own_target_folder():
    machine = MemorySystem(machine="aarch64")
    machine.gxx("/usr/bin/g++")
    machine.tools("/usr/local/cuda/bin", "13.0")
    machine.nvvm("/usr/local/cuda")
    machine.headers("/usr/local/cuda/targets/sbsa-linux/include", "13.0")
    machine.write("/usr/local/cuda/targets/sbsa-linux/lib/libcudart_static.a")

    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda

    assert toolkit is not None
    assert str(toolkit.include_dirs[0]) == "/usr/local/cuda/targets/sbsa-linux/include"


def test_warnings_name_what_will_surprise():
    machine = MemorySystem(prefixes=CONDA)
    machine.gxx("/usr/bin/g++")
    machine.gxx("/sw/g++")
    machine.conda("/conda/envs/x")
    machine.environ = {**machine.environ, "NVCC_APPEND_FLAGS": "-ccbin /gone/g++"}

    messages = [warning.message for warning in resolve(ToolchainRequest(need_cuda=True), system=machine).warnings]

    assert len(messages) == 2
    assert "/usr/bin/g++ does not belong to it" in messages[0]
    assert "/gone/g++, which nvcc will use instead of /usr/bin/g++" in messages[1]


def test_a_bare_cxx_is_found_in_conda_before_conda_is_searched():
    machine = MemorySystem(prefixes=CONDA, environ={"PATH": "/usr/bin", "CXX": "clang++"})
    machine.write("/conda/envs/x/conda-meta/history")
    machine.gxx("/conda/envs/x/bin/x86_64-conda-linux-gnu-c++", "14.3.0")
    machine.gxx("/conda/envs/x/bin/clang++", "19.1.7", "clang")

    cxx = resolve(system=machine).cxx

    assert cxx is not None
    assert (str(cxx.path), cxx.found_via) == ("/conda/envs/x/bin/clang++", "CXX")


def test_the_argument_nvcc_is_binding():
    machine = MemorySystem(environ={"PATH": "/usr/bin", "BE_NVCC": "/usr/local/cuda"})
    machine.gxx("/usr/bin/g++")
    machine.runfile("/usr/local/cuda")
    machine.runfile("/sw/cuda")

    toolkit = resolve(ToolchainRequest(need_cuda=True, nvcc=Path("/sw/cuda/bin/nvcc")), system=machine).cuda
    assert toolkit is not None
    assert (str(toolkit.root), toolkit.found_via) == ("/sw/cuda", "argument nvcc")
    with pytest.raises(ToolchainError, match="argument nvcc names '/gone/nvcc'"):
        resolve(ToolchainRequest(need_cuda=True, nvcc=Path("/gone/nvcc")), system=machine)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("bin/ptxas", "ptxas"),
        ("bin/cudafe++", "cudafe++"),
        ("bin/fatbinary", "fatbinary"),
        ("bin/nvlink", "nvlink"),
        ("nvvm/bin/cicc", "cicc"),
        ("nvvm/libdevice/libdevice.10.bc", "libdevice.10.bc"),
        ("targets/x86_64-linux/include/cuda_runtime.h", "cuda_runtime.h"),
        ("targets/x86_64-linux/lib/libcudart", "libcudart"),
    ],
)
def test_a_toolkit_without_a_part_is_named_with_the_part(part: str, named: str):
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    machine.runfile("/usr/local/cuda")
    machine.files = {
        path: file for path, file in machine.files.items() if not path.startswith(f"/usr/local/cuda/{part}")
    }
    machine.write("/usr/local/cuda/targets/x86_64-linux/lib/libcudadevrt.a")
    with pytest.raises(ToolchainError, match=rf"13\.0\.88 is there, but not {re.escape(named)} \(root"):
        resolve(ToolchainRequest(need_cuda=True), system=machine)
