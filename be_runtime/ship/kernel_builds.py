"""Declared kernels without host code, built ahead of time: rows of an index, and images."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from be_runtime.call.kernel_signature import read_signature
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda import raw
from be_runtime.kernels.cuda.describe import Kernel
from be_runtime.kernels.cuda.images import Images, kernel_record
from be_runtime.kernels.cuda.launcher import carried_launcher, launcher_image
from be_runtime.kernels.numba.cpu.compiler import check_kernel
from be_runtime.kernels.numba.cpu.host_library import build_host_kernel
from be_runtime.kernels.numba.cpu.signature import Signature, check_count, signature_of
from be_runtime.kernels.numba.gpu import numba_cuda
from be_runtime.kernels.numba.gpu.numba_calls import takes_batches
from be_runtime.kernels.numba.gpu.numba_compiler import NumbaKernel, check_dispatcher
from be_runtime.load.session import Session
from be_runtime.request.options import check_arch_list
from be_runtime.ship.changes import record_sources
from be_runtime.ship.kernel_functions import cuda_function, numba_cuda_function
from be_runtime.ship.kernel_tables import (
    KernelTable,
    call_options,
    imported,
    include_paths,
    read_source,
    read_table,
)
from be_runtime.ship.part import Part
from be_runtime.spec.axes import LEADING
from be_runtime.spec.model import Param, Role
from be_runtime.xla.arrays import ArraySpec
from be_toolchain.arch import Arch, parse_archs

Arrays = tuple[tuple[ArraySpec, ...], tuple[ArraySpec, ...]]
"""Inputs, and outputs with scratch memory; of the shapes only the number of axes counts."""


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
        Architectures of CUDA code. PTX of the latest is built too, where the compiler gives it.
    baseline : str
        CPU of host code, see `be_runtime.bundle.baseline`.
    session : Session

    Raises
    ------
    ArgumentError, SpecError
        The table is wrong.
    BuildError, ToolchainError
        It can't be compiled, or not ahead of time.
    """
    read = read_table(name, table)
    call_options(read.call)
    if read.language == "numba":
        return _host(name, read, root, baseline, session)
    given = check_arch_list(read.compiling.get("compute_capability"), "compute_capability")
    wanted = parse_archs(given or ",".join(archs))
    return (_raw if read.language == "cuda" else _numba_cuda)(name, read, root, wanted, session)


def _raw(name: str, read: KernelTable, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    options = read.compiling
    kernel = raw.raw_kernel(
        read_source(name, read, root),
        options.get("name", name),
        options.get("extra_cuda_cflags"),
        include_paths(read, root),
        use_fast_math=options.get("use_fast_math", False),
    )
    prototype = raw.prototype_of(kernel)
    record = read.options | {
        "language": read.language,
        "name": prototype.name,
        "label": prototype.label,
        "doc": None,
        "parameters": [each._asdict() | {"dtype": each.dtype and each.dtype.name} for each in prototype.params],
        "sources": record_sources(root, [root / read.source, *_headers(include_paths(read, root))]),
    }
    cuda_function(record, _not_yet)  # its checks come before the compiler
    return _launched(name, record, [([], raw.build_raw(kernel, archs, session, with_ptx=True))], session)


def _headers(folders: Sequence[str]) -> Iterator[Path]:
    """List the files that a raw kernel may include; which it does include, its compiler does not always say."""
    return (path for folder in folders for path in Path(folder).rglob("*"))


def _numba_cuda(name: str, read: KernelTable, root: Path, archs: tuple[Arch, ...], session: Session) -> Part:
    dispatcher = _checked(check_dispatcher, name, read)
    prototype = numba_cuda.prototype_of(dispatcher, read.signature)
    record = _described(read, prototype.name, prototype.parameters, prototype.doc, root, dispatcher)
    numba_cuda_function(record, _not_yet)
    with_batch = takes_batches(prototype, read.signature, call_options(read.call))
    kernels = [NumbaKernel(dispatcher, *arrays, with_batch) for arrays in _variants(name, read, prototype.parameters)]
    for each in kernels:
        numba_cuda.check_arrays(each)
    made = [(each.types_text(), numba_cuda.build_numba(each, archs, session, with_ptx=True)) for each in kernels]
    return _launched(name, record, made, session)


def _not_yet(*_arrays: object) -> Any:
    raise AssertionError("nothing calls a kernel while it is built")


def _launched(name: str, record: dict[str, Any], made: Sequence[tuple[list[str], Kernel]], session: Session) -> Part:
    """Add the kernels of the variants, and the launcher."""
    launcher = carried_launcher(launcher_image(session))
    images: Images = {**launcher.images}
    kernels, variants = {}, []
    for types, kernel in made:
        identity, row, own = kernel_record(kernel)
        images |= own
        kernels[identity] = row
        variants.append({"types": types, "kernel": identity})
    record |= {"launcher": launcher.target, "variants": variants}
    return Part(images, {launcher.target: launcher.row}, kernels, functions={name: record})


def _host(name: str, read: KernelTable, root: Path, baseline: str, session: Session) -> Part:
    dispatcher = _checked(check_kernel, name, read)
    function = dispatcher.py_func
    parameters = tuple(inspect.signature(function).parameters)
    record = _described(read, function.__name__, parameters, function.__doc__, root, dispatcher)
    images: Images = {}
    targets, variants = {}, []
    for inputs, outputs in _variants(name, read, parameters):
        signature = signature_of(inputs, outputs)
        check_count(function, function.__name__, signature)
        made = build_host_kernel(dispatcher, signature, session, baseline)
        images |= made.images
        targets[made.target] = made.row
        variants.append({**_rows(signature), "target": made.target})
    return Part(images, targets, functions={name: record | {"variants": variants}})


def _checked(check: Callable[[object], Any], name: str, read: KernelTable) -> Any:
    try:
        return check(imported(name, read))
    except TypeError as error:
        raise ArgumentError(f"kernels.{name}: {read.source}: {error}") from error


def _rows(signature: Signature) -> dict[str, list[list[str | int]]]:
    return {side: [[each.dtype.name, each.rank] for each in row] for side, row in signature._asdict().items()}


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
    """List the arrays that a kernel is built for: for each dtype, those that the signature declares."""
    declared = read_signature(name, read.signature, parameters)
    assert declared is not None, "a table has a signature"
    sides = declared.with_role(Role.ARG), (*declared.with_role(Role.RET), *declared.with_role(Role.SCRATCH))
    return list(dict.fromkeys(_arrays(name, *sides, dtype) for dtype in read.dtypes))


def _arrays(name: str, args: Sequence[Param], outs: Sequence[Param], dtype: DType) -> Arrays:
    inputs = tuple(ArraySpec(each.dtype or dtype, (1,) * _rank(name, each)) for each in args)
    return inputs, tuple(_outputs(name, outs, inputs, dtype))


def _outputs(name: str, outs: Sequence[Param], inputs: Sequence[ArraySpec], dtype: DType) -> Iterator[ArraySpec]:
    for each in outs:
        if each.role is Role.SCRATCH:
            yield ArraySpec(BY_NAME["uint8"], (1,))
        else:
            like = inputs[each.like].dtype if isinstance(each.like, int) else dtype
            yield ArraySpec(each.dtype or like, (1,) * _rank(name, each))


def _rank(name: str, param: Param) -> int:
    if param.axes is None:
        raise ArgumentError(
            f"kernels.{name}: the signature does not say how many axes {param.name or 'an array'} has",
            hints=("write them, as in arg[n k], or arg[] for a number",),
        )
    return sum(axis != LEADING for axis in param.axes)
