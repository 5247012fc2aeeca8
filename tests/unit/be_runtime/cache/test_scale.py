"""A look-up in a cache of many entries does what it does in a cache of one; the row `warm_many` says how long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from be_runtime.cache import BuildOutput, CacheKey, Store, make_key
from be_toolchain.machine.sealed_json import seal, unseal

_TRACE = """
import sys
sys.path[:0] = eval(sys.argv[1])
import json
from pathlib import Path
from be_runtime.cache import CacheKey, Store
store, key = Store(Path(sys.argv[2])), CacheKey.from_json(sys.argv[3])
assert store.get(key) is not None
events = []
sys.addaudithook(lambda name, args: events.append([name, str(args[0]) if args else ""]))
assert store.get(key) is not None
seen = [event for event in events if not (event[0] == "open" and event[1].isdecimal())]  # a descriptor's file
print(json.dumps(seen))
"""


def _fill(store: Store, template: Path, count: int) -> None:
    """Copies of one entry under other keys, as cheap as can be."""
    manifest = unseal((template / "manifest.json").read_text())
    for number in range(count):
        digest = make_key("filler", ("number", str(number))).digest
        folder = store.root / "kernels-v1" / digest[:2] / digest / template.name
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text(seal({**manifest, "digest": digest}))
        os.link(template / "m.so", folder / "m.so")


def _build(staging: Path) -> BuildOutput:
    """The dependency is an old file: stat alone proves the entry."""
    (staging / "m.so").write_bytes(b"x")
    return BuildOutput(outputs=("m.so",), dependencies=(Path(json.__file__),))


@pytest.mark.parametrize("others", [0, 1000])
def test_a_hit_lists_one_folder_opens_one_file_and_starts_nothing(store: Store, key: CacheKey, others: int):
    entry = store.get_or_build(key, _build)
    _fill(store, entry.path, others)
    assert sum(1 for _ in store.entries()) == 1 + others
    assert len(os.listdir(entry.path.parent)) == 1
    printed = subprocess.run(
        [sys.executable, "-c", _TRACE, repr(sys.path), str(store.root), key.to_json()],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        timeout=60,
    ).stdout
    assert json.loads(printed) == [["os.listdir", str(entry.path.parent)], ["open", str(entry.path / "manifest.json")]]
