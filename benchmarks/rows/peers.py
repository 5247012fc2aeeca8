"""A vector-add by other ways from a source to a call: first build, warm load and call, each beside ours."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..bench import HERE, KERNELS, Bench, interleave
from ..cold import copy_cache, known_cache
from ..figure import Figure, LeftOut, Row
from ..generated import SUFFIXES
from ..peer_python import PeerPython, find_peers
from ..peers.child import Job
from ..report import LATER_BUILD
from ..toolkit import archs_to_name, nvcc_command

ROUNDS = 5
SOURCES = HERE / "peers"
MESSAGE_LINES = 8
SHOWN = {"cpp": "C++", "cuda": "CUDA", "nvrtc": "CUDA by NVRTC"}
ENDINGS = {**SUFFIXES, "nvrtc": "_raw.cu"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way to load a source.

    Parameters
    ----------
    name : str
        For the table.
    script : str
        Of `benchmarks/children`.
    source : Path
        Without its ending.
    packages : tuple of str
        What has to be installed; the first one's version is shown.
    languages : tuple of str
        What it loads.
    is_called : bool
        Whether JAX calls it by the name of a target.
    needs_gpu : bool
        Whether it loads nothing where no GPU is.
    """

    name: str
    script: str
    source: Path = KERNELS / "vector_add"
    packages: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("cpp", "cuda")
    is_called: bool = True
    needs_gpu: bool = False


OURS = Peer(name="ours", script="peer_ours.py", languages=tuple(SHOWN))
TORCH, TVM_FFI = SOURCES / "torch", ("apache-tvm-ffi", "jax-tvm-ffi")
PEERS = (
    Peer(name="brainevent", script="peer_brainevent.py", packages=("brainevent",)),
    Peer(name="apache-tvm-ffi", script="peer_tvm_ffi.py", source=SOURCES / "tvm_ffi", packages=TVM_FFI),
    Peer(name="torch", script="peer_torch.py", source=TORCH, packages=("torch",), is_called=False),
    Peer(name="handler on ffi.h", script="peer_handwritten.py", source=KERNELS / "handler_ffi_h"),
    Peer(
        name="FlashInfer",
        script="peer_flashinfer.py",
        source=SOURCES / "flashinfer",
        packages=("flashinfer-python", "jax-tvm-ffi"),
        languages=("cuda",),
        needs_gpu=True,
    ),
    *(
        Peer(name=name, script=script, packages=(package,), languages=(language,), is_called=False, needs_gpu=True)
        for name, script, package, language in (
            ("Warp", "peer_warp.py", "warp-lang", "cuda"),
            ("CuTe DSL", "peer_cute.py", "nvidia-cutlass-dsl", "cuda"),
            ("torch's _compile_kernel", "peer_torch_nvrtc.py", "torch", "nvrtc"),
            ("CuPy's RawKernel", "peer_cupy.py", "cupy-cuda13x", "nvrtc"),
        )
    ),
)
BARE = "bare compiler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """One language's measurements in the peers' environment."""

    bench: Bench
    language: str
    peers: PeerPython

    @property
    def with_calls(self) -> bool:
        """Whether there is a device to call on."""
        return self.language == "cpp" or (self.language == "cuda" and self.bench.device is not None)

    def load(self, peer: Peer, cache: Path, *, calls: bool = False) -> dict[str, float]:
        """The seconds of a load in a new process, and of a call where that is asked for."""
        path = self.bench.folder("job") / "job.json"
        path.write_text(json.dumps(dataclasses.asdict(self._job(peer, cache, calls=calls))), encoding="utf-8")
        platforms = {} if self.language != "cpp" and self.bench.device is not None else {"JAX_PLATFORMS": "cpu"}
        told: dict[str, float] = self.peers.run(self.bench, peer.script, str(path), cache=cache, **platforms)
        return told

    def compile_bare(self) -> float:
        """Seconds of the compiler on the bare function, from its start to its end."""
        library = self.bench.folder("bare") / "bare.so"
        return self.bench.timed(self._command(KERNELS / f"bare{SUFFIXES[self.language]}", library))

    def _job(self, peer: Peer, cache: Path, *, calls: bool) -> Job:
        source = peer.source.with_name(peer.source.name + ENDINGS[self.language])
        library = cache / "handler.so"
        on_gpu = self.language == "cuda"
        timing = {
            "elements": 1024 if on_gpu else 16,
            "lengths": (200, 600) if on_gpu else (200, 1000),
            "executions": 10 if on_gpu else 20,
            "rounds": 2 if self.bench.quick else 10,
        }
        return Job(
            name="peer",
            language=self.language,
            source=str(source),
            archs=archs_to_name(self.bench),
            library=str(library),
            command=self._command(source, library, f"-I{self.peers.ffi_include}"),
            calls=timing if calls else None,
        )

    def _command(self, source: Path, library: Path, *extra: str) -> tuple[str, ...]:
        if self.language == "cuda":
            return nvcc_command(self.bench, source, library, *extra)
        flags = ("-O3", "-std=c++17", "-shared", "-fPIC", *extra)
        return (str(self.bench.cxx.path), *flags, str(source), "-o", str(library))


def measure(bench: Bench) -> Iterator[Figure | LeftOut]:
    """C++, CUDA where there is a toolkit, and NVRTC where there is a GPU; calls of CUDA where there is a GPU."""
    peers = find_peers(bench, [package for peer in PEERS for package in peer.packages])
    shown: dict[Peer, str] = {}
    for peer in PEERS:
        lacking = [package for package in peer.packages if peers.versions[package] is None]
        if lacking:
            yield LeftOut(name=peer.name, reason=f"{' and '.join(lacking)} not installed")
        elif peer.needs_gpu and bench.device is None:
            yield LeftOut(name=_with_version(peer, peers), reason="no GPU")
        else:
            shown[peer] = _with_version(peer, peers)
    has_nvcc = bench.cuda is not None and bench.cuda.nvcc is not None
    is_there = {"cpp": True, "cuda": has_nvcc, "nvrtc": has_nvcc and bench.device is not None}
    for language in (language for language, there in is_there.items() if there):
        names = {peer: name for peer, name in shown.items() if language in peer.languages}
        yield from _measure_language(Contest(bench=bench, language=language, peers=peers), names)


def _with_version(peer: Peer, peers: PeerPython) -> str:
    """A peer's name with the version of its first package."""
    return f"{peer.name} {peers.versions[peer.packages[0]]}" if peer.packages else peer.name


def _measure_language(contest: Contest, names: Mapping[Peer, str]) -> Iterator[Figure | LeftOut]:
    """Every contestant's build with an empty cache, then its warm load and calls; ours on a known toolchain, too."""
    bench, shown = contest.bench, SHOWN[contest.language]
    known = known_cache(bench, partial(contest.load, OURS))
    working = [OURS]
    for peer, name in names.items():
        problem = _problem(contest, peer)
        if problem:
            yield LeftOut(name=f"{name}, {shown}", reason=problem)
        else:
            working.append(peer)
    by_name = {peer.name: peer for peer in working}
    bare = () if contest.language == "nvrtc" else (BARE,)
    first: dict[str, list[float]] = {name: [] for name in (*by_name, LATER_BUILD, *bare)}
    cached: dict[str, list[float]] = {name: [] for name in by_name}
    calls: dict[str, list[float]] = {name: [] for name, peer in by_name.items() if peer.is_called}
    if bare:
        contest.compile_bare()
    for name in interleave(tuple(first), bench.rounds(ROUNDS)):
        if name == BARE:
            first[name].append(contest.compile_bare())
            continue
        if name == LATER_BUILD:
            first[name].append(contest.load(OURS, copy_cache(bench, known))["load"])
            continue
        cache = bench.folder("cache")
        first[name].append(contest.load(by_name[name], cache)["load"])
        again = contest.load(by_name[name], cache, calls=contest.with_calls and name in calls)
        cached[name].append(again["load"])
        if "call" in again:
            calls[name].append(again["call"])
    baselines = {peer.name: names[peer] for peer in working if peer is not OURS}
    yield from _figures(f"first build, {shown}", first, {LATER_BUILD: LATER_BUILD, **baselines, BARE: BARE})
    yield from _figures(f"warm load in a new process, {shown}", cached, baselines)
    yield from _figures(f"call in a jitted program, {shown}", calls, baselines)


def _problem(contest: Contest, peer: Peer) -> str:
    """Why a peer does not load its source here; empty where it does. This also warms the file cache."""
    try:
        contest.load(peer, contest.bench.folder("cache"))
    except RuntimeError as error:
        said = str(error).strip().splitlines()[-MESSAGE_LINES:]
        print(*(f"peers: {line}" for line in said), sep="\n", file=sys.stderr, flush=True)
        return f"it does not load here: {said[-1]:.200}"
    return ""


def _figures(label: str, samples: dict[str, list[float]], baselines: dict[str, str]) -> list[Figure]:
    """Ours over each peer that has samples."""
    return [
        Figure(label=label, ours=tuple(samples[OURS.name]), baseline=shown, theirs=tuple(samples[name]))
        for name, shown in baselines.items()
        if samples.get(name)
    ]


ROW = Row(measure=measure)
