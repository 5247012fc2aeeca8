"""From a request to a toolchain: the record if it still holds, else the search; or an error with every place tried."""

from __future__ import annotations

from pathlib import Path

from be_toolchain.find.record import ObservingSystem, load_record, record_key, save_record
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.model import Toolchain, ToolchainRequest
from be_toolchain.settings.configuration import ConfigurationFile, find_configuration, warn_of


def resolve(
    request: ToolchainRequest | None = None, *, system: System | None = None, record_dir: Path | None = None
) -> Toolchain:
    """Find what is needed to compile here.

    Parameters
    ----------
    request : ToolchainRequest, optional
        What is needed; a C++ compiler unless told otherwise.
    system : System, optional
        The machine; this one unless told otherwise.
    record_dir : Path, optional
        Where answers are kept. An answer is given again, without starting a process, while no file, folder and
        variable that it came from has changed. A folder that can't be written is no error.

    Returns
    -------
    Toolchain

    Raises
    ------
    HostCompilerNotFoundError
        No working C++ compiler.
    CudaNotFoundError
        No complete CUDA toolkit; `IncoherentToolchainError` when those that are complete mix releases.
    UnsupportedHostCompilerError
        The toolkit refuses every C++ compiler that is here, or the one that was named.
    PreferenceError
        An environment variable or a file that steers the search means nothing.
    """
    request = request or ToolchainRequest()
    system = system or LocalSystem()
    configuration = find_configuration(system, warn_of)
    if record_dir is None:
        return _search(request, system, configuration)
    key = record_key(request, system, configuration)
    known = load_record(record_dir, key, system)
    if known is not None:
        return known
    observing = ObservingSystem(system)
    toolchain = _search(request, observing, configuration)
    save_record(record_dir, key, toolchain, observing)
    return toolchain


def _search(request: ToolchainRequest, system: System, configuration: ConfigurationFile | None) -> Toolchain:
    """Search anew; raise what went wrong."""
    from be_toolchain.find.survey import survey

    found = survey(request, system, configuration)
    if found.problem is not None:
        raise found.problem
    return found.toolchain
