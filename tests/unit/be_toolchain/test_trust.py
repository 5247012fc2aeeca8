"""Folders that are not trusted with libraries, those above them included, and files that somebody else put there."""

from __future__ import annotations

import os
import zipfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_runtime.store import folder as folder_module
from be_runtime.store.folder import usable_cache_dir
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import NotRegularError, distrust, distrust_entry, open_regular, read_part, read_regular
from tests.support.accounts import ME, STRANGER, needs_root, open_place, run_as
from tests.support.hostile_files import KINDS, plant, refused_at_once
from tests.support.machines import healthy

__all__ = ["open_place"]  # a fixture

LIMIT = 1 << 20


def status(mode: int, owner: int, group: int) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, owner, group, 0, 0, 0, 0))


def test_a_shared_folder_and_a_link_are_judged_by_their_owner():
    """The other owners and modes are in the table of test_configuration.py."""
    shared, own, link = 0o041777, status(0o040700, 1000, 1000), status(0o120777, 1001, 1001)
    assert distrust(own, 1000) == distrust(status(shared, 0, 0), 1000) == distrust(status(shared, 1000, 7), 1000) == ""
    assert distrust(status(shared, 1001, 7), 1000) == "belongs to another user (uid 1001)"
    assert distrust(status(0o041770, 1000, 7), 1000).startswith("can be written by other users")
    assert distrust(status(0o040775, 1000, 7), 1000).startswith("can be written by other users")
    assert distrust(own, 1000, link=link) == "is a symbolic link made by another user (uid 1001)"
    assert distrust(own, 1001, link=link) == "belongs to another user (uid 1000)"
    assert distrust(own, 1000, link=own) == ""


def _make(folder: Path, kind: str) -> Path:
    """A path of a kind."""
    place = folder / "cache"
    if kind in ("a file", "below a file"):
        place.write_text("")
    elif kind == "a device":
        return Path("/dev/null/x")
    elif kind == "a link":
        place.symlink_to(mode(folder / "real", 0o700))
    elif "link" in kind:
        place.symlink_to("cache" if "itself" in kind else "gone")
    elif kind != "absent":
        mode(place, int(kind[:4], 8))
        if "own part" in kind:
            mode(place / f"user-{os.geteuid()}", 0o777 if "open" in kind else 0o700)
    return place / "below" if "below" in kind else place


def mode(folder: Path, bits: int) -> Path:
    """A folder with a mode."""
    folder.mkdir()
    folder.chmod(bits)
    return folder


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        *((kind, "") for kind in ("absent", "a link", "0700", "1777", "1777 own part")),
        ("a file", "is not a folder"),
        ("a device", "can't be made: /dev/null is not a folder"),
        ("below a file", "is not a folder"),
        ("a link to nowhere", "is a symbolic link that leads nowhere"),
        ("below a link to itself", "is a symbolic link that leads nowhere"),
        ("0777", "can be written by other users (mode 777)"),
        ("1777 open own part", "can be written by other users (mode 777)"),
    ],
)
def test_the_doctor_and_a_load_agree_about_a_folder_that_was_named(tmp_path: Path, kind: str, says: str):
    folder = _make(tmp_path, kind)
    facts = LocalSystem().folder_facts(folder)
    assert says in facts.obstacle
    assert bool(facts.obstacle) == bool(says)
    with pytest.raises(CacheError) if says else nullcontext():
        folder_module.prepare_base(str(usable_cache_dir(Settings(cache_dir=folder), LocalSystem())))

    machine = healthy(BE_CACHE_DIR=str(folder))
    machine.folders[str(folder)] = facts._replace(executable=True, free_bytes=None)
    report = examine_machine(machine)
    assert report.exit_code == (2 if says else 0)
    refused = [finding for finding in report.findings if finding.status == "fail"]
    assert [says in finding.message and "BE_CACHE_DIR" in finding.message for finding in refused] == [True] * bool(says)
    assert [problem.code for problem in report.problems] == ["TC102"] * bool(says)


REPLACED = (
    "set BE_CACHE_DIR to another folder; python -m be_runtime cache path prints the private folder that loads use "
    "instead"
)


def test_the_usual_folder_is_replaced_by_the_runtime_so_that_it_is_a_warning(tmp_path: Path):
    machine = healthy(HOME="/home/me")
    machine.folders["/home/me/.cache/brainevent-toolchain"] = LocalSystem().folder_facts(_make(tmp_path, "0777"))
    report = examine_machine(machine)
    assert report.exit_code == 0
    (warned,) = (finding for finding in report.findings if finding.status == "warn")
    assert (warned.subject, warned.next_step) == ("cache folder", REPLACED)


def test_the_home_folder_is_the_user_databases_unless_it_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("HOME", raising=False)
    path = LocalSystem({}).folder_facts(Path("~/.cache/x")).path
    assert path.is_absolute()
    assert "~" not in str(path)
    monkeypatch.setenv("HOME", "relative")
    facts = LocalSystem({}).folder_facts(Path("~/.cache/x"))
    assert facts.obstacle == "is not absolute: the home folder is unknown"


def obstacle(folder: Path, **environ: str) -> str:
    return LocalSystem(environ).folder_facts(folder).obstacle


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(("bits", "refused"), [(0o777, True), (0o757, True), (0o1777, False), (0o755, False)])
def test_whoever_can_write_to_a_folder_above_is_told_of(open_place: Path, bits: int, refused: bool, exists: bool):
    above = mode(open_place / "above", bits)
    cache = mode(above / "mine", 0o755) / "cache"
    if exists:
        cache.mkdir(mode=0o700)
    facts = LocalSystem({}).folder_facts(cache)
    says = f"can't be trusted: {above} can be written by other users (mode {bits:o})" if refused else ""
    assert (facts.obstacle, facts.doubtful) == (says, (above,) if refused else ())


def test_below_a_closed_folder_modes_do_not_count_but_on_a_way_out_of_it(open_place: Path):
    closed = mode(open_place / "closed", 0o700)
    cache = mode(closed / ".cache", 0o777) / "cache"
    assert not obstacle(cache)
    mode(open_place / "open", 0o777)
    (closed / "link").symlink_to("../open")
    assert f"{open_place}/open can be written" in obstacle(closed / "link" / "cache")
    mode(open_place / "open" / "cache", 0o700)
    (open_place / "link").symlink_to("open/cache")
    assert f"{open_place}/open can be written" in obstacle(open_place / "link")
    closed.chmod(0o711)
    assert f"{closed}/.cache can be written" in obstacle(cache)


@pytest.mark.parametrize("entry", ["{}/above", "{}/*", "*"])
def test_a_folder_that_the_user_vouches_for_is_passed(open_place: Path, entry: str):
    cache = mode(open_place / "above", 0o777) / "cache"
    assert obstacle(cache, BE_SAFE_FOLDERS=f"{open_place}/other")
    settings = open_place / "settings" / "be_toolchain"
    settings.mkdir(parents=True)
    (settings / "be-toolchain.toml").write_text("safe = 1")
    assert obstacle(cache, XDG_CONFIG_HOME=str(settings.parent)), "a file that is wrong vouches for nothing"
    assert not obstacle(cache, BE_SAFE_FOLDERS=entry.format(open_place))
    mode(cache, 0o777)
    assert obstacle(cache, BE_SAFE_FOLDERS=entry.format(open_place)).startswith("can be written")


def test_the_folders_above_the_accounts_home_do_not_count(open_place: Path, monkeypatch: pytest.MonkeyPatch):
    real = mode(open_place / "disk", 0o777) / "homes"
    home = mode(mode(real, 0o755) / "me", 0o755)
    (open_place / "home").symlink_to(real)
    assert obstacle(home / "cache")
    assert obstacle(home / "cache", HOME=str(home))  # a variable makes no account
    monkeypatch.setattr("be_toolchain.machine.trust.account_home", lambda: f"{open_place}/home/me")
    assert not obstacle(home / "cache")
    assert not obstacle(open_place / "home" / "me" / "cache")
    home.chmod(0o777)
    assert f"{home} can be written" in obstacle(home / "cache")


@needs_root
@pytest.mark.parametrize("kind", ["folder", "link"])
def test_what_another_user_owns_on_the_way_is_refused(open_place: Path, kind: str):
    (open_place / "real").mkdir()
    way = open_place / "way"
    way.mkdir() if kind == "folder" else way.symlink_to("real")
    os.chown(way, STRANGER, STRANGER, follow_symlinks=False)
    assert f"{way} {'belongs to' if kind == 'folder' else 'is a symbolic link made by'}" in obstacle(way / "cache")


_IN_A_CONTAINER = """
row = b"%d %d 1" % (os.geteuid(), os.geteuid())
libc = ctypes.CDLL(None)
libc.prctl(4, 1)  # PR_SET_DUMPABLE: /proc/self is the user's again
if libc.unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit("no user namespaces here")
place = os.open("/proc/self/uid_map", os.O_WRONLY)
os.write(place, row)
print(os.stat("/").st_uid)
for folder in sorted(os.listdir()):
    print(folder, local_system.LocalSystem({}).folder_facts(local_system.Path(folder).absolute() / "cache").obstacle)
"""


@needs_root
def test_in_a_container_of_a_user_the_machines_folders_are_nobodys(open_place: Path):
    """Root of the machine has no number there, and neither has a stranger."""
    mode(open_place / "open", 0o777)
    os.chown(mode(open_place / "mine", 0o755), ME, ME)
    done = run_as(ME, _IN_A_CONTAINER, open_place)
    if "no user namespaces" in done.stderr:
        pytest.skip("no user namespaces here")
    says = f"can't be trusted: {open_place}/open can be written by other users (mode 777)"
    assert done.stdout.splitlines() == ["65534", "mine ", f"open {says}"], done.stderr


def test_a_file_is_read_as_it_is_and_a_link_is_followed_where_people_make_some(tmp_path: Path):
    path = tmp_path / "a"
    for data in (b"", b"x" * LIMIT):
        path.write_bytes(data)
        assert read_regular(path, LIMIT) == data
    assert read_regular("/proc/self/comm", LIMIT).strip()  # whose size is 0
    (tmp_path / "b").symlink_to("a")
    assert read_regular(tmp_path / "b") == data
    with pytest.raises(OSError, match="symbolic links"):
        read_regular(tmp_path / "b", follows_link=False)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_such_file_is_refused_at_once(tmp_path: Path, kind: str):
    plant(tmp_path / "a", kind)
    wanted = {"pipe": "it is not a regular file", "gigabytes": "it is larger than 1 MiB", "folder": "Is a directory"}
    with refused_at_once(), pytest.raises(OSError, match=wanted[kind]) as caught:
        read_regular(tmp_path / "a", LIMIT)
    assert caught.value.filename == str(tmp_path / "a")
    assert isinstance(caught.value, NotRegularError) == (kind == "pipe")


def test_what_is_larger_than_it_said_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that grows while it is read, and a part of a zip."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * (LIMIT + 1))
    real = os.fstat
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", lambda descriptor: os.stat_result((*real(descriptor)[:6], 1, 0, 0, 0)))
        with pytest.raises(OSError, match="it is larger than 1 MiB"):
            read_regular(path, LIMIT)
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("small", b"x")
        archive.writestr("large", b"\0" * (LIMIT + 1))
    root = zipfile.Path(tmp_path / "a.zip")
    assert read_part(root / "small", LIMIT) == b"x"
    with pytest.raises(OSError, match="it is larger than 1 MiB"):
        read_part(root / "large", LIMIT)


@pytest.mark.parametrize("path", ["a\0b", "x" * 300, "/".join(["x" * 200] * 30), "\ud800"])
def test_what_can_not_be_a_path_is_an_error_of_the_system(path: str):
    with pytest.raises(OSError, match=r"not a path|too long"):
        read_regular(path)


def test_a_distrusted_file_is_not_read(tmp_path: Path):
    """Its owner and mode are judged before its kind."""
    path = plant(tmp_path / "a", "gigabytes")
    path.chmod(0o666)
    before = os.listdir("/proc/self/fd")
    with refused_at_once(), pytest.raises(PermissionError, match="it can be written by other users"):
        open_regular(path, judge=distrust_entry)
    assert len(os.listdir("/proc/self/fd")) == len(before)
    if os.geteuid() == 0:
        os.chown(plant(tmp_path / "b", "pipe"), STRANGER, STRANGER)
        with refused_at_once(), pytest.raises(PermissionError, match="it belongs to another user"):
            open_regular(tmp_path / "b", judge=distrust_entry)
