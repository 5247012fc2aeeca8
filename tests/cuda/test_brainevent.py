"""brainevent's own CUDA files compile as they are: `make brainevent` fetches them and compiles all, CI some.

They are read where brainevent is installed or BE_BRAINEVENT names the folder of its package; nothing of it is imported.
A file that the release's own wheel breaks is an expected failure, with the reason.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

import be_runtime
from tests.support import requirements
from tests.support.cuda import ARCH

NAMED = os.environ.get("BE_BRAINEVENT")
SOME = ["_csr/binary_csrmm.cu", "_csr/binary_indexed_csrmm.cu", "_csr/float_csrmm.cu"]
"""Those with macros of ours."""
CUBLAS = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "lib", "libcublas.so.13")
ANNOTATION = re.compile(r"//[ \t]*@BE[ \t]")


def folder() -> Path | None:
    """Where brainevent's package is, if anywhere."""
    spec = None if NAMED else importlib.util.find_spec("brainevent")
    return Path(NAMED).resolve() if NAMED else Path(spec.origin).parent if spec and spec.origin else None


PACKAGE = folder()
RECORDS = [*PACKAGE.parent.glob("brainevent-*.dist-info")] if PACKAGE else []
RELEASE = RECORDS[0].stem.removeprefix("brainevent-") if RECORDS else ""
ACTIVE = "positive" if RELEASE and Version(RELEASE) < Version("0.3") else "nonzero"
"""What the release's own `IS_ACTIVE_*` take for events."""
LACKING = {("0.3.0", "_tcsr/tile_mm/binary_csrmm_tile.cu"): "bn_tile.cuh"}
"""The header that the release's wheel lacks, for each file that includes one."""
FILES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.cu")) if NAMED and PACKAGE else SOME


@pytest.mark.parametrize("name", FILES)
def test_file_compiles_and_offers_all_that_it_annotates(name: str):
    if PACKAGE is None:
        pytest.skip(f"{requirements.OPTIONAL}brainevent, which `make brainevent` fetches")
    source = PACKAGE / name
    text = source.read_text(encoding="utf-8")
    libraries = [str(CUBLAS), f"-rpath={CUBLAS.parent}"] if "cublas_v2.h" in text else []
    if libraries and not CUBLAS.exists():
        pytest.skip(f"{requirements.OPTIONAL}nvidia-cublas")
    given: dict[str, Any] = {"compute_capability": ARCH, "auto_register": False, "extra_ldflags": libraries}
    given["active"] = ACTIVE
    if header := LACKING.get((RELEASE, name)):
        assert not [*PACKAGE.rglob(header)]
        with pytest.raises(be_runtime.BuildError, match=header):
            be_runtime.load_cuda_file(source, **given)
        pytest.xfail(f"brainevent {RELEASE}: {name} includes {header}, which the wheel lacks")
    module = be_runtime.load_cuda_file(source, **given)
    assert len(module.function_names) == len(ANNOTATION.findall(text))
