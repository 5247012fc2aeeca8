"""The inputs of a build, as one value."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.cache import Store
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools
from be_runtime.settings import Settings
from be_toolchain import Toolchain
from be_toolchain.machine.system import System


class BuildOrder(NamedTuple):
    """The inputs of a build.

    Parameters
    ----------
    request : BuildRequest
    tools : Tools
    toolchain : Toolchain
    system : System
    settings : Settings
    toolchain_store : Store
        Keeps the files of the toolchain: the compiled handler, nvcc's dry runs.
    module_store : Store
        Keeps modules, and the objects of a folder's files.
    jobs : int or None
        Number of commands that run at once, if the caller chose one.
    verbose : bool
        True to write the commands and their output to standard error.
    force : bool
        True to make everything again, including the files in `module_store`.
    """

    request: BuildRequest
    tools: Tools
    toolchain: Toolchain
    system: System
    settings: Settings
    toolchain_store: Store
    module_store: Store
    jobs: int | None
    verbose: bool
    force: bool
