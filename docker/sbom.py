"""What is in an image, as a CycloneDX document: the distribution's packages and Python's, with versions and licenses.

Run it inside: ``docker run --rm -i be-image python - < docker/sbom.py > sbom.json``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote

_FIELDS = "${Package}\t${Version}\t${Architecture}\t${db:Status-Abbrev}\n"

Component = dict[str, Any]


def _component(kind: str, name: str, version: str, qualifiers: str = "") -> Component:
    """A component named by its package URL, https://github.com/package-url/purl-spec."""
    purl = f"pkg:{kind}/{quote(name, safe='/')}@{quote(version)}{qualifiers}"
    return {"type": "library", "name": name.rpartition("/")[2], "version": version, "purl": purl, "bom-ref": purl}


def debian_components(distribution: str) -> Iterator[Component]:
    """Every installed package of the distribution."""
    listing = subprocess.run(
        ("dpkg-query", "--show", f"--showformat={_FIELDS}"), capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        package, version, architecture, status = line.split("\t")
        if status.startswith("ii"):
            yield _component("deb", f"{distribution}/{package}", version, f"?arch={architecture}")


def python_components() -> Iterator[Component]:
    """Every installed Python distribution, with the license that it states."""
    for found in importlib.metadata.distributions():
        component = _component("pypi", found.name.lower().replace("_", "-"), found.version)
        stated = found.metadata.json
        license_text = str(stated.get("license_expression") or stated.get("license") or "")
        if license_text and "\n" not in license_text:
            component["licenses"] = [{"license": {"name": license_text}}]
        yield component


def document(release: Mapping[str, str]) -> dict[str, Any]:
    """The whole document; components are sorted, so that two images can be compared."""
    every = [*debian_components(release["ID"]), *python_components()]
    system = {"type": "operating-system", "name": release["ID"], "version": release.get("VERSION_ID", "")}
    components = sorted({component["bom-ref"]: component for component in every}.values(), key=lambda c: c["bom-ref"])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "container",
                "name": "brainevent-toolchain",
                "version": importlib.metadata.version("brainevent-toolchain"),
            }
        },
        "components": [system, *components],
    }


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C"
    json.dump(document(platform.freedesktop_os_release()), sys.stdout, indent=1)
