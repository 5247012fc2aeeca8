"""The build cache: keys that can be compared, and entries that are validated before each use."""

from be_runtime.cache.folder.guard import disk_errors, is_passing, own_folder
from be_runtime.cache.folder.key import CacheKey, make_key
from be_runtime.cache.folder.location import CacheWarning, usable_cache_dir
from be_runtime.cache.folder.lock import THIS_PROCESS
from be_runtime.cache.output import BuildOutput, Recorded
from be_runtime.cache.store import Entry, Store
from be_runtime.cache.validity.manifest import FileRecord, Files, Manifest
from be_runtime.cache.validity.shadow import shadowing_paths

__all__ = [
    "THIS_PROCESS",
    "BuildOutput",
    "CacheKey",
    "CacheWarning",
    "Entry",
    "FileRecord",
    "Files",
    "Manifest",
    "Recorded",
    "Store",
    "disk_errors",
    "is_passing",
    "make_key",
    "own_folder",
    "shadowing_paths",
    "usable_cache_dir",
]
