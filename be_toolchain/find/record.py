"""Return the toolchain for a request: the recorded answer while the files behind it are unchanged, else a search."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from be_toolchain import values
from be_toolchain.arch import Arch, parse_archs, render_archs
from be_toolchain.known.layouts import PROC_DRIVER
from be_toolchain.machine.files import find_store, seal, unseal
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import FileStamp, FolderFacts, RunResult, System
from be_toolchain.machine.trust import LARGE, SMALL, distrust_owner, read_regular
from be_toolchain.settings import RECORD_VARIABLES, ConfigurationFile, find_configuration, warn_of
from be_toolchain.values import CudaToolkit, HostCompiler, Toolchain, ToolchainRequest

SCHEMA = 7
"""The version of the record; it increases when the meaning of a stored field changes."""

KEPT_RECORDS = 64
"""The number of records that are kept, one for each environment."""

Key = list[list[str]]


class ObservingSystem(System):
    """A system that remembers each file, folder and listing that a search asks for, whether or not it exists.

    Parameters
    ----------
    inner : System
        The system that answers.
    """

    def __init__(self, inner: System) -> None:
        self._inner = inner
        for name in System.__annotations__:
            setattr(self, name, getattr(inner, name))
        self.seen: dict[str, FileStamp | None] = {}
        self.listed: dict[str, FileStamp | None] = {}

    def stat(self, path: str | Path) -> FileStamp | None:
        """See `System.stat`."""
        name = str(path)
        if name not in self.seen:
            self.seen[name] = self._inner.stat(path)
        return self.seen[name]

    def list_dir(self, path: Path) -> tuple[str, ...]:
        """See `System.list_dir`."""
        self.listed[str(path)] = self._inner.stat(path)
        return self._inner.list_dir(path)

    def read_text(self, path: Path, limit_bytes: int = 1 << 20) -> str | None:
        """See `System.read_text`."""
        self.stat(path)
        return self._inner.read_text(path, limit_bytes)

    def realpath(self, path: Path) -> Path:
        """See `System.realpath`."""
        return self._inner.realpath(path)

    def run_all(
        self, commands: tuple[tuple[str, ...], ...], *, unset: tuple[str, ...] = (), timeout_s: float = 20.0
    ) -> tuple[RunResult, ...]:
        """See `System.run_all`."""
        for argv in commands:
            self.stat(argv[0])
        return self._inner.run_all(commands, unset=unset, timeout_s=timeout_s)

    def open_library(self, name: str) -> Any:
        """See `System.open_library`."""
        return self._inner.open_library(name)

    def folder_facts(self, path: Path) -> FolderFacts:
        """See `System.folder_facts`."""
        return self._inner.folder_facts(path)

    def ask_server(self, url: str, name: str) -> str:
        """See `System.ask_server`."""
        return self._inner.ask_server(url, name)

    def has_package(self, name: str) -> bool:
        """See `System.has_package`."""
        return self._inner.has_package(name)

    def private_key_problem(self, path: Path) -> str:
        """See `System.private_key_problem`."""
        return self._inner.private_key_problem(path)

    def distrust(self, path: Path) -> str:
        """See `System.distrust`."""
        return self._inner.distrust(path)


def record_key(request: ToolchainRequest, system: System, configuration: ConfigurationFile | None = None) -> Key:
    """Return the key of an answer: the request, Python's folders, the project's settings file and the variables."""
    environ = system.environ
    return [
        ["schema", str(SCHEMA)],
        ["request", f"{request.need_cuda} {request.need_cxx} {request.nvcc} {request.cxx}"],
        ["machine", system.machine],
        ["prefixes", "\n".join(map(str, system.prefixes))],
        ["site_dirs", "\n".join(map(str, system.site_dirs))],
        ["libc", system.libc],
        ["store", find_store(system).problem],
        ["configuration", f"{configuration.path}\n{configuration.real}\n{configuration.text}" if configuration else ""],
        *([name, environ[name]] for name in RECORD_VARIABLES if name in environ),
    ]


def record_path(record_dir: Path, key: Key) -> Path:
    """Return the file for a key."""
    import hashlib

    digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
    return record_dir / f"toolchain-{digest[:24]}.json"


class _Recorded(Toolchain):
    """A toolchain with its key fields, whose computation would take a tenth of a warm load."""

    fields: tuple[tuple[str, str], ...] = ()

    def key_fields(self) -> tuple[tuple[str, str], ...]:
        """See `Toolchain.key_fields`."""
        return self.fields or super().key_fields()


def load_record(record_dir: Path, key: Key, system: System) -> Toolchain | None:
    """Read the recorded answer; None if it is missing, damaged or another user's, or if a file has changed."""
    try:
        path = record_path(record_dir, key)
        data = unseal(read_regular(path, LARGE, judge=distrust_owner, follows_link=False))  # it names programs that run
        if data["key"] != key or not _is_unchanged(data, system):
            return None
        toolchain = _Recorded(*_decode_toolchain(data["toolchain"]))
        toolchain.fields = tuple((str(label), str(value)) for label, value in data["fields"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return None
    return toolchain


def save_record(record_dir: Path, key: Key, toolchain: Toolchain, observed: ObservingSystem) -> bool:
    """Write an answer atomically, by a rename, readable by its owner alone; False if the folder can't be written."""
    data = {
        "key": key,
        "seen": {path: _shape(stamp) for path, stamp in observed.seen.items()},
        "listed": {path: _listing(stamp) for path, stamp in observed.listed.items()},
        "toolchain": encode(toolchain),
        "fields": toolchain.key_fields(),
    }
    written = write_private(record_path(record_dir, key), seal(data))
    if written:
        with contextlib.suppress(OSError):  # the next record tries again
            prune_records(record_dir)
    return written


def prune_records(record_dir: Path) -> None:
    """Remove all but the newest records, and the leftovers of killed writers; other files stay.

    If a record in use is removed, the next search takes a tenth of a second.
    """
    import time

    ages: list[tuple[float, Path]] = []
    for path in (*record_dir.glob("toolchain-*.json"), *record_dir.glob(".*.json.*")):
        with contextlib.suppress(OSError):
            ages.append((path.stat().st_mtime, path))
    ages.sort(reverse=True)
    records = [path for _, path in ages if not path.name.startswith(".")]
    hour_ago = time.time() - 3600
    leftovers = [path for age, path in ages if path.name.startswith(".") and age < hour_ago]
    for path in (*records[KEPT_RECORDS:], *leftovers):
        path.unlink(missing_ok=True)


def write_private(path: Path, text: str) -> bool:
    """Replace a file atomically, by a rename, making its folders (0o700) if needed; False when that fails."""
    import tempfile

    try:
        make_private(path.parent)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        return False
    return True


def make_private(folder: Path) -> None:
    """Make a folder and its missing parents for the user alone, since the cache distrusts other folders."""
    if not folder.is_dir():
        make_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _shape(stamp: FileStamp | None) -> list[int]:
    """Describe a file by its identity, a folder by its kind alone, and a missing path by an empty list."""
    if stamp is None or stamp.is_dir:
        return [] if stamp is None else [1]
    return [2 + stamp.executable, stamp.inode, stamp.size_bytes, stamp.mtime_ns, stamp.ctime_ns]


def _listing(stamp: FileStamp | None) -> list[int]:
    """Describe a listed folder by its identity and the times at which a name in it last changed."""
    return [] if stamp is None else [stamp.inode, stamp.mtime_ns, stamp.ctime_ns]


def _is_unchanged(data: Any, system: System) -> bool:
    """Return whether every observation still holds."""
    stat = system.stat
    return all(shape == _shape(stat(path)) for path, shape in data["seen"].items()) and all(
        shape == _listing(stat(path)) for path, shape in data["listed"].items()
    )


def encode(value: Any) -> Any:
    """Turn a model value into JSON data: paths and architectures as text, named tuples as objects."""
    if isinstance(value, (Path, Arch)):
        return str(value)
    if hasattr(value, "_asdict"):
        fields = value.flat() if isinstance(value, CudaToolkit) else value._asdict()
        return {name: encode(item) for name, item in fields.items()}
    return [encode(item) for item in value] if isinstance(value, tuple) else value


def _decode_toolchain(data: Any) -> Toolchain:
    """Invert `encode` for a `Toolchain`."""
    return Toolchain(
        cxx=_decode_host(data["cxx"]) if data["cxx"] else None,
        cuda=_decode_toolkit(data["cuda"]) if data["cuda"] else None,
        environment=tuple((name, value) for name, value in data["environment"]),
        warnings=tuple(values.Warned(**row) for row in data["warnings"]),
    )


def _decode_host(data: Any) -> HostCompiler:
    """Invert `encode` for a `HostCompiler`."""
    return HostCompiler(**(data | {"path": Path(data["path"])}))


def _decode_toolkit(data: Any) -> CudaToolkit:
    """Invert `encode` for a `CudaToolkit`."""
    fields: dict[str, Any] = {name: data[name] for name in ("release", "found_via", "layout")}
    fields |= {name: tuple(map(Path, data[name])) for name in ("include_dirs", "library_dirs")}
    fields |= {name: Path(data[name]) for name in ("root", "ptxas", "fatbinary", "libdevice")}
    fields |= {name: Path(data[name]) if data[name] else None for name in ("cudart_static", "cudart_shared")}
    host = _decode_host(data["host_compiler"])
    compiler: values.Nvcc | values.ClangCuda = values.ClangCuda(host)
    if data["nvcc"]:
        parts: dict[str, Any] = {name: data[f"nvcc_{name}"] for name in ("version", "build", "content")}
        parts |= {name: Path(data[name]) for name in ("cicc", "cudafe", "nvlink")}
        parts["host_limits"] = values.HostLimits(**data["host_limits"])
        parts["allow_unsupported_compiler"] = data["allow_unsupported_compiler"]
        compiler = values.Nvcc(path=Path(data["nvcc"]), host=host, **parts)
    return CudaToolkit(
        compiler=compiler,
        components=tuple(values.Component(**(row | {"path": Path(row["path"])})) for row in data["components"]),
        archs=tuple(Arch.parse(text) for text in data["archs"]),
        **fields,
    )


BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def device_archs(system: System | None = None, record_dir: Path | None = None) -> tuple[Arch, ...]:
    """Return the architectures of the visible GPUs.

    Parameters
    ----------
    system : System, optional
        Machine to search, for tests. The default is this machine.
    record_dir : Path, optional
        Folder in which `device_archs` stores the answer, because a query of the driver is slow. A later call with the
        same folder reuses the answer, unless the machine was rebooted or one of these changed: the driver, the GPUs,
        ``CUDA_VISIBLE_DEVICES``, ``CUDA_DEVICE_ORDER``. On systems without ``/proc/driver/nvidia``, such as WSL and
        gVisor, every call queries the driver.

    Returns
    -------
    tuple of Arch
        Sorted architectures without duplicates; empty if there is no GPU.

    See Also
    --------
    - `probe_devices`: return the GPUs with their names, and the versions of the driver.
    - :doc:`/toolchain`: the search order, and the settings that change the order.

    Examples
    --------
    >>> from be_toolchain import device_archs, probe_devices
    >>> set(device_archs()) == {device.arch for device in probe_devices().devices}
    True
    """
    system = system or LocalSystem()
    facts = _cheap_facts(system) if record_dir is not None else None
    path = record_dir / "devices.json" if record_dir is not None and facts is not None else None
    if path is not None:
        known = _read_archs(path, facts)
        if known is not None:
            return known
    from be_toolchain.find.devices import probe_devices

    archs = tuple(sorted({device.arch for device in probe_devices(system).devices}))
    if archs and path is not None:
        write_private(path, json.dumps({"facts": facts, "archs": render_archs(archs)}))
    return archs


def _cheap_facts(system: System) -> list[str] | None:
    """Return the kernel's facts about driver and GPUs, and the variables that hide GPUs; None without facts.

    A GPU is identified by its bus address, since an exchange needs another boot. Its ``information`` file names it, but
    takes a millisecond to read.
    """
    version = system.read_text(PROC_DRIVER / "version")
    gpus = system.list_dir(PROC_DRIVER / "gpus")
    if not version or not gpus:
        return None
    nodes = (name for name in system.list_dir(Path("/dev")) if name.startswith("nvidia"))
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")
    variables = (f"{name}={system.environ.get(name, ' (not set)')}" for name in names)
    return [version, system.read_text(BOOT_ID) or "", " ".join(gpus), " ".join(nodes), *variables]


def _read_archs(path: Path, facts: list[str] | None) -> tuple[Arch, ...] | None:
    """Read the recorded architectures; None unless they belong to these facts."""
    try:
        data: Any = json.loads(read_regular(path, SMALL))
        return parse_archs(data["archs"]) if data["facts"] == facts else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def resolve(
    request: ToolchainRequest | None = None, *, system: System | None = None, record_dir: Path | None = None
) -> Toolchain:
    """Find a toolchain on this machine.

    Parameters
    ----------
    request : ToolchainRequest, optional
        Parts to find. The default is only a C++ compiler.
    system : System, optional
        Machine to search, for tests. The default is this machine.
    record_dir : Path, optional
        Folder in which `resolve` stores the answer. A later call with the same folder reuses the answer and starts no
        process. If a file, a folder or a variable that the search read is different at the later call, the later call
        searches again. If the folder is not writable, each call searches.

    Returns
    -------
    Toolchain
        Requested parts.

    Raises
    ------
    HostCompilerNotFoundError
        There is no working C++ compiler.
    CudaNotFoundError
        There is no complete CUDA toolkit.
    IncoherentToolchainError
        All CUDA toolkits were rejected, and at least one toolkit mixes parts of different releases.
    UnsupportedHostCompilerError
        The toolkit accepts none of this machine's C++ compilers, or rejects the compiler that you named.
    PreferenceError
        An environment variable or a key of a project's settings file has an invalid value.

    See Also
    --------
    - :doc:`/toolchain-install`: install the missing parts.
    - :doc:`/toolchain`: the search order, and the settings that change the order.

    Examples
    --------
    >>> from be_toolchain import ToolchainRequest, resolve
    >>> resolve().cxx.version  # doctest: +SKIP
    '12.2.0'
    >>> resolve(ToolchainRequest(need_cuda=True)).cuda.release  # doctest: +SKIP
    '13.0'
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
    """Search the machine; raise the error if a part is missing."""
    from be_toolchain.find.survey import survey

    found = survey(request, system, configuration)
    if found.problem is not None:
        raise found.problem
    return found.toolchain
