"""Compiled files of be_runtime's own, for wheels and conda packages that compile nothing of ours on a user's machine.

Wheels need old symbol versions of glibc, so zig builds their libraries, which have libc++ inside and export C functions
only. The handler is linked into users' modules, so it is for GNU's C++ library, and g++ compiles it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.flags import handler_compile
from be_runtime.load.identity import checkout_digest, shipped_name
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR, jax_headers
from be_toolchain.values import HostCompiler
from release.problems import ReleaseError

GLIBC = "2.28"
"""The oldest glibc, as of JAX's own wheels."""

LIBRARIES = ("guard", "host_call", "launcher")
"""Sources below ``native/`` that become a library each."""

MACHINES = ("x86_64", "aarch64")
FOLDER = NATIVE_DIR.relative_to(NATIVE_DIR.parents[1]) / "shipped"


class Compilers(NamedTuple):
    """Commands that compile for one kind of machine: the handler, and C and C++ libraries."""

    handler: tuple[str, ...]
    c: tuple[str, ...]
    cxx: tuple[str, ...]

    @classmethod
    def for_wheels(cls, machine: str) -> Compilers:
        """Return g++ under its name in Debian, and zig for an old glibc.

        Raises
        ------
        ReleaseError
            One of them is missing.
        """
        gcc = f"{machine}-linux-gnu-g++"
        if shutil.which(gcc) is None:
            package = f"g++-{machine.replace('_', '-')}-linux-gnu"
            raise ReleaseError(f"{gcc} is not installed, which compiles the handler: apt-get install {package}")
        target = ("-target", f"{machine}-linux-gnu.{GLIBC}")
        c, cxx = ((sys.executable, "-m", "ziglang", language, *target) for language in ("cc", "c++"))
        # zig's own unwinder would not find the frames that Numba registers with libgcc, which jaxlib has loaded.
        asked = subprocess.run((gcc, "-print-file-name=libgcc_s.so.1"), capture_output=True, text=True, check=True)
        return cls((gcc,), c, (*cxx, asked.stdout.strip()))

    @classmethod
    def one(cls, cc: str, cxx: str) -> Compilers:
        """Return the same compilers for all files, such as conda's, whose libraries need an old glibc anyway."""
        return cls((cxx,), (cc,), (cxx, "-static-libstdc++"))


def build_native(tree: Path, out: Path, machine: str, compilers: Compilers) -> Path:
    """Compile the files for one kind of machine, and return their folder.

    Parameters
    ----------
    tree : Path
        Folder that contains the packages.
    out : Path
        Folder to put the files' folder in, whose name says the machine and the code.
    machine : str
        ``"x86_64"`` or ``"aarch64"``.
    compilers : Compilers

    Raises
    ------
    ReleaseError
        A compiler failed.
    """
    headers = jax_headers()
    if headers is None:
        raise ReleaseError("jaxlib is not installed, whose headers declare XLA's FFI")
    native, include = (folder.relative_to(NATIVE_DIR.parents[1]) for folder in (NATIVE_DIR, INCLUDE_DIR))
    gcc = HostCompiler(Path(compilers.handler[0]), "gcc", "", f"{machine}-linux-gnu", "")
    flags = [*handler_compile(gcc, [include, headers])[1:], f"-ffile-prefix-map={headers}=xla"]
    linked = ("-shared", "-Wl,-s", "-Wl,-z,noexecstack", "-ldl")
    folder = out.absolute() / shipped_name(machine, checkout_digest(tree, None, 0))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="be-native-") as cache:
        environ = {**os.environ, "ZIG_LOCAL_CACHE_DIR": cache}
        portable = ("-mno-outline-atomics",) if machine == "aarch64" else ()  # libgcc has these from GCC 9.4 on
        command = (*compilers.handler, *flags, *portable, "-c", f"{native}/handler.cc", "-o", f"{folder}/handler.o")
        _run(command, tree, environ)
        command = (*compilers.c, "-O2", "-fPIC", f"{native}/looked_at.c", "-o", f"{folder}/looked_at.so", *linked)
        _run(command, tree, environ)
        for name in LIBRARIES:
            command = (*compilers.cxx, *flags, f"{native}/{name}.cc", "-o", f"{folder}/{name}.so", *linked)
            _run(command, tree, environ)
    return folder


def platform_wheel(wheel: Path, tree: Path, machine: str, epoch: int) -> Path:
    """Make the wheel for one kind of machine beside the wheel without compiled files.

    Raises
    ------
    ReleaseError
        A compiler failed or is missing.
    """
    environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    tag = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    with tempfile.TemporaryDirectory(prefix="be-wheel-") as name:
        folder = Path(name)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "unpacked")
        build_native(tree, folder / "unpacked" / FOLDER, machine, Compilers.for_wheels(machine))
        for path in (folder / "unpacked").rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)  # whatever the umask is
        _run(_wheel("pack", "unpacked", "--dest-dir", "."), folder, environ)
        tagging = ("tags", "--remove", "--platform-tag", tag, wheel.name)
        _run(_wheel(*tagging), folder, environ)
        (made,) = folder.glob("*.whl")
        return Path(shutil.copy2(made, wheel.parent))


def _wheel(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "wheel", *arguments)


def _run(command: Sequence[str], folder: Path, environ: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environ, umask=0o022, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
