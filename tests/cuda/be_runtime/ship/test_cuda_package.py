"""A package with a compiled CUDA module."""

from __future__ import annotations

from pathlib import Path

from be_runtime.ship.locate import package_in
from be_runtime.ship.package_build import build_package
from tests.support.cuda import ARCH

SOURCE = """
#include "brainevent/common.h"
#include "factor.h"
// @BE twice arg[n] ret[n] stream
void twice(const BE::Tensor x, BE::Tensor y, int64_t stream) {}
"""


def test_a_folder_with_a_space_in_its_name_is_as_good_as_another(tmp_path: Path):
    root = tmp_path / "my folder" / "shipped"
    root.mkdir(parents=True)
    (root / "kernels.toml").write_text('[modules.ops]\nsources = "ops.cu"')
    (root / "factor.h").write_text("#define FACTOR 2\n")
    (root / "ops.cu").write_text(SOURCE)
    built = build_package(package_in(root), archs=[ARCH])
    (image,) = (built.folder / "images").iterdir()
    assert list(built.table.modules) == ["ops"]
    assert str(tmp_path).encode() not in image.read_bytes()
