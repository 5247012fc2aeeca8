"""Places that hand over entries: files that were imported, a job's store, and a remote cache. None fails a load."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from be_runtime import errors, settings
from be_runtime.jax.coordination import JobStore
from be_runtime.store import keys, places, sharing, signing
from be_runtime.store.job import Job
from be_runtime.store.remote import FsspecCache, Health, Link, RemoteCache, name_remote, open_remote
from be_toolchain.errors import PreferenceError
from be_toolchain.remote import RemoteSource
from tests.support.artifacts import artifact, packed
from tests.support.faulty_server import FaultyServer, faulty_server
from tests.support.jobs import StoreClient
from tests.support.machines import MemorySystem

KEY = keys.make_key("module", ("name", "add"))
WANTED = sharing.Query(KEY, "add", lambda: False)
OTHER = sharing.Query(keys.make_key("module", ("name", "other")), "other", lambda: False)
ARTIFACT = artifact(KEY)


def given(store: sharing.Store, wanted: sharing.Query = WANTED) -> bytes | None:
    """Return what a store gives, as one file."""
    found = store.get(wanted)
    return found and found.packed


def test_imported_artifacts_are_for_the_user_alone(tmp_path: Path):
    place = places.Imported(tmp_path / "cache")
    assert (place.is_there, given(place)) == (False, None)
    one, two = packed(KEY, b"one"), packed(KEY, b"two")
    for content in (one, two):
        place.store(KEY.digest, content)
    assert (given(place), given(place, OTHER)) == (two, None)
    ((path, _),) = place.archives()
    for each, own, others in ((path, 0o600, 0o666), (path.parent, 0o700, 0o777), (place.folder, 0o700, 0o770)):
        assert each.stat().st_mode & 0o777 == own
        each.chmod(others)
        assert given(place) is None, "others could have written it"
        each.chmod(own)
    for each in (path, place.folder):
        each.rename(tmp_path / each.name)
        each.symlink_to(tmp_path / each.name)
        assert given(place) is None
        each.unlink()
        (tmp_path / each.name).rename(each)
    assert given(place) == two
    place.store(KEY.digest, b"")
    assert given(place) is None, "a crash may leave an empty file"
    path.unlink()
    os.mkfifo(path)
    assert given(place) is None
    place.folder.rename(tmp_path / "elsewhere")
    place.folder.touch()
    with pytest.raises(errors.CacheError):
        place.store(KEY.digest, one)
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(errors.CacheError):
        places.Imported(tmp_path / "cache")


EMPTY = hashlib.sha256(b"").hexdigest()
HERE = f"be_runtime/1/{KEY.digest}/0"
NAME = f"be_runtime/1/names/{hashlib.sha256(b'module/add').hexdigest()}/1"
DEEP = b"[" * 100_000


def job(values: dict[str, bytes]) -> Job:
    return Job(lambda: JobStore(StoreClient(values), 1), print, print, patience_s=1.0, stale_s=0.2)


def done(**fields: object) -> bytes:
    return json.dumps({"process": 0, "pieces": 0, "size": 1, "sha256": EMPTY, **fields}).encode()


OTHERS = (done(), done(pieces=-1), done(size=1 << 70), done(pieces=[]), done(error=[]))


@pytest.mark.parametrize("text", [DEEP, b"\xff", b"[]", b"null", *OTHERS])
def test_no_answer_of_a_builder_fails_a_load(text: bytes):
    assert given(job({f"{HERE}/claim": DEEP, f"{HERE}/done": text, NAME: DEEP})) is None


def test_without_threads_a_claim_ends_all_the_same(monkeypatch: pytest.MonkeyPatch):
    values: dict[str, bytes] = {}
    place, started = job(values), threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "be-job-beat":
            raise RuntimeError("can't start new thread")
        started(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert given(place) is None
    place.put(WANTED, ARTIFACT)
    assert json.loads(values[f"{HERE}/done"])["size"] == len(ARTIFACT.packed)


class Remote:
    """A remote cache in memory, which fails or waits when told to."""

    is_open = False

    def __init__(self, url: str = "x://y", *, writes: bool = True) -> None:
        self.files, self.said = dict[str, bytes](), list[str]()
        self.error, self.asked, self.may_end = "", 0, threading.Event()
        self.may_end.set()
        self.link = Link(self, Health(), Health(), set(), [])
        source = RemoteSource(url, "test")
        self.place = RemoteCache(source, self.link, self.said.append, writes=writes, timeout_s=5)

    def get(self, digest: str) -> bytes | None:
        self._ask()
        return self.files.get(digest)

    def put(self, digest: str, data: bytes) -> None:
        self._ask()
        assert self.may_end.wait(60)
        self.files[digest] = data

    def _ask(self) -> None:
        self.asked += 1
        if self.error:
            raise RuntimeError(self.error)


def test_what_is_put_can_be_got_by_who_says_so():
    remote, reader = Remote(), Remote(writes=False)
    assert given(remote.place) is None
    remote.place.put(WANTED, ARTIFACT)
    remote.link.finish(60)
    assert given(remote.place) == ARTIFACT.packed
    remote.files[KEY.digest] = b""
    assert given(remote.place) is None, "an empty file is a miss"
    assert remote.said == []
    reader.place.put(WANTED, ARTIFACT)
    assert (reader.link.uploads, reader.asked) == ([], 0)


def test_after_two_faults_in_a_row_it_is_left_alone_and_said_once():
    remote = Remote()
    for remote.error in ("a plug-in\nraises", "", "a plug-in\nraises"):  # after an answer the count begins anew
        assert given(remote.place) is None
    assert [given(remote.place) for _ in range(3)] == [None] * 3
    assert remote.asked == 4
    fault = "remote cache: reading x://y: a plug-in\\x0araises"
    assert remote.said == [fault, f"{fault}; no request for 60 s"]
    remote.error = ""
    remote.place.put(WANTED, ARTIFACT)
    remote.link.finish(60)
    assert remote.files, "reading and writing count apart"


def test_an_artifact_that_repeats_what_was_sent_is_described_without_it(tmp_path: Path):
    sent = "dXNlcjpTM0NSM1Q= user:S3CR3T S3CR3T"
    remote, said = Remote("https://user:S3CR3T@cache.example.org", writes=False), list[str]()
    remote.files[KEY.digest] = packed(KEY, dependencies=((f"<{sent}>/a", ""),))
    share = sharing.Shareable(KEY, sharing.Roots(()))
    exchange = places.Exchange(WANTED, share, [remote.place], offers=False, sign=None, say=said.append)
    (tmp_path / "staging").mkdir()
    assert not exchange.get(Mock(folder=tmp_path / "staging"), force=False)
    problem = "was built with <...= ... ...>/a, a folder that is not here; it is not used"
    assert said == [f"add: the artifact from https://...@cache.example.org {problem}"]


@pytest.mark.filterwarnings(r"ignore:.*fork\(\)")  # JAX's, and Python's
def test_an_upload_keeps_nobody_waiting_and_a_fork_forgets_what_it_does_not_make():
    remote = Remote()
    remote.may_end.clear()
    remote.place.put(WANTED, ARTIFACT)
    child = os.fork()
    if child == 0:
        remote.link.finish(60)
        os._exit(0 if given(remote.place) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    remote.link.finish(0.01)
    assert remote.files == {}
    remote.may_end.set()
    remote.link.finish(60)
    assert remote.files == {KEY.digest: ARTIFACT.packed}


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with faulty_server() as found:
        yield found


def opened(url: str, said: list[str], *, writes: bool = False, timeout_s: float = 30) -> RemoteCache:
    found = settings.Settings(remote_cache=url, remote_cache_timeout_s=timeout_s, remote_cache_write=writes)
    place = open_remote(RemoteSource(url, "BE_REMOTE_CACHE"), found, said.append)
    assert place is not None
    return place


def test_over_http_faults_are_known_to_the_next_load_and_credentials_are_not_said(server: FaultyServer):
    said, url = list[str](), server.url.replace("://", "://ci:secret@")
    server.asked.clear()
    ways = ("good/", "miss", *["error500"] * 4)
    with pytest.raises(errors.LoadError, match="is not a complete exported program or artifact"):
        given(opened(f"{url}/{ways[0]}", said))
    assert [given(opened(f"{url}/{way}", said)) for way in ways[1:]] == [None] * 5
    assert [path for _, path, _ in server.asked] == [f"/{way.rstrip('/')}/be-1/ac/{KEY.digest}" for way in ways[:4]]
    shown = server.url.replace("://", "://...@")
    assert said[0] == f"remote cache: reading {shown}/error500: 500 Internal Server Error"
    assert "secret" not in f"{said}"


def test_an_upload_that_fails_is_said(server: FaultyServer):
    error = "500 Internal Server Error; the server may lack the right to write"
    for how, says in (("error403", "403 "), ("error500", error), ("silent", ""), ("redirect", "")):
        said: list[str] = []
        place = opened(f"{server.url}/{how}", said, writes=True, timeout_s=0.4 if how == "silent" else 30)
        place.put(WANTED, ARTIFACT)
        place.link.finish(60)
        assert said[0].startswith(f"remote cache: writing {server.url}/{how}: {says}")


class EchoingFiles:
    """A file system of a plug-in whose errors quote what it sent, as a server's answer does."""

    def info(self, path: str) -> dict[str, int]:
        if "numbered" in path:
            raise PermissionError(errno.EACCES, "Authorization: KEYID:secret")
        raise RuntimeError(f"403 for {path}?X-Amz-Signature=secret, Cookie: secret")

    def pipe_file(self, path: str, data: bytes) -> None:
        raise OSError("secret", data)


@pytest.mark.parametrize(("folder", "says"), [("kernels", "RuntimeError"), ("numbered", "Permission denied")])
def test_what_a_plug_in_quotes_is_not_shown(monkeypatch: pytest.MonkeyPatch, folder: str, says: str):
    fsspec, said = pytest.importorskip("fsspec"), list[str]()
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda scheme: EchoingFiles)
    monkeypatch.setattr(fsspec, "filesystem", lambda scheme, **options: EchoingFiles())
    place = opened(f"s3://KEYID:secret@bucket/{folder}", said, writes=True)
    given(place)
    place.put(WANTED, ARTIFACT)
    place.link.finish(60)
    for text, use in zip(said, ("reading", "writing"), strict=True):
        assert text.startswith(f"remote cache: {use} s3://...@bucket/{folder}: ")
    assert says in said[0]
    assert "secret" not in f"{said}"


def test_a_url_that_is_not_encrypted_or_means_nothing_is_named():
    said: list[str] = []
    for url in ("http://cache.example.org", "https://cache.example.org", "http://localhost:1") * 2:
        opened(url, said)
    assert [text.partition(": others")[0] for text in said] == [
        "remote cache: http://cache.example.org is not encrypted"
    ]
    with pytest.raises(errors.ArgumentError, match=r"^BE_REMOTE_CACHE is ") as caught:
        opened("https://u:secret@host/\u00fc", [])
    assert "secret" not in str(caught.value)
    pytest.importorskip("fsspec")
    with pytest.raises(errors.ArgumentError, match="nosuch"):
        opened("nosuch://bucket/folder", [])


OWN = "/root/.config/be_toolchain/be-toolchain.toml"
PROJECT = "/project/be-toolchain.toml"


def machine(own: str = "", project: str = "") -> MemorySystem:
    found = MemorySystem(cwd=Path("/project/src"))
    found.environ = {**found.environ, "HOME": "/root"}
    for name, text in ((OWN, own), (PROJECT, project)):
        if text:
            found.write(name, text)
    return found


def test_the_environment_comes_before_the_users_file_and_that_before_the_projects():
    own, project = 'remote-cache = "s3://own/x"\nremote-cache-public-key = "k"', 'remote-cache = "https://project"'
    system = machine(own, project)
    source = name_remote(settings.Settings(remote_cache="https://named"), system, print)
    assert (source.url, source.named_by, source.keys) == ("https://named", "BE_REMOTE_CACHE", "k")
    assert source.keys_named_by == f"remote-cache-public-key in {OWN}"
    source = name_remote(settings.Settings(remote_cache_public_key="v"), system, print)
    assert source[:3] + source[4:] == ("s3://own/x", f"remote-cache in {OWN}", "v", True, "")
    source = name_remote(settings.Settings(), machine('remote-cache-public-key = "k"', project), print)
    assert (source.url, source.keys, source.may_write) == ("https://project", "k", False)
    assert name_remote(settings.Settings(), machine(), print) == RemoteSource()


def test_a_projects_file_alone_names_no_place_to_load_code_from():
    for url, key, says in (
        ("https://project", "", "set BE_REMOTE_CACHE_PUBLIC_KEY, or BE_REMOTE_CACHE"),
        ("http://project", "k", "must begin with https://"),
        ("s3://project/x", "k", "must begin with https://"),
    ):
        said: list[str] = []
        system = machine(project=f'remote-cache = "{url}"')
        source = name_remote(settings.Settings(remote_cache_public_key=key), system, said.append)
        assert open_remote(source, settings.Settings(), said.append) is None
        assert source.problem.startswith(f"remote-cache in {PROJECT} is ignored: ")
        assert says in source.problem
        assert said in ([f"remote cache: {source.problem}"], []), "once in a process"


@pytest.mark.parametrize("text", ["remote-cache = 1", 'remote-cache = "own"', "remote-cache-public-key = []", "x = 1"])
def test_the_users_file_has_to_mean_something_and_to_be_theirs(text: str):
    system = machine(text)
    with pytest.raises(PreferenceError, match=OWN) as caught:
        name_remote(settings.Settings(), system, print)
    assert caught.value.hints
    system.plant(OWN)
    assert name_remote(settings.Settings(), system, print) == RemoteSource()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    uses: dict[tuple[str, str], Callable[[], object]] = {
        ("fsspec", "s3"): lambda: FsspecCache("s3://bucket", 1),
        ("cryptography.hazmat.primitives.asymmetric", "signing"): signing.make_keys,
    }
    for (package, extra), use in uses.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(errors.ArgumentError, match=f"needs? the package {package.partition('.')[0]}") as caught:
            use()
        assert caught.value.hints == (f"pip install 'brainevent-toolchain[{extra}]'",)
