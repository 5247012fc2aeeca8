"""Folders that others could exchange by way of a folder above them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_toolchain.machine.local_system import LocalSystem
from tests.support.accounts import ME, STRANGER, needs_root, open_place, run_as

__all__ = ["open_place"]  # a fixture


def obstacle(folder: Path, **environ: str) -> str:
    return LocalSystem(environ).folder_facts(folder).obstacle


def make(folder: Path, mode: int) -> Path:
    folder.mkdir()
    folder.chmod(mode)
    return folder


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o757, True), (0o1777, False), (0o755, False)])
def test_whoever_can_write_to_a_folder_above_could_exchange_the_cache(
    open_place: Path, mode: int, refused: bool, exists: bool
):
    above = make(open_place / "above", mode)
    cache = make(above / "mine", 0o755) / "cache"
    if exists:
        cache.mkdir(mode=0o700)
    facts = LocalSystem({}).folder_facts(cache)
    says = f"can't be trusted: {above} can be written by other users (mode {mode:o})" if refused else ""
    assert (facts.obstacle, facts.doubtful) == (says, (above,) if refused else ())


def test_below_a_folder_that_nobody_else_can_enter_modes_do_not_count(open_place: Path):
    home = make(open_place / "home", 0o700)
    cache = make(home / ".cache", 0o777) / "cache"
    assert not obstacle(cache)
    home.chmod(0o711)
    assert f"{home}/.cache can be written" in obstacle(cache)


def test_a_way_out_of_a_closed_folder_is_judged_again(open_place: Path):
    make(open_place / "open", 0o777)
    closed = make(open_place / "closed", 0o700)
    (closed / "link").symlink_to("../open")
    assert f"{open_place}/open can be written" in obstacle(closed / "link" / "cache")


def test_a_link_to_a_cache_is_judged_by_the_way_to_it_and_from_it(open_place: Path):
    make(make(open_place / "open", 0o777) / "cache", 0o700)
    (open_place / "link").symlink_to("open/cache")
    assert f"{open_place}/open can be written" in obstacle(open_place / "link")


@pytest.mark.parametrize("entry", ["{}/above", "{}/*", "*"])
def test_a_folder_that_the_user_vouches_for_is_passed(open_place: Path, entry: str):
    cache = make(open_place / "above", 0o777) / "cache"
    assert obstacle(cache, BE_SAFE_FOLDERS=f"{open_place}/other")
    assert not obstacle(cache, BE_SAFE_FOLDERS=entry.format(open_place))
    make(cache, 0o777)
    assert obstacle(cache, BE_SAFE_FOLDERS=entry.format(open_place)).startswith("can be written")


def test_a_settings_file_that_is_wrong_vouches_for_nothing(open_place: Path):
    settings = open_place / "settings"
    (settings / "be_toolchain").mkdir(parents=True)
    (settings / "be_toolchain" / "be-toolchain.toml").write_text("safe = 1")
    assert obstacle(make(open_place / "above", 0o777) / "cache", XDG_CONFIG_HOME=str(settings))


def test_the_folders_above_the_accounts_home_are_the_administrators_choice(
    open_place: Path, monkeypatch: pytest.MonkeyPatch
):
    real = make(open_place / "disk", 0o777) / "homes"
    home = make(make(real, 0o755) / "me", 0o755)
    (open_place / "home").symlink_to(real)
    assert obstacle(home / "cache")
    assert obstacle(home / "cache", HOME=str(home))  # a variable makes no account
    monkeypatch.setattr("be_toolchain.machine.trust.folder_trail.account_home", lambda: f"{open_place}/home/me")
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
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o777)
    (open_place / "mine").mkdir()
    os.chown(open_place / "mine", ME, ME)
    done = run_as(ME, _IN_A_CONTAINER, open_place)
    if "no user namespaces" in done.stderr:
        pytest.skip("no user namespaces here")
    says = f"can't be trusted: {open_place}/open can be written by other users (mode 777)"
    assert done.stdout.splitlines() == ["65534", "mine ", f"open {says}"], done.stderr
