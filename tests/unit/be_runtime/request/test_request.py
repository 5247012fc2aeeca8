"""Arguments to checked values without a compiler, the identity of a CPU, and the architectures of device code."""

from __future__ import annotations

import contextlib
import inspect
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.api import load_cpp_file, load_cpp_inline, load_cuda_file, load_cuda_inline
from be_runtime.errors import ArgumentError, SourceNotFoundError
from be_runtime.kernels.launcher import choose_archs as choose_archs_of_a_kernel
from be_runtime.load.process import PROCESS
from be_runtime.request import arguments, options
from be_runtime.request.build_tools import choose_archs
from be_runtime.request.options import BuildRequest, CompileOptions, LoadOptions, absolute_paths, identify_cpu
from be_runtime.settings import Settings
from be_toolchain import ToolchainRequest, resolve
from tests.support.machines import MemorySystem

INT = arguments.inline_units("m", "int x;", "sources")


@pytest.mark.parametrize("name", ["a", "A", "_", "0", "my_kernels", "my-kernels", "a.b", "a.b-c.d_e", "x" * 200])
def test_good_names(name: str):
    assert options.check_name(name) == name


@settings(deadline=None)
@given(st.text(alphabet=string.ascii_letters + "./\\ -_\n\0$", max_size=8))
def test_a_name_is_always_a_plain_file_name(name: str):
    """What is accepted is one component of a path, whatever the text."""
    is_plain = Path(name).name == name and not name.startswith((".", "-")) and not set(name) & set("/\\ \n\0$")
    with contextlib.suppress(ArgumentError):
        options.check_name(name)
        assert is_plain


def check_bool(value: Any) -> bool:
    return options.check_bool(value, "verbose")


def check_flags(value: Any) -> tuple[str, ...]:
    return options.check_flags(value, "flags")


NO_BOOLS: tuple[Any, ...] = (1, 0, None, "True", [])
LEVEL = "optimization_level must be an integer from 0 to 3"
BAD: list[tuple[Callable[[Any], object], Any, str]] = [
    *((options.check_optimization_level, level, LEVEL) for level in (-1, 4, True, False, "3", 3.0, None)),
    *((options.check_jobs, count, "ninja_workers") for count in (0, -3, True, "4", 2.0)),
    *((check_bool, each, "verbose must be True or False") for each in NO_BOOLS),
    *((options.check_active, each, "active must be 'nonzero' or 'positive', not") for each in ("> 0", "", True, ["x"])),
    *((check_flags, "-O2", "list of strings"), (check_flags, [1], r"flags\[0\]"), (check_flags, 7, "int")),
    *((check_flags, ["a", "b\0"], r"flags\[1\].*null"), (check_flags, {"a"}, "set")),
    (options.check_name, "void f();\n" * 1000, "the name comes first"),
    (options.check_name, "a" * 300, "name has 300 characters, and 200 are allowed"),
    (arguments.file_units, "void f();\n" * 1000, "load_cpp_inline"),
]


@pytest.mark.parametrize(("check", "value", "message"), BAD)
def test_bad_values(check: Callable[[Any], object], value: Any, message: str):
    with pytest.raises(ArgumentError, match=message) as caught:
        check(value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "source", ["kernel.cc", "/my kernels/k.cu", "/csrc", Path("k.cc"), ["kernel.cu"], ["int x;", "a.h"], [Path("k.h")]]
)
def test_a_path_in_the_place_of_a_source_is_noticed(source: object):
    with pytest.raises(ArgumentError, match="is a path, not the text of a source") as caught:
        arguments.inline_units("m", source, "sources")
    assert "load_cpp_file" in caught.value.hints[0]


@pytest.mark.parametrize("source", [["// see a.h", "int x;"], ["A(x/y)", "B"], "#include <a.h>"])
def test_what_only_looks_like_a_path_is_a_source(source: object):
    assert arguments.inline_units("m", source, "sources")


def test_flags_stay_what_they_are():
    odd = ["", " ", "a b", "a\nb", '"', "'", "$HOME", "\\", "-DX=-I"]
    spaced = ["-I/my folder", "-DMSG=a -b", "-Wl,-rpath,/a b", "-Xcompiler=-a -b", "-L/x y/z", "-D X=1"]
    assert check_flags([*odd, *spaced]) == (*odd, *spaced)
    assert check_flags(None) == check_flags([]) == ()
    assert check_flags(("-a",)) == ("-a",)


TWO = "-I /usr/include | -isystem  /x y | -DX Y | -O3 -g | -I/a -I/b | -lm -lfoo | -Xptxas -v | -include a.h"


@pytest.mark.parametrize("flag", [*TWO.split(" | "), "-gencode arch=compute_90,code=sm_90"])
def test_two_flags_in_one(flag: str):
    with pytest.raises(ArgumentError, match="is two arguments in one") as caught:
        check_flags(["-O2", flag])
    first, second = flag.split(maxsplit=1)
    assert caught.value.hints == (f"write {first!r}, {second!r}",)


RELATIVE = {
    "-Iinc -I inc -I. -I/abs -I /abs": "-I/cwd/inc -I /cwd/inc -I/cwd -I/abs -I /abs",
    "-isysteminc -isystem inc": "-isystem/cwd/inc -isystem /cwd/inc",
    "-iquote inc -idirafterinc": "-iquote /cwd/inc -idirafter/cwd/inc",
    "--include-path=inc --library-path lib": "--include-path=/cwd/inc --library-path /cwd/lib",
    "-Llib -L lib -rpath=lib -rpath lib": "-L/cwd/lib -L /cwd/lib -rpath=/cwd/lib -rpath /cwd/lib",
    "-rpath=$ORIGIN/lib -I=/sysroot -I=": "-rpath=$ORIGIN/lib -I=/sysroot -I=",
    "-I=inc --include-path=inc": "-I=/cwd/inc --include-path=/cwd/inc",
    "-include=there.h --pre-include=absent.h": "-include=/cwd/there.h --pre-include=absent.h",
    "-include there.h -include absent.h": "-include /cwd/there.h -include absent.h",
    "--pre-include there.h": "--pre-include /cwd/there.h",
    "there.a absent.a sub/there.so.1 there.o": "/cwd/there.a absent.a /cwd/sub/there.so.1 /cwd/there.o",
    "-DI=-Iinc -lm -Wl,-Llib -I -L": "-DI=-Iinc -lm -Wl,-Llib -I -L",
    "-isysroot inc -O2  -": "-isysroot inc -O2  -",
}


def test_relative_paths_in_flags():
    def absolute(flags: str) -> str:
        return " ".join(absolute_paths(flags.split(" "), Path("/cwd"), lambda path: path.stem.startswith("there")))

    assert {flags: absolute(flags) for flags in RELATIVE} == RELATIVE


@settings(deadline=None)
@given(st.lists(st.text(max_size=6)))
def test_flags_are_neither_lost_nor_joined(flags: list[str]):
    found = absolute_paths(flags, Path("/cwd"), lambda path: False)
    assert len(found) == len(flags)
    assert absolute_paths(found, Path("/other"), lambda path: False) == found


def test_include_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "inc").mkdir()
    monkeypatch.chdir(tmp_path)
    assert options.check_include_paths(["inc", Path("inc"), tmp_path]) == (tmp_path / "inc", tmp_path / "inc", tmp_path)
    with pytest.raises(ArgumentError, match=r"does not exist: .*absent"):
        options.check_include_paths(["absent"])
    for name in ("a,b", "a'b", 'a"b'):
        (tmp_path / name).mkdir()
        assert options.check_include_paths([tmp_path / name])
        with pytest.raises(ArgumentError, match="can't take in a folder's name"):
            arguments.cuda_request("m", (), None, extra_include_paths=[tmp_path / name])


def test_one_path_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "real" / "sub")
    given = ["../../real/k.cc", "./k.cc", str(tmp_path / "link" / "sub" / ".." / "k.cc"), tmp_path / "link" / "k.cc"]
    spelled = [str(options.check_optional_path(path, "path")) for path in given]
    assert spelled == [f"{tmp_path}/{name}/k.cc" for name in ("real", "real/sub", "real", "link")], "a link stays"


def test_inline_sources_are_called_by_the_module():
    (unit,) = arguments.inline_units("m", "int x;", "sources")
    assert [source.name for source in unit.sources] == ["m"]
    (unit,) = arguments.inline_units("m", ["int x;", ""], "sources")
    assert [source.name for source in unit.sources] == ["m[0]", "m[1]"]
    assert unit.path is None


def test_files_and_folders(tmp_path: Path):
    for name in ("b.cc", "a.cpp", "c.cxx", "a.cc", "k.cu", "k.h", "k.CC"):
        (tmp_path / name).write_text(name)
    assert [unit.stem for unit in arguments.dir_units(tmp_path, "cpp")] == ["a.cc", "a.cpp", "b", "c"]
    assert [unit.stem for unit in arguments.dir_units(str(tmp_path), "cuda")] == ["k"]
    (unit,) = arguments.file_units(tmp_path / "k.h")
    assert (unit.stem, unit.path, unit.sources[0].text) == ("k", tmp_path / "k.h", "k.h")
    assert unit.sources[0].name == str(tmp_path / "k.h")
    with pytest.raises(SourceNotFoundError):
        arguments.file_units(tmp_path / "absent.cc")


def test_several_files_become_units_of_one_module(tmp_path: Path):
    for name in ("a.cu", "b.cu", "more/a.cu", "rest/a.cu", "rest/more/a.cu"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("int x;")
    files = [tmp_path / "more" / "a.cu", tmp_path / "b.cu", str(tmp_path / "rest" / "a.cu")]
    units = arguments.file_units(files)
    assert [(unit.stem, unit.path) for unit in units] == [
        ("more.a", files[0]),
        ("b", files[1]),
        ("rest.a", tmp_path / "rest" / "a.cu"),
    ]
    assert arguments.default_name(files, None) == "a"
    (tmp_path / "b.cu").write_text("int y;")
    again = arguments.file_again(arguments.cuda_request("m", units, None))
    assert [unit.sources[0].text for unit in again] == ["int x;", "int y;", "int x;"]
    with pytest.raises(
        ArgumentError, match=r"several files whose unit would be more\.a: .*more/a\.cu, .*rest/more/a\.cu"
    ):
        arguments.file_units([tmp_path / "more" / "a.cu", tmp_path / "rest" / "more" / "a.cu"])
    with pytest.raises(ArgumentError, match="names no file"):
        arguments.file_units([])
    with pytest.raises(SourceNotFoundError, match="is a folder"):
        arguments.file_units([tmp_path / "b.cu", tmp_path])


@pytest.mark.parametrize("name", [".a-checkpoint.cc", "._a.cc", ".cc"])
def test_files_that_editors_and_systems_hide_are_no_sources(tmp_path: Path, name: str):
    (tmp_path / name).write_text("")
    with pytest.raises(SourceNotFoundError, match="holds no source files"):
        arguments.dir_units(tmp_path, "cpp")
    (tmp_path / "a.cc").write_text("")
    assert [unit.stem for unit in arguments.dir_units(tmp_path, "cpp")] == ["a"]


@pytest.mark.parametrize(
    "flags", [["-arch=sm_80"], ["-lineinfo", "-gencode", "arch=compute_80,code=sm_80"], ["--gpu-architecture=native"]]
)
def test_architectures_are_named_once(flags: list[str]):
    assert arguments.cuda_request("m", INT, None, extra_cuda_cflags=flags).compile.cflags == tuple(flags)
    with pytest.raises(ArgumentError, match=r"compute_capability='9\.0' and '-.*' in extra_cuda_cflags both name"):
        arguments.cuda_request("m", INT, None, extra_cuda_cflags=flags, compute_capability="9.0")


def test_bytes_that_are_no_text_survive(tmp_path: Path):
    (tmp_path / "k.cc").write_bytes(b"// \xff\xfe\r\nint x;")
    text = arguments.file_units(tmp_path / "k.cc")[0].sources[0].text
    assert text.encode("utf-8", "surrogateescape") == b"// \xff\xfe\r\nint x;"


def test_default_names(tmp_path: Path):
    (tmp_path / "folder.d").mkdir()
    assert arguments.default_name(tmp_path / "folder.d", None) == "folder.d"
    assert arguments.default_name(tmp_path / "kernel.v2.cu", None) == "kernel.v2"
    assert arguments.default_name(tmp_path / "a b.cu", "given") == "given"
    with pytest.raises(ArgumentError, match="'a b'"):
        arguments.default_name(tmp_path / "a b.cu", None)


def test_the_request_holds_what_was_given(tmp_path: Path):
    lists: Any = {"extra_cflags": ["-a"], "extra_ldflags": ["-b"], "extra_include_paths": [tmp_path]}
    request = arguments.cpp_request("m", INT, ["f"], **lists, optimization_level=1, use_fast_math=True)
    flags = request.compile
    assert (flags.cflags, flags.ldflags, flags.include_paths) == (("-a",), ("-b",), (tmp_path,))
    assert (flags.optimization_level, flags.use_fast_math) == (1, True)
    assert (request.name, request.language, request.units, request.functions) == ("m", "cpp", INT, ["f"])
    cuda = arguments.cuda_request("m", INT, None, extra_cuda_cflags=["-c"], compute_capability="sm_90")
    assert (cuda.compile.cflags, cuda.compute_capability, cuda.language) == (("-c",), "sm_90", "cuda")
    assert arguments.load_options("m").target_prefix == "m"
    assert arguments.load_options("m", target_prefix="p.q").target_prefix == "p.q"


def options_of(function: Any) -> set[str]:
    rows = inspect.signature(function).parameters.values()
    return {row.name for row in rows if row.kind is inspect.Parameter.KEYWORD_ONLY}


def test_files_and_folders_take_the_options_of_inline():
    """The typed keywords of load_cpp_file and load_cuda_file are spelt once more for type checkers."""
    assert set(arguments.CppOptions.__annotations__) == options_of(load_cpp_inline)
    assert set(arguments.CudaOptions.__annotations__) == options_of(load_cuda_inline)
    assert options_of(load_cpp_file) == options_of(load_cuda_file) == {"name"}
    assert options_of(load_cpp_inline) | options_of(load_cuda_inline) == set(arguments.CHECKS)
    fields = {*CompileOptions._fields, *BuildRequest._fields, *LoadOptions._fields}
    assert {field for field, _ in arguments.CHECKS.values()} <= fields


SEEDS = (
    "(name, cuda_sources, functions=None, *, extra_cuda_cflags=None, extra_ldflags=None, extra_include_paths=None, "
    "build_directory=None, verbose=False, compute_capability=None, force_rebuild=False, auto_register=True, "
    "target_prefix=None, ninja_workers=None, optimization_level=3, use_fast_math=False, allow_cuda_graph=True, "
)


def test_the_documented_parameters_and_defaults():
    signature = inspect.signature(load_cuda_inline)
    bare = [row.replace(annotation=inspect.Parameter.empty) for row in signature.parameters.values()]
    shown = str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    assert shown.startswith(SEEDS)
    assert [*signature.parameters][-3:] == ["native", "line_info", "debug"]


CORE = """processor\t: {core}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R)
cpu MHz\t\t: {clock}
flags\t\t: fpu sse2 {flags}

"""


ARM = "processor : 0\nBogoMIPS : {}\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU part : {}\n"


def identity(folder: Path, text: str) -> str:
    (folder / "cpuinfo").write_text(text)
    identify_cpu.cache_clear()
    return identify_cpu(folder / "cpuinfo")


def test_kinds_and_instructions_decide_and_clocks_and_cores_do_not(tmp_path: Path):
    def intel(clock: str = "2000.0", flags: str = "avx2") -> str:
        return identity(tmp_path, "".join(CORE.format(core=core, clock=clock, flags=flags) for core in range(2)))

    assert intel() == intel(clock="3100.5") != intel(flags="avx2 avx512f")
    int(intel(), 16)
    kinds = ((50, "0xd0c"), (99, "0xd0c"), (50, "0xd40"))
    first, same, other = (identity(tmp_path, ARM.format(*kind)) for kind in kinds)
    assert first == same != other


def test_an_unknown_cpu_is_refused(tmp_path: Path):
    with pytest.raises(ArgumentError, match="names none"):
        identity(tmp_path, "processor : 0\n")
    identify_cpu.cache_clear()
    with pytest.raises(ArgumentError, match="No such file"):
        identify_cpu(tmp_path / "missing")


def test_a_module_and_a_kernel_are_told_the_same_where_no_gpu_is_visible():
    """A module is compiled for what most GPUs run, with a warning; a kernel has to know."""
    settings = Settings.from_environ({})
    machine = MemorySystem(environ={"PATH": "/usr/bin", "HOME": "/home/ada"})
    machine.clang("/usr/bin/clang++-19")
    machine.joined_cu12()
    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert toolkit is not None
    with pytest.warns(UserWarning, match="no GPU is visible, so CUDA code is compiled for sm_") as warned:
        choose_archs(None, (), settings, toolkit, tuple)
    session = PROCESS.session()._replace(system=machine, settings=settings, archs=())
    with pytest.raises(ArgumentError, match="no GPU is visible, so the architecture") as raised:
        choose_archs_of_a_kernel(None, session)
    assert warned[0].filename == __file__
    _, *hints = str(warned[0].message).split("\n")
    assert hints == [f"hint: {hint}" for hint in raised.value.hints]
    assert len(hints) == 2
