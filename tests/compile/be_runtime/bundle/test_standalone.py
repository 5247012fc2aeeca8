"""Kernels that need only JAX where they are installed, and no folder of the environment that built them."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from be_runtime.cli.main import main
from be_runtime.ship.wheel import read_needs
from be_runtime.store.images import read_image
from tests.compile.be_runtime.processes import python
from tests.support.hostile_files import plant
from tests.support.requirements import host_compiler, in_full

SOURCE = r"""
#include <string>
#include "brainevent/common.h"

enum class Mode { plain, squared };
struct More {
  BE::float16_t shift;
  int z;
};

/// Scale an array, QUOTED.
// @BE scale
void scale(const BE::Tensor x, BE::Tensor y, More more, float by = 2, Mode mode = Mode::plain, bool flip = false) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    const float each = by * x.data_ptr<float>()[i] + static_cast<float>(more.shift) + more.z;
    y.data_ptr<float>()[i] = (flip ? -1 : 1) * (mode == Mode::squared ? each * each : each);
  }
}
// @BE add
void add(const BE::Tensor x, const BE::Tensor z, BE::Tensor y, BE::Span<const int8_t> weights, std::string text) {
  for (int64_t i = 0; i < x.numel(); ++i)
    y.data_ptr<float>()[i] = weights[0] * x.data_ptr<float>()[i] + weights[1] * z.data_ptr<float>()[i] + text.size();
}
""".replace("QUOTED", '"""as said"""')

PROGRAM = """
import sys
import jax, jax.numpy as jnp, numpy as np
from {package} import _kernels as ops
x = jnp.arange(3, dtype=jnp.float32)
like = jax.ShapeDtypeStruct(x.shape, x.dtype)
more = dict(shift=0.5, z=2)
print(ops.scale(x, result=like, more=more).tolist())
print(jax.jit(lambda x: ops.maths.scale(x, result=like, more=more, by=1, mode="squared", flip=True))(x).tolist())
print(ops.add(x, x, result=like, weights=[1, -3], text="four").tolist())
add = ops.call("maths.add", like, vmap_method="sequential")
print(jax.vmap(lambda x: add(x, x, weights=[1, 1], text=""))(jnp.ones((2, 3))).tolist())
print(sorted(ops.TARGETS))
try:
    ops.scale(x, result=like, more=more, bye=1)
except TypeError as error:
    print(error)
print([name for name in ("be_runtime", "be_toolchain") if name in sys.modules])
print(ops.scale.__doc__)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with a module."""
    root = tmp_path / "first"
    root.mkdir()
    (root / "__init__.py").touch()
    (root / "maths.cc").write_text(SOURCE)
    (root / "kernels.toml").write_text('[modules.maths]\nsources = "maths.cc"\n')
    monkeypatch.syspath_prepend(tmp_path)
    yield root
    for name in ("first", "second"):
        sys.modules.pop(name, None)


def test_one_file_calls_the_kernels_with_jax_alone(package: Path):
    assert main(["build", "first", "--standalone"]) == 0
    head, _, doc = python(package.parent, "-c", PROGRAM.format(package="first")).stdout.partition("[]\n")
    assert head.splitlines() == [
        "[2.5, 4.5, 6.5]",
        "[-6.25, -12.25, -20.25]",
        "[4.0, 2.0, 0.0]",
        "[[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]]",
        "['maths.add', 'maths.scale']",
        "maths.scale has no attribute 'bye'; it has more, by, mode, flip",
    ]
    assert doc.startswith('Scale an array, """as said""".')
    assert "Call it as maths.scale(x, result=..., more=..., by=2.0, mode='plain', flip=False)." in doc


@pytest.mark.full
def test_two_packages_may_have_the_same_kernels_and_be_runtime_uses_them_too(package: Path):
    shutil.copytree(package, package.with_name("second"))
    for name in ("first", "second"):
        assert main(["build", name, "--standalone"]) == 0
    program = """
import jax, jax.numpy as jnp, be_runtime
from first import _kernels as a
from second import _kernels as b
x, s, more = jnp.ones(1), jax.ShapeDtypeStruct((1,), "float32"), {"shift": 0, "z": 0}
print(*(each.scale(x, result=s, more=more).tolist() for each in (a, b)))
print(be_runtime.package_kernels('first').scale(x, more=more, outs=s).tolist())
"""
    assert python(package.parent, "-c", program).stdout.split() == ["[2.0]"] * 3


def test_a_damaged_image_is_not_mapped_and_another_cpu_is_refused(package: Path):
    (package / "kernels.toml").write_text('baseline = "x86-64"\n' + (package / "kernels.toml").read_text())
    assert main(["build", "first", "--standalone"]) == 0
    file = package / "_kernels" / "__init__.py"
    (image,) = (package / "_kernels" / "images").iterdir()
    image.write_bytes(image.read_bytes()[:-1] + bytes([image.read_bytes()[-1] ^ 1]))
    load = ("-c", "from first import _kernels")
    assert f"ImportError: {image} is damaged: install first again" in python(package.parent, *load, code=1).stderr
    plant(image, "pipe")
    assert f"ImportError: {image} is damaged: install first again" in python(package.parent, *load, code=1).stderr
    file.write_text(file.read_text().replace("_CPU_FLAGS = []", "_CPU_FLAGS = ['fpu', 'qubits']"))
    said = python(package.parent, *load, code=1).stderr
    assert "ImportError: the kernels of first need a CPU with qubits" in said


KERNEL = '[kernels.k]\nsource = "k.cu"\nsignature = "arg ret"\n'
SCRATCH = "// @BE f arg[n] scratch[4 * n] ret[n]\nvoid f(BE::Tensor x, BE::Workspace s, BE::Tensor y) {}"


@pytest.mark.parametrize(
    ("more", "source", "message"),
    [
        (KERNEL, "", "kernels.k of first can't be standalone"),
        ("", "struct S { BE::Span<const int> n; };\n// @BE f\nvoid f(BE::Tensor y, S s) {}", "s.n is an array in a"),
        ("", "// @BE f\nvoid f(BE::Tensor y, BE::DType t) {}", "first.maths.f can't be standalone: its attribute t is"),
        ("", SCRATCH, "scratch memory"),
    ],
)
def test_what_needs_more_than_jax_is_refused_by_name(
    package: Path, more: str, source: str, message: str, capsys: pytest.CaptureFixture[str]
):
    declared = (package / "kernels.toml").read_text()
    (package / "kernels.toml").write_text(f'archs = ["9.0"]\n{declared}{more}')
    (package / "maths.cc").write_text(SOURCE + source)
    assert main(["build", "first", "--standalone"]) == 1
    assert message in capsys.readouterr().err
    assert not (package / "_kernels").exists()


@pytest.mark.parametrize("tags", ["--enable-new-dtags", in_full("--disable-new-dtags")])
@pytest.mark.parametrize(
    ("linked", "shipped"),
    [
        ("ENV/lib", ()),
        ("ENV/lib:$ORIGIN/own", ("$ORIGIN/own",)),
        ("$ORIGIN:ENV/lib:/opt/lib", ("$ORIGIN", "/opt/lib")),
        ("/opt/lib", ("/opt/lib",)),
    ],
)
def test_folders_of_conda_environments_are_not_shipped(
    tmp_path: Path, tags: str, linked: str, shipped: tuple[str, ...]
):
    (tmp_path / "conda-meta").mkdir()
    # The function's name shares the bytes at the end of the run path.
    (tmp_path / "own.cc").write_text('extern "C" int lib() { return 7; }')
    path = linked.replace("ENV", str(tmp_path))
    flags = [part for word in (tags, "-rpath", path) for part in ("-Xlinker", word)]
    command = [str(host_compiler()), "-shared", "-fPIC", "own.cc", "-o", "linked.so", *flags]
    subprocess.run(command, cwd=tmp_path, check=True)
    data = read_image(tmp_path / "linked.so")
    assert read_needs(data).run_paths == shipped
    assert str(tmp_path).encode() not in data
    (tmp_path / "shipped.so").write_bytes(data)
    assert ctypes.CDLL(str(tmp_path / "shipped.so")).lib() == 7
