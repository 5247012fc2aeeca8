"""What a toolchain is: frozen values, the same whether they were searched for or read from a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from be_toolchain.arch import Arch
from be_toolchain.errors import Probe

__all__ = [
    "Component",
    "CudaToolkit",
    "Family",
    "HostCompiler",
    "HostLimits",
    "Probe",
    "Toolchain",
    "ToolchainRequest",
    "Warned",
]

Family = Literal["gcc", "clang"]


class ToolchainRequest(NamedTuple):
    """What a caller needs.

    Parameters
    ----------
    need_cuda : bool
        A complete CUDA toolkit with a host compiler that it accepts.
    need_cxx : bool
        A C++ compiler.
    nvcc, cxx : Path, optional
        These and no others: when one does not work, that is an error instead of a reason to search on.
    """

    need_cuda: bool = False
    need_cxx: bool = True
    nvcc: Path | None = None
    cxx: Path | None = None


class HostCompiler(NamedTuple):
    """A C++ compiler that answered.

    Parameters
    ----------
    path : Path
        Absolute, as it has to be called: a link to ccache stays one.
    family : {"gcc", "clang"}
        Whose command line and version numbers it has.
    version : str
        Such as ``"12.2.0"``.
    target : str
        The triple that it compiles for.
    banner : str
        Its own version line, which also tells a distribution's rebuild from another.
    found_via : str
        The search step that found it.
    content : str
        Tells its file from another one: a wrapper script that is edited keeps its compiler's version.
    """

    path: Path
    family: Family
    version: str
    target: str
    found_via: str
    banner: str = ""
    content: str = ""

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.split(".")[0])


class HostLimits(NamedTuple):
    """The host compilers that a toolkit's ``crt/host_config.h`` accepts; None where it sets no limit.

    `libc_below` is the first release of glibc whose ``math.h`` contradicts the toolkit's own declarations; empty for
    none.
    """

    gcc_max: int | None = None
    clang_min: int | None = None
    clang_max: int | None = None
    libc_below: str = ""


class Component(NamedTuple):
    """A part of a CUDA toolkit that is shipped, and can be upgraded, on its own.

    Parameters
    ----------
    name : str
        ``"nvcc"``, ``"nvvm"``, ``"crt"``, ``"cudart"``, ``"cccl"``, ``"ptxas"`` and so on.
    path : Path
        A file of it.
    version : str
        Empty when nothing on disk tells.
    source : str
        What told the version, such as ``"ptxas --version"``, or why nothing did.
    """

    name: str
    path: Path
    version: str
    source: str = ""


class CudaToolkit(NamedTuple):
    """A complete CUDA toolkit: it can compile, link, and has a host compiler that it accepts.

    One without nvcc is made of the CUDA 12 wheels, and clang compiles with it: `host_compiler`, for both sides.

    Parameters
    ----------
    root : Path
        nvcc's own idea of its root folder; clang's ``--cuda-path``.
    release : str
        Such as ``"13.0"``.
    nvcc : Path, optional
        The nvcc to call, behind wrapper scripts; None where clang compiles.
    nvcc_version, nvcc_build : str
        Such as ``"13.0.88"`` and its build line; empty without nvcc.
    nvcc_content : str
        Tells its file and its profile from others, as `HostCompiler.content`; empty without nvcc.
    layout : str
        The row of `catalog.LAYOUTS` that it follows.
    include_dirs, library_dirs : tuple of Path
        Where its headers and libraries are, in search order; nvcc itself knows the headers, not always the libraries.
    cudart_static, cudart_shared : Path, optional
        At least one is set.
    ptxas, fatbinary, libdevice : Path
        The parts that nvcc, or clang, calls or reads.
    cicc, cudafe, nvlink : Path, optional
        Those that nvcc alone calls; set with nvcc.
    components : tuple of Component
        Every part with its version.
    archs : tuple of Arch
        What can be compiled for, sorted.
    host_limits : HostLimits
        What its ``crt/host_config.h`` accepts.
    host_compiler : HostCompiler
        To be passed with ``-ccbin``; without nvcc, the clang that compiles both sides.
    allow_unsupported_compiler : bool
        `host_compiler` is outside the limits by the user's wish: pass ``-allow-unsupported-compiler``.
    found_via : str
        The search step that found it.
    """

    root: Path
    release: str
    nvcc: Path | None
    nvcc_version: str
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    cudart_static: Path | None
    cudart_shared: Path | None
    cicc: Path | None
    ptxas: Path
    cudafe: Path | None
    fatbinary: Path
    nvlink: Path | None
    libdevice: Path
    components: tuple[Component, ...]
    archs: tuple[Arch, ...]
    host_compiler: HostCompiler
    found_via: str
    nvcc_build: str = ""
    nvcc_content: str = ""
    layout: str = ""
    host_limits: HostLimits = HostLimits()
    allow_unsupported_compiler: bool = False

    @property
    def title(self) -> str:
        """What compiles CUDA, for messages: ``"nvcc of CUDA 13.0"``, ``"clang 19.1.7 with CUDA 12.9"``."""
        by_nvcc = self.nvcc is not None
        return (
            f"nvcc of CUDA {self.release}"
            if by_nvcc
            else f"clang {self.host_compiler.version} with CUDA {self.release}"
        )


class Warned(NamedTuple):
    """Something that works now and is likely to surprise later."""

    message: str
    hint: str = ""


class Toolchain(NamedTuple):
    """All that is needed to compile here, and all that a cache key has to know about it.

    Parameters
    ----------
    cxx : HostCompiler, optional
        For C++ kernels; also nvcc's host compiler unless nvcc rejects it.
    cuda : CudaToolkit, optional
        Set when it was asked for.
    environment : tuple of (name, value)
        The set environment variables that change what the compilers do, sorted.
    warnings : tuple of Warned
        For a doctor or a log; not part of the key.
    """

    cxx: HostCompiler | None = None
    cuda: CudaToolkit | None = None
    environment: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Warned, ...] = ()

    def key_fields(self) -> tuple[tuple[str, str], ...]:
        """Labelled fields for a cache key: two toolchains that may compile differently differ in one.

        Returns
        -------
        tuple of (label, value)
            Labels are unique and their order is fixed.

        Examples
        --------
        >>> Toolchain(environment=(("CPATH", "/opt/include"),)).key_fields()
        (('env.CPATH', '/opt/include'),)
        """
        fields: list[tuple[str, str]] = []
        if self.cxx is not None:
            fields.extend(_compiler_fields("cxx", self.cxx))
        if self.cuda is not None:
            fields.extend(_toolkit_fields(self.cuda))
        fields.extend((f"env.{name}", value) for name, value in self.environment)
        return tuple(fields)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the framed `key_fields`, 64 hexadecimal digits."""
        import hashlib

        digest = hashlib.sha256()
        for label, value in self.key_fields():
            for text in (label, value):
                data = text.encode("utf-8", "surrogateescape")
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
        return digest.hexdigest()


def _compiler_fields(label: str, compiler: HostCompiler) -> Iterator[tuple[str, str]]:
    """A host compiler's part of the key."""
    yield f"{label}.path", str(compiler.path)
    yield f"{label}.family", compiler.family
    yield f"{label}.version", compiler.version
    yield f"{label}.target", compiler.target
    yield f"{label}.banner", compiler.banner
    yield f"{label}.content", compiler.content


def _toolkit_fields(toolkit: CudaToolkit) -> Iterator[tuple[str, str]]:
    """A CUDA toolkit's part of the key."""
    yield "cuda.root", str(toolkit.root)
    yield "cuda.release", toolkit.release
    yield "cuda.nvcc", str(toolkit.nvcc)
    yield "cuda.nvcc_version", toolkit.nvcc_version
    yield "cuda.nvcc_build", toolkit.nvcc_build
    yield "cuda.nvcc_content", toolkit.nvcc_content
    for name in ("cicc", "ptxas", "cudafe", "fatbinary", "nvlink", "libdevice", "cudart_static", "cudart_shared"):
        yield f"cuda.{name}", str(getattr(toolkit, name))
    for position, folder in enumerate(toolkit.include_dirs):
        yield f"cuda.include_dirs.{position}", str(folder)
    for position, folder in enumerate(toolkit.library_dirs):
        yield f"cuda.library_dirs.{position}", str(folder)
    for component in toolkit.components:
        yield f"cuda.component.{component.name}", f"{component.version} {component.path}"
    yield "cuda.allow_unsupported_compiler", str(toolkit.allow_unsupported_compiler)
    yield from _compiler_fields("cuda.host", toolkit.host_compiler)
