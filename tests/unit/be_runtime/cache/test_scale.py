"""A look-up in a cache of 10,000 entries does what it does in a cache of ten."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

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
seen = list(events)
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


def _time_s(store: Store, key: CacheKey) -> float:
    began = time.perf_counter()
    assert store.get(key) is not None
    return time.perf_counter() - began


def test_ten_thousand_entries_cost_a_look_up_nothing(tmp_path: Path):
    small, large = Store(tmp_path / "small"), Store(tmp_path / "large")
    keys = [make_key("module", ("name", str(number))) for number in range(10)]
    for store in (small, large):
        entries = [store.get_or_build(key, _build) for key in keys]
    _fill(large, entries[0].path, 10_000)
    assert sum(1 for _ in large.entries()) == 10_010
    pairs = [(_time_s(small, key), _time_s(large, key)) for _ in range(50) for key in keys]
    few_s, many_s = (statistics.median(times) for times in zip(*pairs, strict=True))
    assert many_s < 1.3 * few_s, f"{few_s * 1e6:.0f} us with 10 entries, {many_s * 1e6:.0f} us with 10,010"


def test_a_hit_lists_one_folder_opens_one_file_and_starts_nothing(store: Store, key: CacheKey):
    entry = store.get_or_build(key, _build)
    printed = subprocess.run(
        [sys.executable, "-c", _TRACE, repr(sys.path), str(store.root), key.to_json()],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        timeout=60,
    ).stdout
    assert json.loads(printed) == [["os.listdir", str(entry.path.parent)], ["open", str(entry.path / "manifest.json")]]
