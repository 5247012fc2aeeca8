"""Build a package's kernels without host code into rows of an index and images, and open them from there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.call.array_function import ArrayFunction
from be_runtime.call.compiled_function import KernelTarget
from be_runtime.call.function import SourceFunction
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.call.signature import read_signature
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels import cubin, cute, cutile, launcher, raw, triton
from be_runtime.kernels.device_code import KernelFacts
from be_runtime.kernels.geometry import DEFAULT_THREADS
from be_runtime.kernels.numba import cpu, gpu
from be_runtime.kernels.numba.cpu_library import build_host_kernel
from be_runtime.kernels.parameters import with_constants
from be_runtime.kernels.raw import RawLayout, raw_function
from be_runtime.kernels.source import Bound, Code, Obtained, Variant
from be_runtime.kernels.tile_types import Array, Hint
from be_runtime.load.module import ModuleInfo
from be_runtime.load.prebuilt import register_image_target
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session
from be_runtime.request.options import check_arch_list, check_bool
from be_runtime.ship.declaration import (
    KernelTable,
    call_options,
    file_of,
    imported,
    include_paths,
    read_source,
    read_table,
)
from be_runtime.ship.package_store import Part, record_sources
from be_runtime.signature.model import LEADING, Param, Role
from be_runtime.store.artifact import Artifact
from be_runtime.store.index import Demand, reading, typed
from be_toolchain.arch import Arch, parse_archs


def open_function(record: Mapping[str, Any], artifact: Artifact) -> Callable[..., Any]:
    """Return the function of a kernel that was built ahead of time, whose first call maps the code.

    Parameters
    ----------
    record : mapping
        The kernel's row of ``functions``, as `build_function` made it.
    artifact : Artifact
    """
    if record["language"] == "numba":
        source = _BuiltHostSource(record, artifact)
        options = call_options(record["call"])
        return cpu.host_array_function(
            record["name"], record["parameters"], record["doc"], source, record["signature"], options
        )
    if record["language"] == "cute":
        called = cute.called_signature(record["label"], record["signature"], record["doc"])
        return SourceFunction(called, _BuiltLibraries(record, artifact, called), call_options(record["call"]))
    return _GPU_FUNCTIONS[record["language"]](record, _BuiltCode(record, artifact))


class _BuiltCode:
    """The variants of a kernel for GPUs, each read at its first call."""

    def __init__(self, record: Mapping[str, Any], artifact: Artifact) -> None:
        self._record, self._artifact = record, artifact
        self._made = launcher.Memo[Obtained]()

    def obtain(self, _call: Resolved, bound: Bound) -> Obtained:
        """Return the kernel for the types of a call, or else the kernel for more general types."""
        with reading(self._artifact.where):
            variants: dict[Variant, str] = {tuple(each["types"]): each["kernel"] for each in self._record["variants"]}
        found = next((variants[each] for each in (bound.variant, bound.general) if each in variants), None)
        if found is None:
            with reading(self._artifact.where):
                built = [_shown(each) for each in variants]
            raise _not_built(self._record["label"], _shown(bound.general or bound.variant), built)
        return self._made.get(found, lambda: self._read(found))

    def _read(self, identity: str) -> Obtained:
        target, artifact = self._record["launcher"], self._artifact
        with reading(artifact.where):
            row = artifact.table.targets[target]
            own = launcher.launcher_of(target, lambda: artifact.library(row.image), platform=row.platform)
            kernel = launcher.kernel_of(identity, artifact.table.kernels[identity], artifact.image)
        return Obtained(kernel, own)


class _NoCode:
    """Placeholder for code that is not built yet: a declaration is checked before the compiler runs."""

    def obtain(self, _call: Resolved, _bound: Bound) -> Obtained:
        raise AssertionError("nothing calls a kernel while it is built")


def _cuda_function(record: Mapping[str, Any], code: Code) -> Callable[..., Any]:
    """Return the function of a raw kernel."""
    params = [launcher.KernelParam(**row)._replace(dtype=BY_NAME.get(row["dtype"])) for row in record["parameters"]]
    layout = RawLayout(record["name"], record["label"], tuple(params))
    sizes = {"shared_mem": 0, "cluster": None, **record["launch"]}
    return raw_function(layout, code, record["signature"], sizes, call_options(record["call"]))


def _numba_cuda_function(record: Mapping[str, Any], code: Code) -> Callable[..., Any]:
    """Return the function of a Numba CUDA kernel."""
    is_memref = bool(record.get("is_memref"))
    layout = gpu.NumbaLayout(record["name"], tuple(record["parameters"]), record["doc"], is_memref)
    sizes = {**dict.fromkeys(("grid", "block", "launch_dims")), "threads_per_block": DEFAULT_THREADS, "shared_mem": 0}
    options = call_options(record["call"])
    return gpu.numba_function(layout, code, record["signature"], sizes | record["launch"], options)


def _cubin_function(record: Mapping[str, Any], code: Code) -> Callable[..., Any]:
    """Return the function of a kernel in a cubin."""
    name, given = record["name"], record["facts"]
    declared = cubin.declare(name, record["signature"])
    facts = KernelFacts(tuple(given["sizes"]), given["most_threads"], given["block"] and tuple(given["block"]))
    sizes = {"shared_mem": 0, "cluster": None, **record["launch"]}
    make = partial(cubin.fitting_geometry, label=name, facts=facts)
    options = call_options(record["call"])
    return raw_function(declared.layout(name), code, declared.signature, sizes, options, make=make)


def _triton_function(record: Mapping[str, Any], code: Code) -> Callable[..., Any]:
    """Return the function of a Triton kernel."""
    options = call_options(record["call"])
    blocks = {name: tuple(shape) for name, shape in record["blocks"].items()}
    names, signature, num_ctas = record["parameters"], record["signature"], record["num_ctas"]
    if num_ctas not in triton.OPTIONS["num_ctas"]:
        raise ValueError(f"num_ctas is {num_ctas!r}")
    layout = triton.layout_of(record["label"], names, signature, num_ctas, blocks, options)
    source = triton.launch_source(layout, code, record["launch"]["grid"], options)
    return ArrayFunction(triton.array_kernel(layout, source), options)


def _cutile_function(record: Mapping[str, Any], code: Code) -> Callable[..., Any]:
    """Return the function of a cuTile kernel."""
    options = call_options(record["call"])
    hints = {name: Hint(bits) for name, bits in record["bits"].items()}
    if any(hint.bits not in (8, 16, 32, 64) for hint in hints.values()):
        raise ValueError(f"bits is {record['bits']}")
    layout = cutile.layout_of(
        record["label"],
        record["parameters"],
        record["signature"],
        hints,
        options,
        is_programmatic=record["is_programmatic"],
    )
    return cutile.tile_function(layout, code, record["launch"]["grid"], options)


_GPU_FUNCTIONS = {
    "cuda": _cuda_function,
    "cubin": _cubin_function,
    "numba_cuda": _numba_cuda_function,
    "triton": _triton_function,
    "cutile": _cutile_function,
}


class _BuiltHostSource(cpu.HostSource):
    """The variants of a Numba CPU kernel."""

    def __init__(self, record: Mapping[str, Any], artifact: Artifact) -> None:
        super().__init__()
        self._name, self._artifact = record["name"], artifact
        self._built, self._registered = {}, set[str]()
        for row in record["variants"]:
            sides = (
                tuple(cpu.Parameter(BY_NAME[name], rank) for name, rank in row[side]) for side in cpu.Signature._fields
            )
            self._built[cpu.Signature(*sides)] = row["target"]

    def register(self, inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec]) -> str:
        """Register the target of a variant."""
        signature = cpu.signature_of(inputs, outputs, cpu.LACKING)
        target = self._built.get(signature)
        if target is None:
            raise _not_built(self._name, str(signature), [str(each) for each in self._built])
        if target not in self._registered:
            with reading(self._artifact.where):
                register_image_target(target, self._artifact, PROCESS.registry)
            self._registered.add(target)
        return str(target)


class _BuiltLibraries:
    """The libraries of a CuTe DSL function for combinations of dtypes, a `KernelSource`."""

    def __init__(self, record: Mapping[str, Any], artifact: Artifact, called: CallSignature) -> None:
        self._artifact, self._called, self._label = artifact, called, typed(str, record["label"])
        self._divisible = {axis: typed(int, divisor) for axis, divisor in record["divisible"].items()}
        if any(divisor < 1 for divisor in self._divisible.values()):
            raise ValueError(f"divisible is {self._divisible}")
        self._built = {tuple(row["types"]): typed(str, row["target"]) for row in record["variants"]}
        self._registered = launcher.Memo[str]()

    def target(self, call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        """Return the target for a call; the first call registers it."""
        cute.check_divisible(self._label, self._divisible, call.values)
        types = tuple(each.name for each in cute.array_dtypes(self._called, call.inputs, call.results))
        if types not in self._built:
            raise _not_built(self._label, ", ".join(types), [", ".join(each) for each in self._built])
        target = self._registered.get(types, lambda: self._register(self._built[types]))
        return KernelTarget((("cuda", target),), tuple(scalars.items()))

    def _register(self, target: str) -> str:
        with reading(self._artifact.where):
            register_image_target(target, self._artifact, PROCESS.registry)
        return target


def _shown(variant: Variant) -> str:
    """Describe types for a message."""
    return ", ".join(Array.parse(text).shown if text.startswith("[") else text for text in variant)


def _not_built(label: str, asked: str, built: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        f"{label} was not built for {asked}; it was built for {' and '.join(built)}",
        hints=("name the dtype in dtypes of its table in kernels.toml, or cast the arrays",),
    )


Arrays = tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]
"""Inputs, and outputs with scratch memory; only the number of axes matters."""


def build_function(
    name: str,
    table: Mapping[str, Any],
    package: str,
    root: Path,
    archs: Sequence[str],
    baseline: str,
    session: Session,
) -> Part:
    """Build a declared kernel.

    Parameters
    ----------
    name : str
    table : mapping
    package : str
        Name of the package.
    root : Path
        Folder of the package.
    archs : sequence of str
        Architectures of CUDA code. PTX for the latest is also built if the compiler supports it.
    baseline : str
        CPU of host code, see `be_runtime.store.images`.
    session : Session

    Raises
    ------
    ArgumentError, SpecError
        The table is invalid.
    BuildError, ToolchainError
        The kernel can't be compiled, or can't be compiled ahead of time.
    """
    read = read_table(name, table)
    call_options(read.call)
    if read.language == "cubin":
        return _cubin(name, read, root, session)
    if read.language == "numba":
        return _host(name, read, package, root, baseline, session)
    given = check_arch_list(read.compiling.get("compute_capability"), "compute_capability")
    wanted = parse_archs(given or ",".join(archs))
    if read.language == "cuda":
        return _raw(name, read, root, wanted, session)
    build = {"triton": _triton, "cutile": _cutile, "cute": _cute, "numba_cuda": _numba_cuda}[read.language]
    return build(name, read, package, root, wanted, session)


def _raw(name: str, read: KernelTable, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    options, folders = read.compiling, include_paths(read, root)
    given = {"source": read_source(name, read, root), "name": name, **options, "extra_include_paths": folders}
    kernel = raw.raw_kernel(given)
    layout = raw.layout_of(kernel)
    # The compiler does not always report the headers that it read, so all possible headers are recorded.
    headers = (path for folder in folders for path in Path(folder).rglob("*"))
    record = read.options | {
        "language": read.language,
        "name": layout.name,
        "label": layout.label,
        "doc": None,
        "parameters": [each._asdict() | {"dtype": each.dtype and each.dtype.name} for each in layout.params],
        "sources": record_sources(root, [root / read.source, *headers]),
    }
    _cuda_function(record, _NoCode())  # its checks run before the compiler
    return _launched(name, record, [((), kernel.build(archs, session, with_ptx=True))], session)


def _cubin(name: str, read: KernelTable, root: Path, session: Session) -> Part:
    path, given = file_of(name, read, root), {"name": name, "cooperative": False, **read.compiling}
    is_cooperative = check_bool(given["cooperative"], "cooperative")
    kernel, _, facts = cubin.read_kernel(path, given["name"], read.signature, is_cooperative=is_cooperative)
    record = read.options | {
        "language": read.language,
        "name": kernel.name,
        "label": kernel.name,
        "facts": facts._asdict(),
        "sources": record_sources(root, [path]),
    }
    _cubin_function(record, _NoCode())
    return _launched(name, record, [((), kernel)], session)


def _triton(name: str, read: KernelTable, package: str, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    function = imported(name, read, package)
    given = dict(read.compiling)
    constants = given.pop("constants", {})
    given.pop("compute_capability", None)
    blocks = given.pop("block_shapes", {})
    kernel, layout = triton.read_kernel(function, read.signature, constants, given, blocks, call_options(read.call))
    names = [each for each, _ in layout.arguments]
    record = _described(read, kernel.name, triton.parameter_names(function), None, root, function.fn)
    record |= {"launch": {"grid": with_constants(kernel.name, read.launch["grid"], dict(kernel.constants))}}
    record |= {"num_ctas": layout.num_ctas, "blocks": layout.blocks}
    _triton_function(record, _NoCode())
    made = [
        (variant, kernel.for_variant(names, variant).build(archs, session, with_ptx=True))
        for inputs, outputs in _variants(name, read, layout.declared.signature)
        for variant in layout.variants((*inputs, *outputs))
    ]
    return _launched(name, record, made, session)


def _cutile(name: str, read: KernelTable, package: str, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    given = dict(read.compiling)
    given.pop("compute_capability", None)
    constants, is_programmatic = given.pop("constants", {}), given.pop("programmatic_dependent_launch", False)
    kernel, layout = cutile.read_kernel(
        imported(name, read, package),
        read.signature,
        constants,
        given,
        call_options(read.call),
        is_programmatic=check_bool(is_programmatic, "programmatic_dependent_launch"),
    )
    names = [each for each, _ in layout.arguments]
    record = _described(read, kernel.name, names, None, root, kernel.read.pyfunc)
    record |= {"launch": {"grid": with_constants(kernel.name, read.launch["grid"], dict(kernel.constants))}}
    record |= {"bits": {each: hint.bits for each, hint in layout.hints.items()}, "is_programmatic": is_programmatic}
    _cutile_function(record, _NoCode())
    made = [
        (variant, kernel.for_variant(names, variant).build(archs, session))
        for inputs, outputs in _variants(name, read, layout.declared.signature)
        for variant in layout.variants((*inputs, *outputs))
    ]
    return _launched(name, record, made, session)


def _cute(name: str, read: KernelTable, package: str, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    given, function = dict(read.compiling), imported(name, read, package)
    constants, divisible = given.pop("constants", {}), given.get("divisible", {})
    allow_cuda_graph = check_bool(given.get("allow_cuda_graph", True), "allow_cuda_graph")
    options = given.get("compile_options", "")
    kernel, called = cute.read_kernel(function, read.signature, constants, divisible, options)
    if len(archs) > 1:
        raise ArgumentError(
            f"kernels.{name} would be built for {', '.join(arch.sm for arch in archs)}, and CuTe DSL makes code for "
            "one architecture",
            hints=("name one in compute_capability",),
        )
    record = _described(read, kernel.name, [*kernel.params], called.doc, root, function) | {"divisible": divisible}
    images: launcher.Images = {}
    targets, variants = {}, []
    for inputs, outputs in _variants(name, read, called):
        dtypes = cute.array_dtypes(called, inputs, outputs)
        arch = cute.accelerated(archs[0])
        module = cute.load_cute(cute.with_types(kernel, dtypes), arch, session, allow_cuda_graph=allow_cuda_graph)
        made = ModuleInfo.of(module).carry(kernel.name, Demand(""))
        images |= made.images
        targets[made.target] = made.row
        variants.append({"types": [dtype.name for dtype in dtypes], "target": made.target})
    return Part(images, targets, functions={name: record | {"variants": variants}})


def _numba_cuda(
    name: str, read: KernelTable, package: str, root: Path, archs: tuple[Arch, ...], session: Session
) -> Part:
    dispatcher = _checked(gpu.check_dispatcher, name, read, package)
    layout = gpu.layout_of(dispatcher, read.signature)
    record = _described(read, layout.name, layout.parameters, layout.doc, root, dispatcher.py_func)
    record |= {"is_memref": True} if layout.is_memref else {}
    _numba_cuda_function(record, _NoCode())
    with_batch = gpu.takes_batches(layout, read.signature, call_options(read.call))
    declared = read_signature(layout.name, read.signature, layout.parameters)
    kernels = [gpu.NumbaKernel(dispatcher, *arrays, with_batch) for arrays in _variants(name, read, declared)]
    for each in kernels:
        gpu.check_arrays(each)
    made = [(tuple(each.types_text()), each.build(archs, session, with_ptx=True)) for each in kernels]
    return _launched(name, record, made, session)


def _launched(
    name: str, record: dict[str, Any], made: Sequence[tuple[Variant, launcher.Kernel]], session: Session
) -> Part:
    """Make the part of a GPU kernel: its variants and the launcher."""
    carried = launcher.carried_launcher(launcher.launcher_image(session))
    images: launcher.Images = {**carried.images}
    kernels, variants = {}, []
    for types, kernel in made:
        identity, row, own = launcher.kernel_record(kernel)
        images |= own
        kernels[identity] = row
        variants.append({"types": list(types), "kernel": identity})
    record |= {"launcher": carried.target, "variants": variants}
    return Part(images, {carried.target: carried.row}, kernels, functions={name: record})


def _host(name: str, read: KernelTable, package: str, root: Path, baseline: str, session: Session) -> Part:
    dispatcher = _checked(cpu.check_kernel, name, read, package)
    function = dispatcher.py_func
    parameters = tuple(inspect.signature(function).parameters)
    record = _described(read, function.__name__, parameters, function.__doc__, root, function)
    declared = read_signature(name, read.signature, parameters)
    images: launcher.Images = {}
    targets, variants = {}, []
    for inputs, outputs in _variants(name, read, declared):
        signature = cpu.signature_of(inputs, outputs)
        cpu.check_count(function, function.__name__, signature)
        made = build_host_kernel(dispatcher, signature, session, baseline)
        images |= made.images
        targets[made.target] = made.row
        rows = {side: [[each.dtype.name, each.rank] for each in row] for side, row in signature._asdict().items()}
        variants.append({**rows, "target": made.target})
    return Part(images, targets, functions={name: record | {"variants": variants}})


def _checked(check: Callable[[object], Any], name: str, read: KernelTable, package: str) -> Any:
    """Import the function of a Numba kernel, and return its checked dispatcher."""
    try:
        return check(imported(name, read, package))
    except TypeError as error:
        raise ArgumentError(f"kernels.{name}: {read.source}: {error}") from error


def _described(
    read: KernelTable, name: str, parameters: Sequence[str], doc: str | None, root: Path, function: Any
) -> dict[str, Any]:
    file = inspect.getsourcefile(function)
    return read.options | {
        "language": read.language,
        "name": name,
        "label": name,
        "doc": doc,
        "parameters": list(parameters),
        "sources": record_sources(root, [Path(file)] if file else []),
    }


def _variants(name: str, read: KernelTable, declared: CallSignature | None) -> list[Arrays]:
    """Return the arrays for which a kernel is built: the signature's arrays once for each dtype."""
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
            f"kernels.{name}: the signature does not state how many axes {param.name or 'an array'} has",
            hints=("write them, as in arg[n k], or arg[] for a number",),
        )
    return sum(axis != LEADING for axis in param.axes)
