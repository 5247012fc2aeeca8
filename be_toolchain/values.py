"""The toolchain and its parts as immutable values, equal whether a search found them or a record had them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError
from be_toolchain.named import NamedTuple

Family = Literal["gcc", "clang"]


class ToolchainRequest(NamedTuple):
    """The parts of a toolchain that a caller needs.

    Parameters
    ----------
    need_cuda : bool, default False
        Ask for a complete CUDA toolkit and a host compiler that the toolkit accepts.
    need_cxx : bool, default True
        Ask for a C++ compiler. A request for CUDA always searches for a C++ compiler, too.
    nvcc : Path, optional
        The only nvcc that the search may choose. If this nvcc does not work, `resolve` raises an error.
    cxx : Path, optional
        The only C++ compiler that the search may choose. If this compiler does not work, `resolve` raises an error.

    See Also
    --------
    - `resolve`: find the parts.
    - :doc:`/toolchain`: the search order, and the settings that change the order.

    Examples
    --------
    >>> from be_toolchain import ToolchainRequest
    >>> ToolchainRequest(need_cuda=True).need_cxx
    True
    """

    need_cuda: bool = False
    need_cxx: bool = True
    nvcc: Path | None = None
    cxx: Path | None = None


class HostCompiler(NamedTuple):
    """A working C++ compiler.

    Attributes
    ----------
    path : Path
        Absolute path of the program. A symbolic link, for example to ccache, is not resolved.
    family : {"gcc", "clang"}
        Family of the compiler, which determines the names of the options.
    version : str
        Version, such as ``"12.2.0"``.
    target : str
        Target triple, such as ``"x86_64-linux-gnu"``.
    found_via : str
        Search step that found the compiler, such as ``"PATH"`` or ``"BE_CXX"``.
    banner : str
        Version line that the compiler prints.
    content : str
        Hash of the compiler's file. The hash also changes if you edit a wrapper script.

    See Also
    --------
    - :doc:`/toolchain`: the search order, and the settings that change the order.
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
    """The host compilers that a toolkit's ``crt/host_config.h`` accepts; None for a limit that it does not set.

    `libc_below` is the first release of glibc whose ``math.h`` contradicts the toolkit's own declarations; empty if
    there is none.
    """

    gcc_max: int | None = None
    clang_min: int | None = None
    clang_max: int | None = None
    libc_below: str = ""


class Component(NamedTuple):
    """A part of a CUDA toolkit, with the version of the part.

    Attributes
    ----------
    name : str
        ``"nvcc"``, ``"nvvm"``, ``"crt"``, ``"cudart"``, ``"cccl"``, or a tool such as ``"ptxas"``.
    path : Path
        A file of the part.
    version : str
        Version; empty if the version is unknown.
    source : str
        Source of the version, such as ``"ptxas --version"``, or the reason why the version is unknown.

    See Also
    --------
    - :doc:`/toolchain`: the search order, and the settings that change the order.
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
        The nvcc program to call. If the search found a wrapper script, it is the program that the script starts.
    version, build : str
        The version, such as ``"13.0.88"``, and the build line.
    content : str
        A hash of its file and its profile, as `HostCompiler.content`.
    cicc, cudafe, nvlink : Path
        The programs that only nvcc calls.
    host : HostCompiler
        The compiler to pass with ``-ccbin``.
    host_limits : HostLimits
        The compilers that its ``crt/host_config.h`` accepts.
    allow_unsupported_compiler : bool
        Whether the user wants a `host` outside the limits: pass ``-allow-unsupported-compiler``.
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
        """Return the compiler's name in messages: ``"nvcc of CUDA 13.0"``."""
        return f"nvcc of CUDA {release}"

    def flat(self) -> dict[str, Any]:
        """Return the compiler's part of `CudaToolkit.flat`."""
        prefixed = {"path": "nvcc", "version": "nvcc_version", "build": "nvcc_build", "content": "nvcc_content"}
        names = prefixed | {"host": "host_compiler"}
        return {names.get(name, name): value for name, value in self._asdict().items()}


class ClangCuda(NamedTuple):
    """A clang that compiles both sides of CUDA, with the parts that the CUDA 12 wheels have.

    Parameters
    ----------
    host : HostCompiler
        The clang.
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
        """Return the compiler's name in messages: ``"clang 19.1.7 with CUDA 12.9"``."""
        return f"clang {self.host.version} with CUDA {release}"

    def flat(self) -> dict[str, Any]:
        """Return the compiler's part of `CudaToolkit.flat`."""
        return {
            **dict.fromkeys(("nvcc", "cicc", "cudafe", "nvlink")),
            **dict.fromkeys(("nvcc_version", "nvcc_build", "nvcc_content"), ""),
            "host_compiler": self.host,
            "host_limits": HostLimits(),
            "allow_unsupported_compiler": False,
        }


class CudaToolkit(NamedTuple):
    """A complete CUDA toolkit, which can compile and link.

    Attributes
    ----------
    root : Path
        Root folder of the toolkit.
    release : str
        Release, such as ``"13.0"``.
    compiler : object
        Compiler of CUDA sources, nvcc or clang. The properties below read the fields of this object.
    include_dirs : tuple of Path
        Folders of headers, in search order.
    library_dirs : tuple of Path
        Folders of libraries, in search order.
    cudart_static : Path or None
        Static CUDA runtime library. At least one of `cudart_static` and `cudart_shared` is set.
    cudart_shared : Path or None
        Shared CUDA runtime library.
    ptxas : Path
        Program that assembles PTX.
    fatbinary : Path
        Program that combines the code for several architectures.
    libdevice : Path
        NVIDIA's library of mathematical functions, as bitcode.
    components : tuple of Component
        Parts with their versions.
    archs : tuple of Arch
        Architectures that the toolkit compiles for, sorted.
    found_via : str
        Search step that found the toolkit, such as ``"CUDA_HOME"`` or ``"PATH"``.
    layout : str
        Kind of installation, such as ``"pip"`` or ``"conda"``.

    See Also
    --------
    - :doc:`/toolchain`: the search order, and the settings that change the order.
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
        """The compiler's name in messages, such as ``"nvcc of CUDA 13.0"`` or ``"clang 19.1.7 with CUDA 12.9"``."""
        return self.compiler.title(self.release)

    @property
    def host_compiler(self) -> HostCompiler:
        """The compiler of host code, which is the value of nvcc's ``-ccbin`` or the clang that compiles CUDA."""
        return self.compiler.host

    @property
    def nvcc(self) -> Path | None:
        """The nvcc program, or None if clang compiles CUDA.

        If the search found a wrapper script, the value is the program that the script starts.
        """
        return self.compiler.path if isinstance(self.compiler, Nvcc) else None

    @property
    def nvcc_version(self) -> str:
        """The version of nvcc, such as ``"13.0.88"``; empty if clang compiles CUDA."""
        return self.compiler.version if isinstance(self.compiler, Nvcc) else ""

    def flat(self) -> dict[str, Any]:
        """Return every fact by its name in ``doctor --json``, records and keys; None or empty if there is none."""
        fields = self._asdict()
        del fields["compiler"]
        return fields | self.compiler.flat()


def check_archs(archs: tuple[Arch, ...], toolkit: CudaToolkit) -> None:
    """Check that a toolkit can compile for all given architectures.

    Parameters
    ----------
    archs : tuple of Arch
        Architectures to check.
    toolkit : CudaToolkit
        Toolkit that must support the architectures, such as ``resolve(ToolchainRequest(need_cuda=True)).cuda``.

    Raises
    ------
    ArchError
        The toolkit cannot target one of the architectures. The hint lists the supported architectures.

    See Also
    --------
    - `parse_archs`: read architectures.
    - :doc:`/toolchain`: the search order, and the settings that change the order.

    Examples
    --------
    >>> from be_toolchain import ToolchainRequest, check_archs, parse_archs, resolve
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
    """A warning of something that works now and is likely to surprise later."""

    message: str
    hint: str = ""


class Toolchain(NamedTuple):
    """The compilers of this machine, from `resolve`.

    Attributes
    ----------
    cxx : HostCompiler or None
        Compiler for C++ kernels; None if the request asks for neither C++ nor CUDA. The compiler of CUDA's
        host code is ``cuda.host_compiler``, which may be a different compiler.
    cuda : CudaToolkit or None
        CUDA toolkit; None unless the request needs CUDA.
    environment : tuple of (str, str)
        Sorted pairs of names and values of the environment variables that change the output of the compilers.
    warnings : tuple
        Warnings, each with a ``message`` and a ``hint``. The fingerprint does not depend on the warnings.

    See Also
    --------
    - `resolve`: find a toolchain.
    - :doc:`/toolchain`: the search order, and the settings that change the order.
    """

    cxx: HostCompiler | None = None
    cuda: CudaToolkit | None = None
    environment: tuple[tuple[str, str], ...] = ()
    warnings: tuple[Warned, ...] = ()

    def key_fields(self) -> tuple[tuple[str, str], ...]:
        """Return labeled fields for a cache key: two toolchains that may compile differently differ in one.

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
        """The SHA-256 hash of the compilers and of `environment`, as 64 hexadecimal digits."""
        import hashlib

        digest = hashlib.sha256()
        for label, value in self.key_fields():
            for text in (label, value):
                data = text.encode("utf-8", "surrogateescape")
                digest.update(len(data).to_bytes(8, "little"))
                digest.update(data)
        return digest.hexdigest()


def _compiler_fields(label: str, compiler: HostCompiler) -> Iterator[tuple[str, str]]:
    """Yield a host compiler's part of the key."""
    for name in ("path", "family", "version", "target", "banner", "content"):
        yield f"{label}.{name}", str(getattr(compiler, name))


def _toolkit_fields(toolkit: CudaToolkit) -> Iterator[tuple[str, str]]:
    """Yield a CUDA toolkit's part of the key."""
    fields = toolkit.flat()
    for name in _TOOLKIT_FIELDS:
        yield f"cuda.{name}", str(fields[name])
    for name in ("include_dirs", "library_dirs"):
        for position, folder in enumerate(fields[name]):
            yield f"cuda.{name}.{position}", str(folder)
    for component in toolkit.components:
        yield f"cuda.component.{component.name}", f"{component.version} {component.path}"
    yield from _compiler_fields("cuda.host", toolkit.host_compiler)


_TOOLKIT_FIELDS = (
    *("root", "release", "nvcc", "nvcc_version", "nvcc_build", "nvcc_content", "cicc", "ptxas", "cudafe", "fatbinary"),
    *("nvlink", "libdevice", "cudart_static", "cudart_shared", "allow_unsupported_compiler"),
)
"""Fields of `CudaToolkit.flat` that are hashed into the key, one text each."""
