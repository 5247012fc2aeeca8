"""Build an image from this checkout, with a message of its own for each thing that usually goes wrong.

It calls ``docker build``, hands pip's settings on this machine (index, certificate, proxy) to the build as secrets, and
does nothing else: ``docker build --file docker/Dockerfile .`` works as well where the public indexes can be reached.

    python docker/build.py devel --tag be-image
    python docker/build.py aot --tag my-app --project my_project --package mykernels --archs 8.0,9.0
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = ROOT / "docker" / "Dockerfile"
TARGETS = ("devel", "runtime", "aot")
NEEDED_GIB = {"cpu": 6, "cuda12": 16, "cuda13": 16}
PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
REMOTE_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "default-timeout", "timeout", "retries")

_UNREACHABLE = "the base image {base} is neither on this machine nor in a registry that can be reached"
_FAULTS = (
    (r"no space left on device", "the engine's disk is full", "free some: docker system prune"),
    (
        r"pull access denied|failed to resolve source metadata|failed to do request|manifest unknown",
        _UNREACHABLE,
        "check its name, or make it known with: docker pull, docker load or docker import",
    ),
    (
        r'exec: "/bin/sh"|/bin/sh: no such file',
        "the base image {base} has no shell",
        "take one that is made from Debian 12, Ubuntu 24.04, or a later release of these",
    ),
    (
        r"unknown flag: mount|the --mount option requires BuildKit|the --chmod option requires BuildKit",
        "the engine builds without BuildKit, which the Dockerfile needs",
        "install docker-buildx, or set DOCKER_BUILDKIT=1",
    ),
)


class BuildProblemError(Exception):
    """What keeps an image from being built, and what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}\nhint: {hint}" if hint else message)


class PipSettings(NamedTuple):
    """What a build needs to reach the same package index as this machine.

    Parameters
    ----------
    config : str
        A configuration file for pip.
    certificate : str
        The path of a bundle of certificates on this machine; empty for pip's own.
    """

    config: str
    certificate: str


def declared_arguments(dockerfile: str) -> frozenset[str]:
    """The build arguments that a Dockerfile knows. Pure."""
    lines = re.findall(r"^ARG (.+)$", dockerfile, re.MULTILINE)
    return frozenset(word.split("=")[0] for line in lines for word in line.split())


def check_arguments(given: Iterable[str], declared: frozenset[str]) -> None:
    """Refuse a build argument that docker would only warn about. Pure."""
    for argument in given:
        name, equals, _ = argument.partition("=")
        if not equals:
            raise BuildProblemError(f"--build-arg {argument} has no value", f"write {name}=VALUE")
        if name not in declared:
            raise BuildProblemError(f"--build-arg {name} is not known", f"there are {', '.join(sorted(declared))}")


def pip_settings(listing: str) -> PipSettings:
    """Read ``pip config list``; what names a folder of this machine means nothing in a build. Pure.

    A variable of the environment wins over a file, and a later line over an earlier one, as with pip.
    """
    found: dict[str, str] = {}
    lines = sorted(listing.splitlines(), key=lambda line: line.startswith(":env:"))
    for line in lines:
        match = re.fullmatch(r"(?:global|install|:env:)\.([a-z-]+)='(.*)'", line.strip())
        if match:
            found[match[1]] = match[2].replace("\\n", " ")
    kept = {name: _without_local(found[name]) for name in REMOTE_SETTINGS if name in found}
    config = "".join(f"{name} = {value}\n" for name, value in kept.items() if value)
    return PipSettings(config=f"[global]\n{config}", certificate=found.get("cert", ""))


def _without_local(value: str) -> str:
    return " ".join(word for word in value.split() if not word.startswith(("file:", "/")))


def space_problem(free_bytes: int, needed_gib: int, folder: str) -> BuildProblemError | None:
    """The error for an engine's disk on which a build would not fit; None when it fits. Pure."""
    free_gib = free_bytes / 2**30
    if free_gib >= needed_gib:
        return None
    return BuildProblemError(
        f"a build needs about {needed_gib} GiB, and {folder} has {free_gib:.1f}",
        "free some: docker system prune; or move the engine's folder (data-root in /etc/docker/daemon.json)",
    )


def explain(output: str, base: str) -> str | None:
    """What a failed build's output means; None when only the output itself can say. Pure."""
    own = re.findall(r"\b(error: .*(?:\n.*\bhint: .*)?)", output)
    own = [text for text in own if "failed to solve" not in text]
    if own:
        lines = (re.sub(r"^#\d+ (?:\d+\.\d+ )?", "", line) for line in own[-1].splitlines())
        return "\n".join(lines).removeprefix("error: ")
    for pattern, message, hint in _FAULTS:
        if re.search(pattern, output, re.IGNORECASE):
            return f"{message.format(base=base)}\nhint: {hint}"
    return None


def find_engine(environ: Mapping[str, str]) -> str:
    """The docker client: the one that ``DOCKER`` names, else the first on PATH that has an engine and can build.

    Raises
    ------
    BuildProblemError
        There is no client, no engine answers it, or it can't build with BuildKit.
    """
    named = environ.get("DOCKER")
    folders = environ.get("PATH", os.defpath).split(os.pathsep)
    found = dict.fromkeys(path for folder in folders if (path := shutil.which("docker", path=folder)))
    clients = [named] if named else list(found)
    if not clients:
        raise BuildProblemError("there is no docker on PATH", "install Docker, or name its client with DOCKER=...")
    problems = [client_problem(client) for client in clients]
    if None not in problems:
        raise next(problem for problem in problems if problem is not None)
    return clients[problems.index(None)]


def client_problem(client: str) -> BuildProblemError | None:
    """Why a client can't build; None when it can."""
    version = _run(client, "version", "--format", "{{.Client.Version}} {{.Server.Version}}")
    if version.returncode:
        return BuildProblemError(
            f"no Docker engine answers {client}: {(version.stderr or version.stdout).strip()}",
            "start it (systemctl start docker), set DOCKER_HOST, or join the group that may use it",
        )
    # Since 23.0 the client builds with buildx alone; before, it asks the engine's own BuildKit.
    if int(version.stdout.split(".")[0]) >= 23 and _run(client, "buildx", "version").returncode:
        return BuildProblemError(f"{client} has no buildx, so it can't build with BuildKit", "install docker-buildx")
    return None


def check_space(client: str, needed_gib: int) -> None:
    """Look at the engine's disk, where it is this machine's.

    Raises
    ------
    BuildProblemError
        There is too little left of it.
    """
    folder = _run(client, "info", "--format", "{{.DockerRootDir}}").stdout.strip()
    if not os.environ.get("DOCKER_HOST", "unix:").startswith("unix:") or not Path(folder).is_dir():
        return
    problem = space_problem(shutil.disk_usage(folder).free, needed_gib, folder)
    if problem is not None:
        raise problem


def build(arguments: argparse.Namespace) -> None:
    """Run the build, its output passing by.

    Raises
    ------
    BuildProblemError
        It failed, or can't begin.
    """
    given = build_arguments(arguments)
    check_arguments(given, declared_arguments(DOCKERFILE.read_text(encoding="utf-8")))
    client, environ = find_engine(os.environ), {**os.environ, "DOCKER_BUILDKIT": "1"}
    check_space(client, NEEDED_GIB.get(arguments.jax, 0))
    with tempfile.TemporaryDirectory(prefix="be-docker-") as folder:
        command = [client, "build", "--file", str(DOCKERFILE), "--target", arguments.target, "--progress=plain"]
        command += [part for tag in arguments.tag for part in ("--tag", tag)]
        command += [part for value in given for part in ("--build-arg", value)]
        command += [part for name in PROXIES if name in environ for part in ("--build-arg", name)]
        command += _secrets(pip_settings(_pip_listing()), Path(folder))
        command += [f"--network={arguments.network}"] * bool(arguments.network) + ["--no-cache"] * arguments.no_cache
        output, status = _stream([*command, str(ROOT)], environ)
    if status:
        reason = explain(output, arguments.base) or "docker build failed, see above"
        raise BuildProblemError(f"the image {arguments.target} was not built: {reason}")


def build_arguments(arguments: argparse.Namespace) -> list[str]:
    """Every build argument as docker takes it; those that were not given keep the Dockerfile's defaults."""
    named = {
        "BASE_IMAGE": arguments.base,
        "CUDA": arguments.cuda,
        "JAX": arguments.jax,
        "PROJECT": arguments.project,
        "PACKAGE": arguments.package,
        "PREBUILD": arguments.prebuild,
        "ARCHS": arguments.archs,
        "VERSION": _version(),
        "REVISION": _run("git", "-C", str(ROOT), "rev-parse", "HEAD").stdout.strip(),
    }
    return [*(f"{name}={value}" for name, value in named.items() if value), *arguments.build_arg]


def _version() -> str:
    text = (ROOT / "be_toolchain" / "__init__.py").read_text(encoding="utf-8")
    return "".join(re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE))


def _pip_listing() -> str:
    return _run(sys.executable, "-m", "pip", "config", "list").stdout


def _secrets(settings: PipSettings, folder: Path) -> list[str]:
    config = folder / "pip.conf"
    config.write_text(settings.config, encoding="utf-8")
    flags = ["--secret", f"id=pip_conf,src={config}"]
    if settings.certificate and Path(settings.certificate).is_file():
        flags += ["--secret", f"id=ca_bundle,src={settings.certificate}"]
    return flags


def _stream(command: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int]:
    """Run a command, show what it says as it says it, and keep that."""
    said: list[str] = []
    with subprocess.Popen(
        command, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None, "a pipe was asked for"
        for line in process.stdout:
            sys.stderr.write(line)
            said.append(line)
    return "".join(said), process.returncode


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, "", str(error))


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build an image of brainevent-toolchain from this checkout.")
    parser.add_argument("target", nargs="?", choices=TARGETS, default="devel", help="which image (default devel)")
    parser.add_argument("--tag", action="append", default=[], help="the image's name (default be-<target>)")
    parser.add_argument("--base", default="ubuntu:24.04", help="the base image (default ubuntu:24.04)")
    parser.add_argument("--cuda", default="wheels", help="where nvcc is from: wheels (default), system or none")
    parser.add_argument("--jax", default="cpu", help="cpu (default), cuda13 or cuda12")
    parser.add_argument("--project", help="aot: the project's folder in this checkout (default examples)")
    parser.add_argument("--package", help="aot: its package that declares kernels, instead of a script")
    parser.add_argument("--prebuild", help="aot: its script that loads every kernel once (default prebuild.py)")
    parser.add_argument("--archs", help="aot: the GPUs to compile for, such as 8.0,9.0 (default 9.0)")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE", help="as for docker build")
    parser.add_argument("--network", help="as for docker build")
    parser.add_argument("--no-cache", action="store_true", help="as for docker build")
    arguments = parser.parse_args(words)
    arguments.tag = arguments.tag or [f"be-{arguments.target}"]
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Build; the exit status is 1 when that failed."""
    arguments = parse_arguments(sys.argv[1:] if words is None else words)
    try:
        build(arguments)
    except BuildProblemError as problem:
        sys.stderr.write(f"error: {problem}\n")
        return 1
    print(f"built {', '.join(arguments.tag)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
