"""What a build is given, as a value."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.cache import Store
from be_runtime.compile.machine import Machine
from be_runtime.request.options import BuildRequest
from be_runtime.request.tools import Tools
from be_runtime.settings import Settings
from be_toolchain import Toolchain
from be_toolchain.machine.system import System


class BuildOrder(NamedTuple):
    """What a build is given.

    Parameters
    ----------
    request : BuildRequest
    tools : Tools
    toolchain : Toolchain
    system : System
    settings : Settings
    toolchain_store : Store
        Keeps what belongs to the toolchain: the compiled handler, nvcc's dry runs.
    module_store : Store
        Keeps modules, and the objects of a folder's files.
    jobs : int or None
        Commands at a time, as the caller asked.
    verbose : bool
        Whether the commands and their output go to standard error.
    force : bool
        Whether what `module_store` keeps is made again too.
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

    @property
    def machine(self) -> Machine:
        """The place where compilers are asked about themselves."""
        return Machine(self.toolchain, self.system, self.toolchain_store)
