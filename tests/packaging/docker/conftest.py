"""An engine, a base image made here, and the images under test, each once for all tests."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.docker import ROOT, Engine, NotHereError, apt, running_engine

CONTEXT = (
    *("be_toolchain", "be_runtime", "constraints", "docker", "examples"),
    *("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"),
)
SMALL = ("doc/*", "man/*", "info/*", "locale/*")
MARKER = "index-of-the-builder.invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An image, and what the script that made it said."""

    image: str
    output: str
    returncode: int


Build = Callable[..., Built]


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    try:
        with running_engine(tmp_path_factory.mktemp("engine")) as found:
            yield found
    except NotHereError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def base(engine: Engine) -> str:
    """A minimal image of this machine's distribution, as its makers publish it; made once for a machine."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    image = f"be-tests-base:{suite}"
    if engine("image", "inspect", image).returncode == 0:
        return image
    if shutil.which("mmdebstrap") is None:
        if os.geteuid() or shutil.which("apt-get") is None:
            pytest.skip("no mmdebstrap to make a base image with, and it can't be installed")
        try:
            apt(("mmdebstrap",))
        except NotHereError as reason:
            pytest.skip(str(reason))
    merged = ("--include=usr-is-merged", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr")
    command = [
        *("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar"),
        *(f"--dpkgopt=path-exclude=/usr/share/{each}" for each in SMALL),
        *(merged if suite == "bookworm" else ()),
        *(suite, "-", _mirror(suite)),
    ]
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as making:
        imported = (engine.client, "import", "--change", path, "-", image)
        done = subprocess.run(imported, stdin=making.stdout, capture_output=True, text=True, check=False, timeout=840)
        assert making.stderr is not None
        said = making.stderr.read().decode(errors="replace")
    if making.returncode:
        engine("image", "rm", image)
        pytest.skip(f"no base image can be made: {said.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return image


def _mirror(suite: str) -> str:
    """Where this machine gets its distribution from."""
    query = ("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.split()[1] for line in lines if line.split()[0] == suite)


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
