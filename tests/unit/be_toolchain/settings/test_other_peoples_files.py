"""Files of a project that other users own, or could exchange: which of them count, and what is said of the others."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.cli import main as cli
from be_toolchain.errors import PreferenceError
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.store_paths import APP, FILE, user_file
from be_toolchain.machine.trust.folder_trust import distrusted_places
from be_toolchain.report.doctor import examine_machine
from be_toolchain.settings.configuration import PassedOver, PassedOverWarning, find_configuration, parse_configuration
from tests.support.accounts import ME, STRANGER, make, needs_root, open_place, run_as
from tests.support.machines import MemorySystem, healthy

__all__ = ["open_place"]  # a fixture

FOUND = """
found = configuration.find_configuration(local_system.LocalSystem(), print)
print("counts:", found and configuration.parse_configuration(found).cxx)
"""
EVIL = 'cxx = "./evil"\n'


def status(mode: int, uid: int, gid: int = 7) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


ROOTS = ("/", status(stat.S_IFDIR | 0o755, 0, 0))
TMP = ("/t", status(stat.S_IFDIR | 0o1777, 0, 0))


@pytest.mark.parametrize(
    ("trail", "says"),
    [
        ([("/p", status(0o40755, ME)), ("/p/f", status(0o100644, ME))], ""),
        ([("/p", status(0o40755, 0)), ("/p/f", status(0o100644, 0))], ""),
        ([("/p", status(0o40775, ME, ME)), ("/p/f", status(0o100664, ME, ME))], ""),  # the user's private group
        ([TMP, ("/t/f", status(0o100644, ME))], "/t/f is in a folder that other users may write to"),
        ([TMP, ("/t/f", status(0o100644, 0))], "/t/f is in a folder that other users may write to"),
        ([TMP, ("/t/p", status(0o40755, ME)), ("/t/p/f", status(0o100644, ME))], ""),
        ([TMP, ("/t/f", status(0o120777, ME)), ("/p", status(0o40755, ME)), ("/p/f", status(0o100644, ME))], ""),
        ([("/p", status(0o40755, STRANGER))], "/p belongs to another user"),
        ([("/p", status(0o41777, STRANGER))], "/p belongs to another user"),
        ([("/p", status(0o42775, 0))], "/p can be written by other users (mode 2775)"),
        ([("/p", status(0o40777, ME))], "/p can be written by other users (mode 777)"),
        ([("/p", status(0o40755, 0)), ("/p/f", status(0o100644, STRANGER))], "/p/f belongs to another user"),
        ([("/p", status(0o40755, ME)), ("/p/f", status(0o100666, ME))], "/p/f can be written by other users"),
        ([TMP, ("/t/f", status(0o100644, STRANGER))], "/t/f belongs to another user"),
        ([TMP, ("/t/f", status(0o120777, STRANGER))], "/t/f is a symbolic link made by another user"),
    ],
)
def test_whoever_could_exchange_a_file_has_to_be_trusted(trail: list[tuple[str, os.stat_result]], says: str):
    found = " ".join(next(distrusted_places([ROOTS, *trail], ME), ()))
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_the_folders_above_the_home_folder_are_the_administrators_choice():
    trail = [("/data", status(0o40775, 65534)), ("/data/me", status(0o40755, ME)), ("/data/me/f", status(0o100644, ME))]
    assert not list(distrusted_places(trail, ME, "/data/me"))
    assert list(distrusted_places(trail, ME, "/home/me")) == list(distrusted_places(trail, ME)) != []


def project(folder: Path = Path("/mnt/project")) -> MemorySystem:
    machine = MemorySystem(cwd=folder / "src")
    machine.environ = {**machine.environ, "HOME": "/root"}
    machine.write(f"{folder}/be-toolchain.toml", EVIL)
    machine.plant(str(folder))
    return machine


def passed_by(machine: MemorySystem) -> list[PassedOver]:
    told: list[PassedOver] = []
    assert find_configuration(machine, told.append) is None
    return told


def test_what_is_passed_over_is_said_with_the_setting():
    (told,) = passed_by(project())
    assert (
        told.reason == "/mnt/project/be-toolchain.toml is passed over: /mnt/project belongs to another user (uid 1001)"
    )
    assert "export BE_SAFE_FOLDERS=/mnt/project," in told.remedy
    assert 'safe = ["/mnt/project"] in /root/.config/be_toolchain/be-toolchain.toml' in told.remedy
    assert "\n" not in str(told)


def test_the_settings_that_are_printed_work():
    machine = project(Path("/mnt/my project"))
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": "/else"}
    (told,) = passed_by(machine)
    assert "export BE_SAFE_FOLDERS='/else:/mnt/my project'," in told.remedy
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": "/else:/mnt/my project"}
    assert find_configuration(machine) is not None
    machine = project(Path("/mnt/a:b"))
    (told,) = passed_by(machine)
    assert "BE_SAFE_FOLDERS" not in told.remedy
    machine.write("/root/.config/be_toolchain/be-toolchain.toml", told.remedy.partition(": ")[2].partition(" in ")[0])
    assert find_configuration(machine) is not None


@pytest.mark.parametrize(
    ("entry", "counts"),
    [
        ("*", True),
        ("/mnt/project", True),
        ("/mnt/project/", True),
        ("/mnt/*", True),
        ("/link", True),
        ("/mnt", False),
        ("/mnt/proj*", False),
        ("/mnt/project/src", False),
        ("project", False),
        (".", False),
        ("", False),
        ("~/project", False),
    ],
)
def test_what_an_entry_stands_for(entry: str, counts: bool):
    machine = project()
    machine.link("/link", "/mnt/project")
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": entry}
    assert (find_configuration(machine) is not None) == counts
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": ""}
    machine.write("/root/.config/be_toolchain/be-toolchain.toml", f"safe = [{entry!r}]")
    assert (find_configuration(machine) is not None) == counts


def test_the_users_own_file_is_named_only_where_it_would_be_believed():
    machine = project()
    machine.write("/root/.config/other/settings")
    machine.plant("/root/.config")
    (told,) = passed_by(machine)
    assert told.remedy == "if you trust whoever can write there: export BE_SAFE_FOLDERS=/mnt/project"


def test_home_in_an_entry():
    machine = project(Path("/root/project"))
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": "/x:~/project"}
    assert find_configuration(machine) is not None


def test_without_a_home_its_entries_stand_for_nothing():
    machine = project()
    for entry in ("~/*", "~/mnt/*", "~"):
        machine.environ = {"HOME": "", "BE_SAFE_FOLDERS": entry}
        assert len(passed_by(machine)) == 1


def test_the_users_own_file_is_only_believed_if_it_is_theirs_and_only_read_when_it_is_needed():
    own = "/root/.config/be_toolchain/be-toolchain.toml"
    machine = project()
    machine.write(own, 'safe = ["*"]')
    machine.plant(own)
    assert len(passed_by(machine)) == 1
    machine.planted.remove(own)
    for text in ("safe = ", 'safe = "*"', "safe = [1]", 'cxx = "g++"'):
        machine.write(own, text)
        with pytest.raises(PreferenceError, match=own) as caught:
            find_configuration(machine)
        assert caught.value.hints
    machine.planted.clear()
    assert find_configuration(machine) is not None


def test_the_users_own_file_is_in_the_folder_of_settings():
    assert user_file({"HOME": "/home/ada"}) == Path("/home/ada/.config", APP, FILE)
    assert user_file({"HOME": "/home/ada", "XDG_CONFIG_HOME": "/settings"}) == Path("/settings", APP, FILE)
    assert user_file({}) is None


def test_a_file_further_up_that_is_the_users_counts_instead():
    machine = project()
    machine.planted.clear()
    machine.write("/mnt/project/src/pyproject.toml", "[tool.be-toolchain]\n")
    machine.plant("/mnt/project/src/pyproject.toml")
    told: list[PassedOver] = []
    found = find_configuration(machine, told.append)
    assert found is not None
    assert found.path == Path("/mnt/project/be-toolchain.toml")
    assert len(told) == 1


def test_a_load_warns_and_the_doctor_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    machine = healthy()
    machine.cwd = Path("/mnt/project")
    machine.write("/mnt/project/be-toolchain.toml", 'cxx = "/nowhere/evil"')
    machine.plant("/mnt/project")
    for _ in range(2):  # also from the record
        with pytest.warns(PassedOverWarning, match="BE_SAFE_FOLDERS=/mnt/project"):
            resolve(ToolchainRequest(), system=machine, record_dir=tmp_path)
    (line,) = (row for row in examine_machine(machine).findings if row.subject == "project file")
    assert line.status == "warn"
    assert "/mnt/project belongs to another user" in line.message
    assert "BE_SAFE_FOLDERS=/mnt/project" in line.next_step
    assert cli.main(["doctor", "--json"], system=machine) == 0
    assert line.message in [row["message"] for row in json.loads(capsys.readouterr().out)["findings"]]


def test_a_link_to_the_users_own_file_starts_relative_programs_at_the_real_one(tmp_path: Path, chdir: None):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "wishes.toml").write_text('cxx = "tools/g++"\ncuda-home = "cuda"')
    (tmp_path / "be-toolchain.toml").symlink_to("real/wishes.toml")
    found = find_configuration(LocalSystem())
    assert found is not None
    assert found.path == tmp_path / "be-toolchain.toml"
    wishes = parse_configuration(found)
    assert (wishes.cxx, wishes.cuda_home) == (str(tmp_path / "real/tools/g++"), str(tmp_path / "real/cuda"))


@pytest.fixture
def chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")


@pytest.mark.parametrize("name", ["be-toolchain.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "folder", "dangling", "itself"])
def test_what_is_no_file_is_no_project_file(tmp_path: Path, chdir: None, name: str, kind: str):
    path = tmp_path / name
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            os.mknod(path, 0o600 | stat.S_IFSOCK)
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to("gone")
        case _:
            path.symlink_to(name)
    assert find_configuration(LocalSystem()) is None


@pytest.mark.parametrize("name", ["be-toolchain.toml", "pyproject.toml"])
def test_a_huge_file_is_passed_over_in_no_time(tmp_path: Path, chdir: None, name: str):
    with (tmp_path / name).open("w") as file:
        file.write("[tool.be-toolchain]\n")
        file.truncate(1 << 40)
    told: list[PassedOver] = []
    assert find_configuration(LocalSystem(), told.append) is None
    assert "larger than 1 MiB" in told[0].reason


def test_a_pipe_is_not_read(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert LocalSystem().read_text(tmp_path / "pipe") is None
    assert LocalSystem().read_text(Path("/dev/zero")) is None


@needs_root
@pytest.mark.parametrize(
    ("folder", "file", "says"),
    [
        ((STRANGER, 0o755), (STRANGER, 0o644), "belongs to another user"),
        ((STRANGER, 0o2775), (STRANGER, 0o644), "belongs to another user"),
        ((STRANGER, 0o755), (ME, 0o644), "belongs to another user"),
        ((ME, 0o2775), (STRANGER, 0o644), "be-toolchain.toml belongs to another user"),
        ((0, 0o1777), (STRANGER, 0o644), "be-toolchain.toml belongs to another user"),
        ((0, 0o1777), (STRANGER, 0o600), "be-toolchain.toml belongs to another user"),
        ((0, 0o777), (ME, 0o644), "can be written by other users"),
        ((0, 0o1777), (ME, 0o644), "is in a folder that other users may write to"),
        ((0, 0o755), (0, 0o644), ""),
        ((ME, 0o755), (ME, 0o644), ""),
    ],
)
def test_two_users(open_place: Path, folder: tuple[int, int], file: tuple[int, int], says: str):
    shared = make(open_place / "shared", uid=folder[0], mode=folder[1])
    make(shared / "be-toolchain.toml", EVIL, uid=file[0], mode=file[1])
    mine = make(shared / "mine")
    done = run_as(ME, FOUND, mine)
    assert done.returncode == 0, done.stderr
    if not says:
        assert done.stdout == f"counts: {shared}/evil\n"
        return
    assert says in done.stdout
    assert done.stdout.endswith("counts: None\n")
    trusting = run_as(ME, FOUND, mine, BE_SAFE_FOLDERS=str(shared))
    if file[1] & 0o004:
        assert trusting.stdout == f"counts: {shared}/evil\n"


@needs_root
def test_a_file_that_a_stranger_moved_into_a_shared_folder(open_place: Path):
    """The stranger's folder gives away what others leave in it; a home folder below a shared one changes nothing."""
    theirs = make(open_place / "theirs", uid=STRANGER, mode=0o777)
    shared = make(open_place / "shared", uid=0, mode=0o1777)
    make(theirs / "left", EVIL)
    (theirs / "left").rename(shared / "be-toolchain.toml")
    mine = make(shared / "mine")
    for home in ("/nowhere", str(mine)):
        assert run_as(ME, f"os.environ['HOME'] = {home!r}\n{FOUND}", mine).stdout.endswith("counts: None\n")
    make(mine / "be-toolchain.toml", EVIL)
    assert run_as(ME, FOUND, mine).stdout == f"counts: {mine}/evil\n"


@needs_root
def test_root_with_a_mounted_project_has_to_say_so(open_place: Path):
    mounted = make(open_place / "mounted")
    make(mounted / "be-toolchain.toml", EVIL)
    assert run_as(0, FOUND, mounted).stdout.endswith("counts: None\n")
    assert run_as(0, FOUND, mounted, BE_SAFE_FOLDERS="*").stdout == f"counts: {mounted}/evil\n"


@needs_root
@pytest.mark.parametrize("target", ["theirs", "mine", "/etc/shadow", "pipe"])
def test_a_link_that_somebody_left_in_a_sticky_folder(open_place: Path, target: str):
    shared = make(open_place / "shared", uid=0, mode=0o1777)
    make(open_place / "theirs", EVIL, uid=STRANGER)
    make(open_place / "mine", EVIL)
    os.mkfifo(open_place / "pipe")
    (shared / "be-toolchain.toml").symlink_to(open_place / target)
    os.chown(shared / "be-toolchain.toml", STRANGER, STRANGER, follow_symlinks=False)
    done = run_as(ME, FOUND, make(shared / "work"))
    assert (done.returncode, done.stdout.endswith("counts: None\n")) == (0, True), done.stderr
    assert target == "pipe" or "is a symbolic link made by another user" in done.stdout


@needs_root
def test_my_own_link_to_what_cannot_be_read_ends_no_load(open_place: Path):
    make(open_place / "secret", EVIL, uid=0, mode=0o600)
    mine = make(open_place / "mine")
    (mine / "be-toolchain.toml").symlink_to(open_place / "secret")
    os.chown(mine / "be-toolchain.toml", ME, ME, follow_symlinks=False)
    done = run_as(ME, FOUND, mine)
    assert "which can't be read" in done.stdout
    assert done.stdout.endswith("counts: None\n")


@needs_root
def test_a_compiler_of_another_users_project_does_not_run(open_place: Path):
    """Loads and the doctor, as the issue describes it: the stranger's program would run as the user."""
    theirs = make(open_place / "theirs", uid=STRANGER)
    make(theirs / "be-toolchain.toml", EVIL, uid=STRANGER)
    make(theirs / "evil", f"#!/bin/sh\ntouch {open_place}/mine/pwned\n", uid=STRANGER)
    mine = make(open_place / "mine")
    code = """
for _ in 1, 2:
    print(resolver.resolve(system=local_system.LocalSystem()).cxx.path)
cli.main(["doctor"])
cli.main(["env"])
"""
    done = run_as(ME, code, theirs)
    assert not (mine / "pwned").exists()
    (line,) = (line for line in done.stderr.splitlines() if "BE_SAFE_FOLDERS" in line)
    assert f"export BE_SAFE_FOLDERS={theirs}" in line
    assert "project file" in done.stdout
    run_as(ME, code, theirs, BE_SAFE_FOLDERS=str(theirs))
    assert (mine / "pwned").exists()


def test_what_reads_like_the_table_inside_a_text_is_none(tmp_path: Path, chdir: None):
    table = '[tool.be-toolchain]\ncxx = "g++-13"\n'
    (tmp_path / "pyproject.toml").write_text(table)
    (tmp_path / "work" / "pyproject.toml").write_text(f'[project]\ndescription = """\n{table}"""\n')
    found = find_configuration(LocalSystem())
    assert found is not None
    assert found.path == tmp_path / "pyproject.toml"
    (tmp_path / "work" / "pyproject.toml").write_text(f'note = """\n{table}"""\n{table}')
    found = find_configuration(LocalSystem())
    assert found is not None
    assert parse_configuration(found).cxx == "g++-13"
    (tmp_path / "work" / "pyproject.toml").write_text(f'note = """\n{table}')
    with pytest.raises(PreferenceError, match="is no TOML"):
        parse_configuration(find_configuration(LocalSystem()))
