"""The package as a whole: its errors, its data rows, and what importing it costs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import be_toolchain
from be_toolchain.errors import Probe, ToolchainError
from be_toolchain.find import search
from be_toolchain.known import catalog
from be_toolchain.settings import configuration, preferences, table
from tests.support.error_types import error_types

LIBRARIES = ("jax", "numpy", "packaging", "rich", "shtab")
HEAVY = (*LIBRARIES, "ctypes", "dataclasses", "hashlib", "json", "subprocess")


def test_codes_are_unique_and_every_error_is_documented():
    kinds = error_types(ToolchainError)
    assert len({kind.code for kind in kinds}) == len(kinds) > 6
    assert all(kind.__doc__ for kind in kinds)


def test_an_error_renders_what_failed_where_it_looked_and_what_to_do():
    error = ToolchainError(
        "it failed", probes=(Probe(found_via="PATH", place="nvcc", reason="not there"),), hints=("x",)
    )
    *lines, last = str(error).splitlines()
    assert lines == ["it failed", "looked at:", "  PATH  nvcc: not there", "hint: x"]
    assert last == "see docs/errors.md#tc000, or run: python -m be_toolchain explain TC000"


def test_importing_the_package_imports_little():
    code = f"import sys, be_toolchain; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", ["be_toolchain", "be_runtime"])
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_an_import_elsewhere_than_on_linux_says_what_to_do(package: str, platform: str):
    code = f"import sys; sys.platform = {platform!r}; import {package}"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: brainevent-toolchain runs on Linux only, and this is {platform}: ")
    assert "WSL 2" in last
    assert "container" in last


def test_resolving_from_a_record_needs_no_subprocess():
    code = "import sys, be_toolchain; be_toolchain.resolve; print('subprocess' in sys.modules, 'rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_public_names_exist():
    assert set(be_toolchain.__all__) <= set(dir(be_toolchain))
    assert all(getattr(be_toolchain, name) is not None for name in be_toolchain.__all__)


def test_every_group_has_steps_and_every_layout_folders():
    assert tuple(search.STEPS) == preferences.GROUPS
    assert catalog.LAYOUTS[-1].marker == ()
    assert len({layout.name for layout in catalog.LAYOUTS}) == len(catalog.LAYOUTS)
    for layout in catalog.LAYOUTS:
        rows = (*layout.tools, *layout.cicc, *layout.libdevice, *layout.includes, *layout.libraries)
        assert all(row.format(target="t", multiarch="m") for row in rows)
        assert not any(row.endswith("/") for row in rows)


def test_component_rows():
    assert catalog.PIP_TOOLKIT == "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]"
    assert len({row.pip for row in catalog.COMPONENTS}) == len(catalog.COMPONENTS)


def test_what_is_unset_for_a_probe_is_known():
    assert set(catalog.PROBE_UNSET) <= set(catalog.COMPILE_VARIABLES)


def test_the_documented_order_and_wishes_are_the_real_ones():
    text = (Path(__file__).parents[3] / "docs" / "toolchain.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\d\. `([a-z]+)`: ", text, re.MULTILINE)) == preferences.GROUPS
    keys = re.findall(r"^\|.*\| `([a-z-]+)` \|$", text, re.MULTILINE)
    assert set(keys) == set(configuration.KEYS)
    rows = (table.NVCC, table.PREFER, table.CXX, table.ALLOW_UNSUPPORTED)
    variables = (*table.HOMES.variables, *catalog.MODULE_VARIABLES, *(row.variable for row in rows))
    assert all(f"`{name}`" in text for name in variables)
