"""The script that builds images, as a module, and the Docker engine that tests use."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
SMALL = ("doc/*", "man/*", "info/*", "locale/*")
RESTRICTED = (
    *("run", "--rm", "--network", "none", "--read-only", "--cap-drop", "ALL"),
    *("--security-opt", "no-new-privileges", "--user", "4711:4712"),
)
"""How a cautious user runs an image: no network, nothing writable, no rights, an unknown user."""

KERNELS = r'''
import getpass, os
import jax, numpy as np
import be_runtime

CPP = """
#include "brainevent/common.h"
// @BE twice
void twice(const BE::Tensor x, BE::Tensor y) { y.data_ptr<float>()[0] = 2 * x.data_ptr<float>()[0]; }
"""
CUDA = """
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void set(float* y) { *y = 1; }
// @BE one
void one(BE::Tensor y, int64_t stream) { set<<<1, 1, 0, (cudaStream_t)stream>>>(y.data_ptr<float>()); }
"""
be_runtime.load_cpp_inline("offline", CPP)
module = be_runtime.load_cuda_inline("offline_cuda", CUDA, compute_capability="sm_90")
call = jax.ffi.ffi_call("offline.twice", jax.ShapeDtypeStruct((), np.float32))
print(os.getuid(), getpass.getuser(), float(call(np.float32(4))), module.function_names)
'''
"""A program that compiles a C++ and a CUDA kernel and calls the first."""


def load_script(path: str) -> ModuleType:
    """A script of the checkout as a module; by its file, since other packages are called docker as well."""
    spec = importlib.util.spec_from_file_location("be_" + path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tool(name: str) -> str | None:
    """A program of this Python environment, else of PATH."""
    return shutil.which(name, path=os.pathsep.join((sysconfig.get_path("scripts"), os.environ.get("PATH", ""))))


def find_nothing(program: str, *arguments: str | Path) -> None:
    """Run a linter that has to be content; skip where it is not installed."""
    found = tool(program)
    if found is None:
        pytest.skip(f"{program} is not installed: pip install 'brainevent-toolchain[dev,packaging]'")
    done = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class NotHereError(Exception):
    """What images can't be tested without, and why it is not here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A Docker engine that answers.

    Parameters
    ----------
    client : str
        The docker program.
    hook_record : Path or None
        What the stand-in for NVIDIA's hook writes; None for an engine that was running before.
    environ : dict of str to str
        For programs that talk to it.
    """

    client: str
    hook_record: Path | None = None
    environ: dict[str, str] = field(default_factory=lambda: dict(os.environ))

    def __call__(
        self, *arguments: str | Path, text_in: str | None = None, timeout_s: float = 840, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the client."""
        return subprocess.run(
            [self.client, *map(str, arguments)],
            env=self.environ | environ,
            input=text_in,
            stdin=subprocess.DEVNULL if text_in is None else None,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def succeed(self, *arguments: str | Path, text_in: str | None = None) -> str:
        """What the client printed, which has to succeed."""
        done = self(*arguments, text_in=text_in)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@contextmanager
def running_engine(folder: Path) -> Iterator[Engine]:
    """The engine that answers, or one that runs as long as the block.

    Raises
    ------
    NotHereError
        None answers, and none can be started.
    """
    environ = os.environ | {"PATH": f"{os.environ.get('PATH', '')}:/usr/bin"}
    try:
        client = _client(environ)
    except NotHereError as problem:
        if os.geteuid() != 0:
            raise NotHereError(f"{problem}; only root could start one") from None
    else:
        yield Engine(client=client)
        return
    if not shutil.which("dockerd"):
        apt(("docker.io",))
    recorded = folder / "hook.txt"
    hooks = _write_hook(folder / "hooks", recorded)
    with _daemon(folder / "dockerd.log", hooks):
        yield Engine(client=_client(environ), hook_record=recorded)


def engine_or_skip(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Yield the engine of a session of tests; make a fixture of this."""
    try:
        with running_engine(tmp_path_factory.mktemp("engine")) as found:
            yield found
    except NotHereError as reason:
        pytest.skip(str(reason))


def base_or_skip(engine: Engine) -> str:
    """Return the base of images, see `base_image`; make a fixture of this."""
    try:
        return base_image(engine)
    except NotHereError as reason:
        pytest.skip(str(reason))


def _client(environ: dict[str, str]) -> str:
    """The docker program that has an engine and can build."""
    script = load_script("docker/build.py")
    try:
        found: str = script.find_engine(environ)
    except script.BuildProblemError as problem:
        raise NotHereError(str(problem)) from None
    return found


def apt(packages: tuple[str, ...]) -> None:
    """Install packages of the distribution.

    Raises
    ------
    NotHereError
        It can't be done.
    """
    if shutil.which("apt-get") is None:
        raise NotHereError(f"no apt-get to install {' '.join(packages)}")
    quiet = {"env": os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, "capture_output": True, "text": True}
    for words in (("update", "-qq"), ("install", "-y", "-qq", "--no-install-recommends", *packages)):
        done = subprocess.run(("apt-get", *words), check=False, timeout=600, **quiet)  # type: ignore[call-overload]
        if done.returncode:
            raise NotHereError(f"apt-get can't install {' '.join(packages)}: {done.stderr.strip()[-300:]}")


def base_image(engine: Engine) -> str:
    """Return a minimal image of this machine's distribution, as its makers publish it; it is made once for a machine.

    Raises
    ------
    NotHereError
        It can't be made.
    """
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    image = f"be-tests-base:{suite}"
    if engine("image", "inspect", image).returncode == 0:
        return image
    if shutil.which("mmdebstrap") is None:
        apt(("mmdebstrap",))
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
        raise NotHereError(f"no base image can be made: {said.strip()[-300:]}")
    assert done.returncode == 0, done.stderr
    return image


def _mirror(suite: str) -> str:
    """Return where this machine gets its distribution from."""
    query = ("apt-get", "indextargets", "--format", "$(RELEASE) $(REPO_URI)", "Created-By: Packages")
    lines = subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(line.split()[1] for line in lines if line.split()[0] == suite)


def _write_hook(folder: Path, record: Path) -> Path:
    """A stand-in for NVIDIA's hook: it notes what ``--gpus`` asked of it, and leaves the container as it is."""
    folder.mkdir()
    hook = folder / "nvidia-container-runtime-hook"
    hook.write_text(f"""#!/bin/sh
bundle=$(sed -n 's/.*"bundle":"\\([^"]*\\)".*/\\1/p')
grep -o 'NVIDIA_[A-Z_]*=[^"]*' "$bundle/config.json" > "{record}"
""")
    hook.chmod(0o755)
    return folder


@contextmanager
def _daemon(log: Path, hooks: Path) -> Iterator[None]:
    """An engine of our own; it ends with the block. The daemon itself refuses to be the second."""
    environ = os.environ | {"PATH": f"{hooks}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"}
    with log.open("wb") as said:
        process = subprocess.Popen(("dockerd",), env=environ, stdout=said, stderr=said, start_new_session=True)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while subprocess.run(("docker", "info"), env=environ, capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                raise NotHereError(f"dockerd does not start: {log.read_text(errors='replace').strip()[-400:]}")
            time.sleep(0.3)
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
