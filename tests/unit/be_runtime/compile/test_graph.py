"""The graph of a build: its files, its commands, and what they read and write."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.bundle.carried import Demand
from be_runtime.compile import graph
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, UnitBuild
from be_runtime.compile.plan.unit_files import unit_files
from be_runtime.generate.bind import bind
from be_runtime.load.portable import portable_request
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.request.tools import Tools
from be_runtime.source_text import SourceText
from be_toolchain.model import HostCompiler

CXX = HostCompiler(
    path=Path("/usr/bin/g++"), family="gcc", version="12.2.0", target="x86_64-linux-gnu", found_via="PATH"
)
TOOLS = Tools(cxx=CXX, cuda=None, archs=(), ffi_include=Path("/jaxlib/include"))
LINK = flags.LinkCommand(head=("ld",), tail=("-lm",))
TEXT = "// @BE f\nvoid f(BE::Tensor out) {}\n"


def units_of(*stems: str, inline: bool = False) -> tuple[BuildRequest, dict[str, UnitBuild]]:
    given = tuple(
        Unit(
            stem=stem,
            sources=(SourceText(name=f"/{stem}.cc", text=TEXT),),
            path=None if inline else Path(f"/src/{stem}.cc"),
        )
        for stem in stems
    )
    request = BuildRequest(name="m", language="cpp", units=given, functions=None, compile=CompileOptions())
    return request, graph.plan_units(request, bind(request), graph.compile_command(request, TOOLS))


def plan_of(*stems: str, handler: str | None = None, inline: bool = False) -> BuildPlan:
    request, units = units_of(*stems, inline=inline)
    return graph.plan_build(request, units, TOOLS, LINK, handler)


def test_one_source_and_the_handler():
    plan = plan_of("k")
    assert [edge.outputs for edge in plan.commands] == [("obj/k.o",), (graph.HANDLER.object,), ("module.so",)]
    assert [edge.tool for edge in plan.commands] == ["compile", "compile", "link"]
    assert plan.link is not None
    assert plan.link.argv == ("ld", "obj/k.o", graph.HANDLER.object, "-o", "module.so", "-lm")
    assert plan.objects == plan.link.inputs == ("obj/k.o", graph.HANDLER.object)
    assert [file.path for file in plan.files] == ["src/k.cc"]
    assert [edge.depfile for edge in plan.commands] == ["obj/k.d", graph.HANDLER.depfile, None]


def test_all_units_begin_before_one_goes_on_and_the_longest_begins_first():
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=stem, text="x" * length),), path=Path(f"/{stem}.cc"))
        for stem, length in (("a", 5), ("b", 9), ("c", 7))
    )
    request = BuildRequest(name="m", language="cpp", units=units, functions=None, compile=CompileOptions())

    def steps(stem: str, count: int) -> UnitBuild:
        outputs = [f"{stem}{step}" for step in range(count)]
        edges = (Edge(("cc",), inputs=(), outputs=(out,), description="", tool="compile") for out in outputs)
        return UnitBuild(unit_files(stem, "cpp"), tuple(edges))

    plan = graph.plan_build(request, {"a": steps("a", 3), "b": steps("b", 1), "c": steps("c", 2)}, TOOLS, LINK, "h.o")
    assert [edge.outputs[0] for edge in plan.commands] == ["b0", "c0", "a0", "c1", "a1", "a2", "module.so"]


def test_a_handler_that_is_there_is_not_compiled():
    plan = plan_of("k", handler="/cache/handler.o")
    assert [edge.outputs for edge in plan.edges] == [("obj/k.o",)]
    assert "/cache/handler.o" in plan.objects


def test_a_file_is_included_where_it_lies_and_a_text_is_written_out():
    (file,) = plan_of("k").files
    assert file.text.startswith('#include "/src/k.cc"\n')
    (file,) = plan_of("k", inline=True).files
    assert file.text.startswith('#line 1 "/k.cc"\n// @BE f\n')


@pytest.mark.parametrize(
    "stems", [("a b", "a_b", "a|b"), ("be_handler", "be_device_link"), ("k.cc", "k"), ("ä", "a\udcff", "$x", "a'b")]
)
def test_files_of_a_build_have_plain_names_of_their_own(stems: tuple[str, ...]):
    plan = plan_of(*stems)
    outputs = [output for edge in plan.commands for output in edge.outputs]
    assert len(set(outputs)) == len(stems) + 2
    names = [Path(path).name for path in (*outputs, *(file.path for file in plan.files))]
    assert all(name.replace(".", "").replace("_", "").replace("-", "").isascii() for name in names)
    assert not any(set(name) & set(" |$'\"") for name in names)


def test_every_command_writes_what_its_edge_says():
    for edge in plan_of("a", "b").commands:
        assert edge.outputs[0] in edge.argv
        assert all(path in edge.argv for path in edge.inputs)


def test_private_names():
    plan = plan_of("a", "b", "c")
    one, odd = "--localize-symbol=_Z4helpv", "--redefine-sym=odd name=odd name.0"
    private = {"obj/a.o": [one, odd], "obj/c.o": [one]}
    edited = graph.with_private_names(plan, "/bin/objcopy", private, LINK)
    assert edited.objects == ("obj/a.private.o", "obj/b.o", "obj/c.private.o", graph.HANDLER.object)
    added = [edge for edge in edited.edges if edge.tool == "separate"]
    assert added[0].argv == (
        "/bin/objcopy",
        one,
        odd,
        "obj/a.o",
        "obj/a.private.o",
    )
    assert edited.files == plan.files


def test_a_unit_that_is_in_its_place_is_linked_and_not_compiled():
    request, units = units_of("a", "b")
    units["a"] = units["a"]._replace(edges=(), files=())
    plan = graph.plan_build(request, units, TOOLS, LINK, "/cache/handler.o")
    assert [edge.outputs for edge in plan.commands] == [("obj/b.o",), ("module.so",)]
    assert plan.objects == ("obj/a.o", "obj/b.o", "/cache/handler.o")


def test_the_compilers_phases_take_the_place_of_the_whole_command():
    request, whole = units_of("a", "b")
    phases = UnitBuild(whole["a"].unit, whole["b"].edges)
    units = graph.plan_units(request, bind(request), ("c++",), {"a": phases})
    assert units["a"].edges == phases.edges
    assert units["a"].files == whole["a"].files
    assert units["b"].edges[0].argv[0] == units["a"].command[0] == "c++"


def test_a_launcher_stands_before_compilers_only():
    plan = graph.with_compiler_launcher(plan_of("a"), ("ccache", "--quiet"))
    assert [edge.argv[0] for edge in plan.commands] == ["ccache", "ccache", "ld"]
    assert graph.with_compiler_launcher(plan_of("a"), ()) == plan_of("a")


@pytest.mark.parametrize(("ldflags", "is_whole"), [((), True), (("-lfoo",), False)])
def test_a_unit_is_the_whole_program_for_other_machines_too(ldflags: tuple[str, ...], *, is_whole: bool):
    """So a call costs the same there. A library of the author's may call the unit."""
    request = units_of("k")[0]._replace(compile=CompileOptions(ldflags=ldflags))
    for each in (request, portable_request(request, Demand("x86-64-v3", ()))):
        assert ("-fwhole-program" in graph.compile_command(each, TOOLS)) is is_whole


def test_descriptions_tell_the_commands_apart():
    edges = plan_of("a", "b").commands
    assert len({edge.description for edge in edges}) == len(edges)
