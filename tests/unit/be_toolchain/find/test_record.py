"""The record: used without a process while nothing that was looked at changed, and never trusted when damaged."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain import Toolchain, ToolchainRequest, errors, resolve, settings
from be_toolchain.find.record import KEPT_RECORDS, ObservingSystem, load_record, save_record
from be_toolchain.known import layouts
from be_toolchain.machine import files, local_system
from tests.support.machines import SITE, MemorySystem, cuda_of, healthy
from tests.support.requirements import OPTIONAL

CUDA = ToolchainRequest(need_cuda=True)


@pytest.fixture
def machine() -> MemorySystem:
    machine = healthy()
    machine.pip_cu13()
    return machine


def again(machine: MemorySystem, folder: Path, request: ToolchainRequest = CUDA) -> tuple[Toolchain, bool]:
    """Resolve once more; whether a program was run for it."""
    machine.commands.clear()
    toolchain = resolve(request, system=machine, record_dir=folder)
    return toolchain, bool(machine.commands)


def test_nothing_is_run_or_listed_when_nothing_changed(machine: MemorySystem, tmp_path: Path):
    first, searched = again(machine, tmp_path / "a" / "records")
    assert searched
    machine.listings.clear()
    second, searched = again(machine, tmp_path / "a" / "records")
    assert not searched
    assert machine.listings == []
    assert second == first
    assert (second.key_fields(), second.fingerprint) == (first.key_fields(), first.fingerprint)
    assert second._replace(cuda=None).key_fields() == first._replace(cuda=None).key_fields()
    assert first.fingerprint == resolve(CUDA, system=machine).fingerprint
    (record,) = (tmp_path / "a" / "records").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (record, record.parent)] == [0o600, 0o700]
    machine.write("/home/me/notes")
    change_environ("EDITOR", "vi")(machine)
    assert not again(machine, record.parent)[1], "what does not matter"


def change_environ(name: str, value: str) -> Callable[[MemorySystem], None]:
    def change(machine: MemorySystem) -> None:
        machine.environ = {**machine.environ, name: value}

    return change


def touch(path: str) -> Callable[[MemorySystem], None]:
    return lambda machine: machine.touch(path)


CU13 = f"{SITE}/nvidia/cu13"
CHANGES: dict[str, Callable[[MemorySystem], object]] = {
    "/usr/bin/g++": touch("/usr/bin/g++"),
    **{part: touch(f"{CU13}/bin/{part}") for part in ("nvcc", "ptxas", "nvcc.profile")},
    **{part: touch(f"{CU13}/nvvm/{part}") for part in ("bin/cicc", "libdevice/libdevice.10.bc")},
    **{part: touch(f"{CU13}/include/{part}") for part in ("crt/host_config.h", "cuda_runtime.h")},
    "the compiler behind g++": lambda m: m.write("/usr/lib/gcc/12.2.0/lto-wrapper"),
    "an upgraded component": lambda m: m.write(f"{SITE}/nvidia_nvvm-13.0.99.dist-info/METADATA"),
    "a compiler earlier on PATH": lambda m: m.gxx("/usr/local/bin/g++", "13.1.0"),
    "CUDA_HOME": change_environ("CUDA_HOME", "/usr/local/cuda"),
    "CPATH": change_environ("CPATH", "/opt/include"),
    "NVCC_APPEND_FLAGS": change_environ("NVCC_APPEND_FLAGS", "-O1"),
    "PATH": change_environ("PATH", "/usr/bin"),
    "another Python": lambda m: setattr(m, "prefixes", (Path("/other"),)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed(machine: MemorySystem, tmp_path: Path, name: str):
    again(machine, tmp_path)
    CHANGES[name](machine)
    toolchain, searched = again(machine, tmp_path)
    assert searched
    assert toolchain == resolve(CUDA, system=machine)


def test_a_better_place_that_appears_is_noticed(machine: MemorySystem, tmp_path: Path):
    machine.files = {path: file for path, file in machine.files.items() if not path.startswith(SITE)}
    machine.write(f"{SITE}/pip/__init__.py")
    assert cuda_of(machine, record_dir=tmp_path).found_via == "well-known folder"
    machine.pip_cu13()
    assert cuda_of(machine, record_dir=tmp_path).found_via == "pip wheels"


def test_each_request_has_its_own_record(machine: MemorySystem, tmp_path: Path):
    again(machine, tmp_path)
    toolchain, searched = again(machine, tmp_path, ToolchainRequest())
    assert searched
    assert toolchain.cuda is None
    assert not again(machine, tmp_path)[1]
    assert len(list(tmp_path.iterdir())) == 2


def damage_field(text: str) -> str:
    data = files.unseal(text)
    del data["toolchain"]["cuda"]["ptxas"]
    return files.seal(data)


DAMAGES: list[Callable[[str], str]] = [
    lambda text: text[: len(text) // 2],
    lambda text: text.replace("/ptxas", "/ptxar", 1),
    damage_field,
    *((lambda _, said=said: said) for said in ("", "null", "[]", "{}", "[" * 100_000)),
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_record_is_ignored_and_replaced(machine: MemorySystem, tmp_path: Path, damage: Callable[[str], str]):
    first, _ = again(machine, tmp_path)
    (record,) = tmp_path.iterdir()
    whole = record.read_text()
    record.write_text(damage(whole))
    assert record.read_text() != whole
    second, searched = again(machine, tmp_path)
    assert searched
    assert second == first
    assert not again(machine, tmp_path)[1]


def test_a_folder_that_cannot_be_written_is_no_error_and_errors_are_not_recorded(machine: MemorySystem, tmp_path: Path):
    (tmp_path / "file").write_text("not a folder")
    assert again(machine, tmp_path / "file" / "records")[0].cuda is not None
    with pytest.raises(errors.ToolchainError):
        resolve(CUDA, system=MemorySystem(), record_dir=tmp_path / "none")
    assert not (tmp_path / "none").exists()


class Watched(dict[str, str]):
    """Environment variables that remember which were read."""

    def __init__(self) -> None:
        super().__init__(PATH="/usr/bin")
        self.read: set[str] = set()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)


def test_every_variable_that_the_search_reads_is_part_of_the_record(machine: MemorySystem):
    watched = Watched()
    machine.environ = watched
    resolve(CUDA, system=machine)
    assert watched.read
    assert watched.read <= set(settings.RECORD_VARIABLES)


@pytest.mark.parametrize("name", layouts.COMPILE_VARIABLES)
def test_variables_that_change_a_compile_change_the_fingerprint(machine: MemorySystem, name: str):
    plain = resolve(CUDA, system=machine)
    change_environ(name, "/usr/bin/g++")(machine)
    changed = resolve(CUDA, system=machine)
    assert dict(changed.environment) == {name: "/usr/bin/g++"}
    assert changed.fingerprint != plain.fingerprint


def test_key_fields_have_unique_labels_and_hold_every_version(machine: MemorySystem):
    fields = resolve(CUDA, system=machine).key_fields()
    assert len(dict(fields)) == len(fields)
    values = " ".join(value for _, value in fields)
    parts = [text for each in cuda_of(machine).components for text in (each.version, str(each.path))]
    assert [text for text in (*parts, "Debian 12.2.0-14") if text not in values] == []


def test_old_records_are_pruned_and_other_files_stay(machine: MemorySystem, tmp_path: Path):
    for number in range(KEPT_RECORDS + 5):
        old = tmp_path / f"toolchain-{number}.json"
        old.write_text("{}")
        os.utime(old, (number, number))
    (tmp_path / "devices.json").write_text("{}")
    for name, age_s in ((".toolchain-x.json.killed", 7200), (".toolchain-y.json.writing", 1)):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (time.time() - age_s,) * 2)

    again(machine, tmp_path)
    left = {path.name for path in tmp_path.iterdir()}
    assert len([name for name in left if name.startswith("toolchain-")]) == KEPT_RECORDS
    assert {"devices.json", ".toolchain-y.json.writing"} <= left
    assert not {"toolchain-5.json", ".toolchain-x.json.killed"} & left
    assert not again(machine, tmp_path)[1]


@pytest.mark.parametrize("name", ["g++", "bin/g++"])
def test_an_edit_whose_modification_time_is_set_back_is_seen(tmp_path: Path, name: str):
    """As rsync, tar and cp -p do, of a file and of a folder that gets a new name."""
    (tmp_path / "g++").write_text("one")
    (tmp_path / "bin").mkdir()
    observed = ObservingSystem(local_system.LocalSystem())
    observed.stat(tmp_path / "g++")
    observed.list_dir(tmp_path / "bin")
    save_record(tmp_path / "records", [], Toolchain(cxx=None, cuda=None), observed)
    assert load_record(tmp_path / "records", [], local_system.LocalSystem()) is not None

    changed = (tmp_path / name).parent if "/" in name else tmp_path / name
    times = changed.stat()
    time.sleep(0.02)
    (tmp_path / name).write_text("two")
    os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))

    assert load_record(tmp_path / "records", [], local_system.LocalSystem()) is None


@pytest.mark.parametrize("kind", ["mine", "a stranger's", "a link", "a pipe"])
def test_only_a_record_of_the_users_own_is_believed(tmp_path: Path, kind: str):
    save_record(tmp_path, [], Toolchain(cxx=None, cuda=None), ObservingSystem(local_system.LocalSystem()))
    (record,) = tmp_path.iterdir()
    if kind == "a stranger's":
        if os.geteuid() != 0:
            pytest.skip(f"{OPTIONAL}root, to give files to another user")
        os.chown(record, 54321, 54321)
    elif kind != "mine":
        record.rename(tmp_path / "real")
        record.symlink_to("real") if kind == "a link" else os.mkfifo(record)
    assert (load_record(tmp_path, [], local_system.LocalSystem()) is not None) == (kind == "mine")


def test_what_was_edited_is_another_toolchain_also_where_its_version_stays(machine: MemorySystem, tmp_path: Path):
    seen = {resolve(CUDA, system=machine, record_dir=tmp_path).fingerprint}
    for path in ("/usr/bin/g++", f"{SITE}/nvidia/cu13/bin/nvcc", f"{SITE}/nvidia/cu13/bin/nvcc.profile"):
        machine.files[path].text += "\nedited"
        machine.touch(path)
        seen.add(resolve(CUDA, system=machine, record_dir=tmp_path).fingerprint)
    assert len(seen) == 4
    for last in ("exec g++ -DA", "exec g++ -DB"):
        machine.files["/usr/bin/g++"].text = "#!/bin/sh\n" + "#\n" * 50_000 + last
        machine.touch("/usr/bin/g++")
        seen.add(resolve(CUDA, system=machine, record_dir=tmp_path).fingerprint)
    assert len(seen) == 6
