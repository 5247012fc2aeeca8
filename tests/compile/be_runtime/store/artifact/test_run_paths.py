"""Images name no folder of the environment that built them."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from be_runtime.ship.wheel import read_needs
from be_runtime.store.images import read_image
from tests.support.requirements import host_compiler, in_full


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
