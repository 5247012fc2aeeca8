"""Where compilers are asked about themselves, and where their answers are kept."""

from __future__ import annotations

from typing import NamedTuple

from be_runtime.cache import Store
from be_toolchain import Toolchain
from be_toolchain.machine.system import System


class Machine(NamedTuple):
    """The machine that a build runs on.

    Parameters
    ----------
    toolchain : Toolchain
        Part of the key of what is kept.
    system : System
        Runs what has to be asked.
    toolchain_store : Store
        Keeps the answers.
    """

    toolchain: Toolchain
    system: System
    toolchain_store: Store
