"""A package's kernels: compiled while one develops, then built ahead and loaded by processes without anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cli.main import main
from be_runtime.kernels.launcher import kernel_of, lacking
from be_runtime.store.artifact import open_folder
from be_toolchain.arch import Arch
from tests.compile.be_runtime.processes import python
from tests.compile.be_runtime.scaling import scaling
from tests.support import jobs
from tests.support.packages import run_beside, write_package
from tests.support.runtime import environment, without_compilers

INCLUDE = '#include "factor.h"\n'
CALL = "import jax.numpy as jnp, shipped; print(shipped.ops.twice(jnp.ones(2)).tolist(), shipped.ops.scaling.path)"
BARE: dict[str, Any] = {"BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere", "BE_JIT": "never"}
Place = Callable[[Path], Path]


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with two modules, which nobody edits."""
    root = tmp_path_factory.mktemp("declared") / "shipped"
    files = {
        "__init__.py": "from be_runtime import package_kernels\nops = package_kernels(__name__)\n",
        "include/factor.h": "#define FACTOR 2\n",
        "scaling.cc": scaling("twice", "FACTOR", INCLUDE),
        "other/a.cc": scaling("first", "FACTOR", INCLUDE),
        "other/b.cc": scaling("second", "FACTOR", INCLUDE),
        "kernels.toml": '[modules.scaling]\nsources = "scaling.cc"\nextra_include_paths = ["include"]\n'
        '[modules.other]\nsources = "other"\nextra_include_paths = ["include"]\n',
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture(scope="module")
def built_once(declared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with what was built ahead of time."""
    package = Path(shutil.copytree(declared, tmp_path_factory.mktemp("built") / "shipped"))
    python(package.parent, "-m", "be_runtime", "build", "shipped")
    return package


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """Copy a package to where this process imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    yield lambda package: Path(shutil.copytree(package, tmp_path / "shipped"))
    sys.modules.pop("shipped", None)


@pytest.fixture
def package(declared: Path, place: Place) -> Path:
    return place(declared)


@pytest.fixture
def built(built_once: Path, place: Place) -> Path:
    return place(built_once)


def test_the_same_line_finds_what_was_compiled_and_what_was_built(package: Path, built_once: Path, tmp_path: Path):
    def found(**environ: Any) -> str:
        return python(tmp_path, "-c", CALL, **environ).stdout

    cache = os.environ["BE_CACHE_DIR"]
    assert found().startswith(f"[2.0, 2.0] {cache}/")
    prebuilt = shutil.copytree(built_once / "_kernels", tmp_path / "prebuilt" / "shipped")
    assert found(**BARE, BE_PREBUILT_DIR=str(tmp_path / "prebuilt")).startswith(f"[2.0, 2.0] {prebuilt}/images/")
    shutil.copytree(built_once / "_kernels", package / "_kernels")
    assert found(**BARE).startswith(f"[2.0, 2.0] {package}/_kernels/images/")
    assert found(BE_JIT="always").startswith(f"[2.0, 2.0] {cache}/")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path, "shipped")
    shutil.rmtree(package)
    zipped = f"import sys; sys.path.insert(0, {archive!r}); {CALL}"
    assert python(tmp_path, "-c", zipped, **BARE).stdout.startswith("[2.0, 2.0] ")


def test_errors_of_a_kernel_name_its_package(built: Path, tmp_path: Path):
    call = (
        "import jax.numpy as jnp, shipped\n"
        "for call in ('scaling.twice(1, 2)', 'scaling.lost', 'twice(jnp.ones(2, int)).block_until_ready()'):\n"
        "    try: eval('shipped.ops.' + call)\n"
        "    except Exception as error: print(str(error).splitlines()[0])"
    )
    said = python(tmp_path, "-c", call, BE_JIT="never").stdout
    takes, lacks, native = said.splitlines()
    assert takes.startswith("shipped.scaling.twice takes 1 array ")
    assert lacks == "module 'shipped.scaling' has no function 'lost'; it has twice"
    assert "shipped.scaling.twice: argument 0: data_ptr<float>() of an int32 tensor" in native
    shutil.rmtree(built / "_kernels")
    assert python(tmp_path, "-c", call).stdout == said


def test_sources_that_can_not_be_compiled_are_named_with_their_package(package: Path):
    source = package / "scaling.cc"
    for text, error in (
        (f"{source.read_text()}\nxx", "compiling scaling.cc failed (module shipped.scaling)"),
        (source.read_text().replace("arg[n]", "arg[n"), "shipped: twice: "),
    ):
        source.write_text(text)
        with pytest.raises(be_runtime.BeRuntimeError) as caught:
            be_runtime.package_kernels("shipped")["scaling"]
        assert caught.value.message.startswith(error)


def test_a_header_that_the_compiler_reads_through_a_link_out_is_refused(
    package: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "outside.h").write_text("#define MORE 3\n")
    (package / "parts").mkdir()
    (package / "parts" / "more.h").symlink_to(tmp_path / "outside.h")
    source = package / "scaling.cc"
    source.write_text(f'#include "parts/more.h"\n{source.read_text()}')
    refused = f"modules.scaling: parts/more.h is a link to {tmp_path}/outside.h"
    assert main(["build", "shipped"]) != 0
    assert refused in capsys.readouterr().err
    assert not (package / "_kernels").exists()
    with pytest.raises(be_runtime.BeRuntimeError, match=re.escape(refused)):
        be_runtime.package_kernels("shipped")["scaling"].twice  # noqa: B018 -- the load


def test_two_builds_are_the_same_bytes_and_say_no_place(
    built_once: Path, package: Path, tmp_path: Path, tmp_cache: Path
):
    assert main(["build", "shipped"]) == 0
    files = [path.relative_to(built_once) for path in (built_once / "_kernels").rglob("*") if path.is_file()]
    assert len(files) == 3
    for file in files:
        data = (package / file).read_bytes()
        assert data == (built_once / file).read_bytes()
        assert str(tmp_path).encode() not in data


def test_what_was_edited_or_added_since_is_compiled(built: Path, tmp_path: Path):
    (built / "include" / "factor.h").write_text("#define FACTOR 3\n")
    (built / "other" / "c.cc").write_text(scaling("third", "FACTOR", INCLUDE))
    done = python(tmp_path, "-c", f"{CALL}; print(shipped.ops.third, sorted(shipped.ops.__own__._made))")
    assert done.stdout.startswith("[3.0, 3.0]")
    assert done.stdout.endswith("['other', 'scaling', 'third', 'twice']\n")


def test_an_edited_source_is_loaded_again_in_one_process(package: Path, tmp_path: Path):
    script = """
import importlib, pathlib, warnings, jax, jax.numpy as jnp, shipped
x = jnp.ones(2)
print(shipped.ops.twice(x))
pathlib.Path("shipped/include/factor.h").write_text("#define FACTOR 3\\n")
print(shipped.ops.twice(x))
importlib.reload(shipped)
with warnings.catch_warnings(record=True) as told:
    print(shipped.ops.twice(x), jax.ffi.ffi_call("shipped.scaling.twice", jax.ShapeDtypeStruct((2,), "float32"))(x))
print(*[each.message for each in told])
"""
    said = python(tmp_path, "-c", script).stdout
    assert said.startswith("[2. 2.]\n[2. 2.]\n[3. 3.] [2. 2.]\nshipped.scaling has changed: its functions")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("include/factor.h", "#define FACTOR 3\n"),
        ("kernels.toml", "# such as another option"),
        ("other/factor.h", "#define FACTOR 4"),  # which is found before include/factor.h
        ("other/c.cc", scaling("third", "FACTOR", INCLUDE)),
        ("other/c.cu", ""),
    ],
)
def test_whatever_would_change_a_module_is_noticed(built: Path, file: str, text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_JIT", "never")
    with (built / file).open("a") as to:
        to.write(text)
    with pytest.raises(be_runtime.LoadError) as caught:
        be_runtime.package_kernels("shipped")["other"]
    assert f"{file} changed since it was built" in str(caught.value)


def test_what_can_not_be_used_is_said(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The GPU is one that is pretended: what decides are the architectures in the index."""
    monkeypatch.setenv("BE_JIT", "never")
    index = built / "_kernels" / "index.json"
    index.write_text(index.read_text().replace('"archs": []', '"archs": ["9.0a"]'))
    monkeypatch.setattr("be_runtime.ship.package_store.device_archs", lambda _: (Arch(8, 6),))
    with pytest.raises(be_runtime.LoadError, match="its code for sm_90a does not run on sm_86"):
        be_runtime.package_kernels("shipped")["scaling"]
    shutil.rmtree(built / "_kernels")
    monkeypatch.setenv("BE_PREBUILT_DIR", str(tmp_path))
    with pytest.raises(be_runtime.LoadError, match=f"there is no {index} or {tmp_path / 'shipped/index.json'}\n"):
        be_runtime.package_kernels("shipped")["scaling"]


def test_code_of_another_library_does_not_run(built: Path, tmp_path: Path):
    """Not even its constructors, though it has the size of the right one."""
    digest = json.loads((built / "_kernels" / "index.json").read_text())["modules"]["scaling"]["image"]
    image = built / "_kernels" / "images" / f"{digest}.so"
    (tmp_path / "other.cc").write_text("#include <cstdlib>\n__attribute__((constructor)) void f() { _Exit(7); }\n")
    subprocess.run(["c++", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.cc"], check=True)
    python(tmp_path, "-c", CALL, BE_JIT="never")
    image.write_bytes((tmp_path / "other.so").read_bytes().ljust(image.stat().st_size, b"\0"))
    assert "other bytes than when it was built" in python(tmp_path, "-c", CALL, code=1, BE_JIT="never").stderr


def test_show_takes_a_name(built: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["show", "shipped"]) == 0
    assert "module   scaling: twice" in capsys.readouterr().out
    assert main(["show", "unshipped"]) == 1
    assert "unshipped can't be read: No such file or directory" in capsys.readouterr().err


def test_names_that_are_not_unique_or_not_there(package: Path):
    (package / "kernels.toml").write_text("".join(f'[modules.{name}]\nsources = "scaling.cc"\n' for name in "ab"))
    ops = be_runtime.package_kernels("shipped")
    with pytest.raises(AttributeError, match=r"write a\.twice or b\.twice"):
        _ = ops.twice
    with pytest.raises(AttributeError, match="no kernel 'thrice'; it has a, b, twice"):
        _ = ops.thrice
    (package / "kernels.toml").unlink()
    with pytest.raises(
        be_runtime.ArgumentError, match=r"shipped has no kernels: neither kernels\.toml nor _kernels/in"
    ):
        be_runtime.package_kernels("shipped")


def test_an_interrupt_ends_the_compilers_and_writes_nothing(package: Path, tmp_path: Path):
    """The compiler takes a minute."""
    slow = tmp_path / "slow"
    slow.write_text('#!/bin/sh\ncase "$*" in *-c*src/*) echo "$*" > "$0.called"; exec sleep 60;; esac\nexec g++ "$@"\n')
    slow.chmod(0o755)
    known = environment(CXX=str(slow), BE_CACHE_DIR=str(tmp_path / "cache"))
    command = (sys.executable, "-m", "be_runtime", "build", "shipped")
    process = subprocess.Popen(command, env=known, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    jobs.wait_for(tmp_path, "slow.called")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)[1]
    assert (process.returncode, said) == (130, "interrupted\n")
    assert not list(package.glob("*_kernels*"))


def test_packages_with_modules_of_one_name_live_beside_each_other(package: Path, tmp_path: Path):
    """Code has the name of its package, for errors: two of the same sources have an image each."""
    (package / "kernels.toml").write_text('[modules.scaling]\nsources = "scaling.cc"\n')
    for name, factor in (("same", 2), ("other", 5), ("shipped", 2)):
        copy = package if name == "shipped" else Path(shutil.copytree(package, tmp_path / name))
        (copy / "factor.h").write_text(f"#define FACTOR {factor}\n")
        assert main(["build", name]) == 0
    script = """
import jax.numpy as jnp, be_runtime, shipped, same, other
print(*[each.ops.twice(jnp.ones(2)).tolist() for each in (shipped, same, other)], sep="; ")
names = be_runtime.list_registered_targets()
print([name for name in names if name.endswith("twice") and not name.startswith("be.")])
print(len([name for name in names if name.startswith("be.")]))
"""
    values, targets, count = python(tmp_path, "-c", script, **BARE).stdout.splitlines()
    assert values == "[2.0, 2.0]; [2.0, 2.0]; [5.0, 5.0]"
    assert targets == "['other.scaling.twice', 'same.scaling.twice', 'shipped.scaling.twice']"
    assert count == "3"


TWO_OF_ONE_NAME = '[modules.a]\nsources = ["one.cc", "two.cc"]\n[modules."a.one"]\nsources = "one.cc"\n'
"""Functions of one name in several files have the file's name before theirs."""


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        ('[modules.a]\nsources = "scaling.cc"', ("--archs", "9.9x"), "'9.9x' is not a GPU architecture"),
        ('[modules.a]\nsources = ["other", "other/a.cc"]', (), "modules.a: sources name other/a.cc twice"),
        ('[modules.a]\nsources = "missing.cc"', (), "no such file: "),
        (TWO_OF_ONE_NAME, (), "modules.a and modules.a.one both have a target shipped.a.one.c"),
    ],
)
def test_what_can_not_be_built_is_named_and_nothing_is_written(
    package: Path, text: str, argv: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
):
    for name in ("one.cc", "two.cc"):
        (package / name).write_text(scaling("c"))
    (package / "kernels.toml").write_text(text)
    assert main(["build", "shipped", *argv]) == 1
    assert message in capsys.readouterr().err
    assert not list(package.glob("*_kernels*"))


FUNCTION_CALLS = """
import jax, jax.numpy as jnp, numpy as np, sys
import be_runtime, shipped
decay = shipped.ops.decay
x = jnp.arange(4.0)
print(decay(x, np.float32(0.5)).tolist(), jax.vmap(decay, (0, None))(jnp.ones((2, 2)), np.float32(0.5)).tolist())
try:
    jax.block_until_ready(decay(x, np.float32(2)))
except Exception as error:
    print(str(error).splitlines()[0])
try:
    decay(jnp.arange(4), np.float32(0.5))
except be_runtime.ArgumentError as error:
    print(error)
print(decay.__doc__, decay.__name__, shipped.ops.wave.__name__, shipped.ops.scale.__name__, "numba" in sys.modules)
"""


@pytest.fixture
def functions(tmp_path: Path) -> Path:
    """A package of raw and Numba kernels."""
    pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)
    return write_package(tmp_path / "home" / "shipped")


@pytest.mark.full
def test_a_process_without_compiler_numba_and_cache_calls_them_as_while_one_develops(functions: Path, tmp_path: Path):
    as_declared = run_beside(functions, "-c", FUNCTION_CALLS)
    assert as_declared.splitlines()[0] == "[0.0, 0.5, 1.0, 1.5] [[0.5, 0.5], [0.5, 0.5]]"
    run_beside(functions, "-m", "be_runtime", "build", "shipped", "--out", str(tmp_path / "first"))
    run_beside(functions, "-m", "be_runtime", "build", "shipped", BE_CACHE_DIR=str(tmp_path / "another cache"))
    first, second = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob("**/*") if path.is_file()}
        for folder in (tmp_path / "first", functions / "_kernels")
    )
    assert first == second, "two builds are the same bytes"
    for folder in ("raw", "host.py", "device.py"):
        (functions / folder).rename(tmp_path / folder)
    unused = tmp_path / "unused"
    (tmp_path / "blocked" / "numba").mkdir(parents=True)
    (tmp_path / "blocked" / "numba" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = f"{tmp_path / 'blocked'}:{environment()['PYTHONPATH']}"
    as_built = run_beside(
        functions,
        "-c",
        FUNCTION_CALLS,
        BE_JIT="never",
        BE_CACHE_DIR=str(unused),
        PATH=without_compilers(tmp_path / "bin"),
        PYTHONPATH=path,
    )
    assert {path.name for path in unused.glob("*")} <= {"images"}, "where checked files are remembered, and no code"
    lines, expected = as_built.splitlines(), as_declared.splitlines()
    assert lines[:2] == [expected[0], "INTERNAL: decay: ValueError: by is more than 1"]
    assert lines[2].startswith(
        "decay was not built for (int32[:], float32[]) -> (int32[:]); it was built for (float32[:]"
    )
    assert lines[-1] == "Decay towards zero. decay wave scale False"


@pytest.mark.full
def test_code_for_other_gpus_is_refused_by_name_and_ptx_serves_later_ones(functions: Path):

    run_beside(functions, "-m", "be_runtime", "build", "shipped")
    bundle = open_folder(functions / "_kernels")
    assert bundle is not None
    for kernel_id, row in bundle.table.kernels.items():
        assert lacking(row, (Arch(7, 5),)) == "it has code for 8.0, 9.0, 9.0+PTX, and the GPU here is 7.5"
        assert not lacking(row, (Arch(12, 0),))
        kernel = kernel_of(kernel_id, row, bundle.image)
        assert [(str(image.arch), image.is_ptx) for image in kernel.images if not image.form] == [
            ("8.0", False),
            ("9.0", False),
            ("9.0", True),
        ]
        assert all(image.entry.encode() in image.data for image in kernel.images)
    assert json.dumps(dict(bundle.table.functions)).count(str(functions.parent)) == 0
