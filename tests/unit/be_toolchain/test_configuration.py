"""A project's settings file: where it is looked for, that a record follows it, and whose files count."""

from __future__ import annotations

import os
import stat
from contextlib import nullcontext
from pathlib import Path

import platformdirs
import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.errors import PreferenceError
from be_toolchain.machine.files import APP, CACHE, FILE, placed_file, placed_store, store_dir, user_file, usual_cache
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import distrusted_places
from be_toolchain.settings import (
    KEYS,
    Configuration,
    ConfigurationFile,
    PassedOver,
    PassedOverWarning,
    find_configuration,
    parse_configuration,
    parse_preferences,
)
from tests.support.accounts import ME, STRANGER, make, needs_root, open_place, run_as
from tests.support.machines import MemorySystem, cuda_of, healthy

__all__ = ["open_place"]  # a fixture

ALL = """
nvcc = "tools/nvcc"
cxx = "g++-13"
host-cxx = "/usr/bin/g++-12"
cuda-home = "cuda"
prefer = ["system", "pip"]
allow-unsupported-compiler = true
remote-cache = "https://cache.example.org"
"""


def parse(text: str, name: str = "be-toolchain.toml") -> Configuration:
    return parse_configuration(ConfigurationFile(path=Path("/project") / name, text=text))


def test_every_key_is_read_and_relative_paths_start_at_the_file():
    read = ("/project/tools/nvcc", "g++-13", "/usr/bin/g++-12", "/project/cuda", ("system", "pip"), True)
    for name, text in (("be-toolchain.toml", ALL), ("pyproject.toml", f"[tool.be-toolchain]{ALL}")):
        assert parse(text, name) == Configuration(Path("/project", name), *read, "https://cache.example.org")
    assert all(f"{key} =" in ALL for key in KEYS)


@pytest.mark.parametrize(
    "text", ["nvcc = 1", "prefer = [1]", "prefer = 2", f"nvcc = {'[' * 5000}", f"nvcc = {'9' * 5000}"]
)
def test_what_means_nothing_is_refused_with_the_file(text: str):
    with pytest.raises(PreferenceError, match=r"/project/be-toolchain\.toml") as caught:
        parse(text)
    assert caught.value.hints


def test_a_variable_beats_the_file_and_the_file_beats_the_rest():
    wishes = parse(ALL)
    preferences = parse_preferences({"BE_CXX": "clang++", "BE_ALLOW_UNSUPPORTED_COMPILER": "0"}, wishes)
    assert preferences.cxx == ("BE_CXX", "clang++")
    assert preferences.nvcc == ("nvcc in /project/be-toolchain.toml", "/project/tools/nvcc")
    assert not preferences.allow_unsupported_compiler
    assert preferences.groups[:3] == ("path", "system", "pip")
    assert parse_preferences({"CUDA_HOME": "/sw"}, wishes).homes[0] == ("CUDA_HOME", "/sw")
    with pytest.raises(PreferenceError, match="prefer in /project"):
        parse_preferences({}, parse('prefer = ["newest"]'))


@pytest.fixture
def chdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")


TABLE = '[tool.be-toolchain]\ncxx = "g++-13"\n'


@pytest.mark.parametrize(
    ("inner", "place"),
    [
        ('[project.scripts]\nbe-toolchain = "x"\n', "."),
        (f'[project]\ndescription = """\n{TABLE}"""\n', "."),
        (f'note = """\n{TABLE}"""\n{TABLE}', "a/b"),
        (f'note = """\n{TABLE}', None),
    ],
)
def test_what_reads_like_the_table_inside_a_text_is_none(inner: str, place: str | None, tmp_path: Path, chdir: None):
    (tmp_path / "a/b/pyproject.toml").write_text(inner)
    (tmp_path / "pyproject.toml").write_text('[tool.other]\n\n[ tool . "be-toolchain" ]\ncxx = "g++-13"\n')
    found = find_configuration(LocalSystem())
    assert found is not None
    with pytest.raises(PreferenceError, match="is not TOML") if place is None else nullcontext():
        assert parse_configuration(found) == Configuration(tmp_path / str(place) / "pyproject.toml", cxx="g++-13")


def test_no_working_folder(chdir: None):
    Path.cwd().rmdir()
    system = LocalSystem()
    assert (system.cwd, find_configuration(system)) == (None, None)


def test_a_record_follows_the_file(tmp_path: Path):
    machine = healthy()
    machine.cwd = Path("/project/pkg")
    machine.runfile("/sw/cuda")

    def root() -> str:
        machine.commands.clear()
        return str(cuda_of(machine, record_dir=tmp_path).root)

    assert root() == "/usr/local/cuda"
    machine.write("/project/be-toolchain.toml", 'cuda-home = "/sw/cuda"')
    assert root() == "/sw/cuda"
    assert root() == "/sw/cuda"
    assert machine.commands == []
    machine.write("/project/be-toolchain.toml", "")
    assert root() == "/usr/local/cuda"
    del machine.files["/project/be-toolchain.toml"]
    assert root() == "/usr/local/cuda"
    assert machine.commands == []


def test_a_file_that_cannot_be_read_is_not_left_out_without_a_word():
    machine = MemorySystem(cwd=Path("/project/src"))
    machine.write("/project/be-toolchain.toml", 'cxx = "g++-13"')
    machine.unreadable.add("/project/be-toolchain.toml")
    with pytest.raises(PreferenceError, match=r"/project/be-toolchain.toml can't be read") as caught:
        find_configuration(machine)
    assert "chmod +r" in caught.value.hints[0]
    machine.plant("/project/be-toolchain.toml")
    assert find_configuration(machine) is None


EVIL = 'cxx = "./evil"\n'
OWN = "/root/.config/be_toolchain/be-toolchain.toml"


def status(mode: int, uid: int, gid: int = 7) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


TMP = ("/t", status(stat.S_IFDIR | 0o1777, 0, 0))
MINE, ROOTS = ("/p", status(0o40755, ME)), ("/p", status(0o40755, 0))


@pytest.mark.parametrize(
    ("trail", "says"),
    [
        ([MINE, ("/p/f", status(0o100644, ME))], ""),
        ([ROOTS, ("/p/f", status(0o100644, 0))], ""),
        ([("/p", status(0o40775, ME, ME)), ("/p/f", status(0o100664, ME, ME))], ""),  # the user's private group
        ([TMP, ("/t/f", status(0o100644, ME))], "/t/f is in a folder that other users may write to"),
        ([TMP, ("/t/f", status(0o100644, 0))], "/t/f is in a folder that other users may write to"),
        ([TMP, ("/t/p", status(0o40755, ME)), ("/t/p/f", status(0o100644, ME))], ""),
        ([TMP, ("/t/f", status(0o120777, ME)), MINE, ("/p/f", status(0o100644, ME))], ""),
        ([("/p", status(0o40755, STRANGER))], "/p belongs to another user"),
        ([("/p", status(0o41777, STRANGER))], "/p belongs to another user"),
        ([("/p", status(0o42775, 0))], "/p can be written by other users (mode 2775)"),
        ([("/p", status(0o40777, ME))], "/p can be written by other users (mode 777)"),
        ([ROOTS, ("/p/f", status(0o100644, STRANGER))], "/p/f belongs to another user"),
        ([MINE, ("/p/f", status(0o100666, ME))], "/p/f can be written by other users"),
        ([TMP, ("/t/f", status(0o100644, STRANGER))], "/t/f belongs to another user"),
        ([TMP, ("/t/f", status(0o120777, STRANGER))], "/t/f is a symbolic link made by another user"),
    ],
)
def test_whoever_could_exchange_a_file_has_to_be_trusted(trail: list[tuple[str, os.stat_result]], says: str):
    found = " ".join(next(distrusted_places([("/", status(stat.S_IFDIR | 0o755, 0, 0)), *trail], ME), ()))
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_the_folders_above_the_home_folder_are_the_administrators_choice():
    trail = [("/data", status(0o40775, 65534)), ("/data/me", status(0o40755, ME)), ("/data/me/f", status(0o100644, ME))]
    assert not list(distrusted_places(trail, ME, "/data/me"))
    assert list(distrusted_places(trail, ME, "/home/me")) == list(distrusted_places(trail, ME)) != []


def project(folder: str = "/mnt/project", **environ: str) -> MemorySystem:
    """A machine whose working folder is in another user's project."""
    machine = MemorySystem(cwd=Path(folder, "src"))
    machine.environ = {**machine.environ, "HOME": "/root", **environ}
    machine.write(f"{folder}/be-toolchain.toml", EVIL)
    machine.plant(folder)
    return machine


def passed_by(machine: MemorySystem) -> PassedOver:
    told: list[PassedOver] = []
    assert find_configuration(machine, told.append) is None
    (one,) = told
    return one


def test_what_is_passed_over_is_said_with_the_settings_that_work():
    told = passed_by(project())
    reason = "/mnt/project/be-toolchain.toml is ignored: /mnt/project belongs to another user (uid 1001)"
    assert told.reason == reason
    assert "export BE_SAFE_FOLDERS=/mnt/project," in told.remedy
    assert f'safe = ["/mnt/project"] in {OWN}' in told.remedy
    assert "\n" not in str(told)

    told = passed_by(project("/mnt/my project", BE_SAFE_FOLDERS="/else"))
    assert "export BE_SAFE_FOLDERS='/else:/mnt/my project'," in told.remedy
    assert find_configuration(project("/mnt/my project", BE_SAFE_FOLDERS="/else:/mnt/my project")) is not None
    machine = project("/mnt/a:b")
    told = passed_by(machine)
    assert "BE_SAFE_FOLDERS" not in told.remedy
    machine.write(OWN, told.remedy.partition(": ")[2].partition(" in ")[0])
    assert find_configuration(machine) is not None

    machine = project()  # whose user has no settings that would be believed
    machine.write("/root/.config/other/settings")
    machine.plant("/root/.config")
    assert (
        passed_by(machine).remedy == "if you trust everybody who can write there: export BE_SAFE_FOLDERS=/mnt/project"
    )


@pytest.mark.parametrize(
    ("entry", "counts"),
    [
        *((entry, True) for entry in ("*", "/mnt/project", "/mnt/project/", "/mnt/*", "/link", "~/../mnt/project")),
        *((entry, False) for entry in ("/mnt", "/mnt/proj*", "/mnt/project/src", "project", ".", "", "~/project")),
    ],
)
def test_what_an_entry_stands_for(entry: str, counts: bool):
    machine = project(BE_SAFE_FOLDERS=f"/x:{entry}")
    machine.link("/link", "/mnt/project")
    assert (find_configuration(machine) is not None) == counts
    machine.environ = {**machine.environ, "BE_SAFE_FOLDERS": ""}
    machine.write(OWN, f"safe = [{entry!r}]")
    assert (find_configuration(machine) is not None) == counts


def test_home_in_an_entry():
    assert find_configuration(project("/root/project", BE_SAFE_FOLDERS="/x:~/project")) is not None
    for entry in ("~/*", "~/mnt/*", "~"):
        assert passed_by(project(HOME="", BE_SAFE_FOLDERS=entry))


@pytest.mark.parametrize("named", ["/fast", "/fast/", "relative", ""])
def test_the_users_folders_are_where_platformdirs_has_them(named: str, monkeypatch: pytest.MonkeyPatch):
    environ = {"HOME": "/home/ada"} | dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), named)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert store_dir(environ) == placed_store(os.environ) == platformdirs.user_data_path(APP) / "toolchains"
    assert user_file(environ) == placed_file(os.environ) == platformdirs.user_config_path(APP) / FILE
    assert usual_cache(environ) == platformdirs.user_cache_path(CACHE)


def test_the_users_own_file_is_only_believed_if_it_is_theirs_and_only_read_when_it_is_needed():
    machine = project()
    machine.write(OWN, 'safe = ["*"]')
    machine.plant(OWN)
    assert passed_by(machine)
    machine.planted.remove(OWN)
    for text in ("safe = ", 'safe = "*"', "safe = [1]", 'cxx = "g++"'):
        machine.write(OWN, text)
        with pytest.raises(PreferenceError, match=OWN) as caught:
            find_configuration(machine)
        assert caught.value.hints
    machine.planted.clear()
    assert find_configuration(machine) is not None
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
    assert (found.path, len(told)) == (Path("/mnt/project/be-toolchain.toml"), 1)


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


def test_a_link_to_the_users_own_file_starts_relative_programs_at_the_real_one(tmp_path: Path, chdir: None):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "wishes.toml").write_text('cxx = "tools/g++"\ncuda-home = "cuda"')
    (tmp_path / "be-toolchain.toml").symlink_to("real/wishes.toml")
    found = find_configuration(LocalSystem())
    assert found is not None
    cxx, cuda_home = f"{tmp_path}/real/tools/g++", f"{tmp_path}/real/cuda"
    assert parse_configuration(found) == Configuration(found.path, cxx=cxx, cuda_home=cuda_home)
    assert found.path == tmp_path / "be-toolchain.toml"


@pytest.mark.parametrize("name", ["be-toolchain.toml", "pyproject.toml"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "huge", "/dev/zero", "gone", "itself"])
def test_what_is_no_file_is_no_project_file(tmp_path: Path, chdir: None, name: str, kind: str):
    path = tmp_path / name
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            os.mknod(path, 0o600 | stat.S_IFSOCK)
        case "folder":
            path.mkdir()
        case "huge":
            path.write_text("[tool.be-toolchain]\n")
            os.truncate(path, 1 << 40)
        case _:
            path.symlink_to(name if kind == "itself" else kind)
    told: list[PassedOver] = []
    assert find_configuration(LocalSystem(), told.append) is None
    assert ["larger than 1 MiB" in each.reason for each in told] == [True] * (kind == "huge")
    if kind in ("pipe", "/dev/zero"):
        assert LocalSystem().read_text(path) is None


def looked(uid: int, *folders: Path, **environ: str) -> list[str]:
    """What is said in each folder, and which compiler is named by the file that counts there."""
    code = f"""
for folder in {list(map(str, folders))!r}:
    os.chdir(folder)
    told = []
    found = configuration.find_configuration(local_system.LocalSystem(), told.append)
    print(*(each.reason for each in told), "counts:", found and configuration.parse_configuration(found).cxx)
"""
    done = run_as(uid, code, folders[0], **environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_root
def test_links_and_files_that_somebody_left_in_a_sticky_folder(open_place: Path):
    """A stranger's folder gives away what others leave in it; a user's own link to what can't be read ends no load."""
    make(open_place / "theirs", EVIL, uid=STRANGER)
    make(open_place / "mine", EVIL)
    make(open_place / "secret", EVIL, uid=0, mode=0o600)
    os.mkfifo(open_place / "pipe")
    folders, says = [], []
    made_by_another = "is a symbolic link made by another user"
    for uid, target, reason in (
        (STRANGER, "theirs", made_by_another),
        (STRANGER, "mine", made_by_another),
        (STRANGER, "/etc/shadow", made_by_another),
        (STRANGER, "pipe", ""),
        (ME, "secret", "which can't be read"),
    ):
        shared = make(open_place / f"to-{Path(target).name}", uid=0, mode=0o1777)
        (shared / "be-toolchain.toml").symlink_to(open_place / target)
        os.chown(shared / "be-toolchain.toml", uid, uid, follow_symlinks=False)
        folders.append(make(shared / "work"))
        says.append(reason)
    moved = make(open_place / "moved", uid=0, mode=0o1777)
    theirs = make(open_place / "open", uid=STRANGER, mode=0o777)
    make(theirs / "left", EVIL)
    (theirs / "left").rename(moved / "be-toolchain.toml")
    mine = make(moved / "mine")
    lines = looked(ME, *folders, mine)
    assert [each for each, line in zip(says, lines, strict=False) if each not in line] == []
    assert [line for line in lines if not line.endswith("counts: None")] == []
    at_home = f"os.environ['HOME'] = {str(mine)!r}\nprint(configuration.find_configuration(local_system.LocalSystem()))"
    assert run_as(ME, at_home, mine).stdout == "None\n", "a home folder below a shared one changes nothing"
    make(mine / "be-toolchain.toml", EVIL)
    assert looked(ME, mine) == [f"counts: {mine}/evil"]
    assert looked(0, mine)[0].endswith("counts: None"), "root with a mounted project has to say so"
    assert looked(0, mine, BE_SAFE_FOLDERS="*") == [f"counts: {mine}/evil"]


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
