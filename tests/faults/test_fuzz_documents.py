"""Every other text and file that is read from outside, damaged: it is read, passed over or refused by our error."""

from __future__ import annotations

import functools
import hashlib
import json
import random
import shutil
import socket
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from be_runtime.bundle.index import parse_index, reading
from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_runtime.cache.validity.manifest import parse_manifest, render_manifest
from be_runtime.compile.inputs.depfile import parse_depfile
from be_runtime.compile.inputs.records import parse_records
from be_runtime.compile.messages.diagnose import diagnose
from be_runtime.compile.nvcc import dry_run
from be_runtime.compile.plan.compile_commands import merge_commands
from be_runtime.compile.run.ninja_log import parse_ninja_log
from be_runtime.errors import BeRuntimeError
from be_runtime.expressions import evaluate, parse_expression
from be_runtime.generate.contents import parse_contents
from be_runtime.load.own_code import checkout_digest
from be_runtime.settings import Settings
from be_runtime.sharing.archive import MAGIC, ArchiveError, Head, pack
from be_runtime.sharing.job import Job
from be_runtime.sharing.place import WantedEntry
from be_runtime.sharing.roots import Roots
from be_runtime.sharing.travelling_entry import Shareable, unpack_entry
from be_runtime.ship.declaration import parse_declaration
from be_runtime.ship.kernel_tables import read_table
from be_runtime.ship.programs.container import open_container
from be_runtime.ship.show import describe_file, render_description
from be_runtime.xla.coordination import JobStore
from be_toolchain.arch import parse_archs
from be_toolchain.errors import ToolchainError
from be_toolchain.find.devices import parse_driver_release, parse_smi
from be_toolchain.find.record import ObservingSystem, load_record, record_key, record_path, save_record
from be_toolchain.find.resolver import resolve
from be_toolchain.install.facts import parse_minimums, parse_present
from be_toolchain.install.installers import parse_pip_report, parse_uv_compile
from be_toolchain.install.managed import ManagedStore
from be_toolchain.known import versions
from be_toolchain.known.distributions import parse_dist_infos, parse_requirement
from be_toolchain.machine.http_exchange import exchange, parse_server
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.sealed_json import seal, unseal
from be_toolchain.machine.store_paths import MANIFEST
from be_toolchain.machine.system_packages import parse_os_release
from be_toolchain.machine.trust.safe_folders import are_safe
from be_toolchain.model import ToolchainRequest
from be_toolchain.settings.configuration import ConfigurationFile, parse_configuration
from be_toolchain.settings.preferences import parse_preferences
from be_toolchain.settings.table import RUNTIME
from tests.support.faults import Tally, chance, effort, seeds
from tests.support.fuzzing import SIGNS, damaged, damaged_json, flipped, judge, long_text, time_limit
from tests.support.jobs import StoreClient

INPUTS = effort(40, 1_000, 10_000)
OURS = (BeRuntimeError, ToolchainError)
PROGRAM = Path(__file__).resolve().parents[1] / "data" / "format1" / "first_release.be"
Damage = Callable[[random.Random, Any], Any]


class Reader(NamedTuple):
    """What reads something from outside: sound examples, damage that suits them, and errors that it may raise."""

    examples: Sequence[Any]
    damage: Damage
    read: Callable[[Any], object]
    allowed: tuple[type[Exception], ...] = OURS


def as_text(rng: random.Random, text: str) -> str:
    if rng.random() < 0.05:
        return long_text(rng, (*SIGNS, *text.split()[:20]))
    return damaged(rng, text, (*SIGNS, *text.split()[:20]))


def as_toml(rng: random.Random, text: str) -> str:
    parts = (
        "[[",
        "]]",
        "[",
        "]",
        "{",
        "}",
        '"""',
        "'''",
        "=",
        "a.b",
        '"',
        "#",
        "1e",
        "inf",
        "1979-05-27",
        "0x",
        "'",
        "\n",
    )
    if rng.random() < 0.05:
        return "x = " + rng.choice(("[", "{a=", "[{a=[")) * rng.choice((10, 3000))
    return damaged(rng, text, (*parts, *text.split()))


def as_sealed(rng: random.Random, text: str) -> str:
    """Damaged inside, under a checksum that fits."""
    changed = damaged_json(rng, json.dumps(unseal(text)))
    try:
        document = json.loads(changed)
    except (ValueError, RecursionError):
        return changed
    return seal(document) if isinstance(document, dict) and document else changed


@functools.cache
def manifest_text() -> str:
    from be_runtime.cache.validity.manifest import AbsentNames, FileRecord, Files, Manifest

    files = Files.of([FileRecord("/usr/include/a.h", 3, 1, 2, 5, "ab" * 32), FileRecord("/b.h", 4, 1, 2, 6, "cd" * 32)])
    absent = (AbsentNames("/usr/local", 1, 2, 3, ("a.h", "sub/b.h")),)
    return render_manifest(Manifest("0" * 64, "module", "ops", 10, 11, files, files, files, absent, ("c.h",)))


KEY = make_key("module", ("name", "ops"), ("flags", ("-O2", "-g")), ("source", "int a;\nint b;\n"), ("raw", b"\0\1"))
KERNELS = """
archs = ["8.0", "9.0"]
baseline = "x86-64-v2"
[modules.neurons]
sources = "neurons"
extra_include_paths = ["include"]
optimization_level = 2
[modules.two]
sources = ["a.cc", "b/c.cc"]
functions = {f = ["arg", "ret"]}
[kernels.scale]
source = "scale.cu"
signature = "arg[n] ret[n]:like(0)"
grid = ["ceil(n/256)", 1]
block = 256
[kernels.rows]
numba = "my_ops.rows:sum_rows"
signature = ["arg[n k]", "ret[n]"]
dtypes = ["float32", "float64"]
input_output_aliases = {0 = 0}
"""
PROJECT = """
nvcc = "cuda/bin/nvcc"
cxx = "g++-14"
prefer = ["conda", "pip"]
allow-unsupported-compiler = true
"""
PIP_REPORT = json.dumps(
    {
        "version": "1",
        "install": [
            {
                "metadata": {"name": "nvidia-nvvm", "version": "13.0.88"},
                "download_info": {
                    "url": "https://pypi.example/nvidia_nvvm-13.0.88.whl",
                    "archive_info": {"hashes": {"sha256": "ab" * 32}},
                },
            }
        ],
    }
)
TOOL_TEXTS = (
    (
        "nvcc: NVIDIA (R) Cuda compiler driver\n"
        "Build cuda_13.0.r13.0/compiler\n"
        "Cuda compilation tools, release 13.0, V13.0.88\n"
    ),
    (
        "Using built-in specs.\n"
        "COLLECT_LTO_WRAPPER=/usr/libexec/gcc/lto-wrapper\n"
        "Target: x86_64-linux-gnu\n"
        "gcc version 12.2.0 (Debian)\n"
    ),
    (
        "Debian clang version 19.1.7\n"
        "Target: x86_64-pc-linux-gnu\n"
        "Thread model: posix\n"
        "InstalledDir: /usr/lib/llvm-19/bin\n"
    ),
    (
        "#$ _HERE_=/opt/cuda/bin\n"
        "#$ TOP=/opt/cuda/bin/..\n"
        '#$ INCLUDES="-I/opt/cuda/include" -isystem "/x y"\n'
        "#$ LIBRARIES= -L/a -L /b\n"
    ),
    '#$ CICC_PATH=/c/bin\n#$ _X_=1\n#$ "$CICC_PATH/cicc" -arch compute_90 "a.ii" -o b.ptx\n#$ ptxas b.ptx\n',
    "compute_80\ncompute_90a\nsm_90\n\tsm_100f\n",
    "#if __GNUC__ > 15\n#if (__clang_major__ >= 21) || (__clang_major__ < 7)\n#error -- unsupported clang version!\n",
    "#define CCCL_VERSION 3000001\n#define CUDART_VERSION  12090\n#define CUB_VERSION 200302\n",
    (
        "Package: nvidia-cuda-toolkit\n"
        "Status: install ok\n"
        "Version: 12.4.131~12.4.1-2\n"
        "\n"
        "Package: dash\n"
        "Version: 1:0.5-1\n"
    ),
    'NAME="Ubuntu"\nID=ubuntu\nID_LIKE="debian x"\n',
    "0, GPU-1, NVIDIA H200, 9.0, 580.82.07\n1, GPU-2, NVIDIA H200, 9.0, 580.82.07\n",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27\n",
    (
        "Metadata-Version: 2.1\n"
        'Requires-Dist: nvidia-cuda-nvcc>=13.0.48; sys_platform == "linux" and extra == "with-cuda"\n'
    ),
    "ziglang==0.15.1 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\nnvidia-nvvm==13.0.88\n",
    "extern double  rsqrt(double x);\nextern double cospi(double x) __NV_SPECIFIER;\n",
)
COMPILER_TEXTS = (
    (
        "k.cu:3:5: error: no member named 'x' in 'BE::Tensor'\n"
        "    x.foo();\n"
        "    ^~~\n"
        "k.cu:2:1: note: here\n"
        "1 error generated.\n"
    ),
    'k.cu(12): error: identifier "foo" is undefined\n\n1 error detected in the compilation of "k.cu".\n',
    (
        "/usr/bin/ld: k.o: in function `f':\n"
        "k.cc:(.text+0x5): undefined reference to `g'\n"
        "collect2: error: ld returned 1 exit status\n"
    ),
    (
        "k.cc:1:10: fatal error: brainevent/commn.h: No such file or directory\n"
        "    1 | #include <brainevent/commn.h>\n"
        "compilation terminated.\n"
    ),
    (
        "k.cc: In instantiation of 'void f() [with T = int]':\n"
        "k.cc:5:3:   required from here\n"
        "k.cc:2:1: error: static assertion failed\n"
    ),
)


def as_printed(rng: random.Random, text: str) -> str:
    """What a program prints or a file holds, undecodable bytes replaced."""
    return as_text(rng, text).encode("utf-8", "replace").decode()


def every(*readers: Callable[[str], object]) -> Callable[[str], object]:
    """All of them, on one text."""

    def read(text: str) -> None:
        for reader in readers:
            try:
                reader(text)
            except ToolchainError:
                continue

    return read


def read_declaration(text: str) -> None:
    declared = parse_declaration(text, "kernels.toml", lambda path: path == "neurons")
    for name, table in declared.kernels.items():
        read_table(name, table)


def read_contents(text: str) -> None:
    with reading("here"):
        parse_contents(text)


def as_variables(rng: random.Random, environ: dict[str, str]) -> dict[str, str]:
    changed = dict(environ)
    for name in rng.sample(sorted(environ), 3):
        changed[name] = as_text(rng, environ[name])
    return changed


def read_variables(environ: dict[str, str]) -> None:
    parse_preferences(environ)
    Settings.from_environ(environ)


def read_arithmetic(text: str) -> None:
    try:
        evaluate(parse_expression(text), {"n": 7, "k": 0, "attr.bins": -(2**63)})
    except KeyError:
        return  # a name that no signature has


VARIABLES = {
    **{name: "1" for row in RUNTIME.values() for name in row.variables},
    "BE_NVCC_PREFER": "conda,pip",
    "BE_COMPILER_LAUNCHER": "ccache -x",
    "BE_CACHE_DIR": "~/cache",
    "HOME": "/home/me",
    "BE_COMPUTE_CAPABILITIES": "8.0,9.0a",
    "NVCC_APPEND_FLAGS": "-ccbin '/opt/g++' -O2",
    "BE_JIT": "auto",
}
PURE: dict[str, Reader] = {
    "manifests": Reader([manifest_text()], as_sealed, parse_manifest, (ValueError,)),
    "keys": Reader([KEY.to_json()], damaged_json, lambda text: KEY.explain(CacheKey.from_json(text)), (ValueError,)),
    "lists of handlers": Reader(
        ['{"functions": {"f": ["be_ffi_f", "be_graph_f", "", "::f", ["arg"]]}}'], damaged_json, read_contents
    ),
    "kernels.toml": Reader([KERNELS], as_toml, read_declaration),
    "project files": Reader(
        [PROJECT], as_toml, lambda text: parse_configuration(ConfigurationFile(Path("/p/be-toolchain.toml"), text))
    ),
    "variables": Reader([VARIABLES], as_variables, read_variables),
    "arithmetic": Reader(["ceil(n/256)*max(n, k)", "2*attr.bins//(n-7)%3"], as_text, read_arithmetic, (ValueError,)),
    "lists of architectures": Reader(["8.0, sm_90a;compute_100f"], as_text, parse_archs),
    "version.json": Reader(
        ['{"cuda_nvcc": {"name": "CUDA NVCC", "version": "12.9.86"}}'], damaged_json, versions.parse_version_json, ()
    ),
    "pip's reports": Reader([PIP_REPORT], damaged_json, lambda text: parse_pip_report(text, LocalSystem({}))),
    "names of dist-info": Reader(
        ["nvidia_nvvm-13.0.88.dist-info", "jax_cuda13_plugin-0.7.dist-info"],
        as_text,
        lambda text: (
            parse_dist_infos((text,)),
            parse_present((text,)),
            versions.parse_conda_meta((text,)),
            parse_requirement(text),
        ),
        (),
    ),
    "what tools print": Reader(
        TOOL_TEXTS,
        as_printed,
        every(
            *(versions.parse_tool_version, versions.parse_host_version, versions.parse_dryrun, dry_run.parse_dryrun),
            *(versions.parse_archs_listed, versions.parse_sm_listed, versions.parse_host_limits),
            *(versions.parse_libc_below, versions.parse_cccl_version, versions.parse_dpkg_status),
            *(versions.parse_cudart_version, versions.version_key, parse_os_release, parse_driver_release),
            *(parse_minimums, parse_uv_compile, lambda text: parse_smi(text, "0,GPU-2")),
        ),
        (),
    ),
    "messages of compilers": Reader(
        COMPILER_TEXTS, as_text, lambda text: diagnose(text, {"k.cu": "a\nb\n"}, (("k.cu", 3),)), ()
    ),
    "depfiles": Reader(["k.o: k.cu \\\n /opt/my\\ dir/a.h \\\n $$x\nk.o: b.h\n"], as_text, parse_depfile, ()),
    "logs of ninja": Reader(
        ["# ninja log v6\n0\t120\t1\tobj/a.o\tf0\n120\t150\t2\tm.so\tf1\n"], as_text, parse_ninja_log, ()
    ),
    "records of what was looked at": Reader(
        [b"x/bin/cc\0-/a/k.h\0+/b/k.h\0w/tmp/k.s\0+/tmp/k.s\0l/b\0"],
        flipped,
        lambda data: parse_records(data, ["/build"]),
        (),
    ),
    "compile_commands.json": Reader(
        ['[{"directory": "/", "file": "/etc/passwd", "arguments": ["g++"]}]'],
        damaged_json,
        lambda text: merge_commands([text]),
        (ValueError,),
    ),
    "exported programs": Reader([PROGRAM.read_bytes()], flipped, lambda data: open_container(data, "here")),
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", PURE)
@pytest.mark.parametrize("seed", seeds(1))
def test_any_text_or_file(kind: str, seed: int, tally: Callable[[str, int], Tally]):
    fuzz(PURE[kind], tally("other damaged inputs", seed))


def fuzz(reader: Reader, inputs: Tally) -> None:
    rng = chance(inputs.seed)
    with time_limit():
        for _ in range(INPUTS):
            given = reader.damage(rng, rng.choice(reader.examples))
            judge(inputs, given, lambda given=given: reader.read(given), reader.allowed)  # type: ignore[misc]
    inputs.check()


def at(path: Path, read: Callable[[], object]) -> Callable[[str | bytes], object]:
    """A reader of a file, for its content."""

    def put(content: str | bytes) -> object:
        path.unlink(missing_ok=True)
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        path.write_bytes(data)
        path.chmod(0o600)
        return read()

    return put


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_an_index_in_a_wheel(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    import io

    bundle = open_container(PROGRAM.read_bytes(), "here")
    with zipfile.ZipFile(PROGRAM) as archive:
        index = archive.read("index.json").decode()
    fuzz(Reader([index], damaged_json, lambda text: parse_index(text, "here")), tally("other damaged inputs", seed))

    def wheel(index: str) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("pkg/be_kernels/index.json", index.encode("utf-8", "surrogatepass"))
            for digest in bundle.table.images:
                archive.writestr(f"pkg/be_kernels/images/{digest}.so", bundle.image(digest))
        return out.getvalue()

    path = tmp_path / "pkg.whl"
    show = at(path, lambda: [render_description(each) for each in describe_file(path)])
    fuzz(Reader([wheel(index)], flipped, show), tally("other damaged inputs", seed))
    rewrite: Damage = lambda rng, text: wheel(damaged_json(rng, text))  # noqa: E731
    fuzz(Reader([index], rewrite, show), tally("other damaged inputs", seed))


HEAD = Head(
    KEY.digest,
    "module",
    "ops",
    (("module.so", 4, hashlib.sha256(b"code").hexdigest()),),
    (("<site>/a.h", "00"), ("/etc/passwd", "11")),
    (("/usr/bin/", "22"),),
    (("/usr/include", 0, ("b.h", "sub/c.h")), ("<site>/jaxlib", 1, ())),
    "host",
    0.5,
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_an_archive_from_a_server(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    share = Shareable(KEY, Roots(((str(tmp_path), "<site>"),)), ("module.so",))

    def take(data: bytes) -> None:
        shutil.rmtree(tmp_path / "staging", ignore_errors=True)
        (tmp_path / "staging").mkdir()
        unpack_entry(data, share, tmp_path / "staging", "a server")

    def rewrite(rng: random.Random, text: str) -> bytes:
        head = zlib.compress(damaged_json(rng, text).encode("utf-8", "surrogatepass"))
        return b"".join((MAGIC, bytes(64), len(head).to_bytes(8, "little"), head, b"code"))

    inputs = tally("other damaged inputs", seed)
    fuzz(Reader([pack(HEAD, {"module.so": b"code"})], flipped, take, (ArchiveError,)), inputs)
    fuzz(Reader([json.dumps(HEAD._asdict())], rewrite, take, (ArchiveError,)), inputs)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_an_answer_of_a_web_server(seed: int, tally: Callable[[str, int], Tally]):
    server = parse_server("http://ci:secret@cache.example.org")

    def read(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with theirs:
            exchange(server, "GET", "name", whole_s=30.0, connect=lambda _address, _timeout_s: ours)

    heads = ("200 OK\r\nContent-Length: 4", "302 Found\r\nLocation: http://x/", "100 Continue\r\n\r\nHTTP/1.1 404 No")
    examples = [f"HTTP/1.1 {head}\r\nX-A: b\r\n\r\ncode".encode() for head in heads]
    fuzz(Reader(examples, flipped, read, (OSError, ValueError)), tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_what_processes_of_a_job_write(seed: int, tally: Callable[[str, int], Tally]):
    here = f"be_runtime/1/{KEY.digest}/0"
    name = f"be_runtime/1/names/{hashlib.sha256(b'module/ops').hexdigest()}/1"
    piece = zlib.compress(b"archive")
    done = {"process": 0, "pieces": 1, "size": 7, "sha256": hashlib.sha256(b"archive").hexdigest(), "error": ""}
    asked = {"process": 0, "key": make_key("module", ("name", "ops"), ("flags", ("-O1",))).to_json()}

    def ask(texts: tuple[str, str]) -> None:
        answer, other = (text.encode("utf-8", "surrogatepass") for text in texts)
        values = {f"{here}/claim": b"{}", f"{here}/done": answer, f"{here}/0": piece, name: zlib.compress(other)}
        store = JobStore(StoreClient(values), 1)
        place = Job(lambda: store, str, str, patience_s=0.05, stale_s=0.02)
        assert place.fetch(WantedEntry(KEY, "ops", lambda: False)) in (None, b"archive")

    def rewrite(rng: random.Random, texts: tuple[str, str]) -> tuple[str, str]:
        return damaged_json(rng, texts[0]), damaged_json(rng, texts[1])

    examples = [(json.dumps({**done, **more}), json.dumps(asked)) for more in ({}, {"dead": True}, {"large": True})]
    del done["error"]
    examples.append((json.dumps(done), json.dumps(asked)))
    fuzz(Reader(examples, rewrite, ask, ()), tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_progress_of_pruning(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    store = Store(tmp_path / "cache")

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"code")
        return BuildOutput(outputs=("m.so",))

    store.get_or_build(KEY, build)
    text = '{"done": "41", "sizes": {"29000000": 500}, "used_before_s": 0, "ended_s": 0.0}'
    read = at(tmp_path / "cache" / "kernels-v1" / "pruning.json", lambda: store.prune(10**9, 30))
    fuzz(Reader([text], damaged_json, read), tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_what_is_remembered_of_our_code(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    for package in ("be_runtime", "be_toolchain"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text("a = 1\n")
    memo, later = tmp_path / "own_code.json", 4 * 10**18
    true = checkout_digest(tmp_path, memo, later)
    kept = json.loads(memo.read_text())
    assert kept["digest"] == true

    def read() -> None:
        found = checkout_digest(tmp_path, memo, later)
        assert found == true or json.loads(memo.read_bytes())["seen"] == kept["seen"]

    fuzz(Reader([json.dumps(kept)], damaged_json, at(memo, read)), tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_record_of_a_toolchain(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    system, request = LocalSystem(), ToolchainRequest(need_cuda=False)
    key = record_key(request, system)
    found = resolve(request, system=system)
    save_record(tmp_path, key, found, ObservingSystem(system))
    path = record_path(tmp_path, key)
    reader = Reader([path.read_text()], as_sealed, at(path, lambda: load_record(tmp_path, key, system)), ())
    fuzz(reader, tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_manifest_of_a_managed_toolchain(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    (tmp_path / "cuda-13.0.2").mkdir()
    path, store = tmp_path / "cuda-13.0.2" / MANIFEST, ManagedStore(tmp_path)
    text = '{"schema": 1, "version": "13.0.2", "wheels": {"nvidia-nvvm": "13.0.88"}}'
    read = at(path, lambda: [store.damage(row) for row in store.list()])
    fuzz(Reader([text], damaged_json, read, ()), tally("other damaged inputs", seed))


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(1))
def test_the_users_own_file(seed: int, tally: Callable[[str, int], Tally], tmp_path: Path):
    from be_toolchain.machine.store_paths import user_file

    environ = {"HOME": str(tmp_path)}
    path = user_file(environ)
    assert path is not None
    path.parent.mkdir(parents=True)
    read = at(path, lambda: are_safe(LocalSystem(environ), (Path("/srv/shared"),)))
    fuzz(Reader(['safe-folders = ["/srv/*", "~"]\n'], as_toml, read), tally("other damaged inputs", seed))
