"""A package's kernels: compiled while one develops, then built ahead and loaded by processes without anything."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.runtime import environment

SOURCE = """
#include "brainevent/common.h"
#include "factor.h"
// @BE NAME arg[n] ret[n]
void NAME(const BE::Tensor x, BE::Tensor y) {
  BE_CHECK(x.numel() < 100) << "too long";
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = FACTOR * x.data_ptr<float>()[i];
}
"""
CALL = "import jax.numpy as jnp, shipped; print(shipped.ops.twice(jnp.ones(2)).tolist(), shipped.ops.scaling.path)"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with two modules."""
    root = tmp_path / "home" / "shipped"
    (root / "include").mkdir(parents=True)
    (root / "__init__.py").write_text("from be_runtime import package_kernels\nops = package_kernels(__name__)\n")
    (root / "include" / "factor.h").write_text("#define FACTOR 2\n")
    (root / "scaling.cc").write_text(SOURCE.replace("NAME", "twice"))
    (root / "other").mkdir()
    (root / "other" / "a.cc").write_text(SOURCE.replace("NAME", "first"))
    (root / "other" / "b.cc").write_text(SOURCE.replace("NAME", "second"))
    rows = ('[modules.scaling]\nsources = "scaling.cc"', '[modules.other]\nsources = "other"')
    (root / "kernels.toml").write_text("\n".join(f'{row}\nextra_include_paths = ["include"]' for row in rows))
    return root


def run(package: Path, *argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run Python beside the package, with a cache of its own."""
    known = {"BE_CACHE_DIR": str(package.parents[1] / "cache"), **environ}
    command = (sys.executable, *argv)
    return subprocess.run(
        command, env=environment(**known), cwd=package.parent, capture_output=True, text=True, check=False
    )


def build(package: Path, *argv: str, **environ: str) -> Path:
    done = run(package, "-m", "be_runtime", "build", "shipped", *argv, **environ)
    assert done.returncode == 0, done.stderr
    return package / "_kernels"


def test_the_same_line_finds_what_was_compiled_and_what_was_built(package: Path):
    done = run(package, "-c", CALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[2.0, 2.0]")
    assert "/cache/" in done.stdout
    folder = build(package)
    bare = {"BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere", "BE_JIT": "never"}
    done = run(package, "-c", CALL, **bare)
    assert done.returncode == 0, done.stderr
    assert f"[2.0, 2.0] {folder}" in done.stdout


def test_errors_of_a_kernel_name_its_package(package: Path):
    call = (
        "import jax.numpy as jnp, shipped\n"
        "for name in ('twice', 'lost'):\n"
        "    try: print(getattr(shipped.ops.scaling, name)(jnp.ones(2), jnp.ones(2)))\n"
        "    except Exception as error: print(str(error).splitlines()[0])"
    )
    takes = "shipped.scaling.twice takes 1 array "
    lacks = "module 'shipped.scaling' has no function 'lost'; it has twice\n"
    native = "shipped.scaling.twice: argument 0: data_ptr<float>() of an int32 tensor"
    call += (
        "\ntry: shipped.ops.twice(jnp.ones(2, 'int32')).block_until_ready()\nexcept Exception as error: print(error)"
    )
    done = run(package, "-c", call)
    assert done.stdout.startswith(takes), done.stderr
    assert native in done.stdout
    assert lacks in done.stdout
    build(package)
    assert run(package, "-c", call, BE_JIT="never").stdout == done.stdout
    source = package / "scaling.cc"
    source.write_text(f"{source.read_text()}\nxx")
    assert "BuildError: compiling scaling.cc failed (module shipped.scaling)\n" in run(package, "-c", CALL).stderr
    source.write_text(SOURCE.replace("NAME", "twice").replace("arg[n]", "arg[n"))
    assert "SpecError: shipped: twice: " in run(package, "-c", CALL).stderr


def test_a_header_in_a_folder_beside_the_sources_that_is_a_link_out_is_not_built_in(package: Path, tmp_path: Path):
    (tmp_path / "outside.h").write_text("#define MORE 3\n")
    (package / "parts").mkdir()
    (package / "parts" / "more.h").symlink_to(tmp_path / "outside.h")
    source = package / "scaling.cc"
    source.write_text(f'#include "parts/more.h"\n{source.read_text()}')
    for done in (run(package, "-m", "be_runtime", "build", "shipped"), run(package, "-c", CALL)):
        assert done.returncode != 0
        assert f"modules.scaling: parts/more.h is a link to {tmp_path}/outside.h" in done.stderr
    assert not (package / "_kernels").exists()


def test_two_builds_are_the_same_bytes_and_say_no_place(package: Path, tmp_path: Path):
    first = build(package)
    moved = tmp_path / "elsewhere" / "shipped"
    shutil.copytree(package, moved, ignore=shutil.ignore_patterns("_kernels"))
    second = build(moved, BE_CACHE_DIR=str(tmp_path / "second"))
    files = sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file())
    assert len(files) == 3
    for file in files:
        data = (first / file).read_bytes()
        assert data == (second / file).read_bytes()
        assert str(tmp_path).encode() not in data


def test_an_edited_source_is_compiled_again(package: Path):
    build(package)
    (package / "include" / "factor.h").write_text("#define FACTOR 3\n")
    done = run(package, "-c", CALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[3.0, 3.0]")
    done = run(package, "-c", CALL, BE_JIT="never")
    assert done.returncode == 1
    assert "include/factor.h changed since it was built" in done.stderr


def test_an_edited_source_is_loaded_again_in_one_process(package: Path):
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
    done = run(package, "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[2. 2.]\n[2. 2.]\n[3. 3.] [2. 2.]\nshipped.scaling has changed: its functions")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("kernels.toml", None),  # such as another option
        ("other/factor.h", "#define FACTOR 4"),  # which is found before include/factor.h
        ("other/c.cc", SOURCE.replace("NAME", "third")),
        ("other/c.cu", ""),
    ],
)
def test_whatever_would_change_a_module_is_noticed(package: Path, file: str, text: str | None):
    build(package)
    with (package / file).open("a") as to:
        to.write("# an edit" if text is None else text)
    done = run(package, "-c", "import shipped; shipped.ops.other.first", BE_JIT="never")
    assert done.returncode == 1
    assert f"{file} changed since it was built" in done.stderr


def test_a_function_that_was_added_since_is_found(package: Path):
    build(package)
    (package / "other" / "c.cc").write_text(SOURCE.replace("NAME", "third"))
    done = run(package, "-c", "import shipped; print(shipped.ops.third, sorted(shipped.ops.__own__._made))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("['other', 'third']\n")


def test_a_folder_of_prebuilt_packages_is_one_more_place(package: Path, tmp_path: Path):
    build(package, "--out", str(tmp_path / "prebuilt" / "shipped"))
    done = run(package, "-c", CALL, BE_PREBUILT_DIR=str(tmp_path / "prebuilt"), BE_JIT="never", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    assert str(tmp_path / "prebuilt" / "shipped" / "images") in done.stdout


def test_where_it_looked_is_said(package: Path, tmp_path: Path):
    done = run(package, "-c", CALL, BE_PREBUILT_DIR=str(tmp_path), BE_JIT="never")
    assert f"there is no {package / '_kernels/index.json'} or {tmp_path / 'shipped/index.json'}\n" in done.stderr


def test_code_of_another_library_does_not_run(package: Path, tmp_path: Path):
    """Not even its constructors, though it has the size of the right one."""
    folder = build(package)
    digest = json.loads((folder / "index.json").read_text())["modules"]["scaling"]["image"]
    image = folder / "images" / f"{digest}.so"
    (tmp_path / "other.cc").write_text("#include <cstdlib>\n__attribute__((constructor)) void f() { _Exit(7); }\n")
    subprocess.run(["c++", "-shared", "-fPIC", "-o", tmp_path / "other.so", tmp_path / "other.cc"], check=True)
    other = (tmp_path / "other.so").read_bytes()
    whole = image.read_bytes()
    settled = {"BE_CACHE_DIR": str(tmp_path / "memory"), "BE_JIT": "never"}
    for data in (other.ljust(len(whole), b"\0"), whole[:64] + b"\xff" * 8 + whole[72:]):
        assert run(package, "-c", CALL, **settled).returncode == 0
        image.write_bytes(data)
        done = run(package, "-c", CALL, **settled)
        assert (done.returncode, "other bytes than when it was built" in done.stderr) == (1, True), done
        image.write_bytes(whole)


def test_show_takes_a_name(package: Path):
    build(package)
    assert "module   scaling: twice" in run(package, "-m", "be_runtime", "show", "shipped").stdout
    done = run(package, "-m", "be_runtime", "show", "unshipped")
    assert done.returncode == 1
    assert "unshipped can't be read: No such file or directory" in done.stderr


def test_it_loads_from_a_zip(package: Path, tmp_path: Path):
    build(package)
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", package.parent)
    shutil.rmtree(package)
    (package.parent).mkdir(exist_ok=True)
    script = f"import sys; sys.path.insert(0, {archive!r}); {CALL}"
    done = run(package, "-c", script, PATH="/nowhere", BE_JIT="never", BE_CACHE_DIR="/proc/none")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("[2.0, 2.0]")


def test_names_that_are_not_unique_or_not_there(package: Path):
    (package / "kernels.toml").write_text(
        "\n".join(f'[modules.{name}]\nsources = "scaling.cc"\nextra_include_paths = ["include"]' for name in "ab")
    )
    script = "import shipped\ntry: shipped.ops.NAME\nexcept AttributeError as e: print(e)"
    assert "write a.twice or b.twice" in run(package, "-c", script.replace("NAME", "twice")).stdout
    assert "no kernel 'thrice'; it has a, b, twice" in run(package, "-c", script.replace("NAME", "thrice")).stdout


def test_always_compiles_although_it_was_built(package: Path):
    build(package)
    done = run(package, "-c", CALL, BE_JIT="always")
    assert "/cache/" in done.stdout


def test_an_interrupt_ends_the_compilers_and_writes_nothing(package: Path):
    """A build whose compiler takes a minute is interrupted, then done again."""
    slow = package.parents[1] / "slow"
    slow.write_text('#!/bin/sh\ncase "$*" in *-c*src/*) touch "$0.called"; exec sleep 60;; esac\nexec g++ "$@"\n')
    slow.chmod(0o755)
    known = environment(BE_CACHE_DIR=str(package.parents[1] / "cache"), CXX=str(slow))
    command = (sys.executable, "-m", "be_runtime", "build", "shipped")
    process = subprocess.Popen(command, env=known, cwd=package.parent, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not slow.with_name("slow.called").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=20)[1]
    assert (process.returncode, said) == (130, "interrupted\n")
    assert not list(package.glob("*_kernels*"))
    build(package)


def test_without_a_compiler_nothing_is_written(package: Path):
    done = run(package, "-m", "be_runtime", "build", "shipped", "--json", PATH="/nowhere", CXX="")
    assert done.returncode == 1
    assert json.loads(done.stdout)["problem"]["code"] == "TC301"
    assert not list(package.glob("*_kernels*"))
    assert not list(package.glob("._kernels*"))


@pytest.mark.parametrize(("jit", "found"), [("missing", "cache"), ("never", "")])
def test_code_for_another_gpu_is_compiled_again_or_named(package: Path, jit: str, found: str):
    """The GPU is one that is pretended: what decides are the architectures in the index."""
    index = build(package) / "index.json"
    index.write_text(index.read_text().replace('"archs": []', '"archs": ["9.0a"]'))
    pretended = "import be_runtime.ship.package as p; p.device_archs = lambda _: (p.Arch(8, 6),); "
    done = run(package, "-c", pretended + CALL, BE_JIT=jit)
    if found:
        assert done.returncode == 0, done.stderr
        assert f"/{found}/" in done.stdout
    else:
        assert "its code for sm_90a does not run on sm_86" in done.stderr


def test_packages_with_modules_of_one_name_live_beside_each_other(package: Path):
    """Code has the name of its package, for errors: two of the same sources have an image each."""
    for name, factor in (("same", 2), ("other", 5)):
        copy = package.with_name(name)
        shutil.copytree(package, copy)
        (copy / "include" / "factor.h").write_text(f"#define FACTOR {factor}\n")
    for path in package.parent.rglob("*.cc"):
        path.write_text(path.read_text().replace('BE_CHECK(x.numel() < 100) << "too long";', ""))
    for name in ("shipped", "same", "other"):
        done = run(package, "-m", "be_runtime", "build", name)
        assert done.returncode == 0, done.stderr
    script = """
import jax.numpy as jnp, be_runtime, shipped, same, other
print(*[each.ops.twice(jnp.ones(2)).tolist() for each in (shipped, same, other)], sep="; ")
names = be_runtime.list_registered_targets()
print([name for name in names if name.endswith("twice") and not name.startswith("be.")])
print(len([name for name in names if name.startswith("be.")]))
"""
    done = run(package, "-c", script, BE_JIT="never", PATH="/nowhere")
    assert done.returncode == 0, done.stderr
    values, targets, count = done.stdout.splitlines()
    assert values == "[2.0, 2.0]; [2.0, 2.0]; [5.0, 5.0]"
    assert targets == "['other.scaling.twice', 'same.scaling.twice', 'shipped.scaling.twice']"
    assert count == "3"


TWO_OF_ONE_NAME = """
[modules.a]
sources = ["one.cc", "two.cc"]
[modules."a.one"]
sources = "one.cc"
"""
"""Functions of one name in several files have the file's name before theirs."""


@pytest.mark.parametrize(
    ("text", "argv", "message"),
    [
        (None, (), "the package shipped has no kernels.toml"),
        ('[modules.a]\nsources = "scaling.cc"', ("--archs", "9.9x"), "'9.9x' is not a GPU architecture"),
        ('[modules.a]\nsources = ["other", "other/a.cc"]', (), "modules.a: sources name other/a.cc twice"),
        ('[modules.a]\nsources = "missing.cc"', (), "no such file: "),
        (TWO_OF_ONE_NAME, (), "modules.a and modules.a.one both have a target shipped.a.one.c"),
    ],
)
def test_what_can_not_be_built_is_named_and_nothing_is_written(
    package: Path, text: str | None, argv: tuple[str, ...], message: str
):
    (package / "kernels.toml").unlink()
    if text is not None:
        (package / "kernels.toml").write_text(text)
    plain = SOURCE.replace("NAME", "c").replace("FACTOR *", "")
    for name in ("one.cc", "two.cc"):
        (package / name).write_text(plain.replace('#include "factor.h"', ""))
    done = run(package, "-m", "be_runtime", "build", "shipped", *argv)
    assert done.returncode == 1
    assert message in done.stderr
    assert not list(package.glob("*_kernels*"))


def test_a_package_without_kernels_is_told_what_to_add(package: Path):
    (package / "kernels.toml").unlink()
    done = run(package, "-c", "import shipped")
    assert "the package shipped has no kernels: neither kernels.toml nor _kernels/index.json" in done.stderr
