"""Suggestion of a header that an author may have meant by the name of a missing one."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools
from be_toolchain.machine.system import System

_SYSTEM = Path("/usr/include")
_ALIKE = 0.8
"""Least similarity of two names, as `difflib.SequenceMatcher.ratio` measures it."""


def near_header(header: str, request: BuildRequest, tools: Tools, system: System) -> str:
    """Find a header on a request's search path whose name is similar to the given one; empty if there is none."""
    own = [unit.path.parent for unit in request.units if unit.path is not None]
    cuda = tools.cuda.include_dirs if tools.cuda is not None else ()
    standard = [_SYSTEM / "c++" / release for release in system.list_dir(_SYSTEM / "c++")]
    places = [*own, *request.compile.include_paths, INCLUDE_DIR, *cuda, *standard, _SYSTEM]
    found = []
    for part in header.split("/"):
        names = {name: None for place in places for name in system.list_dir(place)}
        close = [part] if part in names else get_close_matches(part, names, n=1, cutoff=_ALIKE)
        if not close:
            return ""
        found += close
        places = [place / close[0] for place in places]
    return "/".join(found) if found != header.split("/") else ""
