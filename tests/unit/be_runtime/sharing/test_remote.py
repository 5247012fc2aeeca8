"""A remote cache as a place: what it says, when it is left alone, who may name it, and that it never fails a load."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput
from be_runtime.cache.folder.key import make_key
from be_runtime.errors import ArgumentError
from be_runtime.settings import Settings
from be_runtime.sharing import fsspec_cache, signing
from be_runtime.sharing.archive import Head, pack
from be_runtime.sharing.exchange import Exchange
from be_runtime.sharing.place import WantedEntry
from be_runtime.sharing.remote import Carrier, Health, Link, RemoteCache, name_remote, open_remote
from be_runtime.sharing.roots import Roots
from be_runtime.sharing.travelling_entry import Shareable
from be_toolchain.errors import PreferenceError
from be_toolchain.settings.remote_source import RemoteSource
from tests.support.faulty_server import GOOD, FaultyServer, faulty_server
from tests.support.machines import MemorySystem

KEY = make_key("module", ("name", "add"))
WANTED = WantedEntry(KEY, "add", lambda: False)
OWN = "/root/.config/be_toolchain/be-toolchain.toml"
PROJECT = "/project/be-toolchain.toml"


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with faulty_server() as found:
        yield found


def opened(url: str, said: list[str], *, writes: bool = False) -> RemoteCache:
    found = Settings(remote_cache=url, remote_cache_timeout_s=0.4, remote_cache_write=writes)
    place = open_remote(RemoteSource(url, "BE_REMOTE_CACHE"), found, said.append)
    assert place is not None
    return place


class Memory:
    """A carrier in memory, which fails when told to."""

    is_open = False

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.error: Exception | None = None
        self.asked = 0

    def get(self, digest: str) -> bytes | None:
        self._ask()
        return self.files.get(digest)

    def put(self, digest: str, data: bytes) -> None:
        self._ask()
        self.files[digest] = data

    def _ask(self) -> None:
        self.asked += 1
        if self.error:
            raise self.error


def remote_of(carrier: Carrier, say: Callable[[str], object], *, writes: bool = True) -> tuple[RemoteCache, Link]:
    link = Link(carrier, Health(), Health(), set(), [])
    return RemoteCache(RemoteSource("x://y", "test"), link, say, writes=writes, timeout_s=5), link


def test_what_is_put_can_be_got():
    said: list[str] = []
    place, link = remote_of(Memory(), said.append)
    assert place.fetch(WANTED) is None
    place.offer(WANTED, b"archive")
    link.finish(5)
    assert place.fetch(WANTED) == b"archive"
    place.abandon(WANTED, "no")
    assert said == []


def test_only_who_says_so_writes():
    carrier = Memory()
    place, link = remote_of(carrier, print, writes=False)
    place.offer(WANTED, b"archive")
    assert (link.uploads, carrier.asked) == ([], 0)


def test_an_empty_file_is_a_miss():
    carrier = Memory()
    carrier.files[KEY.digest] = b""
    assert remote_of(carrier, print)[0].fetch(WANTED) is None, "b'' is how a job says that the entry has come"


def test_after_two_faults_in_a_row_it_is_left_alone_and_said_once():
    said: list[str] = []
    carrier = Memory()
    place, link = remote_of(carrier, said.append)
    carrier.error = RuntimeError("a plug-in\nraises")
    assert place.fetch(WANTED) is None
    carrier.error = None
    assert place.fetch(WANTED) is None, "an answer, so that the count begins anew"
    carrier.error = RuntimeError("a plug-in\nraises")
    assert [place.fetch(WANTED) for _ in range(4)] == [None] * 4
    assert carrier.asked == 4
    assert said == [
        "remote cache: reading x://y: a plug-in\\x0araises",
        "remote cache: reading x://y: a plug-in\\x0araises; it is left alone for 60 s",
    ]
    carrier.error = None
    place.offer(WANTED, b"archive")
    link.finish(5)
    assert carrier.files, "reading and writing count apart"


def test_an_archive_that_repeats_what_was_sent_is_described_without_it(tmp_path: Path):
    said: list[str] = []
    carrier, sent = Memory(), "dXNlcjpTM0NSM1Q= user:S3CR3T S3CR3T"
    empty = hashlib.sha256(b"").hexdigest()
    carrier.files[KEY.digest] = pack(Head(KEY.digest, sent, "", ((sent, 0, empty),), (), (), (), "", 1.0), {sent: b""})
    source = RemoteSource("https://user:S3CR3T@cache.example.org", "test")
    place = RemoteCache(source, Link(carrier, Health(), Health(), set(), []), print, writes=False, timeout_s=5)
    share = Shareable(KEY, Roots(()), ("module.so",))
    exchange = Exchange(WANTED, share, [place], offers=False, sign=None, verify=None, say=said.append)
    (tmp_path / "staging").mkdir()
    exchange.obtain(tmp_path / "staging", lambda _staging: BuildOutput(("module.so",)), force=False)
    label = "https://...@cache.example.org"
    assert said == [
        f"add: the archive from {label} is damaged: it has ...= ... ..., which no ...= ... ... has; it is not used"
    ]


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
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda scheme: EchoingFiles)
    monkeypatch.setattr(fsspec, "filesystem", lambda scheme, **options: EchoingFiles())
    said: list[str] = []
    place = opened(f"s3://KEYID:secret@bucket/{folder}", said, writes=True)
    place.fetch(WANTED)
    place.offer(WANTED, GOOD)
    place.link.finish(60)
    reading, writing = (text.partition(f" s3://...@bucket/{folder}: ") for text in said)
    assert (reading[0], writing[0]) == ("remote cache: reading", "remote cache: writing")
    assert says in reading[2]
    assert "secret" not in f"{said}"


def test_an_upload_keeps_nobody_waiting():
    over = threading.Event()

    class Slow(Memory):
        def put(self, digest: str, data: bytes) -> None:
            over.wait(60)
            super().put(digest, data)

    carrier = Slow()
    place, link = remote_of(carrier, print)
    place.offer(WANTED, b"archive")
    assert carrier.files == {}
    link.finish(0.01)
    over.set()
    link.finish(60)
    assert carrier.files == {KEY.digest: b"archive"}


def test_over_http(server: FaultyServer):
    said: list[str] = []
    server.asked.clear()
    assert opened(f"{server.url}/good/", said).fetch(WANTED) == GOOD
    assert opened(f"{server.url}/miss", said).fetch(WANTED) is None
    assert [path for _, path, _ in server.asked] == [f"/{way}/be-1/ac/{KEY.digest}" for way in ("good", "miss")]
    assert said == []


def test_faults_are_known_to_the_next_load_and_credentials_are_not_said(server: FaultyServer):
    said: list[str] = []
    url = f"{server.url}/error500".replace("://", "://ci:secret@")
    server.asked.clear()
    for _ in range(4):
        assert opened(url, said).fetch(WANTED) is None
    assert len(server.asked) == 2
    host = server.url.removeprefix("http://")
    assert said[0] == f"remote cache: reading http://...@{host}/error500: 500 Internal Server Error"
    assert not [text for text in said if "secret" in text]


@pytest.mark.parametrize(
    ("how", "says"),
    [("error403", "403 "), ("error500", "500 Internal Server Error; may it write"), ("silent", ""), ("redirect", "")],
)
def test_an_upload_that_fails_is_said(server: FaultyServer, how: str, says: str):
    said: list[str] = []
    place = opened(f"{server.url}/{how}", said, writes=True)
    place.offer(WANTED, GOOD)
    place.link.finish(10)
    assert said
    assert said[0].startswith(f"remote cache: writing {server.url}/{how}: {says}")


def test_a_server_that_is_not_this_machine_should_use_tls():
    said: list[str] = []
    for _ in range(2):
        opened("http://cache.example.org", said)
        opened("https://cache.example.org", said)
        opened("http://localhost:1", said)
    assert [text.partition(": who")[0] for text in said] == ["remote cache: http://cache.example.org is not encrypted"]


def test_a_url_that_means_nothing_names_its_variable():
    with pytest.raises(ArgumentError, match=r"^BE_REMOTE_CACHE is ") as caught:
        opened("https://u:secret@host/\u00fc", [])
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "cache.example.org",
            "https:/x",
            "u:secret@host",
            "https://a b",
            "x::s3://b/k",
            "https://u:secret@host:port/",
        ),
        *("https://u:secret?z@host/k", "https://u:se/secret@host/?k", "https://u:secret#@host"),
        *("https://u:secret@", "http:///x", "https://host:0", "https://host/?x", "s3://", "https://[u:secret@host"),
    ],
)
def test_what_is_no_url_is_refused_by_each_load(text: str):
    with pytest.raises(ArgumentError, match=r"^BE_REMOTE_CACHE is .*, expected a URL such as") as caught:
        Settings.from_environ({"BE_REMOTE_CACHE": text})
    assert "secret" not in str(caught.value)


def test_a_scheme_that_nobody_knows_is_refused():
    pytest.importorskip("fsspec")
    with pytest.raises(ArgumentError, match="nosuch"):
        opened("nosuch://bucket/folder", [])


def machine(**files: str) -> MemorySystem:
    found = MemorySystem(cwd=Path("/project/src"))
    found.environ = {**found.environ, "HOME": "/root"}
    for name, text in files.items():
        found.write({"own": OWN, "project": PROJECT}[name], text)
    return found


def test_the_environment_comes_before_the_users_file_and_that_before_the_projects():
    system = machine(
        own='remote-cache = "s3://own/x"\nremote-cache-public-key = "k"', project='remote-cache = "https://project"'
    )
    source = name_remote(Settings(remote_cache="https://named"), system, print)
    assert (source.url, source.named_by, source.keys) == ("https://named", "BE_REMOTE_CACHE", "k")
    assert source.keys_named_by == f"remote-cache-public-key in {OWN}"
    source = name_remote(Settings(remote_cache_public_key="v"), system, print)
    assert (source.url, source.named_by, source.keys) == ("s3://own/x", f"remote-cache in {OWN}", "v")
    assert source.may_write
    system.write(OWN, 'remote-cache-public-key = "k"')
    source = name_remote(Settings(), system, print)
    assert (source.url, source.keys, source.may_write) == ("https://project", "k", False)
    assert name_remote(Settings(), machine(), print) == RemoteSource()


@pytest.mark.parametrize(
    ("url", "key", "says"),
    [
        ("https://project", "", "set BE_REMOTE_CACHE_PUBLIC_KEY, or BE_REMOTE_CACHE"),
        ("http://project", "k", "has to begin with https://"),
        ("s3://project/x", "k", "has to begin with https://"),
    ],
)
def test_a_projects_file_alone_names_no_place_to_load_code_from(url: str, key: str, says: str):
    said: list[str] = []
    system = machine(project=f'remote-cache = "{url}"')
    source = name_remote(Settings(remote_cache_public_key=key), system, said.append)
    assert open_remote(source, Settings(), said.append) is None
    assert source.problem.startswith(f"remote-cache in {PROJECT} is passed over: ")
    assert says in source.problem
    assert said in ([f"remote cache: {source.problem}"], []), "once in a process"


def test_the_users_file_counts_only_if_it_is_theirs():
    system = machine(own='remote-cache = "https://own"')
    system.plant(OWN)
    assert name_remote(Settings(), system, print) == RemoteSource()


@pytest.mark.parametrize("text", ["remote-cache = 1", 'remote-cache = "own"', "remote-cache-public-key = []", "x = 1"])
def test_the_users_file_has_to_mean_something(text: str):
    with pytest.raises(PreferenceError, match=OWN) as caught:
        name_remote(Settings(), machine(own=text), print)
    assert caught.value.hints


@pytest.mark.filterwarnings(r"ignore:.*fork\(\)")  # JAX's, and Python's
def test_a_fork_forgets_uploads_that_it_does_not_make():
    over = threading.Event()

    class Slow(Memory):
        def put(self, digest: str, data: bytes) -> None:
            over.wait(60)

    place, link = remote_of(Slow(), print)
    place.offer(WANTED, b"archive")
    child = os.fork()
    if child == 0:
        link.finish(60)
        os._exit(0 if place.fetch(WANTED) is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    over.set()


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("fsspec", lambda: fsspec_cache.FsspecCache("s3://bucket", 1), "s3"),
        ("cryptography.hazmat.primitives.asymmetric", signing.make_keys, "signing"),
    ],
)
def test_a_package_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, use: Callable[[], object], extra: str
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ArgumentError, match=f"needs? the package {package.partition('.')[0]}") as caught:
        use()
    assert caught.value.hints == (f"pip install 'brainevent-toolchain[{extra}]'",)
