"""The files that describe images: linted, and their plan compared with the wheel and with each other; none is built."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from release import ROOT
from release.dist import SOURCES
from tests.support.docker import find_nothing, load_script

DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "command",
    [
        # DL3006: the base is an argument; whoever sets it tags it.
        ("hadolint", "--ignore", "DL3006", DOCKER / "Dockerfile"),
        (
            *("shellcheck", "--shell=sh", "--external-sources", "--source-path=SCRIPTDIR"),
            *(DOCKER / "entrypoint.sh", *sorted((DOCKER / "steps").glob("*.sh"))),
        ),
    ],
    ids=["Dockerfile", "scripts"],
)
def test_there_is_no_lint(command: tuple[str, *tuple[str | Path, ...]]):
    find_nothing(*command)


def test_the_wheel_is_built_from_all_of_its_sources_and_every_step_is_there():
    stage = DOCKERFILE.partition(" AS wheel\n")[2].partition("\nFROM ")[0]
    copied = [name for words in re.findall(r"^COPY (.*) \S+$", stage, re.MULTILINE) for name in words.split()]
    assert set(copied) == set(SOURCES) - {"CHANGELOG.md"}, "which is the sdist's"
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    assert set(ignored) & {*copied, "docker", "constraints", "examples"} == set()
    copied += re.findall(r"^COPY (?:--chmod=\S+ )?([\w/.-]+) \S+$", DOCKERFILE, re.MULTILINE)
    steps = [f"docker/steps/{name}" for name in re.findall(r"/mnt/([\w.]+)", DOCKERFILE)]
    assert [name for name in (*copied, *steps) if not (ROOT / name).exists()] == []


def test_the_environment_has_what_the_wheel_requires(tmp_path: Path):
    command = (sys.executable, DOCKER / "steps" / "requirements.py", ROOT / "pyproject.toml", ROOT / "constraints")
    subprocess.run((*command, tmp_path), check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name.startswith("cuda")}
    wanted = {"base": project["dependencies"], **extras}
    assert {path.stem: path.read_text().splitlines() for path in tmp_path.glob("*.txt")} == wanted
    assert list((tmp_path / "constraints").iterdir())


def test_the_bake_file_sets_only_what_the_dockerfile_knows():
    known = load_script("docker/build.py").declared_arguments(DOCKERFILE)
    bake = (DOCKER / "docker-bake.hcl").read_text(encoding="utf-8")
    stages = re.findall(r" AS (\w+)$", DOCKERFILE, re.MULTILINE)
    arguments = re.findall(r"(\w+) +=", bake.partition("  args = {")[2].partition("}")[0])
    assert {"BASE_IMAGE", "CUDA", "JAX"} < set(arguments) <= known
    (named, published) = re.findall(r"stage += (\[.*\])", bake)
    assert yaml.safe_load(named) == ["devel", "runtime", "aot"]
    assert set(yaml.safe_load(published)) < set(yaml.safe_load(named)) <= set(stages)


def test_services_are_closed_and_gpus_are_reserved_for_the_one_that_needs_them():
    services = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert {name for name, service in services.items() if "deploy" in service} == {"train-gpu"}
    for service in services.values():
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
