"""The graph of a build: its files, its commands, and what they read and write."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_runtime.compile import graph
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, UnitBuild
from be_runtime.generate.bind import bind
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


def plan_of(*stems: str, handler: str | None = None, inline: bool = False) -> BuildPlan:
    units = tuple(
        Unit(
            stem=stem,
            sources=(SourceText(name=f"/{stem}.cc", text=TEXT),),
            path=None if inline else Path(f"/src/{stem}.cc"),
        )
        for stem in stems
    )
    request = BuildRequest(name="m", language="cpp", units=units, functions=None, compile=CompileOptions())
    return graph.plan_build(request, graph.plan_units(request, bind(request), TOOLS), TOOLS, LINK, handler)


def test_one_source_and_the_handler():
    plan = plan_of("k")
    assert [edge.outputs for edge in plan.edges] == [("obj/k.o",), (graph.HANDLER_OBJECT,), ("module.so",)]
    assert plan.edges[-1].argv == ("ld", "obj/k.o", graph.HANDLER_OBJECT, "-o", "module.so", "-lm")
    assert [file.path for file in plan.files] == ["src/k.cc"]
    assert [edge.depfile for edge in plan.edges] == ["obj/k.d", graph.HANDLER_DEPFILE, None]


def test_all_units_begin_before_one_goes_on_and_the_longest_begins_first():
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=stem, text="x" * length),), path=Path(f"/{stem}.cc"))
        for stem, length in (("a", 5), ("b", 9), ("c", 7))
    )
    request = BuildRequest(name="m", language="cpp", units=units, functions=None, compile=CompileOptions())

    def steps(stem: str, count: int) -> UnitBuild:
        outputs = [f"{stem}{step}" for step in range(count)]
        return UnitBuild(edges=tuple(Edge(argv=("cc",), inputs=(), outputs=(out,), description="") for out in outputs))

    plan = graph.plan_build(request, {"a": steps("a", 3), "b": steps("b", 1), "c": steps("c", 2)}, TOOLS, LINK, "h.o")
    assert [edge.outputs[0] for edge in plan.edges] == ["b0", "c0", "a0", "c1", "a1", "a2", "module.so"]


def test_a_handler_that_is_there_is_not_compiled():
    plan = plan_of("k", handler="/cache/handler.o")
    assert [edge.outputs for edge in plan.edges] == [("obj/k.o",), ("module.so",)]
    assert "/cache/handler.o" in plan.edges[-1].inputs


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
    outputs = [output for edge in plan.edges for output in edge.outputs]
    assert len(set(outputs)) == len(stems) + 2
    names = [Path(path).name for path in (*outputs, *(file.path for file in plan.files))]
    assert all(name.replace(".", "").replace("_", "").replace("-", "").isascii() for name in names)
    assert not any(set(name) & set(" |$'\"") for name in names)


def test_every_command_writes_what_its_edge_says():
    for edge in plan_of("a", "b").edges:
        assert edge.outputs[0] in edge.argv
        assert all(path in edge.argv for path in edge.inputs)


def test_private_names():
    plan = plan_of("a", "b", "c")
    one, odd = "--localize-symbol=_Z4helpv", "--redefine-sym=odd name=odd name.0"
    private = {"obj/a.o": [one, odd], "obj/c.o": [one]}
    edited = graph.with_private_names(plan, "/bin/objcopy", private, LINK)
    link = edited.edges[-1]
    assert link.inputs == ("obj/a.private.o", "obj/b.o", "obj/c.private.o", graph.HANDLER_OBJECT)
    added = [edge for edge in edited.edges if edge.argv[0] == "/bin/objcopy"]
    assert added[0].argv == (
        "/bin/objcopy",
        one,
        odd,
        "obj/a.o",
        "obj/a.private.o",
    )
    assert edited.files == plan.files


def test_a_launcher_stands_before_compilers_only():
    plan = graph.with_compiler_launcher(plan_of("a"), ("ccache", "--quiet"))
    assert [edge.argv[0] for edge in plan.edges] == ["ccache", "ccache", "ld"]
    assert graph.with_compiler_launcher(plan_of("a"), ()) == plan_of("a")


def test_descriptions_tell_the_commands_apart():
    edges = plan_of("a", "b").edges
    assert len({edge.description for edge in edges}) == len(edges)
