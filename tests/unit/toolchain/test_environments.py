"""A table of environments and what must be said of each."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import ToolchainError
from be_toolchain.system import RunResult
from tests.unit.toolchain.machines import SITE, MemorySystem, answer_nvcc

CONDA = (Path("/conda/envs/x"),)


CUDA = ToolchainRequest(need_cuda=True)


@dataclass(frozen=True, kw_only=True)
class Row:
    """An environment and its verdict: the toolkit's root and release and nvcc's host compiler, or an error's code."""

    name: str
    build: Callable[[MemorySystem], object]
    environ: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[Path, ...] | None = None
    request: ToolchainRequest = CUDA
    root: str = ""
    via: str = ""
    release: str = "13.0"
    host: str = "/usr/bin/g++"
    code: str = ""
    says: tuple[str, ...] = ()


def both(*steps: Callable[[MemorySystem], object]) -> Callable[[MemorySystem], None]:
    def build(machine: MemorySystem) -> None:
        for step in steps:
            step(machine)

    return build


def gxx(machine: MemorySystem) -> None:
    machine.gxx("/usr/bin/g++")


def unrunnable(machine: MemorySystem) -> None:
    machine.runfile("/opt/broken")
    machine.files["/opt/broken/bin/nvcc"].executable = False


def old_release(machine: MemorySystem) -> None:
    def answer(system: MemorySystem, argv: tuple[str, ...]) -> RunResult:
        if "--version" in argv:
            return RunResult(argv=argv, returncode=0, stdout="Cuda compilation tools, release 10.2, V10.2.89")
        return answer_nvcc(system, argv, "13.0")

    machine.program("/usr/local/cuda/bin/nvcc", answer)


PIP = f"{SITE}/nvidia/cu13"

ROWS = (
    Row(
        name="installer's link",
        build=both(
            gxx,
            lambda m: m.runfile("/usr/local/cuda-13.0"),
            lambda m: m.link("/usr/local/cuda", "/usr/local/cuda-13.0"),
        ),
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(
        name="two side by side, newest first",
        build=both(
            gxx, lambda m: m.runfile("/usr/local/cuda-12.9", "12.9"), lambda m: m.runfile("/usr/local/cuda-13.0")
        ),
        root="/usr/local/cuda-13.0",
        via="well-known folder",
    ),
    Row(
        name="arch linux", build=both(gxx, lambda m: m.runfile("/opt/cuda")), root="/opt/cuda", via="well-known folder"
    ),
    Row(
        name="CUDA_HOME",
        build=both(gxx, lambda m: m.runfile("/sw/cuda"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"CUDA_HOME": "/sw/cuda"},
        root="/sw/cuda",
        via="CUDA_HOME",
    ),
    Row(
        name="CUDA_HOME with a stray colon",
        build=both(gxx, lambda m: m.runfile("/sw/cuda")),
        environ={"CUDA_HOME": ":/sw/cuda"},
        root="/sw/cuda",
        via="CUDA_HOME",
    ),
    Row(
        name="CUDA_PATH",
        build=both(gxx, lambda m: m.runfile("/sw/cuda")),
        environ={"CUDA_PATH": "/sw/cuda"},
        root="/sw/cuda",
        via="CUDA_PATH",
    ),
    Row(
        name="CUDA_HOME to nowhere does not stop the search",
        build=both(gxx, lambda m: m.runfile("/usr/local/cuda")),
        environ={"CUDA_HOME": "/gone"},
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(
        name="module variable",
        build=both(gxx, lambda m: m.runfile("/sw/eb/CUDA")),
        environ={"EBROOTCUDA": "/sw/eb/CUDA"},
        root="/sw/eb/CUDA",
        via="EBROOTCUDA",
    ),
    Row(
        name="HPC SDK",
        build=both(gxx, lambda m: m.runfile("/opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/13.0")),
        root="/opt/nvidia/hpc_sdk/Linux_x86_64/25.9/cuda/13.0",
        via="HPC SDK",
    ),
    Row(
        name="nvcc on PATH is a wrapper script",
        build=both(
            gxx,
            lambda m: m.runfile("/deep/cuda-13.0"),
            lambda m: m.script("/usr/local/bin/nvcc", "/deep/cuda-13.0/bin/nvcc"),
        ),
        root="/deep/cuda-13.0",
        via="PATH",
    ),
    Row(
        name="nvcc on PATH is a bare link",
        build=both(
            gxx, lambda m: m.runfile("/deep/cuda-13.0"), lambda m: m.link("/usr/bin/nvcc", "/deep/cuda-13.0/bin/nvcc")
        ),
        root="/deep/cuda-13.0",
        via="PATH",
    ),
    Row(
        name="nvcc on PATH is ccache",
        build=both(
            gxx,
            lambda m: m.runfile("/deep/cuda-13.0"),
            lambda m: m.script("/usr/bin/ccache", "/deep/cuda-13.0/bin/nvcc"),
            lambda m: m.link("/usr/local/bin/nvcc", "/usr/bin/ccache"),
        ),
        root="/deep/cuda-13.0",
        via="PATH",
    ),
    Row(
        name="debian's package",
        build=both(gxx, lambda m: m.debian()),
        root="/usr/lib/nvidia-cuda-toolkit",
        via="PATH",
        release="12.9",
    ),
    Row(name="pip cu13", build=both(gxx, lambda m: m.pip_cu13()), root=PIP, via="pip wheels"),
    Row(
        name="pip cu13 before a system toolkit",
        build=both(gxx, lambda m: m.pip_cu13(), lambda m: m.runfile("/usr/local/cuda")),
        root=PIP,
        via="pip wheels",
    ),
    Row(
        name="system preferred to pip",
        build=both(gxx, lambda m: m.pip_cu13(), lambda m: m.runfile("/usr/local/cuda")),
        environ={"BRAINEVENT_NVCC_PREFER": "system"},
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(
        name="pip cu13 of mixed releases",
        build=both(gxx, lambda m: m.pip_cu13(nvvm="13.5", crt="13.5", cudart="13.5")),
        code="TC202",
        says=(
            "nvcc is of CUDA 13.0",
            "nvvm 13.5.27",
            "crt 13.5.27",
            "cudart 13.5.27",
            'pip install "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*"',
        ),
    ),
    Row(
        name="mixed wheels lose to a system toolkit",
        build=both(gxx, lambda m: m.pip_cu13(nvvm="13.5"), lambda m: m.runfile("/usr/local/cuda")),
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(name="only cccl differs", build=both(gxx, lambda m: m.pip_cu13(cccl="13.5")), root=PIP, via="pip wheels"),
    Row(
        name="pip nvcc without nvvm",
        build=both(gxx, lambda m: m.pip_cu13(without=("nvvm",))),
        code="TC201",
        says=("not cicc, libdevice.10.bc", "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.*"),
    ),
    Row(
        name="pip nvcc without crt",
        build=both(gxx, lambda m: m.pip_cu13(without=("crt",))),
        code="TC201",
        says=("not crt/host_config.h",),
    ),
    Row(
        name="pip nvcc without cccl",
        build=both(gxx, lambda m: m.pip_cu13(without=("cccl",))),
        code="TC201",
        says=("not nv/target",),
    ),
    Row(
        name="pip runtime without nvcc",
        build=both(gxx, lambda m: m.pip_cu13(without=("nvcc",))),
        code="TC201",
        says=(f"{PIP}: no bin/nvcc in it",),
    ),
    Row(
        name="pip cu12 holds no nvcc",
        build=both(gxx, lambda m: m.pip_cu12()),
        code="TC201",
        says=("nvidia-cuda-nvcc-cu12 holds ptxas and libdevice but no nvcc",),
    ),
    Row(
        name="pip cu12 beside a system nvcc 12",
        build=both(gxx, lambda m: m.pip_cu12(), lambda m: m.runfile("/usr/local/cuda", "12.9")),
        root="/usr/local/cuda",
        via="well-known folder",
        release="12.9",
    ),
    Row(
        name="conda, not activated",
        build=both(
            gxx,
            lambda m: m.conda("/conda/envs/x"),
            lambda m: m.gxx("/conda/envs/x/bin/x86_64-conda-linux-gnu-c++", "14.3.0"),
        ),
        prefixes=CONDA,
        root="/conda/envs/x",
        via="conda",
        host="/conda/envs/x/bin/x86_64-conda-linux-gnu-c++",
    ),
    Row(
        name="conda with a bare CXX",
        build=both(
            gxx,
            lambda m: m.conda("/conda/envs/x"),
            lambda m: m.gxx("/conda/envs/x/bin/x86_64-conda-linux-gnu-c++", "14.3.0"),
        ),
        prefixes=CONDA,
        environ={"CXX": "x86_64-conda-linux-gnu-c++"},
        root="/conda/envs/x",
        via="conda",
        host="/conda/envs/x/bin/x86_64-conda-linux-gnu-c++",
    ),
    Row(
        name="conda nvcc without headers",
        build=both(gxx, lambda m: m.conda("/conda/envs/x", tools_only=True)),
        prefixes=CONDA,
        code="TC201",
        says=("not cicc, cuda_runtime.h", "conda install -p /conda/envs/x cuda-nvcc"),
    ),
    Row(
        name="conda nvcc without headers, a system toolkit",
        build=both(gxx, lambda m: m.conda("/conda/envs/x", tools_only=True), lambda m: m.runfile("/usr/local/cuda")),
        prefixes=CONDA,
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(
        name="conda of mixed releases",
        build=both(gxx, lambda m: m.conda("/conda/envs/x", nvvm_release="13.5")),
        prefixes=CONDA,
        code="TC202",
        says=("nvvm 13.5.27", '"cuda-version=13.0"'),
    ),
    Row(
        name="conda's nvcc under targets/ is a link that fails",
        build=both(gxx, lambda m: m.conda("/conda/envs/x")),
        environ={"BE_NVCC": "/conda/envs/x/targets/x86_64-linux/bin/nvcc"},
        root="/conda/envs/x",
        via="BE_NVCC",
    ),
    Row(
        name="activated conda, another Python",
        build=both(gxx, lambda m: m.conda("/conda/envs/x")),
        environ={"CONDA_PREFIX": "/conda/envs/x"},
        root="/conda/envs/x",
        via="conda",
    ),
    Row(
        name="BE_NVCC names a toolkit's root",
        build=both(gxx, lambda m: m.runfile("/sw/cuda")),
        environ={"BE_NVCC": "/sw/cuda"},
        root="/sw/cuda",
        via="BE_NVCC",
    ),
    Row(
        name="BE_NVCC is binding",
        build=both(gxx, lambda m: m.runfile("/usr/local/cuda")),
        environ={"BRAINEVENT_NVCC_PATH": "/gone/nvcc"},
        code="TC201",
        says=("BRAINEVENT_NVCC_PATH names '/gone/nvcc'",),
    ),
    Row(
        name="nvcc that cannot be run",
        build=both(gxx, unrunnable),
        environ={"CUDA_HOME": "/opt/broken"},
        code="TC201",
        says=("/opt/broken/bin/nvcc: not executable",),
    ),
    Row(
        name="nvcc too old",
        build=both(gxx, lambda m: m.runfile("/usr/local/cuda"), old_release),
        code="TC201",
        says=("CUDA 10.2 is older than 11.0",),
    ),
    Row(
        name="nothing at all",
        build=lambda m: m.write("/etc/os-release"),
        code="TC301",
        says=("no working C++ compiler", "g++: not on PATH", "apt install g++"),
    ),
    Row(
        name="no toolkit",
        build=gxx,
        code="TC201",
        says=("CUDA_HOME", "not set", "pip wheels", "/usr/local/cuda", "no such folder", 'pip install "cuda-toolkit'),
    ),
    Row(
        name="g++ too new, a versioned one fits",
        build=both(
            lambda m: m.gxx("/usr/bin/g++", "16.1.0"),
            lambda m: m.gxx("/usr/bin/g++-9", "9.4.0"),
            lambda m: m.gxx("/usr/bin/g++-13", "13.2.0"),
            lambda m: m.gxx("/usr/bin/clang++", "19.1.7", "clang"),
            lambda m: m.runfile("/usr/local/cuda"),
        ),
        root="/usr/local/cuda",
        via="well-known folder",
        host="/usr/bin/g++-13",
    ),
    Row(
        name="only a clang++",
        build=both(lambda m: m.gxx("/usr/bin/clang++", "19.1.7", "clang"), lambda m: m.runfile("/usr/local/cuda")),
        root="/usr/local/cuda",
        via="well-known folder",
        host="/usr/bin/clang++",
    ),
    Row(
        name="only an unsupported g++",
        build=both(lambda m: m.gxx("/usr/bin/g++", "99.0"), lambda m: m.runfile("/usr/local/cuda")),
        code="TC302",
        says=(
            "gcc up to 15, clang up to 19",
            "gcc 99.0 is newer than gcc 15",
            "g++-15",
            "BE_ALLOW_UNSUPPORTED_COMPILER=1",
        ),
    ),
    Row(
        name="unsupported g++ by the user's wish",
        build=both(lambda m: m.gxx("/usr/bin/g++", "99.0"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER": "1"},
        root="/usr/local/cuda",
        via="well-known folder",
    ),
    Row(
        name="BE_CXX unsupported, another fits",
        build=both(gxx, lambda m: m.gxx("/sw/g++", "99.0"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"BE_CXX": "/sw/g++"},
        code="TC302",
        says=("gcc 12.2.0 is here and fits: BE_CXX=/usr/bin/g++",),
    ),
    Row(
        name="the argument cxx is binding",
        build=both(gxx, lambda m: m.runfile("/usr/local/cuda")),
        request=ToolchainRequest(need_cuda=True, cxx=Path("/gone/g++")),
        code="TC301",
        says=("argument cxx",),
    ),
    Row(
        name="CUDAHOSTCXX",
        build=both(gxx, lambda m: m.gxx("/sw/g++"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"CUDAHOSTCXX": "/sw/g++"},
        root="/usr/local/cuda",
        via="well-known folder",
        host="/sw/g++",
    ),
    Row(
        name="NVCC_CCBIN names a folder",
        build=both(gxx, lambda m: m.gxx("/sw/bin/g++"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"NVCC_CCBIN": "/sw/bin"},
        root="/usr/local/cuda",
        via="well-known folder",
        host="/sw/bin/g++",
    ),
    Row(
        name="-ccbin in nvcc's flags",
        build=both(gxx, lambda m: m.gxx("/sw/g++"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"NVCC_PREPEND_FLAGS": "-O2 -ccbin=/sw/g++"},
        root="/usr/local/cuda",
        via="well-known folder",
        host="/sw/g++",
    ),
    Row(
        name="CXX behind ccache",
        build=both(gxx, lambda m: m.gxx("/usr/bin/g++-11", "11.4.0"), lambda m: m.runfile("/usr/local/cuda")),
        environ={"CXX": "ccache g++-11"},
        root="/usr/local/cuda",
        via="well-known folder",
        host="/usr/bin/g++-11",
    ),
    Row(
        name="g++ is not a compiler",
        build=both(
            gxx,
            lambda m: m.script("/usr/local/bin/g++", "/usr/bin/true"),
            lambda m: m.gxx("/usr/bin/c++"),
            lambda m: m.runfile("/usr/local/cuda"),
        ),
        root="/usr/local/cuda",
        via="well-known folder",
        host="/usr/bin/c++",
    ),
    Row(
        name="g++ without C++17",
        build=both(lambda m: m.gxx("/usr/bin/g++", "4.8.5"), lambda m: m.runfile("/usr/local/cuda")),
        code="TC301",
        says=("gcc 4.8.5 is older than gcc 8",),
    ),
    Row(
        name="a word that prefers nothing",
        build=gxx,
        environ={"BE_NVCC_PREFER": "newest"},
        code="TC102",
        says=("'newest'", "env, conda, pip, path, system"),
    ),
)


def machine_of(row: Row) -> MemorySystem:
    machine = MemorySystem()
    row.build(machine)
    machine.environ = {**machine.environ, **row.environ}
    machine.prefixes = row.prefixes or machine.prefixes
    return machine


@pytest.mark.parametrize("row", [row for row in ROWS if not row.code], ids=lambda row: row.name)
def test_found(row: Row):
    toolchain = resolve(row.request, system=machine_of(row))

    assert toolchain.cuda is not None
    assert (str(toolchain.cuda.root), toolchain.cuda.found_via) == (row.root, row.via)
    assert toolchain.cuda.release == row.release
    assert str(toolchain.cuda.host_compiler.path) == row.host


@pytest.mark.parametrize("row", [row for row in ROWS if row.code], ids=lambda row: row.name)
def test_refused(row: Row):
    with pytest.raises(ToolchainError) as caught:
        resolve(row.request, system=machine_of(row))

    assert caught.value.code == row.code, str(caught.value)
    for text in row.says:
        assert text in str(caught.value)
    assert caught.value.hints


def test_names_of_rows_are_unique():
    assert len({row.name for row in ROWS}) == len(ROWS) >= 25


def test_every_file_of_a_toolkit_exists():
    machine = machine_of(next(row for row in ROWS if row.name == "pip cu13"))
    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda
    assert toolkit is not None

    programs = ("nvcc", "cicc", "ptxas", "cudafe", "fatbinary", "nvlink")
    assert all(machine.is_program(getattr(toolkit, name)) for name in programs)
    assert all(machine.is_file(component.path) for component in toolkit.components)
    assert all(machine.is_dir(folder) for folder in (*toolkit.include_dirs, *toolkit.library_dirs))
    assert [str(folder) for folder in toolkit.library_dirs] == [f"{PIP}/lib"]
    assert str(toolkit.cudart_shared) == f"{PIP}/lib/libcudart.so.13"
    assert {component.name: component.version for component in toolkit.components}["nvvm"] == "13.0.88"
    assert [arch.sm for arch in toolkit.archs] == ["sm_80", "sm_90", "sm_90a", "sm_120", "sm_120f"]


def test_cxx_and_nvcc_share_a_compiler_unless_cxx_was_named():
    machine = MemorySystem()
    both(lambda m: m.gxx("/usr/bin/g++", "16.1.0"), lambda m: m.gxx("/usr/bin/g++-13", "13.2.0"))(machine)
    machine.runfile("/usr/local/cuda")
    request = ToolchainRequest(need_cuda=True)

    shared = resolve(request, system=machine)
    machine.environ = {**machine.environ, "CXX": "g++"}
    apart = resolve(request, system=machine)

    assert shared.cxx is not None
    assert apart.cxx is not None
    assert str(shared.cxx.path) == "/usr/bin/g++-13"
    assert str(apart.cxx.path) == "/usr/bin/g++"
    assert apart.cuda is not None
    assert str(apart.cuda.host_compiler.path) == "/usr/bin/g++-13"


def test_no_cuda_search_unless_asked():
    machine = MemorySystem()
    gxx(machine)
    machine.runfile("/usr/local/cuda")

    toolchain = resolve(ToolchainRequest(), system=machine)

    assert toolchain.cuda is None
    assert not any("cuda" in path for path in machine.stats)
    assert {argv[0] for argv in machine.commands} == {"/usr/bin/g++"}


def test_aarch64_uses_its_own_target_folder():
    machine = MemorySystem(machine="aarch64")
    gxx(machine)
    machine.tools("/usr/local/cuda/bin", "13.0")
    machine.nvvm("/usr/local/cuda")
    machine.headers("/usr/local/cuda/targets/sbsa-linux/include", "13.0")
    machine.write("/usr/local/cuda/targets/sbsa-linux/lib/libcudart_static.a")

    toolkit = resolve(ToolchainRequest(need_cuda=True), system=machine).cuda

    assert toolkit is not None
    assert str(toolkit.include_dirs[0]) == "/usr/local/cuda/targets/sbsa-linux/include"


def test_warnings_name_what_will_surprise():
    machine = MemorySystem(prefixes=CONDA)
    gxx(machine)
    machine.gxx("/sw/g++")
    machine.conda("/conda/envs/x")
    machine.environ = {**machine.environ, "NVCC_APPEND_FLAGS": "-ccbin /gone/g++"}

    messages = [warning.message for warning in resolve(ToolchainRequest(need_cuda=True), system=machine).warnings]

    assert len(messages) == 2
    assert "/usr/bin/g++ does not belong to it" in messages[0]
    assert "/gone/g++, which nvcc will use instead of /usr/bin/g++" in messages[1]


def test_a_bare_cxx_is_found_in_conda_before_conda_is_searched():
    machine = MemorySystem(prefixes=CONDA, environ={"PATH": "/usr/bin", "CXX": "clang++"})
    machine.write("/conda/envs/x/conda-meta/history")
    machine.gxx("/conda/envs/x/bin/x86_64-conda-linux-gnu-c++", "14.3.0")
    machine.gxx("/conda/envs/x/bin/clang++", "19.1.7", "clang")

    cxx = resolve(system=machine).cxx

    assert cxx is not None
    assert (str(cxx.path), cxx.found_via) == ("/conda/envs/x/bin/clang++", "CXX")


def test_the_argument_nvcc_is_binding():
    machine = MemorySystem(environ={"PATH": "/usr/bin", "BE_NVCC": "/usr/local/cuda"})
    gxx(machine)
    machine.runfile("/usr/local/cuda")
    machine.runfile("/sw/cuda")

    toolkit = resolve(ToolchainRequest(need_cuda=True, nvcc=Path("/sw/cuda/bin/nvcc")), system=machine).cuda
    assert toolkit is not None
    assert (str(toolkit.root), toolkit.found_via) == ("/sw/cuda", "argument nvcc")
    with pytest.raises(ToolchainError, match="argument nvcc names '/gone/nvcc'"):
        resolve(ToolchainRequest(need_cuda=True, nvcc=Path("/gone/nvcc")), system=machine)


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("bin/ptxas", "ptxas"),
        ("bin/cudafe++", "cudafe++"),
        ("bin/fatbinary", "fatbinary"),
        ("bin/nvlink", "nvlink"),
        ("nvvm/bin/cicc", "cicc"),
        ("nvvm/libdevice/libdevice.10.bc", "libdevice.10.bc"),
        ("targets/x86_64-linux/include/cuda_runtime.h", "cuda_runtime.h"),
        ("targets/x86_64-linux/lib/libcudart", "libcudart"),
    ],
)
def test_a_toolkit_without_a_part_is_named_with_the_part(part: str, named: str):
    machine = MemorySystem()
    gxx(machine)
    machine.runfile("/usr/local/cuda")
    machine.files = {
        path: file for path, file in machine.files.items() if not path.startswith(f"/usr/local/cuda/{part}")
    }
    machine.write("/usr/local/cuda/targets/x86_64-linux/lib/libcudadevrt.a")
    with pytest.raises(ToolchainError, match=rf"13\.0\.88 is there, but not {re.escape(named)} \(root"):
        resolve(ToolchainRequest(need_cuda=True), system=machine)
