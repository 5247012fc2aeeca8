"""Whether stat alone proves that an entry is still what its manifest says.

What is trusted, and what it costs to be wrong:

- A dependency whose size, modification time and change time are those recorded is unchanged, unless it changed
  less than `RACY_MARGIN_NS` before it was recorded: then it may have changed again within one tick of its file
  system's clock. Any doubt is settled by its hash (`be_runtime.cache.examine`), and the new stat is remembered.
- An output is compared in the same way, without the margin, since nothing but a fault edits it. A full hash of a
  large library at every load would cost more than all the rest of the load. Damage below the file system, which
  alters content and no stat, is not seen.
"""

from __future__ import annotations

import os

from be_runtime.cache.manifest import RACY_MARGIN_NS, Manifest


def is_unchanged(folder: str, manifest: Manifest) -> bool:
    """Whether stat alone proves an entry valid: the way of every warm load, so it is one flat loop."""
    stat = os.stat
    newest = manifest.recorded_ns - RACY_MARGIN_NS
    try:
        for name, size, mtime_ns, ctime_ns, _ in manifest.outputs:
            now = stat(f"{folder}/{name}")
            if now.st_mtime_ns != mtime_ns or now.st_size != size or now.st_ctime_ns != ctime_ns:
                return False
        for path, size, mtime_ns, ctime_ns, _ in manifest.dependencies:
            if ctime_ns >= newest or mtime_ns >= newest:
                return False
            now = stat(path)
            if now.st_mtime_ns != mtime_ns or now.st_size != size or now.st_ctime_ns != ctime_ns:
                return False
    except (OSError, ValueError):
        return False
    return not manifest.uncertain and not any(map(os.path.lexists, manifest.absent))
