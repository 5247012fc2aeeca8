"""Print what an environment has, as JSON: ``peer_facts.py PACKAGE...``.

``versions`` has each package's, null for one that is not installed; ``ffi_include`` is the folder of XLA's headers.
"""

import importlib.util
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def installed(package: str) -> str | None:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def ffi_include() -> str | None:
    """What ``jax.ffi.include_dir()`` says, without importing jax."""
    found = importlib.util.find_spec("jaxlib")
    return str(Path(found.origin).parent / "include") if found is not None and found.origin else None


if __name__ == "__main__":
    versions = {package: installed(package) for package in sys.argv[1:]}
    print(json.dumps({"versions": versions, "ffi_include": ffi_include()}))
