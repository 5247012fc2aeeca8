"""A table of environments and what must be said of each, and what a table can't show."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.cli import main as cli
from be_toolchain.doctor.doctor import Report, examine_machine, render_report
from be_toolchain.errors import ToolchainError
from be_toolchain.find.survey import survey
from be_toolchain.machine.system import FolderFacts
from tests.support.environments import ROWS, Row, machine_of
from tests.support.machines import SITE, Answering, MemorySystem, cuda_of, healthy

PIP = f"{SITE}/nvidia/cu13"
TARGET = "targets/x86_64-linux"


@pytest.mark.parametrize("row", [row for row in ROWS if row.verdict], ids=lambda row: row.name)
@pytest.mark.filterwarnings("ignore::be_toolchain.settings.PassedOverWarning")
def test_found(row: Row):
    toolchain = resolve(row.request, system=machine_of(row))

    assert toolchain.cuda is not None
    cuda = toolchain.cuda
    found = {"root": cuda.root, "via": cuda.found_via, "release": cuda.release, "host": cuda.host_compiler.path}
    assert {name: str(value) for name, value in found.items()} == row.verdict
    if row.warns is not None:
        assert len(toolchain.warnings) == len(row.warns)
        assert all(text in each.message for text, each in zip(row.warns, toolchain.warnings, strict=True))
    told = {part.name: f"{part.version} ({part.source})" for part in toolchain.cuda.components}
    assert {name: told[name] for name in row.parts} == row.parts


@pytest.mark.parametrize("row", [row for row in ROWS if row.code], ids=lambda row: row.name)
def test_refused(row: Row):
    with pytest.raises(ToolchainError) as caught:
        resolve(row.request, system=machine_of(row))

    assert caught.value.code == row.code, str(caught.value)
    assert [text for text in row.says if text not in str(caught.value)] == []
    assert caught.value.hints


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_doctor_says_why_each_place_won_or_lost_and_what_to_do(row: Row):
    assert bool(row.verdict) != bool(row.code)
    report = examined(row.name)
    text = " ".join(render_report(report, verbose=True).split())
    assert [part for part in row.doctor if " ".join(part.split()) not in text] == []
    assert [part for part in row.silent if " ".join(part.split()) in text] == []
    usual = {"TC301": 2, "TC102": 2, "": 0}.get(row.code, 1)
    assert report.exit_code == (usual if row.exit is None else row.exit) or (row.cxx and row.exit is None)
    for _, probes in report.probes:
        assert all(probe.reason for probe in probes)
        assert sum(probe.chosen for probe in probes) <= 1
    assert all(finding.next_step for finding in report.findings if finding.status in ("warn", "fail"))


@cache
def examined(name: str) -> Report:
    """What the doctor finds on the machine of a row."""
    return examine_machine(machine_named(name))


def machine_named(name: str) -> MemorySystem:
    return machine_of(next(row for row in ROWS if row.name == name))


def test_a_search_looks_no_further_than_it_has_to():
    machine = machine_named("pip cu13 before a system toolkit")
    assert survey(ToolchainRequest(need_cuda=True), machine).cuda_probes[-1].chosen
    assert not any(path.startswith("/usr/local/cuda") for path in machine.stats)

    machine = machine_named("pip cu13 of mixed releases")
    with pytest.raises(ToolchainError, match="parts of different releases"):
        cuda_of(machine)
    assert {Path(argv[0]).name for argv in machine.commands} == {"g++", "nvcc"}, "the records tell"

    machine = healthy()
    assert resolve(ToolchainRequest(), system=machine).cuda is None
    assert not any("cuda" in path for path in machine.stats)
    assert {argv[0] for argv in machine.commands} == {"/usr/bin/g++"}


def test_every_file_of_a_toolkit_exists():
    machine = machine_named("pip cu13")
    toolkit = cuda_of(machine)
    programs = ("nvcc", "cicc", "ptxas", "cudafe", "fatbinary", "nvlink")
    assert all(machine.is_program(toolkit.flat()[name]) for name in programs)
    assert all(machine.is_file(component.path) for component in toolkit.components)
    assert all(machine.is_dir(folder) for folder in (*toolkit.include_dirs, *toolkit.library_dirs))
    assert [str(folder) for folder in toolkit.library_dirs] == [f"{PIP}/lib"]
    assert str(toolkit.cudart_shared) == f"{PIP}/lib/libcudart.so.13"
    assert {component.name: component.version for component in toolkit.components}["nvvm"] == "13.0.88"
    assert [arch.sm for arch in toolkit.archs] == ["sm_80", "sm_90", "sm_90a", "sm_120", "sm_120f"]


def test_the_argument_nvcc_is_binding():
    machine = healthy(BE_NVCC="/usr/local/cuda")
    machine.runfile("/sw/cuda")
    toolkit = cuda_of(machine, nvcc=Path("/sw/cuda/bin/nvcc"))
    assert (str(toolkit.root), toolkit.found_via) == ("/sw/cuda", "argument nvcc")
    with pytest.raises(ToolchainError, match="argument nvcc names '/gone/nvcc'"):
        cuda_of(machine, nvcc=Path("/gone/nvcc"))


@pytest.mark.parametrize(
    "part",
    [
        *("bin/ptxas", "bin/cudafe++", "bin/fatbinary", "bin/nvlink", "nvvm/bin/cicc"),
        *("nvvm/libdevice/libdevice.10.bc", f"{TARGET}/include/cuda_runtime.h", f"{TARGET}/lib/libcudart"),
    ],
)
def test_a_toolkit_without_a_part_is_named_with_the_part(part: str):
    machine = healthy()
    for path in [path for path in machine.files if path.startswith(f"/usr/local/cuda/{part}")]:
        del machine.files[path]
    machine.write(f"/usr/local/cuda/{TARGET}/lib/libcudadevrt.a")
    with pytest.raises(ToolchainError, match=rf"13\.0\.88 lacks {re.escape(Path(part).name)} \(root"):
        cuda_of(machine)


TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null", dict: "object"}


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf's path and type, and every object's; the groups of probes have free names."""
    if isinstance(value, dict):
        yield path, "object"
        for key, item in value.items():
            yield from flatten(item, f"{path}.{'*' if path == 'probes' else key}".lstrip("."))
    elif isinstance(value, list):
        for item in value:
            yield from flatten(item, f"{path}[]")
    else:
        yield path, TYPES[type(value)]


def test_the_json_and_its_documentation_have_the_same_fields_and_types(capsys: pytest.CaptureFixture[str]):
    """Over the table of environments, and a machine that has what no row has; parents of fields are objects."""
    text = (Path(__file__).parents[4] / "docs" / "doctor-schema.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \|", text, re.MULTILINE)
    known = {(path, kind) for path, kinds in rows for kind in kinds.split(" or ")}
    parents = {(path[: end.start()], "object") for path, _ in rows for end in re.finditer(r"^|\.", path)}
    odd = Answering(built_prints="sum 4950")
    odd.environ = {**odd.environ, "CPATH": "/opt/include", "BE_CACHE_DIR": "/open/cache"}
    for folder in ("/open/cache", "/tmp"):  # noqa: S108 - of no real machine
        odd.folders[folder] = FolderFacts(Path(folder), Path("/"), doubtful=(Path("/open"),))
    cli.main(["doctor", "--json", "--smoke"], system=odd)
    printed = [json.dumps(examined(row.name).to_json()) for row in ROWS]
    printed.append(capsys.readouterr().out)
    seen = {found for each in printed for found in flatten(json.loads(each))}
    assert seen - known - parents == set()
    assert {path for path, _ in rows} <= {path for path, _ in seen}
