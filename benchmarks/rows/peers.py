"""A vector-add by other ways from a source to a call: cold build, cached load and call, each beside ours."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..bench import HERE, KERNELS, Bench, interleave
from ..cold import copy_cache, known_cache
from ..figure import Figure, Row
from ..generated import SUFFIXES
from ..peer_python import PeerPython, find_peers
from ..peers.child import Job
from ..toolkit import archs_to_name, nvcc_command

ROUNDS = 5
SOURCES = HERE / "peers"
MESSAGE_LINES = 8
SHOWN = {"cpp": "C++", "cuda": "CUDA"}


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
    is_called : bool
        Whether JAX can call it.
    """

    name: str
    script: str
    source: Path
    packages: tuple[str, ...] = ()
    is_called: bool = True


OURS = Peer(name="ours", script="peer_ours.py", source=KERNELS / "vector_add")
PEERS = (
    Peer(name="brainevent", script="peer_brainevent.py", source=KERNELS / "vector_add", packages=("brainevent",)),
    Peer(
        name="apache-tvm-ffi",
        script="peer_tvm_ffi.py",
        source=SOURCES / "tvm_ffi",
        packages=("apache-tvm-ffi", "jax-tvm-ffi"),
    ),
    Peer(name="torch", script="peer_torch.py", source=SOURCES / "torch", packages=("torch",), is_called=False),
    Peer(name="handler on ffi.h", script="peer_handwritten.py", source=KERNELS / "handler_ffi_h"),
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
        return self.language == "cpp" or self.bench.device is not None

    def load(self, peer: Peer, cache: Path, *, calls: bool = False) -> dict[str, float]:
        """The seconds of a load in a new process, and of a call where that is asked for."""
        path = self.bench.folder("job") / "job.json"
        path.write_text(json.dumps(dataclasses.asdict(self._job(peer, cache, calls=calls))), encoding="utf-8")
        platforms = {} if self.language == "cuda" and self.bench.device is not None else {"JAX_PLATFORMS": "cpu"}
        told: dict[str, float] = self.peers.run(self.bench, peer.script, str(path), cache=cache, **platforms)
        return told

    def compile_bare(self) -> float:
        """Seconds of the compiler on the bare function, from its start to its end."""
        library = self.bench.folder("bare") / "bare.so"
        return self.bench.timed(self._command(KERNELS / f"bare{SUFFIXES[self.language]}", library))

    def _job(self, peer: Peer, cache: Path, *, calls: bool) -> Job:
        source = peer.source.with_name(peer.source.name + SUFFIXES[self.language])
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


def measure(bench: Bench) -> Iterator[Figure]:
    """C++, and CUDA where there is a toolkit; calls of CUDA where there is a GPU."""
    peers = find_peers(bench, [package for peer in PEERS for package in peer.packages])
    found = [peer for peer in PEERS if all(peers.versions[package] for package in peer.packages)]
    _say(f"{peer.name} is not installed" for peer in PEERS if peer not in found)
    shown = {peer: _with_version(peer, peers) for peer in found}
    languages = ("cpp", "cuda") if bench.cuda is not None and bench.cuda.nvcc is not None else ("cpp",)
    for language in languages:
        yield from _measure_language(Contest(bench=bench, language=language, peers=peers), shown)


def _with_version(peer: Peer, peers: PeerPython) -> str:
    """A peer's name with the version of its first package."""
    return f"{peer.name} {peers.versions[peer.packages[0]]}" if peer.packages else peer.name


def _measure_language(contest: Contest, names: Mapping[Peer, str]) -> tuple[Figure, ...]:
    """Every contestant's cold build, then its cached load and calls, in turn."""
    bench = contest.bench
    known = known_cache(bench, partial(contest.load, OURS))
    working = [OURS, *(peer for peer in names if _works(contest, peer))]
    by_name = {peer.name: peer for peer in working}
    cold: dict[str, list[float]] = {name: [] for name in (*by_name, BARE)}
    cached: dict[str, list[float]] = {name: [] for name in by_name}
    calls: dict[str, list[float]] = {name: [] for name, peer in by_name.items() if peer.is_called}
    contest.compile_bare()
    for name in interleave((*by_name, BARE), bench.rounds(ROUNDS)):
        if name == BARE:
            cold[name].append(contest.compile_bare())
            continue
        cache = copy_cache(bench, known) if name == OURS.name else bench.folder("cache")
        cold[name].append(contest.load(by_name[name], cache)["load"])
        again = contest.load(by_name[name], cache, calls=contest.with_calls and name in calls)
        cached[name].append(again["load"])
        if "call" in again:
            calls[name].append(again["call"])
    baselines = {peer.name: names[peer] for peer in working if peer is not OURS}
    shown = SHOWN[contest.language]
    return (
        *_figures(f"cold build, {shown}", cold, {**baselines, BARE: BARE}),
        *_figures(f"cached load in a new process, {shown}", cached, baselines),
        *_figures(f"call in a jitted program, {shown}", calls, baselines),
    )


def _works(contest: Contest, peer: Peer) -> bool:
    """Whether a peer loads its source here, with a message where it does not; this also warms the file cache."""
    try:
        contest.load(peer, contest.bench.folder("cache"))
    except RuntimeError as error:
        said = str(error).strip().splitlines()[-MESSAGE_LINES:]
        _say((f"{peer.name} does not load {SHOWN[contest.language]} here; the end of its message:", *said))
        return False
    return True


def _figures(label: str, samples: dict[str, list[float]], baselines: dict[str, str]) -> list[Figure]:
    """Ours over each peer that has samples."""
    return [
        Figure(label=label, ours=tuple(samples[OURS.name]), baseline=shown, theirs=tuple(samples[name]))
        for name, shown in baselines.items()
        if samples.get(name)
    ]


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"peers: {line}", file=sys.stderr, flush=True)


ROW = Row(measure=measure)
