"""The check of an entry against its manifest by stat alone.

The check trusts the following:

- A dependency whose size, modification time, change time and inode are those recorded is unchanged, unless it changed
  less than `RACY_MARGIN_NS` before it was recorded, or after that by a clock that is ahead of ours: then it may have
  changed again within one tick of its file system's clock. In case of doubt it is hashed
  (`be_runtime.cache.validity.examine`), and the new stat is recorded.
- An output is compared in the same way, without the margin, since only a fault changes it. A full hash of a large
  library at every load would cost more than all the rest of the load. Damage below the file system, which changes
  content but no stat, goes unnoticed.
"""

from __future__ import annotations

import os

from be_runtime.cache.validity.absent import new_file
from be_runtime.cache.validity.manifest import RACY_MARGIN_NS, Manifest


def is_unchanged(folder: str, manifest: Manifest) -> bool:
    """Return whether stat alone proves an entry valid. Every warm load calls it, so its loops are flat."""
    stat = os.stat
    newest = manifest.recorded_ns - RACY_MARGIN_NS
    outputs, inputs = manifest.outputs, manifest.dependencies + manifest.others
    if max((*inputs.mtimes_ns, *inputs.ctimes_ns), default=0) >= newest:
        return False
    made = outputs._replace(paths=tuple([f"{folder}/{name}" for name in outputs.paths]))
    try:
        for path, size, mtime_ns, ctime_ns, inode, _ in zip(*(made + inputs), strict=True):
            now = stat(path)
            if now.st_mtime_ns != mtime_ns or now.st_size != size:
                return False
            if now.st_ctime_ns != ctime_ns or now.st_ino != inode:
                return False
    except (OSError, ValueError):
        return False
    return not manifest.uncertain and not new_file(manifest.absent, newest)
