"""Folders, jax, the C library and settings of the runtime, as the real machine shows them, and the rules over them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from be_toolchain.doctor.doctor import examine_machine, render_report
from be_toolchain.find.coherence import (
    LEAST_ROOM_BYTES,
    find_bad_settings,
    find_cache,
    judge_folder,
    judge_jax,
    judge_room,
    probe_surroundings,
    temporary_dir,
)
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FolderFacts
from tests.support.accounts import ME, needs_root, open_place, run_as
from tests.support.machines import MemorySystem, healthy
from tests.support.requirements import OPTIONAL

__all__ = ["open_place"]  # a fixture

TMP = "/tmp"  # noqa: S108 - a name, nothing is written there
USUAL = "/home/me/.cache/brainevent-toolchain"


def test_a_folder_that_has_to_be_made_is_judged_by_what_stands(tmp_path: Path):
    facts = LocalSystem().folder_facts(tmp_path / "a" / "b")
    assert (facts.path, facts.standing, facts.writable) == (tmp_path / "a" / "b", tmp_path, True)
    assert facts.free_bytes is not None
    assert list(tmp_path.iterdir()) == []


def test_a_noexec_mount_is_noticed():
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    folders = [Path(row[1]) for row in rows if "noexec" in row[3].split(",") and Path(row[1]).is_dir()]
    if not folders:
        pytest.skip(f"{OPTIONAL}a noexec mount")
    assert not LocalSystem().folder_facts(folders[0]).executable


@pytest.mark.parametrize(
    ("environ", "cache", "temporary"),
    [
        ({}, USUAL, TMP),
        ({"XDG_CACHE_HOME": "/fast"}, "/fast/brainevent-toolchain", TMP),
        ({"XDG_CACHE_HOME": "rel"}, USUAL, TMP),
        ({"BRAINEVENT_CACHE_DIR": "/b", "TMPDIR": "/scratch"}, "/b", "/scratch"),
        ({"BE_CACHE_DIR": "/a", "BRAINEVENT_CACHE_DIR": "/b", "TMP": "/t"}, "/a", "/t"),
        ({"HOME": "", "BE_CACHE_DIR": "~/c"}, "~/.cache/brainevent-toolchain", TMP),
    ],
)
def test_which_folders(environ: dict[str, str], cache: str, temporary: str):
    environ = {"HOME": "/home/me", **environ}
    assert (str(find_cache(environ)[1]), str(temporary_dir(environ))) == (cache, temporary)


def test_jax_is_read_from_its_records():
    machine = MemorySystem()
    for name in ("jaxlib", "jax_cuda12_plugin", "jax_cuda12_pjrt"):
        machine.dist_info(name, "0.11.2")
    found = probe_surroundings(machine)
    assert (found.jaxlib, found.jax_plugins) == ("0.11.2", (("jax-cuda12-plugin", "0.11.2"),))


def test_folders_that_do_and_do_not():
    here, gone = Path("/a/b"), FolderFacts(path=Path("/gone"), standing=Path("/"))
    assert judge_folder("cache", FolderFacts(path=here, standing=here, free_bytes=LEAST_ROOM_BYTES), "x") == ()
    all_wrong = FolderFacts(path=here, standing=Path("/a"), writable=False, executable=False, free_bytes=0)
    messages = [row.message for judge in (judge_folder, judge_room) for row in judge("cache", all_wrong, "x")]
    assert len(messages) == 3
    assert "can't be made: /a can't be written" in messages[0]
    (row,) = judge_folder("cache", FolderFacts(path=Path("/a/$ORIGIN"), standing=Path("/a/$ORIGIN")), "x")
    assert "holds $ORIGIN, which the dynamic loader replaces" in row.message

    assert judge_folder("cache", gone, "x") == ()
    (row,) = judge_folder("temporary", gone, "x", keeps_libraries=False)
    assert row.message == "the temporary folder /gone does not exist: nvcc fails"
    shared = FolderFacts(path=here, standing=here, obstacle="can be written by other users (mode 777)")
    assert judge_folder("temporary", shared, "x", keeps_libraries=False) == ()


def test_a_jax_that_fits_is_no_news():
    plugin = (("jax-cuda13-plugin", "0.11.2"),)
    assert judge_jax("13.0", plugin, "0.11.2", has_gpu=True) == ()
    assert judge_jax("13.0", (), "", has_gpu=True) == ()
    assert judge_jax("13.0", (), "0.11.2", has_gpu=False) == ()
    assert "needs driver" not in judge_jax("12.9", plugin, "0.11.2", has_gpu=True)[0].message


def test_the_doctor_counts_the_cache():
    machine = MemorySystem(environ={"BE_CACHE_DIR": "/c"})
    entry = f"/c/kernels-v1/ab/{'ab' * 32}"
    names = ("/1-2/m.so", "/1-2/manifest.json", "/3-4/m.so", ".lock")
    for path in (*(entry + name for name in names), "/c/kernels-v1/staging/x/build/m.so"):
        machine.write(path, "x" * 2**19)
    assert probe_surroundings(machine).cached == (2, 3 * 2**19, 4096)
    lines = {each.subject: each.message for each in examine_machine(machine).findings}
    assert lines["cache"] == "/c, 2 entries, 1.5 of at most 4096 MiB"
    machine.environ = {"BE_CACHE_DIR": "/c", "BE_CACHE_MAX_SIZE_MIB": "7"}
    assert probe_surroundings(machine).cached.limit_mib == 7


@pytest.mark.parametrize(("has_entry", "exit_code", "status"), [(True, 0, "warn"), (False, 2, "fail")])
def test_a_named_cache_that_can_not_be_written_serves_its_entries(has_entry: bool, exit_code: int, status: str):
    machine = healthy(BE_CACHE_DIR="/c")
    machine.folders["/c"] = FolderFacts(path=Path("/c"), standing=Path("/c"), writable=False)
    if has_entry:
        machine.write(f"/c/kernels-v1/ab/{'ab' * 32}/1-2/m.so")
    report = examine_machine(machine)
    assert report.exit_code == exit_code
    (finding,) = (each for each in report.findings if "can't be written" in each.message)
    assert finding.status == status


LOOK = """
from be_toolchain.doctor.doctor import _report_cache
from be_toolchain.find.coherence import probe_surroundings
from pathlib import Path
for name in {names!r}:
    system = local_system.LocalSystem({{"BE_CACHE_DIR": name, "HOME": "/nonexistent"}})
    finding = _report_cache(probe_surroundings(system))
    print(system.folder_facts(Path(name)).writable, finding.status, finding.message)
"""


@needs_root
def test_a_folder_that_a_user_can_not_look_into_is_no_defect_and_the_doctor_says_so(open_place: Path):
    names = [str(open_place / name) for name in ("open", "half", "closed", "closed/below")]
    for name in names:
        Path(name, "kernels-v1").mkdir(parents=True)
    for name in (f"{names[1]}/kernels-v1", names[2]):
        Path(name).chmod(0o700)
    done = run_as(ME, LOOK.format(names=names), open_place)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"False ok {names[0]}, 0 entries")
    for name, line in zip(names[1:], lines[1:], strict=True):
        assert line.startswith(f"False warn {name} can't be read by this user")


@pytest.mark.skipif(os.getuid() == 0, reason=f"{OPTIONAL}not to be root, who may write anywhere")
def test_a_folder_that_cannot_be_written_is_noticed(tmp_path: Path):
    tmp_path.chmod(0o555)
    assert not LocalSystem().folder_facts(tmp_path / "cache").writable
    tmp_path.chmod(0o755)


def test_the_doctor_names_every_setting_with_which_nothing_can_be_loaded():
    report = examine_machine(healthy(BE_COMPUTE_CAPABILITIES="ninety", BE_MAX_JOBS="many"))
    text = render_report(report)
    assert report.exit_code == 2
    assert "BE_COMPUTE_CAPABILITIES is 'ninety'" in text
    assert text.count("BE_MAX_JOBS is 'many', expected a whole number above 0") == 1
    assert "next: unset BE_MAX_JOBS" in text
    assert text.endswith("With these settings neither C++ nor CUDA builds can work here.")
    assert [problem.code for problem in report.problems] == ["TC102", "TC102"]

    report = examine_machine(healthy(BE_NVCC_PREFER="moon", BE_MAX_JOBS="many"))  # one that stops the search
    assert [finding.message.split()[0] for finding in report.findings] == ["BE_NVCC_PREFER", "BE_MAX_JOBS"]

    report = examine_machine(healthy(BE_CACHE_DIR="~/c"))
    failed = [finding.message for finding in report.findings if finding.status == "fail"]
    assert failed == ["BE_CACHE_DIR is '~/c', expected a path without ~, since HOME is not set"]

    both = {"BE_COMPUTE_CAPABILITIES": "9.0", "BRAINEVENT_COMPUTE_CAPABILITIES": "ninety"}
    assert list(find_bad_settings(both)) == [], "the first counts"
