"""The files that describe images: linted, and read by the programs that they are written for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.docker import KERNELS, ROOT, Engine, load_script, tool

pytestmark = pytest.mark.xdist_group("docker")

DOCKER = ROOT / "docker"
SUITE = "trixie"


@pytest.fixture(scope="session")
def plugins(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """A client with buildx and compose: its own, or those of a later Debian."""
    if all(engine(name, "version").returncode == 0 for name in ("buildx", "compose")):
        return engine
    folder = tmp_path_factory.mktemp("plugins")
    source = (
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {SUITE} main\n"
    )
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


def _linter(name: str) -> str:
    found = tool(name)
    if found is None:
        pytest.skip(f"{name} is not installed: pip install 'brainevent-toolchain[dev]'")
    return found


def test_the_dockerfile_has_no_lint():
    # DL3006: the base is an argument; whoever sets it tags it.
    command = [_linter("hadolint"), "--ignore", "DL3006", str(DOCKER / "Dockerfile")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_scripts_have_no_lint():
    scripts = [str(DOCKER / "entrypoint.sh"), *map(str, sorted((DOCKER / "steps").glob("*.sh")))]
    command = [_linter("shellcheck"), "--shell=sh", "--external-sources", "--source-path=SCRIPTDIR", *scripts]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _bake(plugins: Engine, *targets: str, **environ: str) -> dict[str, dict[str, object]]:
    bake = ("buildx", "bake", "--file", str(DOCKER / "docker-bake.hcl"), "--print", *targets)
    done = Engine(client=plugins.client, environ=plugins.environ | {"VERSION": "1.2.3"} | environ)(*bake)
    assert done.returncode == 0, done.stderr
    plan: dict[str, dict[str, object]] = json.loads(done.stdout)["target"]
    return plan


def test_a_release_is_every_variant_for_both_architectures(plugins: Engine):
    plan = _bake(plugins, "release", REVISION="abc")
    assert len(plan) == 8
    for target in plan.values():
        assert target["platforms"] == ["linux/amd64", "linux/arm64"]
        assert "type=sbom" in str(target["attest"])
        assert isinstance(target["args"], dict)
        assert target["args"]["REVISION"] == "abc"
    assert len({str(target["tags"]) for target in plan.values()}) == len(plan)


def test_a_release_takes_the_bases_that_it_is_given(plugins: Engine):
    pinned = "ubuntu:24.04@sha256:" + "0" * 64
    plan = _bake(plugins, "devel-cpu", "aot-system", UBUNTU=pinned)
    args = {name: target["args"] for name, target in plan.items()}
    assert isinstance(args["devel-cpu"], dict)
    assert isinstance(args["aot-system"], dict)
    assert args["devel-cpu"]["BASE_IMAGE"] == pinned
    assert args["aot-system"]["CUDA"] == "system"
    assert "-devel-" in args["aot-system"]["BASE_IMAGE"]


def test_the_bake_file_sets_only_what_the_dockerfile_knows(plugins: Engine):
    known = load_script("docker/build.py").declared_arguments((DOCKER / "Dockerfile").read_text())
    for target in _bake(plugins, "image").values():
        assert isinstance(target["args"], dict)
        assert set(target["args"]) <= known


def test_a_service_compiles_in_a_closed_container(plugins: Engine, devel: str, tmp_path: Path):
    (tmp_path / "image.yaml").write_text(f"services: {{train: {{image: {devel}}}}}\n")
    files = ("--file", DOCKER / "compose.yaml", "--file", tmp_path / "image.yaml")
    compose = ("compose", "--project-name", "be-tests", *files)
    try:
        done = plugins(*compose, "run", "--rm", "--no-TTY", "train", "python", "-", text_in=KERNELS)
        assert done.stdout == "10001 be 8.0 ['one']\n", done.stderr
    finally:
        plugins(*compose, "down", "--volumes")


def test_gpus_are_reserved_for_the_service_that_needs_them(plugins: Engine):
    done = plugins("compose", "--file", DOCKER / "compose.yaml", "--profile", "gpu", "config", "--format", "json")
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    asking = {name for name, service in services.items() if "deploy" in service}
    assert asking == {"train-gpu"}
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
