from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.cache.folder.location import CacheWarning, temporary_dirs, usable_cache_dir
from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.store_paths import CACHE
from be_toolchain.machine.system import FolderFacts
from tests.support.accounts import open_place

__all__ = ["open_place"]  # a fixture

NOBODY = 65534


class Mounts(LocalSystem):
    """This machine, with some folders on file systems that are mounted noexec."""

    noexec: tuple[Path, ...] = ()

    def folder_facts(self, path: Path) -> FolderFacts:
        facts = super().folder_facts(path)
        return facts._replace(executable=not any(facts.standing.is_relative_to(folder) for folder in self.noexec))


class Place:
    """A user's folders."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home" / ".cache" / CACHE
        self.temporary = root / "tmp" / "app-1000"
        (root / "home").mkdir()
        (root / "tmp").mkdir()
        self.system = Mounts({"HOME": str(root / "home")})
        self.warnings: list[str] = []

    def choose(self, configured: Path | None = None) -> Path:
        """The folder, with all warnings recorded."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return usable_cache_dir(Settings(cache_dir=configured), self.system)
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    monkeypatch.setattr("be_runtime.cache.folder.location.temporary_dirs", lambda: (place.temporary,))
    return place


def test_the_usual_folder_is_chosen_and_not_made(place: Place):
    assert place.choose() == place.home
    assert not place.home.parent.exists()
    assert place.warnings == []


def test_the_configured_folder_is_chosen(place: Place, tmp_path: Path):
    assert place.choose(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()


def test_a_home_that_is_no_folder_falls_back_with_one_warning(place: Place, tmp_path: Path):
    (tmp_path / "home").rmdir()
    (tmp_path / "home").write_text("")
    assert place.choose() == place.temporary
    assert not place.temporary.exists()
    (warning,) = place.warnings
    assert str(place.home) in warning
    assert f"{tmp_path / 'home'} is not a folder" in warning
    assert str(place.temporary) in warning
    assert "BE_CACHE_DIR" in warning


def test_a_noexec_home_falls_back(place: Place, tmp_path: Path):
    place.system.noexec = (tmp_path / "home",)
    assert place.choose() == place.temporary
    assert "noexec" in place.warnings[0]
    assert "set BE_CACHE_DIR" in place.warnings[0]


def test_an_unknown_home_falls_back(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "relative")
    place.system.environ = {}
    assert place.choose() == place.temporary
    assert "home folder is unknown" in place.warnings[0]


def test_a_relative_variable_of_the_desktop_does_not_count(place: Place, tmp_path: Path):
    place.system.environ = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": "relative"}
    assert place.choose() == place.home


def test_an_open_usual_folder_falls_back(place: Place):
    place.home.mkdir(parents=True)
    place.home.chmod(0o777)
    assert place.choose() == place.temporary
    assert "can be written by other users" in place.warnings[0]


def test_an_unusable_configured_folder_is_an_error(place: Place, tmp_path: Path):
    (tmp_path / "file").write_text("")
    place.system.noexec = (tmp_path / "tmp",)
    for folder, reason in (
        (tmp_path / "file", "is not a folder"),
        (tmp_path / "file" / "x", "is not a folder"),
        (tmp_path / "tmp" / "x", "noexec"),
    ):
        with pytest.raises(CacheError, match=reason) as caught:
            place.choose(folder)
        assert str(folder) in caught.value.message
    assert place.warnings == []


@pytest.mark.parametrize("name", ["$ORIGIN", "a/${LIB}", "x$PLATFORM-y"])
def test_a_name_that_the_loader_replaces_is_refused(place: Place, tmp_path: Path, name: str):
    """dlopen would look elsewhere for what is built there."""
    with pytest.raises(CacheError, match=r"holds \$.* the dynamic loader"):
        place.choose(tmp_path / name)
    assert place.choose(tmp_path / "$LIBRARY") == tmp_path / "$LIBRARY"


def test_a_configured_relative_folder_is_below_the_working_folder(place: Place):
    assert place.choose(Path("cache")) == Path.cwd() / "cache"


@pytest.mark.parametrize("squat", ["file", "link", "open"])
def test_a_fallback_that_is_not_ours_alone_is_refused(place: Place, tmp_path: Path, squat: str):
    place.system.noexec = (tmp_path / "home",)
    if squat == "file":
        place.temporary.write_text("")
    elif squat == "link":
        (tmp_path / "target").mkdir(mode=0o700)
        place.temporary.symlink_to(tmp_path / "target")
    else:
        place.temporary.mkdir()
        place.temporary.chmod(0o775)
    with pytest.raises(CacheError, match="no folder can hold the cache") as caught:
        place.choose()
    assert str(place.home) in caught.value.message
    assert str(place.temporary) in caught.value.message
    assert place.warnings == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
def test_a_fallback_of_another_user_is_refused(place: Place):
    place.system.noexec = (place.home.parents[1],)
    place.temporary.mkdir(mode=0o700)
    os.chown(place.temporary, NOBODY, NOBODY)
    with pytest.raises(CacheError, match=rf"belongs to another user \(uid {NOBODY}\)"):
        place.choose()


def test_the_fallbacks_are_named_like_the_usual_folder(place: Place):
    assert place.home.name == "brainevent-toolchain"
    assert all(folder.name == f"brainevent-toolchain-{os.geteuid()}" for folder in temporary_dirs())


def test_without_a_temporary_folder_the_usual_names_are_still_looked_at(monkeypatch: pytest.MonkeyPatch):
    def none() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", none)
    assert [str(folder.parent) for folder in temporary_dirs()] == ["/tmp", "/var/tmp"]  # noqa: S108


def test_a_named_folder_below_one_that_all_may_write_to_is_refused_with_what_to_do(place: Place, open_place: Path):
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o777)
    with pytest.raises(CacheError, match=f"{open_place}/open can be written by other users") as caught:
        place.choose(open_place / "open" / "cache")
    assert any(f"export BE_SAFE_FOLDERS={open_place}/open" in hint for hint in caught.value.hints)
    place.system.environ = {"BE_SAFE_FOLDERS": f"{open_place}/open"}
    assert place.choose(open_place / "open" / "cache") == open_place / "open" / "cache"


def test_a_home_below_a_folder_that_all_may_write_to_falls_back(place: Place, open_place: Path):
    (open_place / "open").mkdir()
    (open_place / "open").chmod(0o777)
    place.system.environ = {"HOME": f"{open_place}/open/home"}
    assert place.choose() == place.temporary
    assert f"{open_place}/open can be written by other users (mode 777); using {place.temporary}" in place.warnings[0]
    assert f"export BE_SAFE_FOLDERS={open_place}/open" in place.warnings[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give files to another user")
@pytest.mark.parametrize("account", ["home", ""])
def test_another_users_home_gets_no_cache(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: str):
    """The command sudo may leave HOME as it was."""
    monkeypatch.setattr("be_toolchain.machine.trust.folder_trail.account_home", lambda: account and f"{tmp_path}/own")
    (tmp_path / "own").mkdir()
    os.chown(tmp_path / "home", NOBODY, NOBODY)
    assert place.choose() == (tmp_path / "own" / ".cache" / CACHE if account else place.temporary)
    assert f"{tmp_path}/home belongs to another user (uid {NOBODY}); using " in place.warnings[0]
    assert not list((tmp_path / "home").iterdir())
    os.chown(tmp_path / "own", NOBODY, NOBODY)
    assert place.choose() == place.temporary


_ON_A_NOEXEC_MOUNT = """
import subprocess, sys
sys.path[:0] = eval(sys.argv[2])
from pathlib import Path
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
folder = Path(sys.argv[1])
assert LocalSystem().folder_facts(folder).executable
subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", str(folder)], check=True)
assert not LocalSystem().folder_facts(folder / "cache").executable
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount")
def test_a_noexec_mount_is_seen(tmp_path: Path):
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    subprocess.run(
        ["unshare", "-m", sys.executable, "-c", _ON_A_NOEXEC_MOUNT, str(tmp_path), repr(sys.path)],
        check=True,
        timeout=60,
    )


def test_the_warning_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("be_runtime.cache.folder.location.temporary_dirs", lambda: (tmp_path / "t",))

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            usable_cache_dir(Settings(), LocalSystem({"HOME": str(tmp_path / "file")}))
    assert [item.category for item in shown] == [CacheWarning]


# All is imported first: the other user may not be able to read the interpreter's files.
_AS_NOBODY = """
import os, sys
sys.path[:0] = eval(sys.argv[4])
os.environ["HOME"] = sys.argv[2]
os.environ["TMPDIR"] = sys.argv[3]
os.environ.pop("XDG_CACHE_HOME", None)
import warnings
from pathlib import Path
from be_runtime.cache.folder.location import temporary_dirs, usable_cache_dir
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
temporary_dirs()
uid = int(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
warnings.simplefilter("always")
print(usable_cache_dir(Settings(), LocalSystem()))
try:
    usable_cache_dir(Settings(cache_dir=Path(sys.argv[2], "mine")), LocalSystem())
except Exception as error:
    print(type(error).__name__, error.message)
"""


def test_a_read_only_home_of_a_real_user(tmp_path: Path, run_as_user: Callable[..., str]):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o555)
    writable = tmp_path / "tmp"
    writable.mkdir()
    writable.chmod(0o1777)
    output = run_as_user(home, writable)
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert f"{writable}/brainevent-toolchain-{uid}\n" in output
    assert f"{home} can't be written" in output
    assert "CacheError" in output


@pytest.mark.parametrize("home", ["/", "/nonexistent", ""])
def test_a_user_of_a_container_without_a_home_has_a_cache(tmp_path: Path, run_as_user: Callable[..., str], home: str):
    if os.geteuid() != 0 and home != "/nonexistent":
        pytest.skip("needs root, to act as a user without a home")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    uid = NOBODY if os.geteuid() == 0 else os.geteuid()
    assert f"{tmp_path / 'tmp' / CACHE}-{uid}" in run_as_user(home, tmp_path / "tmp").splitlines()


@pytest.fixture
def run_as_user(tmp_path: Path) -> Callable[..., str]:
    """Run `_AS_NOBODY` in a process of a user for whom permissions hold, which root is not."""
    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)

    def run(home: str | Path, temporary: Path) -> str:
        return subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, str(NOBODY), str(home), str(temporary), repr(sys.path)],
            check=True,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=60,
            cwd="/",
        ).stdout

    return run
