"""The recipe's packages, built: what they hold, their own tests, and what a user has after `conda install`."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import be_toolchain
from release import ROOT
from release.dist import build
from release.feedstock import feedstock_recipe, sha256_of
from tests.packaging.wheel.conftest import files_below
from tests.support import requirements

if TYPE_CHECKING:
    from tests.packaging.conda.channels.lab import Lab
    from tests.packaging.conda.channels.solver import Prefix

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("conda")]

BASE, DEFAULT, CUDA = "brainevent-toolchain-base", "brainevent-toolchain", "brainevent-toolchain-cuda"
NATIVE = "brainevent-toolchain-native"
EXAMPLE = "mykernels"
SHIPPED = "from be_runtime.load.identity import shipped_folder; print(shipped_folder())"
CPP, CUDA_KERNEL = (str(ROOT / "recipe" / "tests" / name) for name in ("cpp_kernel.py", "cuda_kernel.py"))
ACTIVATION = pytest.mark.parametrize("activated", [False, True], ids=["as it is", "activated"])


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A channel of what this machine has, and the recipe's packages; its gigabytes are removed at the end."""
    reason = requirements.missing_conda_tools()
    if reason is not None:
        pytest.skip(reason)
    from tests.packaging.conda.channels import lab

    reason = lab.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("conda")
    yield lab.make_lab(folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def cpu(lab: Lab) -> Prefix:
    prefix, records = lab.install("cpu", DEFAULT)
    assert str(records["jaxlib"].build).startswith("cpu_")
    assert "cuda-nvcc-tools" not in records
    return prefix


@pytest.fixture(scope="session")
def cuda(lab: Lab) -> Prefix:
    prefix, records = lab.install("cuda", CUDA, driver="13.0")
    assert str(records["jaxlib"].build).startswith("cuda130_")
    return prefix


def test_three_packages_for_any_python_and_machine_and_one_for_this_machine(lab: Lab):
    import rattler_build

    packages = {name: rattler_build.Package.from_file(path) for name, path in lab.packages.items()}
    kinds = {name: package.noarch for name, package in packages.items()}
    assert kinds == {NATIVE: None, BASE: "python", DEFAULT: "generic", CUDA: "generic"}
    said = {(package.version, package.license) for package in packages.values()}
    assert said == {(be_toolchain.__version__, "Apache-2.0")}
    tests = "etc/conda/test-files/"  # where a package keeps the recipe's tests
    own = {name: [file for file in package.files if tests not in file] for name, package in packages.items()}
    assert [name for name, files in own.items() if not files] == [DEFAULT, CUDA]
    assert all("__linux" in package.depends for package in packages.values())


def test_the_base_holds_the_code_and_its_metadata(lab: Lab):
    prefix, records = lab.install("base", BASE)
    site = next(prefix.path.glob("lib/python*/site-packages"))
    assert files_below(site) == files_below(ROOT)
    assert "gxx" not in records
    (metadata,) = site.glob("brainevent_toolchain-*.dist-info/METADATA")
    required = Parser().parsestr(metadata.read_text()).get_all("Requires-Dist", [])
    plain = {text.partition(">")[0] for text in required if "extra ==" not in text}
    wanted = {"flatbuffers", "jax", "jaxlib", "numpy", "packaging", "platformdirs", "rich", "shtab"}
    assert plain == wanted, "conda's ninja is a program that pip does not know"
    said = prefix.run("be-toolchain", "--version")
    assert said.stdout == f"be_toolchain {be_toolchain.__version__}\n", said.stderr


@pytest.mark.parametrize(("name", "driver"), [(BASE, None), (DEFAULT, None), (CUDA, "13.0")])
def test_the_recipe_s_own_tests_pass(lab: Lab, name: str, driver: str | None):
    lab.run_tests(name, driver=driver)


def test_the_feedstock_s_recipe_builds_the_same_from_the_sdist(lab: Lab):
    import rattler_build

    from tests.packaging.conda.channels.lab import build_recipe

    sdist, _ = build(ROOT, lab.folder / "dist", 1_700_000_000)
    facts = {"url": sdist.as_uri(), "sha256": sha256_of(sdist), "homepage": "https://example.org"}
    text = (ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = feedstock_recipe(text, maintainers=["octocat"], **facts)
    folder = lab.folder / "feedstock"
    shutil.copytree(ROOT / "recipe" / "tests", folder / "tests")
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    packages = build_recipe(folder / "recipe.yaml", lab.folder, lab.folder / "from-sdist", lab.channels[:1])
    assert set(packages) == set(lab.packages)
    for name in (BASE, NATIVE):
        files = [rattler_build.Package.from_file(each[name]).files for each in (packages, lab.packages)]
        first, second = (sorted(file for file in each if "be_" in file or file.startswith("lib/")) for each in files)
        assert first == second


def succeeded(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def doctor(prefix: Prefix, *, activated: bool) -> dict[str, tuple[str, str]]:
    """Status and message of each finding, by its subject; it may miss CUDA, never C++."""
    done = prefix.run("python", "-m", "be_toolchain", "doctor", "--json", activated=activated)
    assert done.returncode in {0, 1}, done.stdout + done.stderr
    report = json.loads(done.stdout)
    return {finding["subject"]: (finding["status"], finding["message"]) for finding in report["findings"]}


@ACTIVATION
def test_cpp_compiles_with_the_prefix_s_compiler(cpu: Prefix, activated: bool):
    status, message = doctor(cpu, activated=activated)["C++ compiler"]
    assert status == "ok"
    assert f"{cpu.path}/bin/" in message
    done = cpu.run("python", CPP, activated=activated, BE_VERBOSE="1", BE_CACHE_DIR=str(cpu.home / f"cache{activated}"))
    assert "called from JAX" in succeeded(done)
    shipped = succeeded(cpu.run("python", "-c", SHIPPED)).strip()
    assert Path(shipped).parent == cpu.path / "lib" / "brainevent-toolchain"
    assert f" {shipped}/handler.o -o module.so" in done.stderr
    assert "compiling the XLA handler" not in done.stderr


@ACTIVATION
def test_cuda_compiles_for_sm_90_with_the_prefix_s_nvcc(cuda: Prefix, activated: bool):
    findings = doctor(cuda, activated=activated)
    assert {subject: message for subject, (status, message) in findings.items() if status == "fail"} == {}
    assert str(cuda.path) in findings["CUDA toolkit"][1]
    assert findings["components"][1].startswith("13.0 (")
    assert "called from JAX" in succeeded(cuda.run("python", CPP, activated=activated))
    assert "compiled for sm_90" in succeeded(cuda.run("python", CUDA_KERNEL, activated=activated))


def test_moved_to_a_path_with_spaces(lab: Lab):
    prefix, _ = lab.install("before", CUDA, driver="13.0")
    moved = prefix._replace(path=prefix.path.rename(lab.folder / "after the move"))
    assert str(moved.path) in doctor(moved, activated=False)["CUDA toolkit"][1]
    for activated in (False, True):
        assert str(moved.path) in succeeded(moved.run("python", CPP, activated=activated))
    assert str(moved.path) in succeeded(moved.run("python", CUDA_KERNEL))
    # conda's activation names the compiler in NVCC_PREPEND_FLAGS without quotes: nvcc itself splits it at the spaces.
    assert "nvcc fatal" in moved.run("python", CUDA_KERNEL, activated=True).stderr
    assert "NVCC_PREPEND_FLAGS" in doctor(moved, activated=True)["environment"][1]
    # An entry point names the interpreter's folder in its first line; `python -m be_toolchain` names none.
    assert str(prefix.path) in (moved.path / "bin" / "be-toolchain").read_text().splitlines()[0]


@pytest.fixture(scope="session")
def example(lab: Lab) -> Lab:
    """The lab with the example's package, built in a prefix that has the CUDA compilers.

    Its recipe is as it is, but for one architecture, and without the kernel of Numba CUDA, which brings a gigabyte.
    """
    from tests.packaging.conda.channels import wheels
    from tests.packaging.conda.channels.channel import Channel
    from tests.packaging.conda.channels.lab import build_recipe

    def edit(file: Path, pattern: str, text: str) -> Path:
        after, count = re.subn(pattern, text, file.read_text(encoding="utf-8"))
        assert count, f"{file.name} has nothing to leave out"
        file.write_text(after, encoding="utf-8")
        return file

    home = lab.folder / "example"
    (home / "scratch").mkdir(parents=True)
    channel = Channel(home / "channel", home / "scratch")
    wheels.add_with_requirements(channel, "auditwheel", "hatchling", "numba")
    channel.index()
    folder = home / EXAMPLE
    shutil.copytree(ROOT / "examples" / EXAMPLE, folder, ignore=shutil.ignore_patterns("_kernels", "__pycache__"))
    declared = edit(folder / EXAMPLE / "kernels.toml", r"(?s)\[kernels\.wave\].*", "")
    edit(declared, r'\["8.0", "9.0", "12.0"\]', '["9.0"]')
    recipe = edit(folder / "conda" / "recipe.yaml", r"    - (numba-cuda-mlir|cuda-nvrtc|libnvjitlink)\n", "")
    out = home / "out"
    packages = build_recipe(recipe, lab.folder, out, [*lab.channels, channel.url], driver="13.0")
    return lab._replace(channels=(*lab.channels, out.as_uri()), packages=packages)


def test_the_example_s_own_tests_pass_and_it_runs_in_a_prefix_without_a_compiler(example: Lab):
    example.run_tests(EXAMPLE)
    prefix, records = example.install(EXAMPLE, EXAMPLE)
    assert not {"gxx", "cuda-nvcc", "numba"} & records.keys()
    said = succeeded(prefix.run("python", "-m", EXAMPLE, BE_JIT="never", PATH="/nowhere"))
    ran = re.findall(r"^(\S+) +cpu 0 agrees", said, re.MULTILINE)
    assert ran == ["neurons.fire", "neurons.integrate", "decay"]
    # Neither the build's folders are in a kernel, nor did the package's installation write the prefix into it.
    images = list(prefix.path.glob(f"lib/python*/site-packages/{EXAMPLE}/_kernels/images/*"))
    assert {image.suffix for image in images} == {".so", ".cubin", ".ptx"}
    for image in images:
        data = image.read_bytes()
        assert hashlib.sha256(data).hexdigest() == image.stem
        assert str(example.folder).encode() not in data
