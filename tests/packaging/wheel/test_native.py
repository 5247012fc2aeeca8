"""Platform wheels: tags and bytes, and what a user's machine compiles and computes where one is installed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import be_runtime
from be_runtime.load.identity import checkout_digest, shipped_name
from be_runtime.own_files import jax_headers
from be_toolchain.install.compilers import write_compiler
from release import ROOT
from release.native import FOLDER, LIBRARIES, MACHINES
from tests.packaging.wheel.conftest import python_m, run
from tests.support.requirements import OPTIONAL
from tests.support.runtime import real_compiler, script

pytestmark = [
    pytest.mark.full,
    pytest.mark.xdist_group("wheel"),
    pytest.mark.needs("x86_64-linux-gnu-g++", "aarch64-linux-gnu-g++"),
]

SHIPPED = {"handler.o", "looked_at.so", *(f"{name}.so" for name in LIBRARIES)}
OWN_SOURCES = ("/native/handler.cc", "/native/looked_at.c", *(f"/native/{name}.cc" for name in LIBRARIES))
Wheels = dict[str, Path]

PROGRAM = r'''
import json
import jax, jax.numpy as jnp, numba, numpy as np
import be_runtime
import be_runtime
from be_runtime.load.identity import own_code_digest, shipped_folder
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from be_runtime.store.cache import read_manifest

SOURCE = """
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"
#include <stdexcept>
struct Table {
  explicit Table(const BE::Attributes& attributes) : value(attributes.get<float>("offset")) {}
  float value;
};
// @BE f arg[n] ret[n] state scratch attr.offset
void f(const BE::Tensor x, BE::Tensor y, const BE::State<Table>& table, BE::Workspace workspace, float offset) {
  float* copy = workspace.allocate_as<float>(x.numel());
  BE::parallel_for(x.numel(), 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) copy[i] = x.at<float>(i) + table->value;
  });
  for (int64_t i = 0; i < x.numel(); ++i) y.at<float>(i) = copy[i] + offset;
}
// @BE throws arg[n] ret[n]
void throws(const BE::Tensor x, BE::Tensor y) { throw std::runtime_error("words of its own"); }
// @BE outside arg[n] ret[n]
void outside(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i <= x.numel(); ++i) y.data_ptr<float>()[i] = 1;
}
"""

def error_of(function, *arguments):
    try:
        jax.block_until_ready(function(*arguments))
    except Exception as error:
        return f"{type(error).__name__}: {error}"

@numba.njit
def twice(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]

module = be_runtime.load_cpp_inline("parts", SOURCE, extra_cflags=CFLAGS, extra_ldflags=CFLAGS)
x = jnp.arange(1000, dtype=jnp.float32)
like = jax.ShapeDtypeStruct(x.shape, x.dtype)
target = lambda x, **attributes: jax.ffi.ffi_call("parts.f", like)(x, **attributes)
did = {"sum": float(module.f(x, offset=0.5).sum())}
did["dtype"] = error_of(jax.jit(lambda x: target(x, offset=np.float32(1))), x.astype("int32"))
did["attribute"] = error_of(jax.jit(target), x)
did["thrown"] = error_of(module.throws, x)
if FULL:
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(module.outside(x))
    did["found"] = found[0].message
    did["numba"] = float(jax.jit(be_runtime.numba_kernel(twice, outs=like))(x).sum())
    did["launcher"] = hasattr(native_library("launcher", PROCESS.session(), ["-ldl"]), "be_launch_instantiate")
second = be_runtime.load_cpp_inline("second", SOURCE, extra_cflags=CFLAGS, extra_ldflags=CFLAGS)
folder = second.path.parents[1]
manifest = read_manifest(str(folder), folder.parent.name)
did["files"] = sorted(manifest.dependencies.paths)
did["absent"] = sorted(f"{each.folder}/{name}" for each in manifest.absent for name in each.names)
print(json.dumps([str(shipped_folder()), own_code_digest(), did]))
'''


@pytest.mark.parametrize("machine", MACHINES)
def test_a_platform_wheel_is_the_pure_one_with_compiled_files(wheels: Wheels, machine: str, tmp_path: Path):
    """RECORD has the hash of each file, the folder is named by the code beside it, and auditwheel agrees on the tag."""
    tag = f"py3-none-manylinux_2_28_{machine}"
    assert wheels[machine].name == wheels["any"].name.replace("py3-none-any", tag)
    python_m("wheel", "unpack", wheels[machine], "--dest", tmp_path, cwd=tmp_path)  # compares the files with RECORD
    (tree,) = tmp_path.iterdir()
    folder = FOLDER / shipped_name(machine, checkout_digest(tree, None, 0))
    with zipfile.ZipFile(wheels["any"]) as pure, zipfile.ZipFile(wheels[machine]) as archive:
        assert set(archive.namelist()) - set(pure.namelist()) == {f"{folder}/{name}" for name in SHIPPED}
        changed = {name for name in pure.namelist() if archive.read(name) != pure.read(name)}
        assert {name.rpartition("/")[2] for name in changed} == {"WHEEL", "RECORD"}
        assert f"\nTag: {tag}\n" in archive.read(min(changed, key=len)).decode()
    audit = json.loads(python_m("auditwheel", "show", "--json", wheels[machine], cwd=tmp_path))
    assert audit["external_libs"] == {}
    assert tuple(map(int, re.findall(r"\d+", audit["overall_tag"])))[:2] <= (2, 28)


def test_the_handler_links_where_the_compiler_and_the_c_library_are_old(wheels: Wheels, tmp_path: Path):
    """Compiled kernels must load beside glibc 2.28 and GCC 8, which auditwheel doesn't check for objects."""
    for machine in MACHINES:
        with zipfile.ZipFile(wheels[machine]) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/handler.o"))
            archive.extract(name, tmp_path)
        library = tmp_path / f"{machine}.so"
        subprocess.run((f"{machine}-linux-gnu-g++", "-shared", tmp_path / name, "-o", library), check=True)
        said = subprocess.run(("readelf", "--version-info", library), capture_output=True, text=True, check=True).stdout
        newest = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 25), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
        needed = {(kind, tuple(map(int, text.split(".")))) for kind, text in re.findall(r"\b([A-Z]+)_([\d.]+)\b", said)}
        assert {kind for kind, _ in needed} >= {"GLIBC", "GLIBCXX"}
        assert [each for each in needed if each[1] > newest[each[0]]] == []
        symbols = subprocess.run(
            ("nm", "--undefined-only", tmp_path / name), capture_output=True, text=True, check=True
        )
        assert "__aarch64_" not in symbols.stdout, "libgcc has these functions from GCC 9.4 on"


@pytest.mark.parametrize(
    ("platform", "chosen"),
    [
        ("manylinux_2_28_x86_64", "x86_64"),
        ("manylinux_2_39_aarch64", "aarch64"),
        ("manylinux2014_x86_64", "any"),
        ("musllinux_1_2_x86_64", "any"),
        ("manylinux_2_28_ppc64le", "any"),
    ],
)
def test_pip_chooses(wheels: Wheels, platform: str, chosen: str, tmp_path: Path):
    older = [f"--platform=manylinux_2_28_{platform.rpartition('_2_39_')[2]}"] * ("2_39" in platform)
    options = (f"--platform={platform}", *older, "--only-binary=:all:", "--no-deps", "--no-index", "--dest=.")
    folder = wheels["any"].parent
    python_m("pip", "download", "--quiet", *options, "--find-links", folder, "brainevent-toolchain", cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [wheels[chosen].name]


class User(NamedTuple):
    """An environment with one of the wheels, and this environment's other packages."""

    folder: Path
    site: Path

    @classmethod
    def with_wheel(cls, folder: Path, wheel: Path) -> User:
        folder.mkdir()
        python_m("venv", "--without-pip", "env", cwd=folder)
        (site,) = (folder / "env" / "lib").glob("python*/site-packages")
        (site / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        options = ("--quiet", "--no-deps", "--no-index", "--no-compile")
        python_m("pip", "--python", folder / "env/bin/python", "install", *options, wheel, cwd=folder)
        return cls(folder, site)

    def load(self, *cflags: str, compiler: str = "", full: bool = False) -> tuple[str, str, dict[str, Any], str]:
        """Run the program with a new cache: our compiled files, our code's digest, what it did, and all commands."""
        cxx = script(self.folder / "cxx", f'echo "$@" >> {self.folder}/log', f'exec {compiler or real_compiler()} "$@"')
        (self.folder / "log").unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as cache:
            environ = {"BE_CACHE_DIR": cache, "BE_CXX": str(cxx), "JAX_PLATFORMS": "cpu"}
            code = f"CFLAGS, FULL = {cflags}, {full}\n{PROGRAM}"
            done = run(self.folder / "env/bin/python", "-c", code, cwd=self.folder, **environ)
        assert done.returncode == 0, done.stdout + done.stderr
        shipped, digest, did = json.loads(done.stdout.replace(str(self.folder), "").splitlines()[-1])
        return shipped, digest, did, (self.folder / "log").read_text()


NUMBA = """
import jax, jax.numpy as jnp, numba
import be_runtime

@numba.njit
def twice(x, y):
    for i in range(x.size):
        y[i] = 2 * x[i]

x = jnp.arange(4, dtype=jnp.float32)
print(jax.jit(be_runtime.numba_kernel(twice, outs=jax.ShapeDtypeStruct(x.shape, x.dtype)))(x).tolist())
"""


@pytest.fixture(scope="session")
def platform_user(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User.with_wheel(tmp_path_factory.mktemp("native") / "user", wheels[os.uname().machine])


def compiled(commands: str) -> set[str]:
    """Our own sources that some commands compile."""
    return {name for name in OWN_SOURCES if name in commands}


def test_nothing_of_ours_is_compiled_and_all_results_are_the_same(wheels: Wheels, platform_user: User, tmp_path: Path):
    """The same values, errors, findings, and files that a module's entry records."""
    shipped, digest, did, commands = platform_user.load(full=True)
    assert Path(shipped).name == shipped_name(os.uname().machine, digest)
    assert compiled(commands) == set()
    none, same_digest, as_compiled, commands = User.with_wheel(tmp_path / "pure", wheels["any"]).load(full=True)
    assert (none, same_digest) == ("None", digest)
    assert compiled(commands) == set(OWN_SOURCES)
    assert did == as_compiled
    assert did["sum"] == 500500
    assert did["numba"] == 999000
    assert did["launcher"]
    assert len(did["files"]) > 50
    assert [each for each in did["files"] if "shipped" in each] == []
    for name, words in {"dtype": "of an int32 tensor", "attribute": "offset", "thrown": "words of its own"}.items():
        assert words in did[name]
    assert "behind result 0" in did["found"]


def test_a_numba_kernel_needs_no_compiler(platform_user: User, tmp_path: Path):
    environ = {"BE_CACHE_DIR": str(tmp_path), "PATH": "/nowhere", "CXX": "", "JAX_PLATFORMS": "cpu"}
    done = run(platform_user.folder / "env/bin/python", "-c", NUMBA, cwd=tmp_path, **environ)
    assert done.stdout == "[0.0, 2.0, 4.0, 6.0]\n", done.stderr


def test_the_tests_of_our_libraries_pass_with_the_compiled_ones(platform_user: User, tmp_path: Path):
    """The launcher's refusals, checked mode, and directed edits, with the wheel instead of the checkout."""
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    topics = (
        "kernels/cuda/test_launcher",
        "load/test_guarded",
        "compile/inputs/test_looked_at",
        "jax/test_fault_names",
    )
    files = [f"tests/compile/be_runtime/{topic}.py" for topic in topics]
    options = ("-q", "-p", "no:cacheprovider")
    done = run(platform_user.folder / "env/bin/python", "-m", "pytest", *options, *files, cwd=tmp_path, BE_FULL="1")
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"^\d+ passed", done.stdout, re.MULTILINE)


def test_files_of_other_code_are_not_used(wheels: Wheels, tmp_path: Path):
    user = User.with_wheel(tmp_path / "user", wheels[os.uname().machine])
    (record,) = user.site.glob("brainevent_toolchain-*.dist-info/RECORD")
    text = record.read_text()
    at = text.index("be_runtime/native/handler.cc,sha256=") + len("be_runtime/native/handler.cc,sha256=")
    record.write_text(text[:at] + ("B" if text[at] == "A" else "A") + text[at + 1 :])
    shipped, _, _, commands = user.load()
    assert shipped == "None"
    assert compiled(commands) == {"/native/handler.cc", "/native/looked_at.c"}


def test_zig_s_cxx_library_has_its_own_handler(platform_user: User, tmp_path: Path):
    ziglang = pytest.importorskip("ziglang")
    write_compiler(tmp_path, os.uname().machine)
    (tmp_path / "ziglang").symlink_to(Path(ziglang.__file__).parent)
    shipped, _, did, commands = platform_user.load(compiler=str(tmp_path / "bin" / "clang++"))
    assert shipped != "None"
    assert did["sum"] == 500500
    assert "words of its own" in did["thrown"]
    assert compiled(commands) == {"/native/handler.cc"}


@pytest.mark.needs("clang++")
def test_clang_s_choice_of_the_cxx_library_decides(platform_user: User, tmp_path: Path):
    libcxx = ("clang++", "-stdlib=libc++", "-shared", "-include", "string", "-xc++", "/dev/null", "-o", tmp_path / "x")
    if subprocess.run(libcxx, capture_output=True, check=False).returncode:
        pytest.skip(f"{OPTIONAL}libc++")
    for cflags, sources in (((), set()), (("-stdlib=libc++",), {"/native/handler.cc"})):
        _, _, did, commands = platform_user.load(*cflags, compiler="clang++")
        assert compiled(commands) == sources
        assert "words of its own" in did["thrown"]


DOUBLED = """
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include <stdexcept>
// @BE f arg[n] ret[n]
void f(const BE::Tensor x, BE::Tensor y) {
  const float* in = x.data_ptr<float>();
  float* out = y.data_ptr<float>();
  BE::parallel_for(x.numel(), 10, [=](int64_t begin, int64_t end) {
    if (in[begin] < 0) throw std::runtime_error("less than nothing");
    for (int64_t i = begin; i < end; ++i) out[i] = 2 * in[i];
  });
}
"""
FRAME = """sum 4000
doubled.f: less than nothing
doubled.f: argument 0: data_ptr<float>() of an int32 tensor
doubled.f:
sum 4000
the attributes do not describe a launch
sum 2000
copy: argument 0""".splitlines()


@pytest.mark.needs("qemu-aarch64-static")
def test_aarch64_s_files_run_under_qemu(
    wheels: Wheels, tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch
):
    """Replay the compile command of a load here by the cross compiler, and call all in a program without Python."""
    with zipfile.ZipFile(wheels["aarch64"]) as archive:
        archive.extractall(tmp_path)
    (shipped,) = (tmp_path / FOLDER).iterdir()
    keep = f'case "$*" in *" -c src/"*) cp -r src {tmp_path}; echo "$@" > {tmp_path}/command;; esac'
    monkeypatch.setenv("BE_CXX", str(script(tmp_path / "cxx", keep, f'exec {real_compiler()} "$@"')))
    be_runtime.load_cpp_inline("doubled", DOUBLED)
    (tmp_path / "obj").mkdir()
    headers = jax_headers()
    linked = ("-shared", "-Wl,-z,defs", "obj/doubled.o", str(shipped / "handler.o"), "-o", "doubled.so")
    for command in (
        shlex.split((tmp_path / "command").read_text()),
        linked,
        ("-std=c++17", "-w", f"-I{headers}", str(Path(__file__).with_name("call_as_xla.cc")), "-o", "call_as_xla"),
    ):
        subprocess.run(("aarch64-linux-gnu-g++", *command), cwd=tmp_path, check=True)
    log = tmp_path / "log"
    variables = (f"LD_PRELOAD={shipped / 'looked_at.so'}", f"BE_LOOKED_AT={log}")
    qemu = (
        "qemu-aarch64-static",
        "-L",
        "/usr/aarch64-linux-gnu",
        *(part for each in variables for part in ("-E", each)),
    )
    done = run(*qemu, "./call_as_xla", "./doubled.so", shipped, tmp_path / "command", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words in line for line, words in zip(done.stdout.splitlines(), FRAME, strict=True)] == [True] * 8, (
        done.stdout
    )
    records = log.read_text().split("\0")
    assert {f"+{tmp_path / 'command'}", "-/absent/file"} <= set(records)
