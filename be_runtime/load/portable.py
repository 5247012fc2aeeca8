"""A module's request for machines other than this one. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path

from be_runtime.bundle.carried import Demand
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import BuildRequest


def portable_request(request: BuildRequest, wanted: Demand, names: Mapping[Path, str] | None = None) -> BuildRequest:
    """Return a request whose library says nothing of this machine: neither of its CPU, nor of its folders.

    Parameters
    ----------
    request : BuildRequest
    wanted : Demand
        The architectures replace those of the request; the level comes after the author's flags, so it holds.
    names : dict of Path to str, optional
        What folders are called in messages and debugging information; by default all of sources by the module's name.
    """
    compile_ = request.compile
    if names is None:
        folders = [*(unit.path.parent for unit in request.units if unit.path is not None), *compile_.include_paths]
        names = dict.fromkeys(folders, request.name)
    renamed = {**names, INCLUDE_DIR: "brainevent"}
    flags = [f"-ffile-prefix-map={folder}={name}" for folder, name in renamed.items()]
    flags += [f"-march={wanted.baseline}"] if wanted.baseline else []
    if request.language == "cuda":
        flags = [part for flag in flags for part in ("-Xcompiler", shlex.quote(flag))]  # a shell of nvcc's reads them
        if wanted.archs:
            request = request._replace(compute_capability=",".join(wanted.archs))
    # An author's libraries are not searched where they lie here; without any, the module stays one that is closed.
    ldflags = (*compile_.ldflags, "-rpath=") if compile_.ldflags else ()
    return request._replace(compile=compile_._replace(cflags=(*compile_.cflags, *flags), ldflags=ldflags, native=""))
