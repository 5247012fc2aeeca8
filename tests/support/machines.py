"""Machines in memory: a real System over a made-up file tree whose programs answer as the real ones do."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from be_toolchain import CudaToolkit, ToolchainRequest, resolve
from be_toolchain.machine.system import FileStamp, FolderFacts, RunResult, System

SITE = "/venv/lib/python3.11/site-packages"
TARGETS = {"x86_64": "x86_64-linux", "aarch64": "sbsa-linux"}
TOOLS = ("ptxas", "cudafe++", "fatbinary", "nvlink")
PATCH = {"12.9": "12.9.86", "13.0": "13.0.88", "13.5": "13.5.27"}

Program = Callable[["MemorySystem", tuple[str, ...]], RunResult]


@dataclass
class File:
    text: str = ""
    program: Program | None = None
    executable: bool = False
    version: int = 1


@dataclass
class MemorySystem(System):
    """Files by path, folders implied by them, links, and every command that was run."""

    environ: Mapping[str, str] = field(default_factory=lambda: {"PATH": "/usr/local/bin:/usr/bin"})
    machine: str = "x86_64"
    prefixes: tuple[Path, ...] = (Path("/venv"), Path("/usr"))
    site_dirs: tuple[Path, ...] = (Path(SITE),)
    cwd: Path | None = None
    libc: str = "glibc 2.36"
    folders: dict[str, FolderFacts] = field(default_factory=dict)
    planted: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    servers: dict[str, str] = field(default_factory=dict)
    files: dict[str, File] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, Any] = field(default_factory=dict)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    stats: list[str] = field(default_factory=list)
    listings: list[str] = field(default_factory=list)

    def stat(self, path: str | Path) -> FileStamp | None:
        self.stats.append(str(path))
        real = str(self.realpath(Path(path)))
        if real in self.files:
            file = self.files[real]
            inode = list(self.files).index(real) + 100
            return FileStamp(executable=file.executable, inode=inode, size_bytes=len(file.text), mtime_ns=file.version)
        if real == "/" or any(name.startswith(f"{real}/") for name in (*self.files, *self.links)):
            names = self._names(real)
            return FileStamp(is_dir=True, executable=True, inode=7, mtime_ns=hash(names) & 0xFFFFFFFF)
        return None

    def _names(self, folder: str) -> tuple[str, ...]:
        prefix = folder.rstrip("/") + "/"
        below = [path for path in (*self.files, *self.links) if path.startswith(prefix)]
        return tuple(sorted({path.removeprefix(prefix).split("/")[0] for path in below}))

    def list_dir(self, path: Path) -> tuple[str, ...]:
        self.listings.append(str(path))
        return self._names(str(self.realpath(path)))

    def read_text(self, path: Path, limit_bytes: int = 1 << 20) -> str | None:
        file = self.files.get(str(self.realpath(path)))
        return None if file is None or str(path) in self.unreadable else file.text[:limit_bytes]

    def realpath(self, path: Path) -> Path:
        text = posixpath.normpath(str(path))
        for _ in range(8):
            link = next((link for link in self.links if text == link or text.startswith(f"{link}/")), None)
            if link is None:
                break
            text = posixpath.normpath(posixpath.join(posixpath.dirname(link), self.links[link]) + text[len(link) :])
        return Path(text)

    def run_all(
        self, commands: tuple[tuple[str, ...], ...], *, unset: tuple[str, ...] = (), timeout_s: float = 20.0
    ) -> tuple[RunResult, ...]:
        return tuple(self.run_one(argv) for argv in commands)

    def run_one(self, argv: tuple[str, ...]) -> RunResult:
        self.commands.append(argv)
        file = self.files.get(str(self.realpath(Path(argv[0]))))
        if file is None or file.program is None or not file.executable:
            return RunResult(argv=argv, returncode=None, problem="No such file or directory")
        return file.program(self, argv)

    def open_library(self, name: str) -> Any:
        if name not in self.libraries:
            raise OSError(f"{name}: cannot open shared object file")
        return self.libraries[name]

    def folder_facts(self, path: Path) -> FolderFacts:
        return self.folders.get(str(path), FolderFacts(path=path, standing=path))

    def ask_server(self, url: str, name: str) -> str:
        return self.servers.get(f"{url}/{name}", "no answer within 1 s")

    def has_package(self, name: str) -> bool:
        return any(self.is_dir(folder / name) for folder in self.site_dirs)

    def private_key_problem(self, path: Path) -> str:
        if str(path) not in self.files:
            return "can't be read: No such file or directory"
        return "can be read by other users (mode 644)" if str(path) in self.planted else ""

    def distrust(self, path: Path) -> str:
        places = (path, *path.parents, self.realpath(path))
        found = next((place for place in places if str(place) in self.planted), None)
        return f"{found} belongs to another user (uid 1001)" if found else ""

    # Building a machine

    @property
    def target(self) -> str:
        return TARGETS[self.machine]

    def write(self, path: str, text: str = "") -> None:
        self.files[path] = File(text=text)

    def program(self, path: str, answer: Program) -> None:
        self.files[path] = File(text="\x7fELF", program=answer, executable=True)

    def touch(self, path: str) -> None:
        self.files[path].version += 1

    def link(self, path: str, target: str) -> None:
        self.links[path] = target

    def gxx(self, path: str, version: str = "12.2.0", family: str = "gcc") -> None:
        """A compiler that tells of itself as gcc and clang do."""
        lines = {
            "gcc": f"Using built-in specs.\nCOLLECT_LTO_WRAPPER=/usr/lib/gcc/{version}/lto-wrapper\n"
            f"Target: {self.machine}-linux-gnu\nThread model: posix\ngcc version {version} (Debian {version}-14)\n",
            "clang": f"Debian clang version {version} (3)\nTarget: {self.machine}-pc-linux-gnu\n"
            "InstalledDir: /usr/lib/llvm/bin\n",
        }
        self.says(path, err=lines[family])

    def clang(self, path: str, version: str = "19.1.7", *, gpus: bool = True) -> None:
        """A clang, with or without the target for NVIDIA's GPUs."""
        self.gxx(path, version, "clang")
        answer = self.files[path].program
        assert answer is not None
        known = "Available CPUs for this target:\n\n\tsm_50\n\tsm_80\n\tsm_90\n\tsm_90a\n"
        refused = 'No available targets are compatible with triple "nvptx64"'

        def told(machine: MemorySystem, argv: tuple[str, ...]) -> RunResult:
            if "--print-supported-cpus" not in argv:
                return answer(machine, argv)
            return RunResult(argv=argv, returncode=0 if gpus else 1, stderr=known if gpus else refused)

        self.program(path, told)

    def zig(self, path: str) -> None:
        """A script that execs ``zig c++``."""
        version = "clang version 20.1.2 (https://github.com/ziglang/zig-bootstrap 7ef7)"
        self.says(path, err=f"{version}\nTarget: x86_64-unknown-linux-musl\n")

    def script(self, path: str, runs: str) -> None:
        """A script that starts another program by its absolute path, as wrappers and module shims do."""
        self.program(path, lambda machine, argv: machine.run_one((runs, *argv[1:])))
        self.files[path].text = f'#!/bin/sh\nexec {runs} "$@"\n'

    def nvcc(self, path: str, release: str) -> None:
        self.program(path, lambda machine, argv: answer_nvcc(machine, argv, release))

    def tools(self, folder: str, release: str) -> None:
        """nvcc and the tools beside it."""
        self.nvcc(f"{folder}/nvcc", release)
        self.write(f"{folder}/nvcc.profile", "TOP = $(_HERE_)/..")
        for tool in TOOLS:
            self.says(f"{folder}/{tool}", version_text(release))

    def nvvm(self, root: str, release: str = "13.0") -> None:
        self.cicc(f"{root}/nvvm/bin", release)
        self.write(f"{root}/nvvm/libdevice/libdevice.10.bc")

    def cicc(self, folder: str, release: str) -> None:
        """It writes its version at the head of the PTX that it makes, and has no other way to tell it."""
        head = f"//\n// Generated by NVIDIA NVVM Compiler\n// {version_text(release)}"

        def cicc(_: MemorySystem, argv: tuple[str, ...]) -> RunResult:
            return RunResult(argv=argv, returncode=0, stdout=head if argv[3].endswith(".ci") else "")

        self.program(f"{folder}/cicc", cicc)

    def headers(self, include: str, release: str, *, gcc_max: int = 15, cccl: bool = True) -> None:
        major, minor = map(int, release.split("."))
        number = major * 1000 + minor * 10
        self.write(f"{include}/cuda_runtime.h")
        self.write(f"{include}/cuda_runtime_api.h", f"#define CUDART_VERSION  {number}\n")
        self.write(f"{include}/crt/host_config.h", host_config(gcc_max))
        if cccl:
            self.write(f"{include}/cccl/nv/target")

    def runfile(self, root: str, release: str = "13.0", *, gcc_max: int = 15) -> None:
        """What NVIDIA's installer and packages leave."""
        self.tools(f"{root}/bin", release)
        self.nvvm(root, release)
        self.headers(f"{root}/targets/{self.target}/include", release, gcc_max=gcc_max)
        self.link(f"{root}/include", f"targets/{self.target}/include")
        self.link(f"{root}/lib64", f"targets/{self.target}/lib")
        self.write(f"{root}/targets/{self.target}/lib/libcudart_static.a")
        self.write(f"{root}/targets/{self.target}/lib/libcudart.so")
        parts = {name: {"version": PATCH[release]} for name in ("cuda_nvcc", "cuda_cudart", "libnvvm")}
        self.write(f"{root}/version.json", json.dumps(parts))

    def pip_cu13(self, site: str = SITE, *, without: tuple[str, ...] = (), **releases: str) -> None:
        """NVIDIA's CUDA 13 wheels; each part may be of another release, or missing."""
        root = f"{site}/nvidia/cu13"
        of = {part: releases.get(part, "13.0") for part in ("nvcc", "nvvm", "crt", "cudart", "cccl")}
        names = {"nvvm": "nvidia_nvvm", "cudart": "nvidia_cuda_runtime"}
        if "nvcc" not in without:
            self.tools(f"{root}/bin", of["nvcc"])
        if "nvvm" not in without:
            self.nvvm(root, of["nvvm"])
        self.headers(f"{root}/include", of["cudart"], cccl="cccl" not in without)
        if "crt" in without:
            del self.files[f"{root}/include/crt/host_config.h"]
        self.write(f"{root}/lib/libcudart_static.a")
        self.write(f"{root}/lib/libcudart.so.13")
        for part, release in of.items():
            if part not in without:
                self.write(f"{site}/{names.get(part, f'nvidia_cuda_{part}')}-{PATCH[release]}.dist-info/METADATA")

    def pip_cu12(self, site: str = SITE) -> None:
        """The CUDA 12 wheels: ptxas, libnvvm and headers in split folders, no nvcc."""
        folder = f"{site}/nvidia/cuda_nvcc"
        self.says(f"{folder}/bin/ptxas")
        self.write(f"{folder}/nvvm/lib64/libnvvm.so")
        self.write(f"{folder}/nvvm/libdevice/libdevice.10.bc")
        self.write(f"{site}/nvidia_cuda_nvcc_cu12-12.9.86.dist-info/METADATA")

    def joined_cu12(self, version: str = "12.9.2", *, cudart: str = "12.9.79", without: str = "") -> None:
        """What ``install --cuda 12.9`` leaves in the store: the CUDA 12 wheels in one folder, without nvcc."""
        tree = f"/home/ada/.local/share/be_toolchain/toolchains/cuda-{version}"
        root = f"{tree}/nvidia/cu12"

        def ptxas(_: MemorySystem, argv: tuple[str, ...]) -> RunResult:
            helped = "Allowed values: 'compute_80','compute_90','sm_80','sm_90','sm_90a','sm_100','sm_100f'"
            return RunResult(argv=argv, returncode=0, stdout=helped if "--help" in argv else version_text("12.9"))

        self.program(f"{root}/bin/ptxas", ptxas)
        headers = ("crt/host_config.h", "cuda_runtime.h", "nv/target")
        files = ("bin/fatbinary", "nvvm/libdevice/libdevice.10.bc", "lib/libcudart_static.a", "lib/libcudart.so.12")
        for below in (*files, *(f"include/{header}" for header in headers)):
            self.write(f"{root}/{below}")
        for name, wheel in (("nvcc", "12.9.86"), ("runtime", cudart), ("cccl", "12.9.27")):
            self.write(f"{tree}/nvidia_cuda_{name}_cu12-{wheel}.dist-info/METADATA")
        self.write(f"{tree}/toolchain.json", "{}")
        if without:
            del self.files[f"{root}/{without}"]

    def selects(self, name: str) -> None:
        """What ``use`` leaves."""
        self.write("/home/ada/.local/share/be_toolchain/toolchains/selected", f"{name}\n")

    def conda(self, prefix: str, release: str = "13.0", *, tools_only: bool = False, nvvm_release: str = "") -> None:
        """conda-forge's packages; `tools_only` is what a CUDA jaxlib pulls."""
        self.tools(f"{prefix}/bin", release)
        self.write(f"{prefix}/conda-meta/history")
        self.write(f"{prefix}/conda-meta/cuda-nvcc-tools-{PATCH[release]}-he02047a_1.json")
        self.link(f"{prefix}/targets/{self.target}/bin/nvcc", "../../../bin/nvcc")
        if tools_only:
            return
        self.nvvm(prefix, nvvm_release or release)
        self.write(f"{prefix}/conda-meta/cuda-nvvm-tools-{PATCH[nvvm_release or release]}-h4bc722e_0.json")
        self.headers(f"{prefix}/targets/{self.target}/include", release)
        self.write(f"{prefix}/targets/{self.target}/lib/libcudart_static.a")

    def bare(self, root: str, release: str = "13.0", nvvm: str = "") -> None:
        """A toolkit that was copied without any record of its versions."""
        self.runfile(root, release)
        self.nvvm(root, nvvm or release)
        del self.files[f"{root}/version.json"]
        include = f"{root}/targets/{self.target}/include"
        self.write(f"{include}/cccl/cuda/std/__cccl/version.h", "#define CCCL_VERSION 3000001\n")

    def bundle(self, root: str, release: str = "13.0", nvvm: str = "13.0") -> None:
        """A toolkit that was put together from wheels and keeps their records inside."""
        self.bare(root, release)
        for name, version in (("nvidia_nvvm", PATCH[nvvm]), ("nvidia_cuda_crt", PATCH[release])):
            self.write(f"{root}/dist-info/{name}-{version}.dist-info/METADATA")

    def old_math(self, root: str, bare: str = "rsqrt") -> None:
        """Headers that declare a function which a newer glibc declares with noexcept."""
        text = f"extern __DEVICE_FUNCTIONS_DECL__ __device_builtin__ double  {bare}(double x);\n"
        self.write(f"{root}/targets/{self.target}/include/crt/math_functions.h", text)

    def dist_info(self, name: str, version: str) -> None:
        self.write(f"{SITE}/{name}-{version}.dist-info/METADATA")

    def dpkg(self, **versions: str) -> None:
        row = "Package: {}\nStatus: install ok\nVersion: {}\n"
        rows = [row.format(name.replace("_", "-"), version) for name, version in versions.items()]
        self.write("/var/lib/dpkg/status", "\n".join(rows))

    def not_executable(self, path: str) -> None:
        self.files[path].executable = False

    def says(self, path: str, text: str = "", err: str = "") -> None:
        """A program that answers everything with one text."""
        self.program(path, lambda _, argv: RunResult(argv=argv, returncode=0, stdout=text, stderr=err))

    def folder(self, path: str, *, writable: bool = True, executable: bool = True, free_mib: int = 9999) -> None:
        self.folders[path] = FolderFacts(
            path=Path(path), standing=Path(path), writable=writable, executable=executable, free_bytes=free_mib << 20
        )

    def plant(self, path: str) -> None:
        """Make a file or folder another user's."""
        self.planted.add(path)

    def debian(self, release: str = "12.9") -> None:
        """Debian's and Ubuntu's package: a script in /usr/bin, headers and libraries among the system's."""
        root = "/usr/lib/nvidia-cuda-toolkit"
        self.tools(f"{root}/bin", release)
        self.script("/usr/bin/nvcc", f"{root}/bin/nvcc")
        self.cicc(f"{root}/bin", release)
        self.write(f"{root}/libdevice/libdevice.10.bc")
        self.headers("/usr/include", release)
        self.write("/usr/include/nv/target")
        self.write(f"/usr/lib/{self.machine}-linux-gnu/libcudart_static.a")


def version_text(release: str) -> str:
    build = f"Build cuda_{release}.r{release}/compiler.36424714_0"
    return f"Cuda compilation tools, release {release}, V{PATCH[release]}\n{build}\n"


def host_config(gcc_max: int) -> str:
    """The lines of crt/host_config.h that hold the limits, with the block for another system before them."""
    return (
        f"#if defined(__GNUC__)\n#if __GNUC__ > {gcc_max}\n#error -- unsupported GNU version!\n#endif\n"
        "#if defined(__HORIZON__)\n#if (__clang_major__ >= 21) || (__clang_major__ < 3)\n"
        "#error -- unsupported HOS clang version!\n#endif\n#endif\n"
        "#if (__clang_major__ >= 20) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))\n"
        "#error -- unsupported clang version! clang version must be less than 20\n#endif\n#endif\n"
    )


def answer_nvcc(machine: MemorySystem, argv: tuple[str, ...], release: str) -> RunResult:
    """What nvcc prints; like the real one it believes to live where it was called, links not followed."""
    if "--version" in argv:
        return RunResult(argv=argv, returncode=0, stdout=version_text(release))
    if "--list-gpu-arch" in argv:
        return RunResult(argv=argv, returncode=0, stdout="compute_80\ncompute_90\ncompute_120\n")
    if "--help" in argv:
        text = "Allowed values: 'compute_80','compute_90','compute_90a','compute_120','compute_120f','sm_90'"
        return RunResult(argv=argv, returncode=0, stdout=text)
    if "-ccbin" not in argv or not machine.is_program(Path(argv[argv.index("-ccbin") + 1])):
        text = "gcc: No such file or directory\nnvcc fatal   : Failed to preprocess host compiler properties.\n"
        return RunResult(argv=argv, returncode=1, stderr=text)
    here = posixpath.dirname(argv[0])
    top = f"{here}/.."
    target = f"{top}/targets/{machine.target}"
    target = target if machine.is_dir(Path(target)) else f"{top}/"
    lib = "lib" if target != f"{top}/" else "lib64"
    conda = machine.is_file(Path(f"{top}/conda-meta/history"))
    lines = (
        f"_HERE_={here}",
        f"TOP={target if conda else top}",
        f"NVVMIR_LIBRARY_DIR={top}/nvvm/libdevice",
        f'INCLUDES="-I{target}/include"  ',
        f'SYSTEM_INCLUDES="-isystem" "{target}/include/cccl"  ',
        f'LIBRARIES=  "-L{target}/{lib}/stubs" "-L{target}/{lib}"',
        "gcc -E x.cu",
    )
    return RunResult(argv=argv, returncode=0, stderr="".join(f"#$ {line}\n" for line in lines))


@dataclass
class Libcuda:
    """The calls of libcuda that are used, writing through ctypes references as it does."""

    gpus: tuple[tuple[str, int, int], ...] = (("NVIDIA H200", 9, 0),)
    init: int = 0
    version: int = 13000
    inits: int = 0

    def cuInit(self, _flags: int) -> int:  # noqa: N802
        self.inits += 1
        return self.init

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.version  # noqa: SLF001
        return 0

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = len(self.gpus)  # noqa: SLF001
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:  # noqa: N802
        out._obj.value = index + 40  # noqa: SLF001
        return 0

    def cuDeviceGetName(self, buffer: Any, _size: int, handle: Any) -> int:  # noqa: N802
        buffer.value = self.gpus[handle.value - 40][0].encode()
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, handle: Any) -> int:  # noqa: N802
        out._obj.value = self.gpus[handle.value - 40][{75: 1, 76: 2}[attribute]]  # noqa: SLF001
        return 0


def with_compiler(**environ: str) -> MemorySystem:
    """A machine with a compiler and no CUDA."""
    machine = MemorySystem()
    machine.gxx("/usr/bin/g++")
    machine.environ = {**machine.environ, **environ}
    return machine


def healthy(**environ: str) -> MemorySystem:
    """A machine with a compiler and a CUDA toolkit, without a GPU."""
    machine = with_compiler(**environ)
    machine.runfile("/usr/local/cuda")
    return machine


def cuda_of(system: System, *, record_dir: Path | None = None, **asked: Any) -> CudaToolkit:
    """The CUDA toolkit that a search finds."""
    found = resolve(ToolchainRequest(need_cuda=True, **asked), system=system, record_dir=record_dir).cuda
    assert found is not None
    return found


@dataclass
class Answering(MemorySystem):
    """A compiler and a toolkit that answer questions as ever, build anything, and programs that print a text."""

    built_prints: str = ""
    build_fails: bool = False
    ffi_prints: str = "sum 5050 on cpu"

    def __post_init__(self) -> None:
        self.gxx("/usr/bin/g++")
        self.runfile("/usr/local/cuda")

    def run_one(self, argv: tuple[str, ...]) -> RunResult:
        if "/be-smoke-" in argv[0]:
            self.commands.append(argv)
            return RunResult(argv=argv, returncode=0, stdout=f"{self.built_prints}\n")
        if "-c" in argv and "be_smoke" in " ".join(argv):
            return RunResult(argv=argv, returncode=0, stdout=self.ffi_prints)
        if "-std=c++17" in argv:
            self.commands.append(argv)
            failed = RunResult(argv=argv, returncode=1, stderr="x.cc:1: error: no such thing\ncompilation stopped\n")
            return failed if self.build_fails else RunResult(argv=argv, returncode=0)
        return super().run_one(argv)
