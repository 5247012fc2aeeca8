"""The cache's folder: where it is, that others can put nothing in it, and file systems unlike a disk of one's own."""

from __future__ import annotations

import os
import stat
import warnings
from pathlib import Path

import pytest

from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_runtime.store.cache import Cache
from be_runtime.store.folder import CacheWarning, temporary_dirs, usable_cache_dir
from be_toolchain.machine.files import CACHE
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FolderFacts
from tests.support.accounts import STRANGER, needs_root, open_place
from tests.support.mounts import run_in_mounts
from tests.support.runtime import run_python
from tests.unit.be_runtime.store.cache.conftest import Bench

__all__ = ["open_place"]  # a fixture

ME = os.geteuid()
OWN = f"user-{ME}"
OTHERS = "can be written by other users"


def require_refused(bench: Bench, words: str) -> CacheError:
    """Every use of the store is refused; return the last error."""
    store, rebuild = bench.store, lambda: bench.make(force=True)
    for use in (lambda: store.get(bench.key), bench.make, rebuild, store.clear, store.entries, store.prune):
        with pytest.raises(CacheError, match=words) as caught:
            use()
    return caught.value


def put(path: Path, what: int | str, owner: int = ME) -> None:
    """Make a folder of a mode, a link to another path, or a file, which somebody owns."""
    if isinstance(what, int):
        path.mkdir(parents=True)
        path.chmod(what)
    elif what:
        path.symlink_to(what)
    else:
        path.touch()
    os.chown(path, owner, owner, follow_symlinks=False)


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([("", "", ME)], "/cache is not a folder"),
        ([("", 0o777, ME)], f"/cache {OTHERS}"),
        ([("", "open", ME)], f"/cache {OTHERS}"),
        ([("", 0o1777, ME), (OWN, "../closed", ME)], f"{OWN} is not a folder"),
        ([("", 0o1777, ME), (OWN, 0o777, ME)], f"{OWN} {OTHERS}"),
        ([("", 0o755, ME), ("kernels-v1", 0o777, ME)], f"kernels-v1 {OTHERS}"),
        pytest.param([("", 0o755, STRANGER)], rf"another user \(uid {STRANGER}\)", marks=needs_root),
        pytest.param([("", "closed", STRANGER)], "symbolic link made by", marks=needs_root),
        pytest.param([("", 0o1777, ME), (OWN, 0o755, STRANGER)], f"{OWN} belongs to", marks=needs_root),
        pytest.param([("", 0o755, ME), ("kernels-v1", 0o755, STRANGER)], "kernels-v1 belongs to", marks=needs_root),
    ],
)
def test_an_open_root_is_refused(bench: Bench, places: list[tuple[str, int | str, int]], words: str):
    """Also what was planted in it while it was open."""
    put(bench.folder / "open", 0o777)
    put(bench.folder / "closed", 0o700)
    for name, what, owner in places:
        put(bench.store.root / name, what, owner)
    error = require_refused(bench, words)
    assert "set BE_CACHE_DIR to a folder of your own" in error.hints
    refused = bench.store.root / places[-1][0]
    assert (f"or close it to others, with all in it: chmod -R go-w {refused}" in error.hints) == (OTHERS in words)
    assert not [*(bench.folder / "open").iterdir(), *(bench.folder / "closed").iterdir()]


def test_a_shared_sticky_root_gets_a_closed_folder_a_user(bench: Bench):
    put(bench.store.root, 0o1777)
    assert bench.make().path.is_relative_to(bench.store.root / OWN)
    assert stat.S_IMODE((bench.store.root / OWN).stat().st_mode) == 0o700
    assert bench.hit()
    assert bench.store.clear() == 1


def test_the_users_own_link_to_a_scratch_disk_is_followed(bench: Bench):
    put(bench.folder / "scratch", 0o700)
    put(bench.store.root, "scratch")
    assert bench.make().path.resolve().is_relative_to(bench.folder / "scratch")
    assert bench.hit()


def test_a_root_below_a_folder_that_all_may_write_to_is_refused_before_anything_is_made(bench: Bench, open_place: Path):
    above = open_place / "open"
    put(above, 0o777)
    bench.store = Cache(above / "cache")
    assert f"BE_SAFE_FOLDERS={above}" in f"{require_refused(bench, f'{above} {OTHERS}').hints}"
    assert not list(above.iterdir())
    above.chmod(0o755)
    assert bench.make().built


@needs_root
def test_a_manifest_of_another_user_is_not_believed(bench: Bench):
    os.chown(bench.make().path / "manifest.json", STRANGER, STRANGER)
    assert bench.is_missing()


class Mounts(LocalSystem):
    """This machine, with some folders on file systems that are mounted noexec."""

    noexec: tuple[Path, ...] = ()

    def folder_facts(self, path: Path) -> FolderFacts:
        facts = super().folder_facts(path)
        return facts._replace(executable=not any(facts.standing.is_relative_to(folder) for folder in self.noexec))


class Place:
    """A user's folders."""

    def __init__(self, root: Path) -> None:
        self.home, self.cache = root / "home", root / "home" / ".cache" / CACHE
        self.temporary = root / "tmp" / "app-1000"
        self.home.mkdir()
        self.temporary.parent.mkdir()
        self.system = Mounts({"HOME": str(self.home)})
        self.warnings: list[str] = []

    def choose(self, configured: Path | None = None) -> Path:
        """Return the folder, and record all warnings."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                return usable_cache_dir(Settings(cache_dir=configured), self.system)
            finally:
                self.warnings += [str(warning.message) for warning in caught]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    place = Place(tmp_path)
    monkeypatch.setattr("be_runtime.store.folder.temporary_dirs", lambda: (place.temporary,))
    return place


def test_the_usual_folder_or_the_configured_one_is_chosen_and_not_made(place: Place, tmp_path: Path):
    chosen = [place.choose(configured) for configured in (None, tmp_path / "a" / "b", Path("cache"))]
    assert chosen == [place.cache, tmp_path / "a" / "b", Path.cwd() / "cache"]
    place.system.environ = {"HOME": str(place.home), "XDG_CACHE_HOME": "relative"}
    assert place.choose() == place.cache, "the desktop's variable does not count"
    assert (place.warnings, os.listdir(place.home), (tmp_path / "a").exists()) == ([], [], False)


@pytest.mark.parametrize("problem", ["is not a folder", "is mounted noexec", "unknown"])
def test_a_bad_usual_folder_is_replaced_with_one_warning(place: Place, monkeypatch: pytest.MonkeyPatch, problem: str):
    says = {
        "is not a folder": f"{place.cache} can't be made: {place.home} is not a folder",
        "is mounted noexec": f"{place.cache} is mounted noexec: libraries built there can't be loaded",
        "unknown": f"~/.cache/{CACHE} is not absolute: the home folder is unknown",
    }[problem]
    if "noexec" in problem:
        place.system.noexec = (place.home,)
    elif problem == "unknown":
        monkeypatch.setenv("HOME", "relative")
        place.system.environ = {}
    else:
        place.home.rmdir()
        place.home.touch()
    assert place.choose() == place.temporary
    assert not place.temporary.exists()
    choice = "set BE_CACHE_DIR to a folder of your own that can be written and is not mounted noexec"
    assert place.warnings == [f"the cache folder {says}; using {place.temporary} instead. To choose: {choice}"]
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            usable_cache_dir(Settings(), place.system)
    assert [item.category for item in shown] == [CacheWarning], "it is shown once"


def test_an_unusable_configured_folder_is_an_error(place: Place, tmp_path: Path):
    (tmp_path / "file").touch()
    place.system.noexec = (tmp_path / "tmp",)
    for name, reason in (("file", "is not a folder"), ("file/x", "is not a folder"), ("tmp/x", "noexec")):
        with pytest.raises(CacheError, match=rf"{tmp_path / name}.* {reason}"):
            place.choose(tmp_path / name)
    for name in ("$ORIGIN", "a/${LIB}", "x$PLATFORM-y"):  # dlopen would look elsewhere for what is built there
        with pytest.raises(CacheError, match=r"holds \$.* the dynamic loader"):
            place.choose(tmp_path / name)
    assert place.choose(tmp_path / "$LIBRARY") == tmp_path / "$LIBRARY"
    assert place.warnings == []


@pytest.mark.parametrize(
    ("what", "owner"), [("", ME), ("../home", ME), (0o775, ME), pytest.param(0o700, STRANGER, marks=needs_root)]
)
def test_a_fallback_that_is_not_ours_alone_is_refused(place: Place, what: int | str, owner: int):
    place.system.noexec = (place.home,)
    put(place.temporary, what, owner)
    with pytest.raises(CacheError, match=rf"no folder can hold the cache:\n  {place.cache} .*\n  {place.temporary} "):
        place.choose()
    assert place.warnings == []


def test_the_fallbacks_are_named_like_the_usual_folder(place: Place, monkeypatch: pytest.MonkeyPatch):
    """Also without a temporary folder."""

    def none() -> str:
        raise FileNotFoundError

    assert place.cache.name == "brainevent-toolchain"
    monkeypatch.setattr("tempfile.gettempdir", none)
    assert list(map(str, temporary_dirs())) == [f"{above}/brainevent-toolchain-{ME}" for above in ("/tmp", "/var/tmp")]  # noqa: S108


def test_a_folder_below_one_that_all_may_write_to_is_refused_with_what_to_do(place: Place, open_place: Path):
    above = open_place / "open"
    put(above, 0o777)
    with pytest.raises(CacheError, match=f"{above} {OTHERS}"):
        place.choose(above / "cache")
    place.system.environ = {"BE_SAFE_FOLDERS": str(above)}
    assert place.choose(above / "cache") == above / "cache"
    place.system.environ = {"HOME": f"{above}/home"}
    assert place.choose() == place.temporary
    assert f"{above} {OTHERS} (mode 777); using {place.temporary}" in place.warnings[0]
    assert f"export BE_SAFE_FOLDERS={above}" in place.warnings[0]


@needs_root
@pytest.mark.parametrize("account", ["home", ""])
def test_another_users_home_gets_no_cache(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, account: str):
    """The command sudo may leave HOME as it was."""
    monkeypatch.setattr("be_toolchain.machine.trust.account_home", lambda: account and f"{tmp_path}/own")
    (tmp_path / "own").mkdir()
    os.chown(place.home, STRANGER, STRANGER)
    assert place.choose() == (tmp_path / "own" / ".cache" / CACHE if account else place.temporary)
    assert f"{place.home} belongs to another user (uid {STRANGER}); using " in place.warnings[0]
    assert not list(place.home.iterdir())
    os.chown(tmp_path / "own", STRANGER, STRANGER)
    assert place.choose() == place.temporary


_ON_MOUNTS = """
import os, subprocess, sys
sys.path[:0] = eval(sys.argv[1])
from pathlib import Path
from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.folder import usable_cache_dir
from be_runtime.store.keys import make_key
from be_runtime.errors import CacheError
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
def build(staging):
    (staging / "m.so").write_bytes(b"x" * 10_000)
    return BuildOutput(outputs=("m.so",))
def key(number): return make_key("module", ("name", f"n{number}"))
def run(command): subprocess.run(command.split(), check=True)
for number in range(4): Cache(Path("t/lower/cache")).get_or_build(key(number), build)
run("mount -t overlay overlay -o lowerdir=t/lower,upperdir=t/upper,workdir=t/work top")
store = Cache(Path("top/cache"))
for info in list(store.entries())[:2]: os.utime(f"{info.path}/manifest.json", (0, 0))
print(store.prune(max_age_days=90), len(list(store.entries())))
store.get_or_build(key(9), build)
print(store.clear(), list(store.entries()), store.get_or_build(key(1), build).built)
run("umount top")
run("mount -o remount,ro t")
store = Cache(usable_cache_dir(Settings(cache_dir=Path("t/lower/cache")), LocalSystem()))
print(store.get(key(0)) is not None, store.get_or_build(key(1), build).built, len(list(store.entries())))
for act in (store.clear, store.prune, lambda: store.get_or_build(key(5), build)):
    try: act()
    except CacheError as error: print("Read-only file system" in error.message)
run("mount -o remount,noexec t")
print([LocalSystem().folder_facts(Path(name, "x").absolute()).executable for name in (".", "t")])
"""


def test_a_cache_on_file_systems_unlike_a_disk_of_ones_own(tmp_path: Path):
    """On an overlay, folders of the lower layer, a container's image, can't be renamed; a read-only one serves."""
    mount = "mkdir t top; mount -t tmpfs none t; mkdir t/lower t/upper t/work"
    said = run_in_mounts(tmp_path, mount, _ON_MOUNTS).splitlines()
    assert said == ["True 2", "3 [] True", "True False 4", *["True"] * 3, "[True, False]"]


# All is imported first: the other user may not be able to read the interpreter's files.
_AS_A_USER = """
import os, sys, warnings
from pathlib import Path
from be_runtime.store.folder import temporary_dirs, usable_cache_dir
from be_runtime.settings import Settings
from be_toolchain.machine.local_system import LocalSystem
uid, os.environ["TMPDIR"], *homes = sys.argv[1:]
os.environ.pop("XDG_CACHE_HOME", None)
temporary_dirs()
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(uid)); os.setuid(int(uid))
warnings.simplefilter("always")
for os.environ["HOME"] in homes:
    print(usable_cache_dir(Settings(), LocalSystem()))
try:
    usable_cache_dir(Settings(cache_dir=Path(homes[0], "mine")), LocalSystem())
except Exception as error:
    print(type(error).__name__)
"""


def test_a_real_user_with_a_read_only_home_or_without_one_has_a_cache(open_place: Path):
    """Permissions don't hold for root, who becomes a user of a container without an account."""
    home, temporary = open_place / "home", open_place / "tmp"
    home.mkdir(mode=0o555)
    temporary.mkdir()
    temporary.chmod(0o1777)
    uid, homes = (STRANGER, ("/", "/nonexistent", "")) if ME == 0 else (ME, ("/nonexistent",))
    done = run_python(_AS_A_USER, str(uid), str(temporary), str(home), *homes, cwd=Path("/"))
    assert done.stdout.splitlines() == [f"{temporary}/{CACHE}-{uid}"] * (1 + len(homes)) + ["CacheError"]
    assert f"{home} can't be written" in done.stderr
