"""Folders, jax and the C library, as the real machine shows them, and the rules over them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FolderFacts
from be_toolchain.report.doctor import examine_machine
from be_toolchain.rules.coherence import LEAST_ROOM_BYTES, judge_folder, judge_jax, judge_room
from be_toolchain.rules.surroundings import find_cache, probe_surroundings, temporary_dir
from tests.support.accounts import needs_root, open_place
from tests.support.machines import MemorySystem
from tests.support.requirements import OPTIONAL

__all__ = ["open_place"]  # a fixture

ROOT = Path(__file__).parents[4]
TMP = "/tmp"  # noqa: S108 - a name, nothing is written there


def test_a_folder_that_has_to_be_made_is_judged_by_what_stands(tmp_path: Path):
    facts = LocalSystem().folder_facts(tmp_path / "a" / "b")
    assert (facts.path, facts.standing) == (tmp_path / "a" / "b", tmp_path)
    assert facts.writable
    assert facts.free_bytes is not None
    assert list(tmp_path.iterdir()) == []


def test_a_noexec_mount_is_noticed():
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    folders = [Path(row[1]) for row in rows if "noexec" in row[3].split(",") and Path(row[1]).is_dir()]
    if not folders:
        pytest.skip(f"{OPTIONAL}a noexec mount")
    assert not LocalSystem().folder_facts(folders[0]).executable


@pytest.mark.skipif(os.getuid() == 0, reason=f"{OPTIONAL}not to be root, who may write anywhere")
def test_a_folder_that_cannot_be_written_is_noticed(tmp_path: Path):
    tmp_path.chmod(0o555)
    assert not LocalSystem().folder_facts(tmp_path / "cache").writable
    tmp_path.chmod(0o755)


@pytest.mark.parametrize(
    ("environ", "cache", "temporary"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/brainevent-toolchain", TMP),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/brainevent-toolchain", TMP),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "rel"}, "/home/me/.cache/brainevent-toolchain", TMP),
        ({"BRAINEVENT_CACHE_DIR": "/b", "TMPDIR": "/scratch"}, "/b", "/scratch"),
        ({"BE_CACHE_DIR": "/a", "BRAINEVENT_CACHE_DIR": "/b", "TMP": "/t"}, "/a", "/t"),
        ({"BE_CACHE_DIR": "~/c"}, "~/.cache/brainevent-toolchain", TMP),
    ],
)
def test_which_folders(environ: dict[str, str], cache: str, temporary: str):
    assert (str(find_cache(environ)[1]), str(temporary_dir(environ))) == (cache, temporary)


def test_jax_is_read_from_its_records():
    machine = MemorySystem()
    for name in ("jaxlib", "jax_cuda12_plugin", "jax_cuda12_pjrt"):
        machine.dist_info(name, "0.11.2")
    found = probe_surroundings(machine)
    assert (found.jaxlib, found.jax_plugins, found.libc) == (
        "0.11.2",
        (("jax-cuda12-plugin", "0.11.2"),),
        "glibc 2.36",
    )


def test_folders_that_do_and_do_not():
    here = Path("/a/b")
    assert judge_folder("cache", FolderFacts(path=here, standing=here, free_bytes=LEAST_ROOM_BYTES), "x") == ()
    all_wrong = FolderFacts(path=here, standing=Path("/a"), writable=False, executable=False, free_bytes=0)
    messages = [row.message for judge in (judge_folder, judge_room) for row in judge("cache", all_wrong, "x")]
    assert len(messages) == 3
    assert "can't be made: /a can't be written" in messages[0]
    (row,) = judge_folder("cache", FolderFacts(path=Path("/a/$ORIGIN"), standing=Path("/a/$ORIGIN")), "x")
    assert "holds $ORIGIN, which the dynamic loader replaces" in row.message


def test_a_jax_that_fits_is_no_news():
    assert judge_jax("13.0", (("jax-cuda13-plugin", "0.11.2"),), "0.11.2", has_gpu=True) == ()
    assert judge_jax("13.0", (), "", has_gpu=True) == ()
    assert judge_jax("13.0", (), "0.11.2", has_gpu=False) == ()
    older = judge_jax("12.9", (("jax-cuda13-plugin", "0.11.2"),), "0.11.2", has_gpu=True)
    assert "needs driver" not in older[0].message


def test_compilers_need_a_temporary_folder_that_is_there():
    gone = FolderFacts(path=Path("/gone"), standing=Path("/"))
    assert judge_folder("cache", gone, "x") == ()
    (row,) = judge_folder("temporary", gone, "x", keeps_libraries=False)
    assert row.message == "the temporary folder /gone does not exist: nvcc fails"
    shared = FolderFacts(path=Path("/t"), standing=Path("/t"), obstacle="can be written by other users (mode 777)")
    assert judge_folder("temporary", shared, "x", keeps_libraries=False) == ()


AS_ANOTHER = """
import os, sys
from pathlib import Path
import be_toolchain.machine.trust.folder_trust
from be_toolchain.machine.local_system import LocalSystem
os.setgid(54321), os.setuid(54321)
facts = LocalSystem({}).folder_facts(Path(sys.argv[1]))
print(facts.writable)
"""


@pytest.mark.skipif(os.getuid() != 0, reason=f"{OPTIONAL}root, to become another user")
@pytest.mark.parametrize("below", ["", "cache", "cache/a/b"])
def test_a_folder_that_cannot_be_looked_into_is_no_defect(tmp_path: Path, below: str):
    closed = tmp_path / "closed"
    (closed / "cache").mkdir(parents=True)
    closed.chmod(0o700)
    command = [sys.executable, "-c", AS_ANOTHER, str(closed / below)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout == "False\n"


def test_the_doctor_counts_the_cache():
    machine = MemorySystem(environ={"BE_CACHE_DIR": "/c"})
    entry = f"/c/kernels-v1/ab/{'ab' * 32}"
    for path in (
        f"{entry}/1-2/m.so",
        f"{entry}/1-2/manifest.json",
        f"{entry}/3-4/m.so",
        f"{entry}.lock",
        "/c/kernels-v1/staging/x/build/m.so",
    ):
        machine.write(path, "x" * 2**19)
    assert probe_surroundings(machine).cached == (2, 3 * 2**19, 4096)
    lines = {each.subject: each.message for each in examine_machine(machine).findings}
    assert lines["cache"] == "/c, 2 entries, 1.5 of at most 4096 MiB"
    machine.environ = {"BE_CACHE_DIR": "/c", "BE_CACHE_MAX_SIZE_MIB": "7"}
    assert probe_surroundings(machine).cached.limit_mib == 7


COUNT_AS_ANOTHER = """
import os, sys
import be_toolchain.machine.trust.folder_trust, be_toolchain.cli.main, be_toolchain.machine.trust.folder_trail
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.report.doctor import _cache_finding
from be_toolchain.rules.surroundings import probe_surroundings
os.setgid(54321), os.setuid(54321)
finding = _cache_finding(probe_surroundings(LocalSystem({"BE_CACHE_DIR": sys.argv[1], "HOME": "/nonexistent"})))
print(finding.status, finding.message)
"""


@needs_root
@pytest.mark.parametrize("closed", ["cache", "cache/kernels-v1", ""])
def test_the_doctor_says_that_a_cache_can_not_be_read(open_place: Path, closed: str):
    cache = open_place / "cache"
    (cache / "kernels-v1").mkdir(parents=True, mode=0o755)
    (open_place / closed if closed else open_place / "none").mkdir(exist_ok=True)
    (open_place / (closed or "none")).chmod(0o700)
    command = [sys.executable, "-c", COUNT_AS_ANOTHER, str(cache)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.startswith(f"warn {cache} can't be read by this user" if closed else f"ok {cache}, 0 entries")
