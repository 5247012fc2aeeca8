"""What a package declares and how a mistake in it is named, and what hooks of build backends make of a project."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from be_runtime.errors import ArgumentError, SourceNotFoundError, SpecError
from be_runtime.request.options import with_active
from be_runtime.ship import build, declaration, kernels, package_store, wheel
from be_runtime.ship import setuptools as hook
from be_runtime.ship.package import refuse_links_out, request_of
from be_runtime.store.index import CodeImage, Index
from tests.support.hostile_files import refused_at_once

MISTAKES = (Path(__file__).parent / "golden" / "mistakes.txt").read_text(encoding="utf-8")
GOOD = """
archs = ["8.0", "9.0"]
[modules.neurons]
sources = "neurons"
functions = ["fire"]
extra_include_paths = ["include"]
[modules.spikes]
sources = ["a.cu", "b/c.cu"]
allow_cuda_graph = false
[kernels.scale]
source = "scale.cu"
block = 256
"""


def parsed(text: str) -> declaration.Declaration:
    return declaration.parse_declaration(text, "p/kernels.toml", lambda _path: False)


def test_a_declaration_is_read():
    found = parsed(GOOD)
    neurons, spikes = found.modules["neurons"], found.modules["spikes"]
    assert (found.archs, found.kernels["scale"]["block"]) == (("8.0", "9.0"), 256)
    assert (neurons.language, neurons.options) == ("cpp", {"extra_include_paths": ["include"]})
    assert (spikes.language, spikes.sources) == ("cuda", ("a.cu", "b/c.cu"))
    found = declaration.parse_declaration(GOOD, "p", lambda path: path == "neurons")
    assert found.modules["neurons"].language == "cuda", "a folder with CUDA files"


def test_a_module_for_two_platforms_has_two_parts():
    table = "[modules.ops]\ncpp = 'both'\ncuda = ['both', 'more.cu']\nfunctions = ['f']\nextra_ldflags = ['-lm']\n"
    found = parsed(f"{table}extra_cflags = ['-Wall']\nactive = 'positive'\n[modules.other]\nsources = 'a.cc'")
    assert [*found.modules] == ["ops:cpp", "ops:cuda", "other"]
    ((cpp, cuda),) = found.platform_parts()
    assert (cpp.name, cpp.language, cpp.sources) == ("ops", "cpp", ("both",))
    assert (cuda.name, cuda.language, cuda.sources) == ("ops", "cuda", ("both", "more.cu"))
    assert cpp.functions == cuda.functions == ["f"]
    assert cpp.options == {"extra_ldflags": ["-lm"], "extra_cflags": ["-Wall"]}
    assert cuda.options == {"extra_ldflags": ["-lm"], "active": "positive"}


def mistake(text: str) -> str:
    with refused_at_once(), pytest.raises(ArgumentError) as caught:
        [declaration.read_table(name, table) for name, table in parsed(text).kernels.items()]
    return str(caught.value).rpartition("\ncauses and remedies: ")[0]


def test_a_mistake_is_named():
    texts = [case.partition("\n---\n")[0] for case in MISTAKES.split("===\n")]
    assert "===\n".join(f"{text}\n---\n{mistake(text)}\n" for text in texts) == MISTAKES


LONG = ("x" * 300, "x/" * 1500)


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        ("' can't be a path: it is too long", [f"[modules.a]\nsources = '{each}.cc'" for each in LONG]),
        ("' can't be a path: it is too long", [f"[kernels.a]\nsource = '{LONG[0]}'"]),
        ("p/kernels.toml is not TOML: it is not UTF-8", ["[modules.a]\nsources = '\ud800.cc'"]),
        ("p/kernels.toml is not TOML", ["modules = ", f"modules = {'9' * 5000}"]),
        ("is not TOML: a line has more than 500 dots", [f"{'a.' * 15_000}a = 1"]),
        ("is not TOML: its values are nested too deeply", [f"a = {'[' * 20_000}"]),
    ],
)
def test_what_would_take_long_or_end_in_an_error_of_pythons_is_named(message: str, texts: list[str]):
    for text in texts:
        assert message in mistake(text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xff", "p/kernels.toml is not TOML: it is not UTF-8"),
        (GOOD.encode("utf-16"), "p/kernels.toml is not TOML: it is not UTF-8"),
        (b"#" * 70_000, "p/kernels.toml can't be read: it is larger than 64 KiB"),
        (None, "the package p has no kernels.toml"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes | None, message: str):
    (tmp_path / "pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ArgumentError, match=r"pyproject\.toml can't be read"):
        wheel.project_table(tmp_path)
    if data is not None:
        (tmp_path / "kernels.toml").write_bytes(data)
    with pytest.raises(ArgumentError, match=message):
        package_store.Package("p", tmp_path).declaration()


RAW: dict[str, Any] = {"source": "scale.cu", "signature": "arg[n] ret[n]:like(0)", "grid": "ceil(n/256)", "block": 256}


def test_a_kernels_table_has_the_options_of_the_public_function(tmp_path: Path):
    (tmp_path / "scale.cu").write_text("__global__ void scale(const float* x, float* y) {}")
    read = declaration.read_table(
        "scale", RAW | {"cluster": 2, "input_output_aliases": {"0": 0}, "use_fast_math": True}
    )
    assert read.launch == {"grid": "ceil(n/256)", "block": 256, "cluster": 2}
    assert read.compiling == {"use_fast_math": True}
    assert declaration.call_options(read.call).aliases == ((0, 0),)
    assert declaration.declared_function("scale", RAW, "p", tmp_path).__name__ == "scale"


TRITON: dict[str, Any] = {"signature": "arg[n] ret[n]", "grid": "ceil(n/BLOCK)", "constants": {"BLOCK": 64}}


def test_a_function_in_python_is_named_by_a_path_of_the_package_or_by_a_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "of_paths" / "sub").mkdir(parents=True)
    (tmp_path / "of_paths" / "sub" / "ops.py").write_text("def add():\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    for source in ("./sub/ops.py:add", "of_paths.sub.ops:add"):
        read = declaration.read_table("add", TRITON | {"triton": source, "num_warps": 8, "dtypes": ["float16"]})
        assert (read.language, read.launch) == ("triton", {"grid": "ceil(n/BLOCK)"})
        assert read.compiling == {"constants": {"BLOCK": 64}, "num_warps": 8}
        assert [each.name for each in read.dtypes] == ["float16"]
        assert declaration.imported("add", read, "of_paths")() == 7


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("x = 1\ny = [][x]\n", r"ops.py:add can't be imported: IndexError: .* \(.*ops.py, line 2\)$"),
        ("import json\nx = json.loads('[')\n", r"JSONDecodeError: .* \(.*ops.py, line 2\)$"),
        ("from failing import helper\n", r"ZeroDivisionError: division by zero \(.*helper.py, line 3\)$"),
        ("def add(:\n", r"SyntaxError: .*\(ops.py, line 1\)$"),
        ("import nothing_here\n", r"No module named 'nothing_here' \(.*ops.py, line 1\)$"),
        ("x = 1\n", "module 'failing.ops' has no attribute 'add'$"),
    ],
)
def test_an_exception_of_an_author_s_module_is_named_with_its_line(
    text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "failing"
    folder.mkdir()
    (folder / "ops.py").write_text(text)
    (folder / "helper.py").write_text("x = 0\n\ny = 1 / x\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("failing", "failing.ops", "failing.helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    read = declaration.read_table("add", TRITON | {"triton": "ops.py:add"})
    with pytest.raises(SourceNotFoundError) as caught:
        declaration.imported("add", read, "failing")
    assert re.search(problem, caught.value.message), caught.value.message


def test_a_cubin_s_table_has_the_options_of_the_public_function():
    table = RAW | {"cubin": "k.cubin", "name": "scale", "cooperative": True}
    del table["source"]
    read = declaration.read_table("k", table)
    assert (read.language, read.source) == ("cubin", "k.cubin")
    assert read.compiling == {"name": "scale", "cooperative": True}


def test_a_build_checks_a_kernel_before_it_compiles_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def require_refused(kind: type[Exception], words: str, table: dict[str, Any]) -> Any:
        session: Any = None
        with pytest.raises(kind, match=words) as caught:
            kernels.build_function("k", table, "p", tmp_path, ["9.0"], "", session)
        return caught.value

    (tmp_path / "scale.cu").write_text("__global__ void k(const float* x, float* y) {}")
    require_refused(ArgumentError, r"ordered must be True or False, not 'yes'", RAW | {"ordered": "yes"})
    require_refused(SpecError, r"has 'm', which is not an axis of an input", RAW | {"grid": "m"})
    pytest.importorskip("numba")
    (tmp_path / "needing.py").write_text("import not_installed.part")
    monkeypatch.syspath_prepend(tmp_path)
    table = {"numba": "json:dumps", "signature": "arg[n] ret[n]"}
    require_refused(ArgumentError, r"kernels.k: json:dumps: kernel must be a function decorated with @numba", table)
    words = r"install not_installed where the kernels are built"
    require_refused(SourceNotFoundError, words, table | {"numba": "needing:f"})
    (tmp_path / "tiled.py").write_text("raise ModuleNotFoundError('none', name='cuda.tile')")
    words = r"install cuda \(pip install 'brainevent-toolchain\[cutile\]'\) where"
    require_refused(SourceNotFoundError, words, {"cutile": "tiled:f", "signature": "arg[n] ret[n]", "grid": 1})
    assert require_refused(SourceNotFoundError, "needless", table | {"numba": "needless:f"}).hints == ()


def test_cuda_code_is_not_built_for_no_architecture(tmp_path: Path):
    signature = 'signature = "arg[n] ret[n]"\ngrid = 1\nblock = 32'
    (tmp_path / "kernels.toml").write_text(f'[kernels.scale]\nsource = "scale.cu"\n{signature}')
    with pytest.raises(ArgumentError, match=r"p declares CUDA code \(scale\) and no architecture to build it for"):
        build.build_package(package_store.Package("p", tmp_path))
    (tmp_path / "kernels.toml").write_text(f'[kernels.scale]\ncubin = "scale.cubin"\n{signature}')
    with pytest.raises(ArgumentError, match=r"scale.cubin' can't be read"):
        build.build_package(package_store.Package("p", tmp_path))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package's folder, beside another one with files of the same names."""
    for name in ("package/src", "package/include/deep", "outside/deep"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("include/own.h", "../outside/b.cc", "../outside/b.h", "../outside/deep/b.h", "kernels.toml"):
        (tmp_path / "package" / name).write_text("")
    source = "// @BE f arg ret\nvoid f(const BE::Tensor x, BE::Tensor y) {}\n"
    (tmp_path / "package" / "src" / "a.cc").write_text(source)
    return tmp_path / "package"


MODULES = parsed("""
[modules.file]
sources = "src/a.cc"
[modules.folder]
sources = "src"
[modules.headers]
sources = "src/a.cc"
extra_include_paths = ["include"]
""").modules


@pytest.mark.parametrize(
    ("link", "target", "modules"),
    [
        ("src/a.cc", "b.cc", [*MODULES]),
        ("src/b.cc", "b.cc", [*MODULES]),
        ("src/b.h", "b.h", [*MODULES]),
        ("src", "", [*MODULES]),
        ("include", "", ["headers"]),
        ("include/deep/b.h", "b.h", ["headers"]),
        ("include/deep/more", "deep", ["headers"]),
    ],
)
def test_a_link_out_of_the_package_is_refused_by_name(root: Path, link: str, target: str, modules: list[str]):
    aim = root.parent / "outside" / target
    if (root / link).exists():
        (root / link).rename(root / "old")
    (root / link).symlink_to(aim)
    for module in modules:
        with pytest.raises(ArgumentError) as caught:
            request_of("package", root, MODULES[module])
        assert caught.value.message == f"modules.{module}: {link} is a link to {aim}, which is outside the package"


@pytest.mark.parametrize(("given", "active"), [({}, "nonzero"), ({"active": "positive"}, "positive")])
def test_a_package_chooses_its_events_and_the_process_does_not(given: dict[str, str], active: str, tmp_path: Path):
    (tmp_path / "k.cu").touch()
    request, _ = request_of("package", tmp_path, declaration.DeclaredModule("k", "cuda", ("k.cu",), None, given))
    assert with_active(request, "positive").compile.active == active


def test_a_kernels_source_is_a_file_of_the_package(root: Path):
    (root / "scale.cu").symlink_to("../outside/b.cc")
    with pytest.raises(ArgumentError, match=r"kernels.scale: scale.cu is a link to .*/b.cc, which is outside"):
        declaration.declared_function("scale", RAW, "p", root)
    (root / "scale.cu").unlink()
    with pytest.raises(SourceNotFoundError, match=r"scale.cu can't be read: No such file"):
        declaration.declared_function("scale", RAW, "p", root)


def test_links_within_the_package_and_of_the_package_are_fine(root: Path):
    (root / "include" / "own_too.h").symlink_to("own.h")
    (root / "src" / "own.h").symlink_to("../include/own.h")
    (root / "src" / "data.csv").symlink_to(root.parent / "outside" / "b.h")
    (root.parent / "link").symlink_to(root)
    for place in (root, root.parent / "link"):
        for module in MODULES.values():
            request_of("package", place, module)


def test_an_installer_may_make_each_file_a_link_to_its_copy(root: Path, tmp_path: Path):
    installed = tmp_path / "site" / "package"
    (installed / "src").mkdir(parents=True)
    for name in ("kernels.toml", "src/a.cc"):
        (installed / name).symlink_to(root / name)
    refuse_links_out("modules.m", installed, [installed / "src"], [])
    (installed / "src" / "x.cc").symlink_to(tmp_path / "x.cc")
    with pytest.raises(ArgumentError, match=r"src/x\.cc is a link"):
        refuse_links_out("modules.m", installed, [installed / "src"], [])


def test_what_changed_appeared_or_was_added_is_named_and_what_is_gone_is_not(root: Path):
    """The declaration is a source, and files elsewhere are none; a pipe in the place of a source does not block."""
    sources = package_store.record_sources(root, [root / "src" / "a.cc", Path(os.__file__)])
    assert sorted(sources) == ["kernels.toml", "src/a.cc"]
    sources |= {"src/a.h": package_store.MISSING, "src/": ".cc .cu"}
    assert package_store.changed_source(root, sources) == package_store.changed_source(None, sources) == ""
    for name in ("src/a.h", "src/b.cu", "kernels.toml", "src/a.cc"):
        (root / name).write_text("edited")
        assert package_store.changed_source(root, sources) == name
        (root / name).unlink()
        assert package_store.changed_source(root, sources) == ""
    os.mkfifo(root / "src" / "a.cc")
    assert package_store.changed_source(root, sources) == ""


KNOWN = "\nhint: the keys are: archs, exclude, package"


def test_a_wrong_option_is_named():
    for table, message in (
        ({"archs": "9.0"}, "t: archs must be a list of strings, not '9.0'"),
        ({"packages": [1]}, "t: packages must be a list"),
        ({"arch": ["9.0"]}, f"t: 'arch' is unknown\nhint: did you mean 'archs'?{KNOWN}"),
    ):
        with pytest.raises(ArgumentError) as raised:
            wheel.parse_options(table, "t")
        assert str(raised.value).startswith(message)


def test_packages_are_found_below_the_project_and_in_src(tmp_path: Path):
    for name in ("flat", "src/inner/deep", "lib/odd"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kernels.toml").touch()
    found = wheel.wheel_packages(wheel.parse_options({"packages": ["flat", "inner.deep", "lib/odd"]}, "t"), tmp_path)
    assert list(map(wheel.place, found)) == ["flat/_kernels", "inner/deep/_kernels", "odd/_kernels"]
    assert [each.name for each in wheel.wheel_packages(wheel.WheelOptions(), tmp_path)] == ["flat"]
    with pytest.raises(ArgumentError, match="has no package 'missing'"):
        wheel.wheel_packages(wheel.parse_options({"package": "missing"}, "t"), tmp_path)


def test_an_sdist_gets_sources_and_nothing_that_was_built(tmp_path: Path):
    for name in ("kernels.toml", "a.cc", "include/a.h", "data.csv", "__init__.py", "_kernels/images/old.h"):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).touch()
    (package,) = wheel.wheel_packages(wheel.WheelOptions(), tmp_path)
    assert wheel.source_files(package, tmp_path) == ["p/a.cc", "p/include/a.h", "p/kernels.toml"]


def test_setuptools_projects_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Setuptools that is too old is named."""
    monkeypatch.chdir(tmp_path)
    hook.finalize(object())  # no project
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    hook.finalize(object())
    (tmp_path / "pyproject.toml").write_text("[tool.be-runtime]\narchs = ['9.0']\n")
    assert wheel.project_table(tmp_path) == {"archs": ["9.0"]}
    with pytest.raises(AttributeError):  # an object is no distribution
        hook.finalize(object())
    monkeypatch.setitem(sys.modules, "be_runtime.ship.setuptools_commands", None)
    with pytest.raises(SystemExit, match="kernels need setuptools>=77"):
        hook.finalize(object())


def test_an_error_ends_a_backend_with_its_text_and_hints():
    with pytest.raises(SystemExit, match="error: wrong\nhint: right"), wheel.errors_as_text():
        raise ArgumentError("wrong", hints=("right",))


ROWS = [
    {
        "name": name,
        "priority": priority,
        "symbol_versions": {"x86_64": {"GLIBC": glibc, "GLIBCXX": libstdcxx}},
        "lib_whitelist": ["libc.so.6", "libz.so.1", *more],
        "blacklist": {"libz.so.1": ["crc_fold_copy"]},
    }
    for name, priority, glibc, libstdcxx, more in (
        ("manylinux_2_34", 58, ["2.2", "2.17", "2.34"], ["3.4", "3.4.29"], ["libmvec.so.1"]),
        ("manylinux_2_17", 80, ["2.2", "2.17"], ["3.4"], []),
        ("manylinux_2_5", 100, ["2.2"], ["3.4"], []),
    )
]
POLICIES = wheel.parse_policies(ROWS, "x86_64")


def needs(*versions: str, libraries: tuple[str, ...] = ("libc.so.6",), **more: Any) -> wheel.Needs:
    return wheel.Needs(libraries, frozenset(versions), **more)


@pytest.mark.parametrize(
    ("images", "tag"),
    [
        ([needs("GLIBC_2.2")], "manylinux_2_5_x86_64"),
        ([needs("GLIBC_2.2", "GLIBC_2.17"), needs("GLIBC_2.2")], "manylinux_2_17_x86_64"),
        ([needs("GLIBC_2.2"), needs("GLIBCXX_3.4.29")], "manylinux_2_34_x86_64"),
        ([needs(libraries=("libmvec.so.1",))], "manylinux_2_34_x86_64"),
        ([needs("GLIBC_2.99")], "linux_x86_64"),
        ([needs("OTHER_9")], "manylinux_2_5_x86_64"),  # what no policy speaks of
        ([needs(libraries=("libz.so.1",), undefined=frozenset({"crc_fold_copy"}))], "linux_x86_64"),
        ([needs(libraries=("libc.musl-x86_64.so.1",))], "linux_x86_64"),
        ([needs(libraries=("libcublas.so.12",))], "manylinux_2_5_x86_64"),
        ([needs(run_paths=("$ORIGIN/../libs",))], "manylinux_2_5_x86_64"),
    ],
)
def test_the_platform_with_the_most_systems(images: list[wheel.Needs], tag: str):
    named = {f"modules.m{number}": each for number, each in enumerate(images)}
    assert wheel.platform_tag(named, "x86_64", POLICIES, exclude=["libcublas.so.*"]) == tag


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (needs(libraries=("libc.so.6", "libfoo.so.3")), r"needs libfoo.so.3.*\n.*-l:libfoo.a instead of -lfoo"),
        (needs(run_paths=("$ORIGIN", "/opt/lib")), r"searches for libraries in /opt/lib.*\n.*-rpath=/opt/lib"),
    ],
)
def test_what_is_on_the_build_machine_alone_is_refused_with_the_module_and_the_flag(image: wheel.Needs, words: str):
    with pytest.raises(ArgumentError, match=f"modules.blas of p {words}"):
        wheel.platform_tag({"modules.blas of p": image}, "x86_64", POLICIES)


@pytest.mark.parametrize(
    ("modules", "names", "said"),
    [
        (["ops:cpp", "ops:cuda"], ["ops", "ops", "scale"], "1 module, 1 kernel, 2 images"),
        (["ops", "more"], ["ops", "more"], "2 modules, 2 images"),
    ],
)
def test_the_summary_of_a_build_counts_in_english(modules: list[str], names: list[str], said: str):
    image = CodeImage("cubin", "CUDA", 1)
    reports = tuple(build.PartReport(name, "cuda", 1.0, 1) for name in names)
    table = Index(machine="x86_64", images={"a": image, "b": image}, modules={key: {} for key in modules})
    assert build.Built(Path("p"), table, reports).summary == said
