"""Print the version of each named package, null for one that is not installed: ``peer_versions.py PACKAGE...``."""

import json
import sys
from importlib.metadata import PackageNotFoundError, version


def installed(package: str) -> str | None:
    """The version of a package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(json.dumps({package: installed(package) for package in sys.argv[1:]}))
