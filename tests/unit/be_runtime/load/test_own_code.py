"""What identifies our own code: contents alone, in every folder, and the same in a checkout and in a wheel."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from be_runtime.load.own_code import checkout_digest
from be_toolchain import __version__
from tests.support.hostile_files import KINDS, plant, refused_at_once
from tests.support.runtime import environment, run_python

SITE = Path(__file__).parents[4]
CODE = "from be_runtime.load.own_code import own_code_digest; print(own_code_digest())"


@pytest.fixture(name="site")
def _site(tmp_path: Path) -> Path:
    """A copy of the packages."""
    copied = tmp_path / "site"
    for package in ("be_runtime", "be_toolchain"):
        shutil.copytree(SITE / package, copied / package, ignore=shutil.ignore_patterns("__pycache__"))
    return copied


def digest(site: Path, memo: Path, later_s: int = 0) -> str:
    return checkout_digest(site, memo, time.time_ns() + later_s * 10**9)


CHANGED = (
    *("be_toolchain/arch.py", "be_runtime/native/xla_call.h", "be_runtime/native/looked_at.c"),
    *("be_runtime/native/with_kept_headers.sh", "be_runtime/include/brainevent/detail/call.h"),
)


def test_a_change_anywhere_is_another_identity(site: Path, tmp_path: Path):
    before = {digest(site, tmp_path / "memo")}
    for name in (*CHANGED, "be_runtime/spec/more/deep/module.py"):
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        with (site / name).open("a") as file:
            file.write("\n")
        assert digest(site, tmp_path / "memo") not in before, name
        before.add(digest(site, tmp_path / "memo"))
    (site / "be_runtime" / "aside").mkdir()
    (site / "be_runtime" / "api.py").rename(site / "be_runtime" / "aside" / "api.py")
    assert digest(site, tmp_path / "memo") not in before


def test_a_wheel_and_another_checkout_have_the_identity_of_a_checkout(site: Path, tmp_path: Path):
    files = [path for path in site.rglob("*") if path.is_file()]
    record = site / f"brainevent_toolchain-{__version__}.dist-info" / "RECORD"
    record.parent.mkdir()
    hashes = (base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode() for path in files)
    rows = [f"{path.relative_to(site)},sha256={each.rstrip('=')},1" for path, each in zip(files, hashes, strict=True)]
    record.write_text("\n".join([*rows, f"{record.parent.name}/RECORD,,", "be_runtime/__pycache__/api.pyc,,", ""]))
    installed = run_python(CODE, cwd=site, env=environment(PYTHONPATH=str(site))).stdout.strip()
    assert installed == digest(site, tmp_path / "memo") == digest(SITE, tmp_path / "other")


def test_what_is_kept_serves_until_a_file_changes(site: Path, tmp_path: Path):
    memo, file = tmp_path / "memo", site / "be_runtime" / "api.py"
    true = digest(site, memo)
    assert not memo.exists(), "files that changed just now may change again and keep their stat"
    assert digest(site, memo, later_s=3) == true
    memo.write_text(memo.read_text().replace(true, "kept"))
    assert digest(site, memo) == "kept"
    times, text = file.stat(), file.read_text()
    file.write_text(text.replace("CUDA", "cuda", 1))
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert digest(site, memo) not in (true, "kept")


def test_a_damaged_memo_is_of_no_use_and_written_again(site: Path, tmp_path: Path):
    memo = tmp_path / "memo.json"
    true = digest(site, memo, later_s=10)
    for text in ("", "[]", "{}", '{"seen": 1, "digest": 2}', "\0", "[" * 100_000):
        memo.write_text(text)
        assert digest(site, memo, later_s=10) == true
        assert memo.read_text() != text


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_memo_is_not_waited_for(site: Path, tmp_path: Path, kind: str):
    with refused_at_once():
        assert digest(site, plant(tmp_path / "memo", kind)) == digest(site, tmp_path / "none")
