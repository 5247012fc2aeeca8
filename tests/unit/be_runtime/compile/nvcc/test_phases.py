"""Nvcc's dry run, recorded, taken apart into commands that run at once and take what is kept of headers."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.compile.nvcc.device_images import device_images
from be_runtime.compile.nvcc.dry_run import parse_dryrun
from be_runtime.compile.nvcc.plan_headers import checks, preprocessing, probes, use_kept_headers
from be_runtime.compile.nvcc.plan_phases import rename, split_phases
from be_runtime.compile.nvcc.plan_preamble import make_preamble, use_preamble
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import files_named
from tests.unit.be_runtime.generate.golden_files import check_golden, edges_text

RECORDED = Path(__file__).parent / "recorded"
TOOLS = {name: f"/opt/cuda/bin/{name}" for name in ("cudafe++", "cicc", "ptxas", "fatbinary")}


def split(text: str) -> UnitBuild | None:
    dry = parse_dryrun(text)
    return None if dry is None else split_phases(dry, TOOLS, files_named("k", "cuda"), "_1_k_cu_2")


def recorded(name: str) -> UnitBuild:
    phases = split((RECORDED / f"{name}.txt").read_text())
    assert phases is not None
    return phases


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_the_commands_of_the_phases(name: str):
    """Preprocessors list what they read, tools are called by their own path, the module id is given, not invented."""
    phases = recorded(name)
    files = "".join(f"file {file.path}\n{file.text}\n" for file in phases.files)
    text = f"library path {phases.library_path}\n{files}{edges_text(phases.edges)}"
    check_golden(RECORDED / f"{name}_phases.txt", text)


def test_commands_with_kept_headers_and_a_kept_beginning():
    phases = recorded("cuda13_one")
    with_headers = use_kept_headers(phases, "/s.sh", "/kept", [".cpp1.ii", ".other.ii"])
    with_preamble = use_preamble(phases, "/s.sh", "/kept")
    assert use_kept_headers(phases, "/s.sh", "/kept", []) == phases
    changed = [edge for build in (with_headers, with_preamble) for edge in build.edges if edge not in phases.edges]
    asked = "".join(f"{shlex.join(argv)}\n" for argv in probes(phases, "there"))
    text = f"{edges_text(changed)}{asked}{edges_text(checks(preprocessing(phases), 'there'))}"
    making = make_preamble(phases, ["-I/opt/cuda/bin/../targets/x86_64-linux/include"])
    check_golden(RECORDED / "cuda13_one_kept.txt", f"{text}{edges_text(making.edges)}{making.files[-1].text}")


def test_a_failing_compiler_leaves_no_preamble_and_no_failure(tmp_path: Path):
    making = make_preamble(recorded("cuda13_one"), ["-I/mine"])
    for file in making.files:
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    (edge,) = making.edges
    done = subprocess.run(edge.argv, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
    assert (tmp_path / edge.outputs[0]).is_file()
    assert not list(tmp_path.rglob("*.gch"))


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_nothing_waits_for_more_than_it_needs(name: str):
    phases = recorded(name)
    edges = phases.edges

    def of(*tools: str) -> set[int]:
        return {index for index, edge in enumerate(edges) if edge.tool in tools}

    def needs(index: int) -> set[int]:
        direct = {at for at, other in enumerate(edges) if set(other.outputs) & set(edges[index].inputs)}
        return direct.union(*map(needs, direct))

    host, front, machine = of("cudafe++"), of("cicc"), of("ptxas", "fatbinary")
    compilation, assembler = len(edges) - 2, len(edges) - 1
    assert host
    assert not any(needs(index) & host for index in front | machine)
    assert not any(needs(index) & (front | machine) for index in host)
    assert not any(needs(index) & front for index in front), "each architecture has its own chain"
    assert not needs(compilation) & machine, "only the assembler waits for machine code"
    assert needs(assembler) == set(range(assembler))
    assert edges[assembler].outputs == ("obj/k.o",)
    made = {output for edge in edges for output in edge.outputs} | {file.path for file in phases.files}
    assert {each for edge in edges for each in edge.inputs} <= made


def test_a_path_that_an_assembler_misreads_runs_nvcc_as_a_whole():
    assert device_images("obj/k.fatbin", "obj/k.fatbin.c") is not None
    for path in ('a"b', "a\\b", "a%sb", ""):
        assert device_images(path, "obj/k.fatbin.c") is None


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda text: text.replace("cudafe++ ", "cudafe99 "), "a tool of another name"),
        (lambda text: text.replace("#$ ptxas", "#$ nvlink"), "a step that is not expected"),
        (lambda text: text.replace("$CICC_PATH", "$SOMETHING"), "a variable that is not set"),
        (lambda text: text + "nvcc warning : something\n", "a message among the steps"),
        (lambda text: text.replace("--module_id_file_name", "--id_file"), "no module id"),
        (lambda text: text.replace('-o "obj/k.o"', '-o "obj/other.o"'), "another object"),
        (lambda text: text.replace("#$ ptxas", "#$ ptxas 'unclosed"), "quotes that do not close"),
        (lambda text: text.replace("#$ ptxas", "#$ true && ptxas"), "more of a shell than arguments"),
        (lambda text: "", "nothing"),
    ],
)
def test_what_is_not_understood_runs_nvcc_as_a_whole(damage: Callable[[str], str], why: str):
    text = (RECORDED / "cuda13_one.txt").read_text()
    assert damage(text) != text
    assert split(damage(text)) is None, why


def test_renaming_reaches_every_name():
    renamed = rename(recorded("cuda13_one"), "k", "kernel")
    assert renamed.unit == files_named("kernel", "cuda")
    assert renamed.edges[-1].outputs == ("obj/kernel.o",)
    assert all("kernel" in output for edge in renamed.edges for output in edge.outputs)
