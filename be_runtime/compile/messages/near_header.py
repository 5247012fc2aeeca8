"""The header that an author may have meant where there is none of the name."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools
from be_toolchain.machine.system import System

_SYSTEM = Path("/usr/include")
_ALIKE = 0.8
"""How much of two names has to be the same, as `difflib.SequenceMatcher.ratio` measures it."""


def near_header(header: str, request: BuildRequest, tools: Tools, system: System) -> str:
    """The name of a header beside those of a request that is nearly the given one; empty where there is none."""
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
