"""The package as a whole: its errors, its data rows, what importing it costs, and from where it imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import be_toolchain
from be_toolchain import settings
from be_toolchain.errors import Probe, ToolchainError
from be_toolchain.find import search
from be_toolchain.known import layouts

ABOVE = Path(be_toolchain.__file__).parents[1]
"""The folder that the package is in."""

HEAVY = ["jax", "numpy", "packaging", "rich", "shtab", "ctypes", "dataclasses", "hashlib", "json", "subprocess"]
FOLDERS = ("nvidia_cuda_nvcc-13.0.88.dist-info", "jaxlib-0.11.0rc1.dist-info", "PyYAML-6.0.dist-info")
SHADOWED = """__future__ argparse json re tomllib rich typing pathlib collections enum shlex hashlib tempfile subprocess
string packaging shtab fcntl_ ctypes threading socket select be_runtime jax numpy dataclasses inspect traceback copy"""


def python(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload, no-any-return]


def test_an_error_renders_what_failed_where_it_looked_and_what_to_do():
    probes = (Probe(found_via="PATH", place="nvcc", reason="not there"),)
    *lines, last = str(ToolchainError("it failed", probes=probes, hints=("x",))).splitlines()
    assert lines == ["it failed", "places searched:", "  PATH  nvcc: not there", "hint: x"]
    assert last == "causes and remedies: python -m be_toolchain explain TC000"


@pytest.mark.parametrize(
    ("code", "unloaded"),
    [
        ("import be_toolchain", HEAVY),
        ("import be_toolchain; be_toolchain.resolve", ["subprocess", "rich"]),
        (f"from be_toolchain.known import layouts as d; d.parse_dist_infos({FOLDERS!r})", ["packaging"]),
        ("from be_toolchain.cli import main; main.main(['list', '--names'])", ["shtab"]),
    ],
)
def test_importing_and_using_the_package_imports_little(code: str, unloaded: list[str]):
    done = python("-c", f"import sys; {code}; print([m for m in {unloaded!r} if m in sys.modules])", cwd=ABOVE)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr


@pytest.mark.parametrize("package", ["be_toolchain", "be_runtime"])
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_an_import_elsewhere_than_on_linux_says_what_to_do(package: str, platform: str):
    done = python("-S", "-c", f"import sys; sys.platform = {platform!r}; import {package}", cwd=ABOVE)
    assert done.returncode == 1
    says = rf"ImportError: brainevent-toolchain runs on Linux only, and this is {platform}: .*WSL 2.*container"
    assert re.match(says, done.stderr.splitlines()[-1])


def test_rows_of_data_fit_each_other():
    assert tuple(search.STEPS) == settings.GROUPS
    assert set(layouts.PROBE_UNSET) <= set(layouts.COMPILE_VARIABLES)
    variables = [name for row in (*settings.RUNTIME.values(), *settings.SEARCH) for name in row.variables]
    assert len(set(variables)) == len(variables)
    assert {name for row in settings.SEARCH for name in row.variables} < set(settings.RECORD_VARIABLES)


def test_the_documented_order_and_wishes_are_the_real_ones():
    text = (ABOVE / "docs" / "toolchain.md").read_text(encoding="utf-8")
    assert tuple(re.findall(r"^\d\. `([a-z]+)`: ", text, re.MULTILINE)) == settings.GROUPS
    assert set(re.findall(r"^\|.*\| `([a-z-]+)` \|$", text, re.MULTILINE)) == set(settings.KEYS)
    rows = (settings.NVCC, settings.PREFER, settings.CXX, settings.ALLOW_UNSUPPORTED)
    variables = (*settings.HOMES.variables, *layouts.MODULE_VARIABLES, *(row.variable for row in rows))
    assert all(f"`{name}`" in text for name in variables)


@pytest.fixture
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that the package is in, by a name that is not the current folder's."""
    link = tmp_path_factory.mktemp("path") / "link"
    link.symlink_to(ABOVE)
    return str(link)


@pytest.mark.parametrize("kind", ["-m", "-P -m", "-I", "checkout"])
def test_a_module_that_is_planted_in_the_current_folder_does_not_run(tmp_path: Path, package: str, kind: str):
    """In a checkout the package itself is found by way of the current folder; -I leaves PYTHONPATH out."""
    for name in SHADOWED.split():
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\nraise SystemExit(9)\n"
        (tmp_path / f"{name}.py").write_text(text)
    if kind == "checkout":
        (tmp_path / "be_toolchain").symlink_to(f"{package}/be_toolchain")
    main = f"import sys; sys.path.append({package!r}); from be_toolchain.cli.main import main; main(['doctor'])"
    options = ["-I", "-c", main] if kind == "-I" else f"{kind.replace('checkout', '-m')} be_toolchain doctor".split()
    done = python(*options, cwd=tmp_path, env=_environ("" if kind == "checkout" else package))
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    assert "be_toolchain 0" in done.stdout, done.stderr


def test_what_the_user_asked_for_stays_on_the_path(package: str, tmp_path: Path):
    code = "import sys, runpy; sys.argv[1:] = ['which', 'none']; before = sys.path[:]"
    code += "\ntry: runpy.run_module('be_toolchain', run_name='__main__', alter_sys=True)\nexcept SystemExit: pass"
    code += "\nprint(sys.path == before, file=sys.stderr)"
    assert python("-P", "-c", code, cwd=tmp_path, env=_environ(package)).stderr.endswith("True\n")


def _environ(path: str) -> dict[str, str]:
    plain = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/nonexistent"}
    return plain | ({"PYTHONPATH": path} if path else {})
