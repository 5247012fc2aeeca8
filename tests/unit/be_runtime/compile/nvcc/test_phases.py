"""Nvcc's dry run, recorded, taken apart into commands that can run at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.compile.nvcc.device_images import device_images
from be_runtime.compile.nvcc.dry_run import parse_dryrun
from be_runtime.compile.nvcc.plan_phases import rename, split_phases
from be_runtime.compile.plan.build_plan import Edge, Tool, UnitBuild
from be_runtime.compile.plan.unit_files import files_named

RECORDED = Path(__file__).parent / "recorded"
TOOLS = {name: f"/opt/cuda/bin/{name}" for name in ("cudafe++", "cicc", "ptxas", "fatbinary")}


def split(text: str) -> UnitBuild | None:
    dry = parse_dryrun(text)
    return None if dry is None else split_phases(dry, TOOLS, files_named("k", "cuda"), "_1_k_cu_2")


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def phases_of(name: str) -> UnitBuild:
    phases = split(recorded(name))
    assert phases is not None
    return phases


def order(edges: tuple[Edge, ...], tool: Tool) -> list[int]:
    return [index for index, edge in enumerate(edges) if edge.tool == tool]


def needs(edges: tuple[Edge, ...], edge: Edge) -> set[int]:
    """The edges that have to run before one."""
    direct = {index for index, other in enumerate(edges) if set(other.outputs) & set(edge.inputs)}
    return direct.union(*(needs(edges, edges[index]) for index in direct))


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_host_side_and_device_side_do_not_wait_for_each_other(name: str):
    edges = phases_of(name).edges
    host = order(edges, "cudafe++")
    device = order(edges, "cicc") + order(edges, "ptxas") + order(edges, "fatbinary")
    assert host
    assert device
    assert not any(set(host) & needs(edges, edges[index]) for index in device)
    assert not any(set(device) & needs(edges, edges[index]) for index in host)


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_only_the_assembler_waits_for_machine_code(name: str):
    phases = phases_of(name)
    *_, compilation, assembler = phases.edges
    ptxas, fatbinary = order(phases.edges, "ptxas"), order(phases.edges, "fatbinary")
    assert "-S" in compilation.argv
    assert (compilation.tool, assembler.tool) == ("compile", "assemble")
    assert not {*ptxas, *fatbinary} & needs(phases.edges, compilation)
    assert {*ptxas, *fatbinary} <= needs(phases.edges, assembler)
    stand_in = next(file for file in phases.files if file.path == "obj/k.o.phases/k.fatbin.c")
    assert '".incbin \\"obj/k.o.phases/k.fatbin\\"' in stand_in.text
    assert not any(stand_in.path in edge.outputs for edge in phases.edges)


def test_a_path_that_an_assembler_misreads_runs_nvcc_as_a_whole():
    assert device_images("obj/k.fatbin", "obj/k.fatbin.c") is not None
    for path in ('a"b', "a\\b", "a%sb", ""):
        assert device_images(path, "obj/k.fatbin.c") is None


@pytest.mark.parametrize("name", ["cuda13_one", "cuda13_two"])
def test_the_last_command_waits_for_all_and_makes_the_object(name: str):
    edges = phases_of(name).edges
    assert edges[-1].outputs == ("obj/k.o",)
    assert needs(edges, edges[-1]) == set(range(len(edges) - 1))


def test_each_architecture_has_its_own_chain():
    edges = phases_of("cuda13_two").edges
    first, second = order(edges, "cicc")
    assert second not in needs(edges, edges[first])
    assert first not in needs(edges, edges[second])


def test_every_input_is_made_by_an_edge_or_given():
    phases = phases_of("cuda13_two")
    made = {output for edge in phases.edges for output in edge.outputs} | {file.path for file in phases.files}
    assert {name for edge in phases.edges for name in edge.inputs} <= made


def test_the_module_id_is_given_instead_of_invented():
    phases = phases_of("cuda13_one")
    assert phases.files[0].text == "_1_k_cu_2"
    assert not any("--gen_module_id_file" in edge.argv for edge in phases.edges)
    for index in (*order(phases.edges, "cudafe++"), *order(phases.edges, "cicc")):
        assert phases.files[0].path in phases.edges[index].argv


def test_preprocessors_list_what_they_read_and_keep_arguments_whole():
    phases = phases_of("cuda13_one")
    readers = [edge for edge in phases.edges if edge.depfile]
    assert len(readers) == 2
    for edge in readers:
        assert edge.argv[-3:] == ("-MD", "-MF", edge.depfile)
        assert "NAME=a b" in edge.argv


def test_tools_are_called_by_their_own_path_with_nvccs_library_path():
    phases = phases_of("cuda13_one")
    assert {edge.argv[0] for edge in phases.edges} == {*TOOLS.values(), "/usr/bin/g++"}
    assert phases.library_path.startswith("/opt/cuda")


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
    damaged = damage(recorded("cuda13_one"))
    assert damaged != recorded("cuda13_one")
    assert split(damaged) is None, why


def test_renaming_reaches_every_name():
    renamed = rename(phases_of("cuda13_one"), "k", "kernel")
    assert renamed.unit == files_named("kernel", "cuda")
    assert renamed.edges[-1].outputs == ("obj/kernel.o",)
    assert all("kernel" in output for edge in renamed.edges for output in edge.outputs)
