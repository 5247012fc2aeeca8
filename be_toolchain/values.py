"""The toolchain and its parts as frozen values, the same whether they were searched for or read from a record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError

Family = Literal["gcc", "clang"]


class ToolchainRequest(NamedTuple):
    """The parts of a toolchain that a caller needs.

    Parameters
    ----------
    need_cuda : bool
        Ask for a complete CUDA toolkit with a host compiler that it accepts.
    need_cxx : bool
        Ask for a C++ compiler.
    nvcc, cxx : Path, optional
        The only programs that may be used. One that does not work is an error; the search does not go on.
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


class Nvcc(NamedTuple):
    """NVIDIA's compiler of CUDA, which leaves the host side to a C++ compiler.

    Parameters
    ----------
    path : Path
        The nvcc to call, behind wrapper scripts.
    version, build : str
        Such as ``"13.0.88"`` and its build line.
    content : str
        Tells its file and its profile from others, as `HostCompiler.content`.
    cicc, cudafe, nvlink : Path
        The programs that it alone calls.
    host : HostCompiler
        To be passed with ``-ccbin``.
    host_limits : HostLimits
        What its ``crt/host_config.h`` accepts.
    allow_unsupported_compiler : bool
        `host` is outside the limits by the user's wish: pass ``-allow-unsupported-compiler``.
    """

    path: Path
    version: str
    build: str
    content: str
    cicc: Path
    cudafe: Path
    nvlink: Path
    host: HostCompiler
    host_limits: HostLimits = HostLimits()
    allow_unsupported_compiler: bool = False

    @property
    def label(self) -> str:
        """The compiler in a report: ``"nvcc 13.0.88"``."""
        return f"nvcc {self.version}"

    @property
    def measure(self) -> str:
        """The component whose version is the toolkit's release."""
        return "nvcc"

    @property
    def newer(self) -> str:
        """The part to replace where a GPU is too new."""
        return "CUDA release"

    def title(self, release: str) -> str:
        """The compiler in messages: ``"nvcc of CUDA 13.0"``."""
        return f"nvcc of CUDA {release}"

    def flat(self) -> dict[str, Any]:
        """Its part of `CudaToolkit.flat`."""
        return {
            "nvcc": self.path,
            "nvcc_version": self.version,
            "nvcc_build": self.build,
            "nvcc_content": self.content,
            "cicc": self.cicc,
            "cudafe": self.cudafe,
            "nvlink": self.nvlink,
            "host_compiler": self.host,
            "host_limits": self.host_limits,
            "allow_unsupported_compiler": self.allow_unsupported_compiler,
        }


class ClangCuda(NamedTuple):
    """A clang that compiles both sides of CUDA, with the parts that the CUDA 12 wheels have.

    Parameters
    ----------
    host : HostCompiler
        It.
    """

    host: HostCompiler

    @property
    def label(self) -> str:
        """See `Nvcc.label`."""
        return f"no nvcc, clang {self.host.version}"

    @property
    def measure(self) -> str:
        """See `Nvcc.measure`."""
        return "ptxas"

    @property
    def newer(self) -> str:
        """See `Nvcc.newer`."""
        return "clang, or nvcc"

    def title(self, release: str) -> str:
        """The compiler in messages: ``"clang 19.1.7 with CUDA 12.9"``."""
        return f"clang {self.host.version} with CUDA {release}"

    def flat(self) -> dict[str, Any]:
        """Its part of `CudaToolkit.flat`."""
        return {
            **dict.fromkeys(("nvcc", "cicc", "cudafe", "nvlink")),
            **dict.fromkeys(("nvcc_version", "nvcc_build", "nvcc_content"), ""),
            "host_compiler": self.host,
            "host_limits": HostLimits(),
            "allow_unsupported_compiler": False,
        }


class CudaToolkit(NamedTuple):
    """A complete CUDA toolkit: it can compile and link.

    Parameters
    ----------
    root : Path
        nvcc's own idea of its root folder; clang's ``--cuda-path``.
    release : str
        Such as ``"13.0"``.
    compiler : Nvcc or ClangCuda
        The compiler of CUDA sources, with the host compiler that it accepts.
    layout : str
        The row of `catalog.LAYOUTS` that it follows.
    include_dirs, library_dirs : tuple of Path
        Where its headers and libraries are, in search order; nvcc itself knows the headers, not always the libraries.
    cudart_static, cudart_shared : Path, optional
        At least one is set.
    ptxas, fatbinary, libdevice : Path
        The parts that every compiler calls or reads.
    components : tuple of Component
        Every part with its version.
    archs : tuple of Arch
        What can be compiled for, sorted.
    found_via : str
        The search step that found it.
    """

    root: Path
    release: str
    compiler: Nvcc | ClangCuda
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]
    cudart_static: Path | None
    cudart_shared: Path | None
    ptxas: Path
    fatbinary: Path
    libdevice: Path
    components: tuple[Component, ...]
    archs: tuple[Arch, ...]
    found_via: str
    layout: str = ""

    @property
    def title(self) -> str:
        """The compiler, for messages: ``"nvcc of CUDA 13.0"``, ``"clang 19.1.7 with CUDA 12.9"``."""
        return self.compiler.title(self.release)

    @property
    def host_compiler(self) -> HostCompiler:
        """The compiler of the host side: to be passed with ``-ccbin``, or the clang that compiles both sides."""
        return self.compiler.host

    @property
    def nvcc(self) -> Path | None:
        """The nvcc to call, behind wrapper scripts; None where another compiler compiles."""
        return self.compiler.path if isinstance(self.compiler, Nvcc) else None

    @property
    def nvcc_version(self) -> str:
        """The version of nvcc, such as ``"13.0.88"``; empty without nvcc."""
        return self.compiler.version if isinstance(self.compiler, Nvcc) else ""

    def flat(self) -> dict[str, Any]:
        """Every fact under the one name that ``doctor --json``, records and keys have for it.

        What the compiler of a toolkit lacks is None or empty.
        """
        fields = self._asdict()
        del fields["compiler"]
        return fields | self.compiler.flat()


def check_archs(archs: tuple[Arch, ...], toolkit: CudaToolkit) -> None:
    """Check that a toolkit can compile for all of `archs`.

    Raises
    ------
    ArchError
        The toolkit cannot target one of them; the message names it and all architectures that it can target.

    Examples
    --------
    >>> from be_toolchain import parse_archs, resolve
    >>> toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda  # doctest: +SKIP
    >>> check_archs(parse_archs("9.0"), toolkit)  # doctest: +SKIP
    """
    knows_suffixes = any(arch.suffix for arch in toolkit.archs)
    for arch in archs:
        if arch in toolkit.archs or (not knows_suffixes and arch.suffix and arch.base in toolkit.archs):
            continue
        supported = ", ".join(known.sm for known in sorted(toolkit.archs))
        oldest = min(toolkit.archs, default=None)
        hints = [f"{toolkit.title} targets {supported}"]
        if oldest is not None and arch < oldest:
            hints.append(f"{arch.sm} needs an older CUDA release")
        raise ArchError(f"{toolkit.title} cannot target {arch.sm}", hints=tuple(hints))


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
    environment : tuple of tuple of str
        Names and values of the set environment variables that change what the compilers do, sorted.
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
    fields = toolkit.flat()
    for name in _TOOLKIT_FIELDS:
        yield f"cuda.{name}", str(fields[name])
    for position, folder in enumerate(toolkit.include_dirs):
        yield f"cuda.include_dirs.{position}", str(folder)
    for position, folder in enumerate(toolkit.library_dirs):
        yield f"cuda.library_dirs.{position}", str(folder)
    for component in toolkit.components:
        yield f"cuda.component.{component.name}", f"{component.version} {component.path}"
    yield from _compiler_fields("cuda.host", toolkit.host_compiler)


_TOOLKIT_FIELDS = (
    *("root", "release", "nvcc", "nvcc_version", "nvcc_build", "nvcc_content", "cicc", "ptxas", "cudafe", "fatbinary"),
    *("nvlink", "libdevice", "cudart_static", "cudart_shared", "allow_unsupported_compiler"),
)
"""Those of `CudaToolkit.flat` that are one text of the key each."""
