"""Kernels as the launcher and the cache have them, and grids, blocks and shared memory from what callers write."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime import cuda_kernel
from be_runtime.call.resolve import Resolved
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec, Split
from be_runtime.kernels import launcher
from be_runtime.kernels.geometry import (
    automatic_block,
    automatic_geometry,
    choose_geometry,
    explicit_geometry,
    scalar_param,
)
from be_runtime.kernels.launcher import (
    Compiled,
    Form,
    Kernel,
    KernelImage,
    Origin,
    kernel_of,
    obtain_kernel,
)
from be_runtime.kernels.raw import Sizes, read_sizes
from be_runtime.load.process import PROCESS
from be_runtime.signature.model import Param, Role
from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.keys import make_key
from be_toolchain.arch import Arch
from tests.unit.be_runtime.compile.codegen.golden_files import answer, check_golden

GOLDEN = Path(__file__).parent / "golden"


def explicit(**given: Any) -> str:
    return str(explicit_geometry(**({"grid": 4, "block": 32} | given)).encode())


def choose(**given: Any) -> str:
    """With the defaults of `numba_cuda_kernel`."""
    arguments = {"grid": None, "block": None, "launch_dims": None, "threads_per_block": 256, "shared_mem": 0} | given
    return str(choose_geometry(**arguments, is_empty=False).encode())


EXPLICIT: list[dict[str, Any]] = [
    {"grid": (2, 3), "block": 64, "shared_mem": 100, "cluster": (2, 1)},
    {"grid": 0, "is_empty": True},
    *({"grid": grid} for grid in (0, -4, (1, 70_000), 2**31 - 1, 2**31, (1, 1, 1, 1), (), 1.5, "4", True, None)),
    *({"block": block} for block in (2048, (1, 1, 128), (32, 33))),
    *({"shared_mem": size} for size in (256 * 1024 - 1, -1, 256 * 1024, (100, 200), "48k")),
    *({"cluster": cluster} for cluster in (32, 3)),
]
CHOSEN: list[dict[str, Any]] = [
    *({}, {"grid": 1}, {"block": 1}, {"grid": 1, "block": 1, "launch_dims": 1}, {"launch_dims": 0}),
    *({"launch_dims": 8, "threads_per_block": threads} for threads in (4, 2000, (16, 16))),
    *({"grid": 4, "block": (16, 4), "threads_per_block": threads} for threads in (256, 64, 32, 0, "many", 2000)),
    {"launch_dims": (16, 2_000_000)},
]


def test_numbers_become_a_geometry_or_are_refused():
    """Numbers and tuples are filled up with ones; what some GPU may have is left to the launcher."""
    rows = [f"{given}\n  {answer(explicit, **given)}\n" for given in EXPLICIT]
    rows += [f"{given}\n  {answer(choose, **given)}\n" for given in CHOSEN]
    for launch in ({"grid": 0}, {"block": 2048}, {"shared_mem": 10**6}, {"shared_mem": "48k"}):
        arguments = {"outs": lambda: np.zeros(1), "grid": 1, "block": 32} | launch
        made = answer(cuda_kernel, "__global__ void f(float* y) {}", "f", **arguments)
        rows.append(f"a raw kernel of {launch}\n  {made}\n")
    check_golden(GOLDEN / "geometries.txt", "".join(rows))
    assert explicit(block=np.int64(64)) == explicit(block=64)


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=3), st.integers(1, 1024))
def test_automatic_grids_cover_the_dimensions(dims: list[int], threads: int):
    found = automatic_geometry(tuple(dims), threads)
    for size, blocks, width in zip(dims, found.grid, found.block, strict=False):
        assert blocks * width >= size
        assert (blocks - 1) * width < max(size, 1)
    assert np.prod(found.block) <= threads


@given(st.integers(1, 3), st.integers(0, 10))
def test_powers_of_two_are_used_up(ndim: int, bits: int):
    assert np.prod(automatic_block(ndim, 2**bits)) == 2**bits


SCALARS = tuple(Param(role=Role.ATTR, name=n, dtype=BY_NAME[t]) for n, t in (("bins", "int32"), ("by", "float32")))
SIGNATURE = read_signature("f", "arg[n k] ret[n]", scalars=SCALARS)
EXPRESSIONS = {"grid": ("ceil(n/16)", 2), "block": "min(n,64)", "shared_mem": "4*attr.bins"}


def sizes(**given: Any) -> Sizes:
    return read_sizes("f", {"grid": 1, "block": 32, "shared_mem": 0} | given, SIGNATURE, explicit_geometry)


def launch_dims(*dims: object) -> Sizes:
    given = {"grid": None, "block": None, "launch_dims": dims, "shared_mem": 0}
    return read_sizes("f", given, SIGNATURE, partial(choose_geometry, threads_per_block=256))


def call(n: int, k: int = 7) -> Resolved:
    f32 = BY_NAME["float32"]
    values = {"n": n, "k": k, "attr.bins": 5}
    return Resolved([], (ArraySpec(f32, (n, k)),), (ArraySpec(f32, (n,)),), 0, False, (), values, Split((), ()))


SIZES: list[tuple[int, dict[str, Any]]] = [
    *((n, {"grid": ("ceil(n/16)", 2, "k"), "block": "min(n,64)", "shared_mem": "4*attr.bins"}) for n in (100, 17)),
    (0, {"grid": "ceil(n/256)"}),
    (3, {"grid": "n-3"}),
    (1000, {"block": "n*k"}),
    (1, {"shared_mem": "k*10**0*n"}),
    *((10, {"grid": grid}) for grid in ("n/4", "1-n", (1, "ceil(m/256)"), (1, "attr.by"))),
]


def test_expressions_follow_the_call_and_an_error_has_their_values():
    def encoded(n: int, given: dict[str, Any]) -> str:
        return str(sizes(**given).geometry(call(n)).encode())

    rows = [f"{given} with n = {n}\n  {answer(encoded, n, given)}\n" for n, given in SIZES]
    rows.append(f"no signature\n  {answer(read_sizes, 'f', {'grid': 'n'}, None, explicit_geometry)}\n")
    check_golden(GOLDEN / "sizes.txt", "".join(rows))
    assert launch_dims("n", "k").geometry(call(100)).grid == (7, 1, 1)


def test_sizes_that_never_change_are_checked_at_once():
    for never in ({"grid": 0}, {"block": 2048}):
        with pytest.raises(ArgumentError):
            sizes(**never).check(None)
    sizes(grid="n-n").check(None)


def test_sizes_of_one_device_are_arithmetic():
    found = sizes(**EXPRESSIONS)
    local = found.local(found.geometry(call(100)))
    assert local == ("ceil(n/16)", "2", "1", "min(n,64)", "1", "1", "4*attr.bins", "1", "1", "1", "0", "0")
    split = Split((("n", "k"),), (("n",),), places=(("n", (0, 0)),), integers=(("attr.bins", 5),))
    computed = split._replace(computed=(("launch", local),)).attributes([(17, 7)])
    assert computed == {"launch": list(found.geometry(call(17)).encode())}
    found = launch_dims("n", 32)
    assert (found.local(found.geometry(call(100))) or ())[:6] == ("ceil((n)/16)", "2", "1", "16", "16", "1")
    assert sizes(grid=lambda x: x.shape[0]).local(explicit_geometry(7, 32)) is None, "a function's are not known"


IMAGES = (
    KernelImage(Arch(9, 0, "a"), "f", b"\x7fELF"),
    KernelImage(Arch(9, 0, "a"), "g", b"// PTX", is_ptx=True, form=Form.BATCH, batch_axis=2, is_cooperative=True),
)
SAID = ("NVRTC 13.0", "Cuda compilation tools, release 13.0, V13.0.88")
MADE = Compiled(IMAGES, compiler=SAID)


def obtain(place: Path, made: Compiled = MADE, *, source: str = "f", folder: Path | None = None) -> Kernel:
    """A kernel out of a cache and by a key that belong to a place."""
    session = PROCESS.session()._replace(module_store=Cache(place / "cache"))
    origin = Origin(make_key("kernel", ("source", source)), () if folder is None else (folder,))
    key = make_key("kernel", ("place", str(place)))
    return obtain_kernel(key, origin, lambda _staging: made, "f", session)


def test_images_come_back_as_they_were(tmp_path: Path):
    found = obtain(tmp_path)
    assert found.images == IMAGES
    assert obtain(tmp_path, Compiled(())) == found, "from the cache"


@pytest.mark.parametrize("field", ["entry", "batch_axis", "is_ptx", "is_cooperative", "form"])
def test_a_row_of_other_types_is_no_image(field: str):
    row = {"name": "k", "images": [{"image": "00", "arch": "9.0", "entry": "k", field: ["x"]}]}
    with pytest.raises((TypeError, ValueError)):
        kernel_of("id", row, lambda digest: b"")


def test_the_id_holds_the_source_and_what_the_compiler_says_but_not_the_place(tmp_path: Path):
    newer = Compiled(IMAGES, compiler=(SAID[0], SAID[1].replace("88", "89")))
    first, second, *others = (
        obtain(tmp_path / "a").id,
        obtain(tmp_path / "b").id,
        obtain(tmp_path / "c", source="g").id,
        obtain(tmp_path / "d", newer).id,
    )
    assert first == second
    assert len({first, *others}) == 3


def test_the_id_holds_headers_by_their_content_and_their_name_below_a_folder(tmp_path: Path):
    ids = []
    for number, (name, text) in enumerate([("x/a.h", "1"), ("x/a.h", "1"), ("y/a.h", "1"), ("x/a.h", "2")]):
        folder = tmp_path / f"headers{number}"
        header = folder / name
        header.parent.mkdir(parents=True)
        header.write_text(text)
        ids.append(obtain(tmp_path / str(number), Compiled(IMAGES, BuildOutput((), (header,))), folder=folder).id)
    assert ids[0] == ids[1]
    assert len(set(ids)) == 3


def test_the_id_of_what_is_uncertain_holds_what_was_made(tmp_path: Path):
    made = (
        Compiled((KernelImage(Arch(9, 0), "f", code),), BuildOutput((), unknown=("a header",))) for code in (b"a", b"b")
    )
    one, other = (obtain(tmp_path / str(number), each) for number, each in enumerate(made))
    assert one.id != other.id


@given(st.binary(min_size=1, max_size=8))
def test_a_scalar_keeps_its_bytes(value: bytes):
    assert struct.pack("<q", scalar_param(value)[1])[: len(value)] == value


@given(st.tuples(st.text(max_size=4), st.binary(max_size=4)), st.tuples(st.text(max_size=4), st.binary(max_size=4)))
def test_content_tells_images_apart(one: tuple[str, bytes], other: tuple[str, bytes]):
    ids = [launcher.content_id([KernelImage(Arch(9, 0), *each)]) for each in (one, other)]
    assert (ids[0] == ids[1]) == (one == other)
    assert all(len(each) == 32 for each in ids)


def test_a_batch_needs_the_same_axis_on_every_architecture():
    single = [KernelImage(arch, "f", b"x") for arch in (Arch(9, 0), Arch(8, 0))]
    batch = [image._replace(form=Form.BATCH, batch_axis=2) for image in single]
    for images, axis in ((single, 0), ((*single, *batch), 2), ((*single, batch[0]), 0)):
        assert Kernel("0", "f", tuple(images)).batch_axis == axis
