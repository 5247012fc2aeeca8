"""A package's kernels without host code: built ahead of time as rows of an index and images, and opened from them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from be_runtime.call.signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels import launcher, raw
from be_runtime.kernels.geometry import DEFAULT_THREADS
from be_runtime.kernels.numba import cpu, gpu
from be_runtime.kernels.numba.cpu_library import build_host_kernel
from be_runtime.kernels.raw import RawPrototype, raw_function
from be_runtime.load.prebuilt import register_image_target
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list
from be_runtime.ship.declaration import KernelTable, call_options, imported, include_paths, read_source, read_table
from be_runtime.ship.package_store import Part, record_sources
from be_runtime.signature.model import LEADING, Param, Role
from be_runtime.store.artifact import Artifact
from be_runtime.store.index import reading
from be_toolchain.arch import Arch, parse_archs
from be_toolchain.machine.forks import ThreadLock

Obtain = Callable[[Sequence[ArraySpec], Sequence[ArraySpec]], launcher.Obtained]


def open_function(record: Mapping[str, Any], artifact: Artifact) -> Callable[..., Any]:
    """Return the function of a kernel that was built ahead of time; its first call maps the code.

    Parameters
    ----------
    record : mapping
        The kernel's row of ``functions``, as `build_function` made it.
    artifact : Artifact
    """
    if record["language"] == "numba":
        return _host_function(record, artifact)
    make = _cuda_function if record["language"] == "cuda" else _numba_cuda_function
    return make(record, _Variants(record, artifact).obtain)


class _Variants:
    """The variants of a kernel for GPUs, each read at its first call."""

    def __init__(self, record: Mapping[str, Any], artifact: Artifact) -> None:
        self._record, self._artifact = record, artifact
        self._made: dict[tuple[str, ...], launcher.Obtained] = {}
        self._lock = ThreadLock()

    def obtain(self, inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> launcher.Obtained:
        """Return the kernel for these arrays."""
        variants: dict[tuple[str, ...], str] = {
            tuple(each["types"]): each["kernel"] for each in self._record["variants"]
        }
        types: tuple[str, ...] = () if () in variants else tuple(gpu.types_text(inputs, outs))
        if types not in variants:
            raise _not_built(self._record["label"], ", ".join(types), [", ".join(each) for each in variants])
        with self._lock:
            if types not in self._made:
                identity, target, artifact = variants[types], self._record["launcher"], self._artifact
                with reading(artifact.where):
                    row = artifact.table.targets[target]
                    own = launcher.launcher_of(target, lambda: artifact.library(row.image), platform=row.platform)
                    kernel = launcher.kernel_of(identity, artifact.table.kernels[identity], artifact.image)
                self._made[types] = launcher.Obtained(kernel, own)
            return self._made[types]


def _cuda_function(record: Mapping[str, Any], obtain: Obtain) -> Callable[..., Any]:
    """Return the function of a raw kernel."""
    params = [launcher.KernelParam(**row)._replace(dtype=BY_NAME.get(row["dtype"])) for row in record["parameters"]]
    prototype = RawPrototype(record["name"], record["label"], tuple(params))
    launch = {"shared_mem": 0, "cluster": None, **record["launch"]}
    sizes = {name: launch[name] for name in ("grid", "block", "shared_mem")}
    options = call_options(record["call"])
    return raw_function(prototype, lambda: obtain((), ()), record["signature"], sizes, launch["cluster"], options)


def _numba_cuda_function(record: Mapping[str, Any], obtain: Obtain) -> Callable[..., Any]:
    """Return the function of a Numba CUDA kernel."""
    is_memref = bool(record.get("is_memref"))
    prototype = gpu.NumbaPrototype(record["name"], tuple(record["parameters"]), record["doc"], is_memref)
    given = {"grid": None, "block": None, "launch_dims": None, "shared_mem": 0, **record["launch"]}
    threads = given.pop("threads_per_block", DEFAULT_THREADS)
    options = call_options(record["call"])
    return gpu.numba_function(prototype, obtain, record["signature"], given, threads, options)


def _host_function(record: Mapping[str, Any], artifact: Artifact) -> Callable[..., Any]:
    """Return the function of a Numba CPU kernel."""
    name = record["name"]
    targets = {}
    for row in record["variants"]:
        sides = (
            tuple(cpu.Parameter(BY_NAME[name], rank) for name, rank in row[side]) for side in cpu.Signature._fields
        )
        targets[cpu.Signature(*sides)] = row["target"]

    @functools.cache
    def register(target: str) -> None:
        with reading(artifact.where):
            register_image_target(target, artifact, PROCESS.registry)

    def target_for(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec]) -> str:
        signature = cpu.signature_of(inputs, outputs, cpu.LACKING)
        target = targets.get(signature)
        if target is None:
            raise _not_built(name, str(signature), [str(each) for each in targets])
        register(target)
        return str(target)

    called = cpu.Called(name, tuple(record["parameters"]), record["doc"], target_for)
    return cpu.host_array_function(called, record["signature"], call_options(record["call"]))


def _not_built(label: str, asked: str, built: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        f"{label} was not built for {asked}; it was built for {' and '.join(built)}",
        hints=("name the dtype in dtypes of its table in kernels.toml, or cast the arrays",),
    )


Arrays = tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]
"""Inputs, and outputs with scratch memory; only the number of axes of a shape counts."""


def build_function(
    name: str, table: Mapping[str, Any], root: Path, archs: Sequence[str], baseline: str, session: Session
) -> Part:
    """Build a declared kernel.

    Parameters
    ----------
    name : str
    table : mapping
    root : Path
        Folder of the package.
    archs : sequence of str
        Architectures of CUDA code. PTX of the latest is built too, if the compiler can.
    baseline : str
        CPU of host code, see `be_runtime.store.images`.
    session : Session

    Raises
    ------
    ArgumentError, SpecError
        The table is wrong.
    BuildError, ToolchainError
        The kernel can't be compiled, or can't be compiled ahead of time.
    """
    read = read_table(name, table)
    call_options(read.call)
    if read.language == "numba":
        return _host(name, read, root, baseline, session)
    given = check_arch_list(read.compiling.get("compute_capability"), "compute_capability")
    wanted = parse_archs(given or ",".join(archs))
    return (_raw if read.language == "cuda" else _numba_cuda)(name, read, root, wanted, session)


def _raw(name: str, read: KernelTable, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    options, folders = read.compiling, include_paths(read, root)
    given = {"source": read_source(name, read, root), "name": name, **options, "extra_include_paths": folders}
    kernel = raw.raw_kernel(given)
    prototype = raw.prototype_of(kernel)
    # The compiler does not always report which headers it read, so all that it may read are recorded.
    headers = (path for folder in folders for path in Path(folder).rglob("*"))
    record = read.options | {
        "language": read.language,
        "name": prototype.name,
        "label": prototype.label,
        "doc": None,
        "parameters": [each._asdict() | {"dtype": each.dtype and each.dtype.name} for each in prototype.params],
        "sources": record_sources(root, [root / read.source, *headers]),
    }
    _cuda_function(record, _not_yet)  # its checks run before the compiler
    return _launched(name, record, [([], raw.build_raw(kernel, archs, session, with_ptx=True))], session)


def _numba_cuda(name: str, read: KernelTable, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    dispatcher = _checked(gpu.check_dispatcher, name, read)
    prototype = gpu.prototype_of(dispatcher, read.signature)
    record = _described(read, prototype.name, prototype.parameters, prototype.doc, root, dispatcher)
    record |= {"is_memref": True} if prototype.is_memref else {}
    _numba_cuda_function(record, _not_yet)
    with_batch = gpu.takes_batches(prototype, read.signature, call_options(read.call))
    kernels = [
        gpu.NumbaKernel(dispatcher, *arrays, with_batch) for arrays in _variants(name, read, prototype.parameters)
    ]
    for each in kernels:
        gpu.check_arrays(each)
    made = [(each.types_text(), gpu.build_numba(each, archs, session, with_ptx=True)) for each in kernels]
    return _launched(name, record, made, session)


def _not_yet(*_arrays: object) -> Any:
    raise AssertionError("nothing calls a kernel while it is built")


def _launched(
    name: str, record: dict[str, Any], made: Sequence[tuple[list[str], launcher.Kernel]], session: Session
) -> Part:
    """Return the part of a kernel for GPUs: its variants and the launcher."""
    carried = launcher.carried_launcher(launcher.launcher_image(session))
    images: launcher.Images = {**carried.images}
    kernels, variants = {}, []
    for types, kernel in made:
        identity, row, own = launcher.kernel_record(kernel)
        images |= own
        kernels[identity] = row
        variants.append({"types": types, "kernel": identity})
    record |= {"launcher": carried.target, "variants": variants}
    return Part(images, {carried.target: carried.row}, kernels, functions={name: record})


def _host(name: str, read: KernelTable, root: Path, baseline: str, session: Session) -> Part:
    dispatcher = _checked(cpu.check_kernel, name, read)
    function = dispatcher.py_func
    parameters = tuple(inspect.signature(function).parameters)
    record = _described(read, function.__name__, parameters, function.__doc__, root, dispatcher)
    images: launcher.Images = {}
    targets, variants = {}, []
    for inputs, outputs in _variants(name, read, parameters):
        signature = cpu.signature_of(inputs, outputs)
        cpu.check_count(function, function.__name__, signature)
        made = build_host_kernel(dispatcher, signature, session, baseline)
        images |= made.images
        targets[made.target] = made.row
        rows = {side: [[each.dtype.name, each.rank] for each in row] for side, row in signature._asdict().items()}
        variants.append({**rows, "target": made.target})
    return Part(images, targets, functions={name: record | {"variants": variants}})


def _checked(check: Callable[[object], Any], name: str, read: KernelTable) -> Any:
    """Import the function of a Numba kernel, and return its checked dispatcher."""
    try:
        return check(imported(name, read))
    except TypeError as error:
        raise ArgumentError(f"kernels.{name}: {read.source}: {error}") from error


def _described(
    read: KernelTable, name: str, parameters: Sequence[str], doc: str | None, root: Path, dispatcher: Any
) -> dict[str, Any]:
    file = inspect.getsourcefile(dispatcher.py_func)
    return read.options | {
        "language": read.language,
        "name": name,
        "label": name,
        "doc": doc,
        "parameters": list(parameters),
        "sources": record_sources(root, [Path(file)] if file else []),
    }


def _variants(name: str, read: KernelTable, parameters: Sequence[str]) -> list[Arrays]:
    """Return the arrays that a kernel is built for: one set of the signature's arrays for each dtype."""
    declared = read_signature(name, read.signature, parameters)
    assert declared is not None, "a table has a signature"
    found: dict[Arrays, None] = {}
    for dtype in read.dtypes:
        inputs = [ArraySpec(each.dtype or dtype, (1,) * _rank(name, each)) for each in declared.with_role(Role.ARG)]
        outputs = []
        for each in declared.with_role(Role.RET):
            like = inputs[each.like].dtype if isinstance(each.like, int) else dtype
            outputs.append(ArraySpec(each.dtype or like, (1,) * _rank(name, each)))
        outputs += [ArraySpec(BY_NAME["uint8"], (1,)) for _ in declared.with_role(Role.SCRATCH)]
        found[tuple(inputs), tuple(outputs)] = None
    return list(found)


def _rank(name: str, param: Param) -> int:
    if param.axes is None:
        raise ArgumentError(
            f"kernels.{name}: the signature does not say how many axes {param.name or 'an array'} has",
            hints=("write them, as in arg[n k], or arg[] for a number",),
        )
    return sum(axis != LEADING for axis in param.axes)
