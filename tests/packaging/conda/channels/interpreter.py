"""The running Python as a conda package that names no folder of its origin."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.packaging.conda.channels.channel import Channel, Package, tree

VERSION = "{}.{}".format(*sys.version_info)
LIBRARY = f"lib/python{VERSION}"
SITE = f"{LIBRARY}/site-packages"
_RUN_PATH = b"$ORIGIN/../lib"
_NOT_NEEDED = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "site-packages", "test", "tkinter", "turtledemo"}
)
_MOVABLE = """
import sys
build_time_vars = {{
    name: value.replace({mark!r}, sys.prefix) if isinstance(value, str) else value
    for name, value in build_time_vars.items()
}}
"""


def unsuitable() -> str | None:
    """Why no package can be made of the running Python, or None."""
    base = Path(sys.base_prefix)
    if "deb_system" in sysconfig.get_scheme_names() or not (base / LIBRARY / "os.py").is_file():
        return f"the Python in {base} is not laid out as conda's: use one of pyenv or python.org"
    if len(_run_path(base)) < len(_RUN_PATH):
        return f"the folder {base} is too short to be replaced in Python's program"
    return None


def add_python(channel: Channel) -> None:
    """Add ``python`` to a channel."""
    base = Path(sys.base_prefix)
    program = base / "bin" / f"python{VERSION}"
    headers = Path(sysconfig.get_path("include", vars={"base": str(base), "installed_base": str(base)}))
    library = tree(base / LIBRARY, LIBRARY, without=_NOT_NEEDED)
    files = {
        f"bin/python{VERSION}": program.resolve(),
        "bin/python3": channel.link(f"python{VERSION}"),
        "bin/python": channel.link(f"python{VERSION}"),
        f"{SITE}/README.txt": channel.text("Packages are installed here.\n"),
        **{f"lib/{path.name}": path for path in base.glob("lib/libpython*.so*")},
        # What only builds of Python's own programs link is left out.
        **{path: source for path, source in library.items() if not path.endswith(".a") and "/config-" not in path},
        **tree(headers, f"include/python{VERSION}"),
    }
    moved = dict(_moved(channel, base, files))
    channel.add(Package("python", "{}.{}.{}".format(*sys.version_info), build="0_cpython"), files | moved)


def _run_path(base: Path) -> bytes:
    return f"{base}/lib".encode()


def _moved(channel: Channel, base: Path, files: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    """The files that name their folder, with what finds it instead."""
    mark, old = "@PREFIX@", _run_path(base) + b"\0"
    for path, source in files.items():
        if source.is_symlink():
            continue
        content = source.read_bytes()
        if content.startswith(b"\x7fELF") and old in content:
            yield path, channel.binary(content.replace(old, _RUN_PATH.ljust(len(old), b"\0")))
        elif source.name.startswith("_sysconfigdata"):
            text = content.decode().replace(str(base), mark)
            yield path, channel.text(text + _MOVABLE.format(mark=mark))
