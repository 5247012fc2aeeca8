"""The store of managed toolchains, what a search makes of it, and what killed installations left in it."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.cli import main as cli
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.errors import HostCompilerNotFoundError, StoreError, UnsupportedHostCompilerError
from be_toolchain.install.apply import wipe
from be_toolchain.install.installers import check_wheel
from be_toolchain.install.managed import WORK, ManagedStore, find_dead, make_workplace, sweep_dead
from be_toolchain.machine.files import distrust_managed, find_managed, find_store, store_dir
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FolderFacts
from tests.support.accounts import STRANGER, make, needs_root, open_place
from tests.support.machines import MemorySystem, cuda_of, healthy, with_compiler

__all__ = ["open_place"]  # a fixture

WHEEL = (("nvidia-nvvm", "13.0.88"),)
HOME_STORE = "/home/ada/.local/share/be_toolchain/toolchains"


def fake_wheel(site: Path, name: str, version: str, files: dict[str, str]) -> None:
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    rows = []
    for path, text in files.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}\n")
    (info / "RECORD").write_text("".join(rows) + f"{info.name}/RECORD,,\n")


def publish(store: ManagedStore, name: str) -> None:
    with store.stage() as work:
        fake_wheel(work / "tree", *WHEEL[0], {"nvidia/cu13/nvvm/bin/cicc": "program"})
        store.publish(work / "tree", name, WHEEL)


def names(store: ManagedStore) -> list[str]:
    return [row.name for row in store.list()]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/ada"}, HOME_STORE),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "/data"}, "/data/be_toolchain/toolchains"),
        ({"HOME": "/home/ada", "XDG_DATA_HOME": "data"}, HOME_STORE),
        ({"HOME": "/home/ada", "BE_TOOLCHAINS_DIR": "/big/disk"}, "/big/disk"),
        ({}, None),
        ({"HOME": "relative"}, None),
    ],
)
def test_the_store_is_in_the_users_data_folder(environ: dict[str, str], folder: str | None):
    assert store_dir(environ) == (Path(folder) if folder else None)


def test_versions_stand_side_by_side_newest_first(tmp_path: Path):
    store = ManagedStore(tmp_path / "data" / "toolchains")
    assert names(store) == []
    assert not store.root.exists()
    for name in ("cuda-13.0.2", "zig-0.17.1", "cuda-13.10.0", "cuda-13.0.3"):
        publish(store, name)
    assert names(store) == ["cuda-13.10.0", "cuda-13.0.3", "cuda-13.0.2", "zig-0.17.1"]
    assert {path.stat().st_mode & 0o777 for path in (store.root, *store.root.iterdir())} == {0o700}
    assert store.find("13.0").name == "cuda-13.0.3"
    assert store.find("cuda-13.0.2").version == "13.0.2"
    assert [row.name for row in store.superseded()] == ["cuda-13.0.2"]
    store.select(store.find("13.0.2"))
    assert store.superseded() == ()
    assert store.find("13.0.2").selected
    named = "name one of these: cuda-13.10.0, cuda-13.0.3, cuda-13.0.2, zig-0.17.1"
    install = "python -m be_toolchain install --cuda 14.0 --into managed"
    empty = ManagedStore(tmp_path / "empty")
    for place, to_use, hints in ((store, False, (named,)), (store, True, (named, install)), (empty, False, ())):
        with pytest.raises(StoreError, match=r"no managed toolchain '14\.0'") as caught:
            place.find("14.0", to_use=to_use)
        assert caught.value.hints == hints


def test_a_pre_release_is_older_than_its_release(tmp_path: Path):
    store = ManagedStore(tmp_path)
    ordered = ["cuda-13.1.0.post1", "cuda-13.1.0", "cuda-13.1.0rc1", "cuda-13.1.0.dev3", "cuda-13.0.2", "cuda-mine"]
    for name in sorted(ordered):
        publish(store, name)
    assert names(store) == ordered
    assert list(find_managed(LocalSystem({"BE_TOOLCHAINS_DIR": str(tmp_path)}), "cuda-")) == ordered


def test_a_wheel_is_found_by_its_normalized_name_and_version(tmp_path: Path):
    fake_wheel(tmp_path, "Nvidia.NVVM", "13.1.0.RC1+Local_1", {"a": "1"})
    assert list(check_wheel(tmp_path, "nvidia-nvvm", "13.1.0rc1+local.1")) == []
    (found,) = check_wheel(tmp_path, "nvidia-nvvm", "13.1.0")
    assert "(found: Nvidia.NVVM-13.1.0.RC1+Local_1.dist-info)" in found


@pytest.mark.parametrize("record", [b"", b"\0" * 64, b"\xff\xfe", b"nvidia/cu13/nvvm/bin/cicc"])
def test_a_wheel_with_a_damaged_record_is_not_intact(record: bytes, tmp_path: Path):
    fake_wheel(tmp_path, *WHEEL[0], {"nvidia/cu13/nvvm/bin/cicc": "program"})
    (info,) = tmp_path.glob("*.dist-info")
    (info / "RECORD").write_bytes(record)
    (found,) = check_wheel(tmp_path, *WHEEL[0])
    assert found.startswith("nvidia-nvvm: no readable RECORD (it is damaged")
    wipe(tmp_path, ("nvidia-nvvm",))
    assert not info.exists()


def test_what_is_removed_or_fails_leaves_nothing(tmp_path: Path):
    store = ManagedStore(tmp_path)
    publish(store, "cuda-13.0.2")
    store.select(store.find("13.0"))
    store.remove(store.find("13.0"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StoreError), store.stage():
        raise StoreError("no room")
    assert list(tmp_path.iterdir()) == []


def test_the_second_of_two_builders_takes_the_firsts(tmp_path: Path):
    store = ManagedStore(tmp_path)
    with store.stage() as work:
        fake_wheel(work / "tree", *WHEEL[0], {"nvidia/cu13/nvvm/bin/cicc": "program"})
        publish(store, "cuda-13.0.2")
        inode = (tmp_path / "cuda-13.0.2").stat().st_ino
        store.publish(work / "tree", "cuda-13.0.2", WHEEL)
    assert (tmp_path / "cuda-13.0.2").stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir()] == ["cuda-13.0.2"]


def test_a_damaged_toolchain_is_replaced(tmp_path: Path):
    store = ManagedStore(tmp_path)
    publish(store, "cuda-13.0.2")
    (tmp_path / "cuda-13.0.2" / "nvidia" / "cu13" / "nvvm" / "bin" / "cicc").write_text("prog")
    assert len(store.damage(store.find("13.0"))) == 1
    publish(store, "cuda-13.0.2")
    assert store.damage(store.find("13.0")) == ()


def test_a_store_that_cannot_be_changed(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="BE_TOOLCHAINS_DIR"), ManagedStore(tmp_path / "file").stage():
        pass
    for name in ("file", "absent"):
        ManagedStore(tmp_path / name).select(None)  # there is nothing to forget
    (tmp_path / "selected").mkdir()
    with pytest.raises(StoreError, match="can't be changed"):
        ManagedStore(tmp_path).select(None)
    if os.getuid():
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match="can't be changed"), ManagedStore(tmp_path / "store").stage():
            pass


def test_wiping_takes_what_the_records_list_and_pips_stashes(tmp_path: Path):
    site = tmp_path / "site"
    fake_wheel(site, "nvidia-nvvm", "13.5.37", {"nvidia/cu13/nvvm/bin/cicc": "new", "../outside": "not ours"})
    fake_wheel(site, "numpy", "2.0", {"numpy/core": "kept"})
    (site / "nvidia_cuda_crt-13.5.37.dist-info").mkdir()
    (site / "nvidia" / "cu13" / "~vvm").mkdir(parents=True)
    (site / "~vidia_nvvm-13.0.88.dist-info").mkdir()
    wipe(site, ("nvidia-nvvm", "nvidia-cuda-crt"))
    assert sorted(path.name for path in site.rglob("*") if path.is_file()) == ["RECORD", "core"]
    assert (tmp_path / "outside").exists()
    assert not [path for path in site.rglob("*") if "vidia_" in path.name or path.name.startswith("~")]
    assert list(check_wheel(site, "numpy", "2.0")) == []


def test_a_managed_cxx_is_for_machines_without_another_and_never_for_nvcc():
    made = with_compiler(HOME="/home/ada")
    zig = f"{HOME_STORE}/zig-0.17.1"
    made.gxx(f"{zig}/bin/clang++", "22.1.8", "clang")
    made.write(f"{zig}/toolchain.json", "{}")
    for path, family, via in (("/usr/bin/g++", "gcc", "PATH"), (f"{zig}/bin/clang++", "clang", "managed")):
        found = resolve(system=made).cxx
        assert found is not None
        assert (str(found.path), found.family, found.found_via) == (path, family, via)
        made.files.pop("/usr/bin/g++", None)
    made.runfile("/usr/local/cuda")
    with pytest.raises(UnsupportedHostCompilerError, match="libc\\+\\+"):
        resolve(ToolchainRequest(need_cuda=True), system=made)
    closed(made, HOME_STORE, "can be written by other users (mode 777)")
    with pytest.raises(HostCompilerNotFoundError, match="can be written by other users"):
        resolve(system=made)


def closed(made: MemorySystem, path: str, obstacle: str) -> None:
    made.folders[path] = FolderFacts(path=Path(path), standing=Path(path), obstacle=obstacle)


@pytest.mark.parametrize(
    ("level", "obstacle"),
    [
        ("", "can be written by other users (mode 777)"),
        ("/cuda-13.0.2", "can be written by other users (mode 777)"),
        ("", "belongs to another user (uid 1001)"),
    ],
)
def test_programs_of_a_store_that_others_can_change_do_not_run(level: str, obstacle: str, tmp_path: Path):
    """A record does not outlive the trust in a store."""
    made = healthy(HOME="/home/ada")
    made.pip_cu13(f"{HOME_STORE}/cuda-13.0.2")
    made.write(f"{HOME_STORE}/cuda-13.0.2/toolchain.json", "{}")
    made.selects("cuda-13.0.2")
    root = Path(f"{HOME_STORE}/cuda-13.0.2/nvidia/cu13")
    assert cuda_of(made).root == cuda_of(made, record_dir=tmp_path).root == root
    closed(made, f"{HOME_STORE}{level}", obstacle)
    found = (cuda_of(made, record_dir=None if level else tmp_path), cuda_of(made))
    assert [str(each.root) for each in found] == ["/usr/local/cuda"] * 2
    told = [row.message for row in examine_machine(made).findings if obstacle in row.message]
    assert HOME_STORE in told[0]


@pytest.mark.parametrize("words", ["list", "use 13.0", "prune", "install --host-compiler"])
def test_commands_refuse_a_store_that_others_can_write(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str):
    tmp_path.chmod(0o777)
    assert cli.main(words.split(), system=LocalSystem({"BE_TOOLCHAINS_DIR": str(tmp_path), "PATH": "/nowhere"})) == 1
    told = capsys.readouterr().err
    assert f"{tmp_path} can be written by other users (mode 777)" in told
    assert "chmod -R go-w" in told


def test_in_a_folder_for_all_users_each_has_a_store(tmp_path: Path):
    tmp_path.chmod(0o1777)
    system = LocalSystem({"BE_TOOLCHAINS_DIR": str(tmp_path)})
    own = tmp_path / f"user-{os.geteuid()}"
    assert find_store(system) == (own, "")
    publish(ManagedStore(own), "cuda-13.0.2")
    assert find_managed(system, "cuda-") == ("cuda-13.0.2",)
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o770)
    assert "can be written by other users" in find_store(system).problem
    assert find_managed(system, "cuda-") == ()


@needs_root
def test_nothing_is_installed_where_another_user_could_exchange_it(open_place: Path):
    os.chown(make(open_place / "home"), STRANGER, STRANGER)
    with pytest.raises(StoreError, match=f"{open_place}/home belongs to another user") as caught:
        publish(ManagedStore(open_place / "home" / "data" / "toolchains"), "cuda-13.0.2")
    assert f"BE_SAFE_FOLDERS={open_place}/home" in "\n".join(caught.value.hints)
    assert not list((open_place / "home").iterdir())


@needs_root
def test_a_store_of_another_user_is_not_used(tmp_path: Path):
    publish(ManagedStore(tmp_path), "cuda-13.0.2")
    system = LocalSystem({"BE_TOOLCHAINS_DIR": str(tmp_path)})
    assert distrust_managed(system, tmp_path / "cuda-13.0.2") == ""
    os.chown(tmp_path / "cuda-13.0.2", STRANGER, STRANGER)
    assert "belongs to another user" in distrust_managed(system, tmp_path / "cuda-13.0.2")
    os.chown(tmp_path, STRANGER, STRANGER)
    assert "belongs to another user" in find_store(system).problem


HOLD = """
import sys
from pathlib import Path
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.managed import make_workplace
with ManagedStore(Path(sys.argv[1])).stage() as stage, make_workplace() as work:
    for folder in (stage, work):
        (folder / "tree").mkdir()
        (folder / "tree" / "wheel").write_bytes(bytes(3_000_000))
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return tmp_path / "tmp"


@pytest.fixture
def computer(tmp_path: Path, temporary: Path) -> MemorySystem:
    return with_compiler(BE_TOOLCHAINS_DIR=str(tmp_path / "store"))


def left(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "store").glob(".*"), *(tmp_path / "tmp").iterdir()]


def test_what_an_installer_holds_stays(tmp_path: Path, computer: MemorySystem, capsys: pytest.CaptureFixture[str]):
    """Until it is killed."""
    argv = [sys.executable, "-c", HOLD, str(tmp_path / "store")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as installer:
        assert installer.stdout is not None
        assert installer.stdout.readline() == "ready\n"
        cli.main(["prune"], system=computer)
        assert "removed" not in capsys.readouterr().err
        folders = left(tmp_path)
        assert len(folders) == 2
        installer.kill()
    cli.main(["prune"], system=computer)
    said = capsys.readouterr().err
    assert all(f"removed {folder} (3 MB), left by an interrupted installation\n" in said for folder in folders)
    assert left(tmp_path) == []


@pytest.mark.parametrize("words", ["list", "list --json", "prune", "install --dry-run", "doctor --json"])
def test_each_command_sweeps(tmp_path: Path, computer: MemorySystem, capsys: pytest.CaptureFixture[str], words: str):
    folders = [tmp_path / "store" / ".staging-x", tmp_path / "store" / ".removed-x", tmp_path / "tmp" / f"{WORK}x"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "lock").touch()
    cli.main(words.split(), system=computer)
    said = "".join(capsys.readouterr())
    if words == "doctor --json":
        rows = [row for row in json.loads(said)["findings"] if row["subject"] == "leftovers"]
        assert {row["status"] for row in rows} == {"note"}
    assert [folder for folder in folders if str(folder) not in said] == []
    assert left(tmp_path) == []
    cli.main(words.split(), system=computer)
    assert "left by an interrupted" not in "".join(capsys.readouterr())


def test_a_maker_that_was_killed_before_its_lock_and_one_that_was_killed_while_it_removed(temporary: Path):
    (temporary / f"{WORK}before").mkdir()
    with make_workplace() as folder:
        (folder / "file").touch()
        copy = temporary / f"{WORK}while"
        copy.mkdir()
        (copy / "lock").touch()
        assert find_dead(temporary) == (temporary / f"{WORK}before", copy)
        assert len(sweep_dead(find_dead(temporary))) == 2
        assert sweep_dead([copy]) == ()
        assert list(temporary.iterdir()) == [folder]
    assert list(temporary.iterdir()) == []
    with ManagedStore(temporary).stage():
        assert ManagedStore(temporary).leftovers() == ()


def test_what_is_not_an_installers_stays(temporary: Path):
    for name in (f"{WORK}notes", "be-toolchain", "other"):
        (temporary / name).mkdir()
        (temporary / name / "text").touch()
    (temporary / f"{WORK}link").symlink_to(temporary / "other")
    assert find_dead(temporary) == ()
    assert find_dead(temporary / "absent") == ()


@needs_root
def test_what_is_another_users_stays(temporary: Path):
    folders = [temporary / f"{WORK}{name}" for name in ("theirs", "empty")]
    for folder in folders:
        folder.mkdir()
        os.chown(folder, STRANGER, STRANGER)
    (folders[0] / "lock").touch()
    assert [*find_dead(temporary), *sweep_dead(folders)] == []
    assert len(list(temporary.iterdir())) == 2


def test_sweeping_at_every_moment_takes_no_folder_that_lives(temporary: Path):
    done = threading.Event()

    def sweep() -> None:
        while not done.is_set():
            sweep_dead(temporary.glob(f"{WORK}*"))

    with ThreadPoolExecutor(2) as sweepers:
        ends = [sweepers.submit(sweep) for _ in range(2)]
        try:
            for turn in range(100):
                with make_workplace() as folder:
                    (folder / "file").write_text(str(turn))
                    assert (folder / "file").read_text() == str(turn)
                    assert (folder / "lock").exists()
        finally:
            done.set()
    assert [end.result() for end in ends] == [None, None]
    assert list(temporary.iterdir()) == []
