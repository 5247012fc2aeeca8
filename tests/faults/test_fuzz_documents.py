"""Every other text and file that is read from outside, damaged: it is read, passed over or refused by our error."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import shutil
import socket
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from be_runtime.compile import nvcc
from be_runtime.compile.execute import parse_ninja_log
from be_runtime.compile.inputs import parse_depfile, parse_records
from be_runtime.compile.messages import diagnose
from be_runtime.compile.plan import merge_commands
from be_runtime.errors import BeRuntimeError
from be_runtime.jax.coordination import JobStore
from be_runtime.load.identity import checkout_digest
from be_runtime.settings import Settings
from be_runtime.ship.declaration import parse_declaration, read_table
from be_runtime.ship.show import describe_file, render_description
from be_runtime.signature.expressions import evaluate, parse_expression
from be_runtime.store.artifact import MAGIC, unpack
from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.index import parse_contents, parse_index, reading, render_index
from be_runtime.store.job import Job
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.store.manifest import AbsentNames, FileRecord, Files, Manifest, parse_manifest, render_manifest
from be_runtime.store.sharing import Query, Roots, Shareable, unpack_entry
from be_toolchain.arch import parse_archs
from be_toolchain.errors import ToolchainError
from be_toolchain.find.devices import parse_driver_release, parse_smi
from be_toolchain.find.record import ObservingSystem, load_record, record_key, record_path, resolve, save_record
from be_toolchain.install.apply import parse_minimums, parse_present
from be_toolchain.install.installers import parse_pip_report, parse_uv_compile
from be_toolchain.install.managed import ManagedStore
from be_toolchain.known import versions
from be_toolchain.known.layouts import parse_dist_infos, parse_requirement
from be_toolchain.machine.files import MANIFEST, seal, unseal, user_file
from be_toolchain.machine.http import exchange, parse_server
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import parse_os_release
from be_toolchain.machine.trust import are_safe
from be_toolchain.settings import RUNTIME, ConfigurationFile, parse_configuration, parse_preferences
from be_toolchain.values import ToolchainRequest
from tests.faults.fuzzing import SIGNS, damaged, damaged_json, flipped, judge, long_text, time_limit
from tests.support.artifacts import packed, table
from tests.support.faults import Tallies, chance, effort, seeds
from tests.support.jobs import StoreClient

INPUTS = effort(40, 1_000, 10_000)
OURS = (BeRuntimeError, ToolchainError)
EXAMPLES = Path(__file__).parent / "examples"
PROGRAM = Path(__file__).resolve().parents[1] / "data" / "format1" / "first_release.be"


class Reader(NamedTuple):
    """What reads something from outside: sound examples, damage that suits them, and errors that it may raise."""

    examples: Sequence[Any]
    damage: Callable[[random.Random, Any], Any]
    read: Callable[[Any], object]
    allowed: tuple[type[Exception], ...] = OURS


def texts(name: str) -> list[str]:
    """The texts of a file of examples."""
    return (EXAMPLES / name).read_text().split("----\n")


def as_text(rng: random.Random, text: str) -> str:
    parts = (*SIGNS, *text.split()[:20])
    return long_text(rng, parts) if rng.random() < 0.05 else damaged(rng, text, parts)


def as_toml(rng: random.Random, text: str) -> str:
    parts = ["[[", "]]", "[", "]", "{", "}", '"""', "'''", "=", "a.b", '"', "#", "1e", "inf", "1979-05-27", "0x", "'"]
    if rng.random() < 0.05:
        return "x = " + rng.choice(("[", "{a=", "[{a=[")) * rng.choice((10, 3000))
    return damaged(rng, text, (*parts, "\n", *text.split()))


def as_sealed(rng: random.Random, text: str) -> str:
    """Damaged inside, under a checksum that fits."""
    changed = damaged_json(rng, json.dumps(unseal(text)))
    try:
        document = json.loads(changed)
    except (ValueError, RecursionError):
        return changed
    return seal(document) if isinstance(document, dict) and document else changed


def manifest_text() -> str:
    files = Files.of([FileRecord("/usr/include/a.h", 3, 1, 2, 5, "ab" * 32), FileRecord("/b.h", 4, 1, 2, 6, "cd" * 32)])
    absent = (AbsentNames("/usr/local", 1, 2, 3, ("a.h", "sub/b.h")),)
    return render_manifest(Manifest("0" * 64, "module", "ops", 10, 11, files, files, files, absent, ("c.h",)))


KEY = make_key("module", ("name", "ops"), ("flags", ("-O2", "-g")), ("source", "int a;\nint b;\n"), ("raw", b"\0\1"))


def as_printed(rng: random.Random, text: str) -> str:
    """What a program prints or a file holds, undecodable bytes replaced."""
    return as_text(rng, text).encode("utf-8", "replace").decode()


def read_declaration(text: str) -> None:
    declared = parse_declaration(text, "kernels.toml", lambda path: path == "neurons")
    for name, row in declared.kernels.items():
        read_table(name, row)


def read_contents(text: str) -> None:
    with reading("here"):
        parse_contents(text)


def as_variables(rng: random.Random, environ: dict[str, str]) -> dict[str, str]:
    return environ | {name: as_text(rng, environ[name]) for name in rng.sample(sorted(environ), 3)}


def read_variables(environ: dict[str, str]) -> None:
    parse_preferences(environ)
    Settings.from_environ(environ)


def read_arithmetic(text: str) -> None:
    with contextlib.suppress(KeyError):  # a name that no signature has
        evaluate(parse_expression(text), {"n": 7, "k": 0, "attr.bins": -(2**63)})


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


def read_smi(text: str) -> None:
    parse_smi(text, "0,GPU-2")


def read_names(text: str) -> None:
    for read in (parse_dist_infos, parse_present, versions.parse_conda_meta):
        read((text,))
    parse_requirement(text)


def read_project(text: str) -> None:
    parse_configuration(ConfigurationFile(Path("/p/be-toolchain.toml"), text))


PRINTED: tuple[Callable[[str], object], ...] = (
    *(versions.parse_tool_version, versions.parse_host_version, versions.parse_dryrun),
    *(versions.parse_archs_listed, versions.parse_sm_listed, versions.parse_host_limits, versions.version_key),
    *(versions.parse_libc_below, versions.parse_cccl_version, versions.parse_dpkg_status, parse_os_release),
    *(versions.parse_cudart_version, parse_driver_release, parse_minimums, parse_uv_compile, read_smi),
)
HANDLERS = '{"functions": {"f": ["be_ffi_f", "be_graph_f", "", "::f", ["arg"]]}}'
VERSIONS = '{"cuda_nvcc": {"name": "CUDA NVCC", "version": "12.9.86"}}'
COMMANDS = '[{"directory": "/", "file": "/etc/passwd", "arguments": ["g++"]}]'
NINJA = "# ninja log v6\n0\t120\t1\tobj/a.o\tf0\n120\t150\t2\tm.so\tf1\n"
LOOKED_AT = b"x/bin/cc\0-/a/k.h\0+/b/k.h\0w/tmp/k.s\0+/tmp/k.s\0l/b\0"
WHEELS = ["nvidia_nvvm-13.0.88.dist-info", "jax_cuda13_plugin-0.7.dist-info"]
SOURCES = {"k.cu": "a\nb\n"}, (("k.cu", 3),)
PURE: dict[str, Reader] = {
    "manifests": Reader([manifest_text()], as_sealed, parse_manifest, (ValueError,)),
    "keys": Reader([KEY.to_json()], damaged_json, lambda text: KEY.explain(CacheKey.from_json(text)), (ValueError,)),
    "lists of handlers": Reader([HANDLERS], damaged_json, read_contents),
    "kernels.toml": Reader(texts("kernels.toml"), as_toml, read_declaration),
    "project files": Reader(texts("be-toolchain.toml"), as_toml, read_project),
    "variables": Reader([VARIABLES], as_variables, read_variables),
    "arithmetic": Reader(["ceil(n/256)*max(n, k)", "2*attr.bins//(n-7)%3"], as_text, read_arithmetic, (ValueError,)),
    "lists of architectures": Reader(["8.0, sm_90a;compute_100f"], as_text, parse_archs),
    "version.json": Reader([VERSIONS], damaged_json, versions.parse_version_json, ()),
    "pip's reports": Reader(
        texts("pip_report.json"), damaged_json, lambda text: parse_pip_report(text, LocalSystem({}))
    ),
    "names of dist-info": Reader(WHEELS, as_text, read_names, ()),
    **{
        f"printed, {read.__name__}": Reader(texts("tools.txt"), as_printed, read, (ToolchainError,)) for read in PRINTED
    },
    "printed, dry run": Reader(texts("tools.txt"), as_printed, nvcc.parse_dryrun, (ToolchainError,)),
    "messages of compilers": Reader(texts("compilers.txt"), as_text, lambda text: diagnose(text, *SOURCES), ()),
    "depfiles": Reader(["k.o: k.cu \\\n /opt/my\\ dir/a.h \\\n $$x\nk.o: b.h\n"], as_text, parse_depfile, ()),
    "logs of ninja": Reader([NINJA], as_text, parse_ninja_log, ()),
    "records of what was looked at": Reader([LOOKED_AT], flipped, lambda data: parse_records(data, ["/build"]), ()),
    "compile_commands.json": Reader([COMMANDS], damaged_json, lambda text: merge_commands([text]), (ValueError,)),
    "exported programs": Reader([PROGRAM.read_bytes()], flipped, lambda data: unpack(data, "here")),
}


def at(path: Path, read: Callable[[], object]) -> Callable[[str | bytes], object]:
    """A reader of a file, for its content."""

    def put(content: str | bytes) -> object:
        path.unlink(missing_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        path.chmod(0o600)
        return read()

    return put


def an_index_in_a_wheel(folder: Path) -> Iterator[Reader]:
    bundle = unpack(PROGRAM.read_bytes(), "here")
    index = render_index(bundle.table)
    yield Reader([index], damaged_json, lambda text: parse_index(text, "here"))

    def wheel(index: str) -> bytes:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("pkg/be_kernels/index.json", index.encode("utf-8", "surrogatepass"))
            for digest in bundle.table.images:
                archive.writestr(f"pkg/be_kernels/images/{digest}.so", bundle.image(digest))
        return out.getvalue()

    show = at(folder / "pkg.whl", lambda: [*map(render_description, describe_file(folder / "pkg.whl"))])
    yield Reader([wheel(index)], flipped, show)
    yield Reader([index], lambda rng, text: wheel(damaged_json(rng, text)), show)


def an_archive_from_a_server(folder: Path) -> Iterator[Reader]:
    share = Shareable(KEY, Roots(((str(folder), "<site>"),)))
    dependencies, others = (("<site>/a.h", "00"), ("/etc/passwd", "11")), (("/usr/bin/", "22"),)
    absent = (("/usr/include", 0, ("b.h", "sub/c.h")), ("<site>/jaxlib", 1, ()))
    inputs: dict[str, Any] = {
        "dependencies": dependencies,
        "others": others,
        "absent": absent,
        "host": "host",
        "seconds": 0.5,
    }

    def take(data: bytes) -> None:
        shutil.rmtree(folder / "staging", ignore_errors=True)
        (folder / "staging").mkdir()
        unpack_entry(unpack(data, "here"), share, folder / "staging", "a server")

    def rewrite(rng: random.Random, text: str) -> bytes:
        changed = zlib.compress(damaged_json(rng, text).encode("utf-8", "surrogatepass"))
        framed = len(changed).to_bytes(8, "little") + changed
        return b"".join((MAGIC, b"h", hashlib.sha512(framed).digest(), framed, b"code"))

    yield Reader([packed(KEY, b"code", **inputs)], flipped, take)
    yield Reader([render_index(table(KEY, b"code", **inputs))], rewrite, take)


def an_answer_of_a_web_server(_: Path) -> Iterator[Reader]:
    server = parse_server("http://ci:secret@cache.example.org")

    def read(data: bytes) -> None:
        ours, theirs = socket.socketpair()
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        with theirs:
            exchange(server, "GET", "name", whole_s=30.0, connect=lambda _address, _timeout_s: ours)

    heads = ("200 OK\r\nContent-Length: 4", "302 Found\r\nLocation: http://x/", "100 Continue\r\n\r\nHTTP/1.1 404 No")
    examples = [f"HTTP/1.1 {head}\r\nX-A: b\r\n\r\ncode".encode() for head in heads]
    yield Reader(examples, flipped, read, (OSError, ValueError))


def what_processes_of_a_job_write(_: Path) -> Iterator[Reader]:
    here = f"be_runtime/1/{KEY.digest}/0"
    name = f"be_runtime/1/names/{hashlib.sha256(b'module/ops').hexdigest()}/1"
    ours = packed(KEY)
    piece = zlib.compress(ours)
    done = {"process": 0, "pieces": 1, "size": len(ours), "sha256": hashlib.sha256(ours).hexdigest()}
    asked = {"process": 0, "key": make_key("module", ("name", "ops"), ("flags", ("-O1",))).to_json()}

    def ask(texts: tuple[str, str]) -> None:
        answer, other = (text.encode("utf-8", "surrogatepass") for text in texts)
        values = {f"{here}/claim": b"{}", f"{here}/done": answer, f"{here}/0": piece, name: zlib.compress(other)}
        place = Job(lambda: JobStore(StoreClient(values), 1), str, str, patience_s=0.05, stale_s=0.02)
        found = place.get(Query(KEY, "ops", lambda: False))
        assert found is None or found.packed == ours

    def rewrite(rng: random.Random, texts: tuple[str, str]) -> tuple[str, str]:
        return damaged_json(rng, texts[0]), damaged_json(rng, texts[1])

    more: tuple[dict[str, object], ...] = ({}, {"error": ""}, {"error": "", "dead": True}, {"error": "", "large": True})
    yield Reader([(json.dumps({**done, **each}), json.dumps(asked)) for each in more], rewrite, ask, ())


def the_progress_of_pruning(folder: Path) -> Iterator[Reader]:
    store = Cache(folder / "cache")

    def build(staging: Path) -> BuildOutput:
        (staging / "m.so").write_bytes(b"code")
        return BuildOutput(outputs=("m.so",))

    store.get_or_build(KEY, build)
    text = '{"done": "41", "sizes": {"29000000": 500}, "used_before_s": 0, "ended_s": 0.0}'
    progress = folder / "cache" / "kernels-v1" / "pruning.json"
    yield Reader([text], damaged_json, at(progress, lambda: store.prune(10**9, 30)))


def what_is_remembered_of_our_code(folder: Path) -> Iterator[Reader]:
    for package in ("be_runtime", "be_toolchain"):
        (folder / package).mkdir()
        (folder / package / "a.py").write_text("a = 1\n")
    memo, later = folder / "own_code.json", 4 * 10**18
    true = checkout_digest(folder, memo, later)
    kept = json.loads(memo.read_text())
    assert kept["digest"] == true

    def read() -> None:
        found = checkout_digest(folder, memo, later)
        assert found == true or json.loads(memo.read_bytes())["seen"] == kept["seen"]

    yield Reader([json.dumps(kept)], damaged_json, at(memo, read))


def the_record_of_a_toolchain(folder: Path) -> Iterator[Reader]:
    system, request = LocalSystem(), ToolchainRequest(need_cuda=False)
    key = record_key(request, system)
    save_record(folder, key, resolve(request, system=system), ObservingSystem(system))
    path = record_path(folder, key)
    yield Reader([path.read_text()], as_sealed, at(path, lambda: load_record(folder, key, system)), ())


def the_manifest_of_a_managed_toolchain(folder: Path) -> Iterator[Reader]:
    (folder / "cuda-13.0.2").mkdir()
    path, store = folder / "cuda-13.0.2" / MANIFEST, ManagedStore(folder)
    text = '{"schema": 1, "version": "13.0.2", "wheels": {"nvidia-nvvm": "13.0.88"}}'
    yield Reader([text], damaged_json, at(path, lambda: [store.damage(row) for row in store.list()]), ())


def the_users_own_file(folder: Path) -> Iterator[Reader]:
    environ = {"HOME": str(folder)}
    path = user_file(environ)
    assert path is not None
    path.parent.mkdir(parents=True)
    read = at(path, lambda: are_safe(LocalSystem(environ), (Path("/srv/shared"),)))
    yield Reader(['safe-folders = ["/srv/*", "~"]\n'], as_toml, read)


IN_FOLDERS: tuple[Callable[[Path], Iterator[Reader]], ...] = (
    *(an_index_in_a_wheel, an_archive_from_a_server, an_answer_of_a_web_server, what_processes_of_a_job_write),
    *(the_progress_of_pruning, what_is_remembered_of_our_code, the_record_of_a_toolchain),
    *(the_manifest_of_a_managed_toolchain, the_users_own_file),
)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("given", [*(pytest.param([reader], id=kind) for kind, reader in PURE.items()), *IN_FOLDERS])
@pytest.mark.parametrize("seed", seeds(1))
def test_any_text_or_file(given: Any, seed: int, tally: Tallies, tmp_path: Path):
    inputs, rng = tally("other damaged inputs", seed), chance(seed)
    for reader in given(tmp_path) if callable(given) else given:
        with time_limit():
            for _ in range(INPUTS):
                judge(inputs, reader.allowed, reader.read, reader.damage(rng, rng.choice(reader.examples)))
    inputs.check()
