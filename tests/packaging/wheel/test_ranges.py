"""What the metadata allows, from a package index: the oldest and the newest of all, and the site."""

from __future__ import annotations

import json
import re
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from release import ROOT
from release.constraints import read_rows
from tests.packaging.wheel.conftest import Distribution, run, succeed, uv

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("wheel-ranges")]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = (
    "tests/compile/be_runtime/include/test_arrays.py",
    "tests/compile/be_runtime/include/test_call_errors.py",
    "tests/compile/be_runtime/call/test_callables.py",
    "tests/cuda/be_runtime/load/test_options.py::test_the_graph_trait_belongs_to_the_registration",
    "tests/unit/be_runtime/kernels/operation/test_transforms.py",
)
FOLDERS = sorted((ROOT / "tests" / "compile" / "be_runtime").iterdir())
ON_CPU = {
    "unit": ["tests/unit"],
    **{folder.name: [f"{folder.relative_to(ROOT)}"] for folder in FOLDERS if any(folder.rglob("test_*.py"))},
    "rest": ["tests/compile", "--ignore=tests/compile/be_runtime"],
}
"""The tiers `unit` and `compile`, in parts of a minute."""
TOOLS = tuple(
    text for text in PROJECT["optional-dependencies"]["test"] if text.startswith(("hypothesis", "pytest", "pyyaml"))
)
"""The extra `test` has more, which could hold jax back."""


def pythons() -> dict[str, Path]:
    """The Pythons of this machine that the metadata promises, by version, the oldest first."""
    promised = (version for text in PROJECT["classifiers"] if (version := text.rpartition(" :: ")[2]).startswith("3."))
    found = {}
    for version in sorted(promised, key=lambda version: int(version.partition(".")[2])):
        on_path = shutil.which(f"python{version}")
        beside = sorted(Path(sys.base_prefix).parent.glob(f"{version}.*/bin/python{version}"))
        for place in (*beside, *([Path(on_path)] if on_path else ())):
            if run(place, "-c", "", cwd=ROOT).returncode == 0:
                found[version] = place
    return found


class Range(NamedTuple):
    """The environment at one end of the ranges: its Python, and the releases in it by name."""

    interpreter: Path
    installed: dict[str, str]


@pytest.fixture(scope="module")
def ranges(distribution: Distribution, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Range]:
    """The oldest and the newest of all that the metadata allows."""
    made = {}
    for end, index, resolution in (("oldest", 0, "lowest-direct"), ("newest", -1, "highest")):
        folder = tmp_path_factory.mktemp(end)
        succeed(run(uv(), "venv", "--quiet", "--python", [*pythons().values()][index], "env", cwd=folder))
        interpreter = folder / "env" / "bin" / "python"
        install = (uv(), "pip", "install", "--quiet", "--python", interpreter, "--only-binary", ":all:")
        # A requirement is direct, and its oldest release is taken, where it is named beside the wheel.
        wanted = (distribution.wheel, *PROJECT["dependencies"], *TOOLS)
        succeed(run(*install, "--resolution", resolution, *wanted, cwd=folder))
        frozen = succeed(run(uv(), "pip", "freeze", "--python", interpreter, cwd=folder))
        made[end] = Range(interpreter, dict(line.split("==") for line in frozen.splitlines() if "==" in line))
    return made


@pytest.fixture(scope="module")
def newest_jax(distribution: Distribution) -> Iterator[Path]:
    """The Python of an environment with the newest JAX of the table of releases, and what the tests need."""
    (*_, row) = (row for row in read_rows().values() if row.jax)
    places = [place for version, place in pythons().items() if version in row.pythons]
    if not places:
        pytest.skip(f"no Python of {', '.join(row.pythons)} is on this machine")
    with tempfile.TemporaryDirectory(prefix="be-newest-jax-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # tests run it as another user
        succeed(run(uv(), "venv", "--quiet", "--python", places[-1], "env", cwd=folder))
        interpreter = folder / "env" / "bin" / "python"
        wanted = f"brainevent-toolchain[packaging,test] @ {distribution.wheel.as_uri()}"
        install = (uv(), "pip", "install", "--quiet", "--python", interpreter, "--constraints", ROOT / row.file)
        succeed(run(*install, wanted, cwd=folder))
        assert succeed(run(interpreter, "-c", "import jax; print(jax.__version__)", cwd=folder)).strip() == row.jax
        yield interpreter


@pytest.mark.parametrize("part", ON_CPU)
def test_the_tests_on_the_cpu_pass_with_the_newest_jax(part: str, newest_jax: Path, tmp_path: Path):
    environ = {"BE_CACHE_DIR": str(tmp_path), "BE_REQUIRE_TIERS": "unit,compile", "JAX_PLATFORMS": "cpu"}
    done = run(
        newest_jax, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ON_CPU[part], cwd=ROOT, BE_FULL="0", **environ
    )
    assert done.returncode == 0, f"{done.stdout[-8000:]}{done.stderr}"


@pytest.mark.parametrize("end", ["oldest", "newest"])
def test_the_core_tests_pass(end: str, ranges: dict[str, Range], tmp_path: Path):
    interpreter, installed = ranges[end]
    matches = (re.fullmatch(r"([\w-]+)>=([\d.]+)", text) for text in PROJECT["dependencies"])
    floors = {match[1]: match[2] for match in matches if match}
    at_floor = {name for name, floor in floors.items() if f"{installed[name]}.".startswith(f"{floor}.")}
    assert at_floor == (set(floors) if end == "oldest" else set()), installed
    environ = {
        "BE_CACHE_DIR": str(tmp_path / "cache"),
        "BE_REQUIRE_TIERS": "unit,compile,cuda",
        "CUDA_HOME": str(Path(sysconfig.get_path("purelib"), "nvidia", "cu13")),
        "JAX_PLATFORMS": "cpu",
    }
    done = run(interpreter, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE, cwd=ROOT, **environ)
    assert done.returncode == 0, f"jax {installed['jax']}\n{done.stdout[-8000:]}{done.stderr}"


@pytest.mark.parametrize(("builder", "user"), [("oldest", "newest"), ("newest", "oldest")])
def test_one_library_serves_both_whichever_built_it(builder: str, user: str, ranges: dict[str, Range], tmp_path: Path):
    """The user's environment finds what the builder's left in the cache, and each calls it."""
    program = Path(__file__).with_name("one_library.py")
    environ = {"BE_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = [run(ranges[end].interpreter, program, cwd=ROOT, **environ) for end in (builder, user)]
    built, used = (json.loads(succeed(each)) for each in done)
    assert [built["jax"], used["jax"]] == [ranges[end].installed["jax"] for end in (builder, user)]
    assert (used["path"], used["sha256"]) == (built["path"], built["sha256"])


PARTS = {
    "index.html": ("be_toolchain doctor", "load_cuda_inline", "handler on ffi.h"),
    "reference/cpp.html": ("data_ptr", "BE_CHECK_KERNEL_LAUNCH", "warp_reduce_sum_f32"),
    "reference/commands.html": ("be_toolchain install", "be_runtime cache why"),
    "reference/python.html": ("load_cpp_inline", "be_toolchain.resolve"),
    "errors.html": ('id="be301"', 'id="tc403"'),
}
"""What shows that a part of the site was made: pages, and texts of them."""


def test_the_site_builds_from_the_extra_docs_without_a_warning(distribution: Distribution, tmp_path: Path):
    """The gallery's pages run in tests of their own."""
    python = tmp_path / "env" / "bin" / "python"
    succeed(run(uv(), "venv", "--quiet", "--python", sys.executable, "env", cwd=tmp_path))
    wanted = f"brainevent-toolchain[docs] @ {distribution.wheel.as_uri()}"
    succeed(run(uv(), "pip", "install", "--quiet", "--python", python, wanted, cwd=tmp_path))
    extensions = sorted((ROOT / "docs" / "extensions").glob("*.py"))
    succeed(run(python, "-m", "doctest", *extensions, cwd=ROOT, PYTHONPATH=str(ROOT)))
    options = ("--fail-on-warning", "--keep-going", "--quiet", "-D", "nb_execution_mode=off", "-d", "doctrees")
    succeed(run(python, "-m", "sphinx", *options, "-b", "html", ROOT / "docs", "html", cwd=tmp_path))
    for page, texts in PARTS.items():
        text = (tmp_path / "html" / page).read_text(encoding="utf-8")
        assert [each for each in texts if each not in text] == []
