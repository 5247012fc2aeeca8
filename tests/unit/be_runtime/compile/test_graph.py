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
from tests.unit.be_runtime.generate.golden_files import check_golden, edges_text

CXX = HostCompiler(Path("/usr/bin/g++"), "gcc", "12.2.0", "x86_64-linux-gnu", "PATH")
TOOLS = Tools(cxx=CXX, cuda=None, archs=(), ffi_include=Path("/jaxlib/include"))
LINK = flags.LinkCommand(head=("ld",), tail=("-lm",))


def units_of(*stems: str, inline: bool = False) -> tuple[BuildRequest, dict[str, UnitBuild]]:
    source = "// @BE f\nvoid f(BE::Tensor out) {}\n"
    given = tuple(
        Unit(stem, (SourceText(f"/{stem}.cc", source),), None if inline else Path(f"/src/{stem}.cc")) for stem in stems
    )
    request = BuildRequest(name="m", language="cpp", units=given, functions=None, compile=CompileOptions())
    return request, graph.plan_units(request, bind(request), graph.compile_command(request, TOOLS))


def plan_of(*stems: str, handler: str | None = None, inline: bool = False) -> BuildPlan:
    request, units = units_of(*stems, inline=inline)
    return graph.plan_build(request, units, TOOLS, LINK, handler)


def with_a_unit_in_its_place() -> BuildPlan:
    request, units = units_of("a", "b")
    units["a"] = units["a"]._replace(edges=(), files=())
    return graph.plan_build(request, units, TOOLS, LINK, "/cache/handler.o")


def test_plans_of_builds():
    one, odd = "--localize-symbol=_Z4helpv", "--redefine-sym=odd name=odd name.0"
    private = {"obj/a.o": [one, odd], "obj/c.o": [one]}
    plans = {
        "one source and the handler": plan_of("k"),
        "a text, and a handler that is there": plan_of("k", handler="/cache/handler.o", inline=True),
        "private names": graph.with_private_names(plan_of("a", "b", "c"), "/bin/objcopy", private, LINK),
        "a unit that is in its place": with_a_unit_in_its_place(),
        "a launcher before compilers": graph.with_compiler_launcher(plan_of("a"), ("ccache", "--quiet")),
    }
    text = ""
    for title, plan in plans.items():
        heads = "".join(f"{file.path}: {file.text.partition('BE_')[0]}..\n" for file in plan.files)
        text += f"=== {title}\n{heads}{edges_text(plan.commands)}objects: {' '.join(plan.objects)}\n"
    check_golden(Path(__file__).parent / "golden" / "plans.txt", text)


def test_all_units_begin_before_one_goes_on_and_the_longest_begins_first():
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=stem, text="x" * length),), path=Path(f"/{stem}.cc"))
        for stem, length in (("a", 5), ("b", 9), ("c", 7))
    )

    def steps(stem: str, count: int) -> UnitBuild:
        edges = (Edge(("cc",), (), (f"{stem}{step}",), "", "compile") for step in range(count))
        return UnitBuild(unit_files(stem, "cpp"), tuple(edges))

    request = units_of("k")[0]._replace(units=units)
    plan = graph.plan_build(request, {"a": steps("a", 3), "b": steps("b", 1), "c": steps("c", 2)}, TOOLS, LINK, "h.o")
    assert [edge.outputs[0] for edge in plan.commands] == ["b0", "c0", "a0", "c1", "a1", "a2", "module.so"]


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


def test_the_compilers_phases_take_the_place_of_the_whole_command():
    request, whole = units_of("a", "b")
    phases = UnitBuild(whole["a"].unit, whole["b"].edges)
    units = graph.plan_units(request, bind(request), ("c++",), {"a": phases})
    assert (units["a"].edges, units["a"].files) == (phases.edges, whole["a"].files)
    assert units["b"].edges[0].argv[0] == units["a"].command[0] == "c++"


@pytest.mark.parametrize(("ldflags", "is_whole"), [((), True), (("-lfoo",), False)])
def test_a_unit_is_the_whole_program_for_other_machines_too(ldflags: tuple[str, ...], *, is_whole: bool):
    """So a call costs the same there. A library of the author's may call the unit."""
    request = units_of("k")[0]._replace(compile=CompileOptions(ldflags=ldflags))
    for each in (request, portable_request(request, Demand("x86-64-v3", ()))):
        assert ("-fwhole-program" in graph.compile_command(each, TOOLS)) is is_whole
