"""JAX's exported programs: export them, rename their custom calls, write and read them."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from be_runtime.errors import LoadError, RegistrationError
from be_runtime.jax.internals import mlir
from be_runtime.jax.partition import TARGET as PARTITIONER
from be_runtime.jax.sizes import Measure

Rename = Callable[[str, str], tuple[str, str]]
"""Function from a call's target and kernel to the new ones; the kernel is empty for a call without a kernel."""

_KERNEL = "kernel"
"""Attribute of the launcher's calls that names the kernel."""

_NAME = re.compile(r'loc\("([^"]*)"[()]')
"""The location of a named operation; in the location of a line of a file, numbers follow the name."""

_FOREIGN = re.compile(r"custom_call @([^(]+)\(")
"""The target in JAX's message about a call that it refuses to export."""

_CONFIGS = ("backend_config", "mhlo.backend_config")
"""Names under which a call has its attributes. JAX writes the second one, which older releases read, too."""


def export_program(
    function: Any,
    args: Sequence[Any],
    platforms: Sequence[str] | None,
    targets: Callable[[], Sequence[str]],
    rename: Rename,
) -> Any:
    """Export a function with JAX, and rename its calls.

    Parameters
    ----------
    function : callable
        A jitted function.
    args : sequence
        Arrays, or shapes and dtypes.
    platforms : sequence of str or None
    targets : callable
        Function that returns this package's targets, which JAX by itself refuses to export.
    rename : callable

    Raises
    ------
    RegistrationError
        The program calls a target that is neither ours nor JAX's.
    LoadError
        A package that ``jax.export`` needs is not installed.
    """
    export = _jax_export()
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    jitted.trace(*args)  # most kernels are registered when they are traced
    known = list(targets())
    while True:
        try:
            program = export.export(jitted, platforms=platforms, disabled_checks=_checks([*known, PARTITIONER]))(*args)
        except ValueError as error:
            if known == (known := list(targets())):  # no more were registered while it was lowered
                foreign = _FOREIGN.search(str(error))
                raise (known_here_alone(repr(foreign[1])) if foreign else error) from None
        except RuntimeError as error:
            if "host_callbacks" not in str(error):
                raise
            raise known_here_alone("a function of Python, as in jax.pure_callback or jax.debug.print,") from None
        else:
            return _renamed(program, rename)


def known_here_alone(target: str) -> RegistrationError:
    """Return the error for a program that calls a target whose code can't be exported."""
    return RegistrationError(
        f"{target} can't be exported: its code exists in this process alone",
        hints=(
            "kernels of load_*, package_kernels, and kernels of CUDA, Numba, Triton and the like can be exported",
            (
                "Python functions, Warp's kernels, function objects of TVM-FFI, and handlers given to "
                "register_ffi_target can't"
            ),
        ),
    )


def read_program(data: bytes | memoryview, described: Mapping[str, Any]) -> Any:
    """Read the bytes of `Exported.serialize`; `described` is the program's description by `describe_program`.

    Raises
    ------
    LoadError
        JAX can't read it, or a package that ``jax.export`` needs is not installed.
    """
    export, serialized = _jax_export(), bytearray(data)
    if b"be_runtime.jax.primitive" in serialized:  # classes of effects, which JAX must know
        import be_runtime.jax.primitive  # noqa: F401
    try:
        program = export.deserialize(serialized)
        if described["jax"] != jax.__version__:  # this takes milliseconds, and JAX repeats it when it compiles
            with mlir.make_ir_context() as context:
                stablehlo.deserialize_portable_artifact(context, program.mlir_module_serialized)
        problem = "" if program.nr_devices == described["devices"] else "it misreads its fields"
    except Exception as error:  # noqa: BLE001 - flatbuffers and MLIR raise anything
        problem = str(error)
    if problem:
        raise LoadError(
            f"JAX {jax.__version__} can't read the program, which JAX {described['jax']} exported: {problem}",
            hints=("export it with this JAX", f"or install jax=={described['jax']}"),
        )
    return program


def callable_program(program: Any) -> Callable[..., Any]:
    """Return a function that compiles a program on its first call."""
    return jax.jit(program.call)


def describe_program(program: Any) -> dict[str, Any]:
    """Describe a program for readers of its file."""
    return {
        "function": program.fun_name,
        "in": [each.str_short() for each in program.in_avals],
        "out": [each.str_short() for each in program.out_avals],
        "platforms": list(program.platforms),
        "devices": program.nr_devices,
        "jax": jax.__version__,
    }


def default_platforms() -> list[str]:
    """Return the platforms for which a program is exported by default."""
    return [jax.default_backend()]


def device_archs() -> dict[str, list[str]]:
    """Return the architectures of JAX's local devices by platform, with the platforms' names in exported programs."""
    try:
        devices = jax.local_devices(backend="cuda")
    except RuntimeError:  # there are no such devices, or JAX's settings exclude them
        return {"cpu": []}
    return {"cpu": [], "CUDA": [str(device.compute_capability) for device in devices]}


def _jax_export() -> Any:
    try:
        import flatbuffers  # noqa: F401 - jax.export needs it, and fails only when it writes
        import jax.export
    except ImportError as error:
        raise LoadError(
            f"jax.export needs the package {error.name}, which is not installed",
            hints=("pip install flatbuffers absl-py",),
        ) from error
    return jax.export


def _checks(targets: Sequence[str]) -> list[Any]:
    return [_jax_export().DisabledSafetyCheck.custom_call(name) for name in targets]


def _renamed(program: Any, rename: Rename) -> Any:
    """Return a program whose calls have other targets and kernels."""
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        module = stablehlo.deserialize_portable_artifact(context, program.mlir_module_serialized)
        operations = list(_operations(module.operation))
        used = {_rename_call(each, rename) for each in operations if each.name == "stablehlo.custom_call"}
        _forget_places(module, operations)
        data = _serialize(module)
    checks = tuple(_checks(sorted(used)))
    return dataclasses.replace(program, mlir_module_serialized=data, disabled_safety_checks=checks)


def _serialize(module: Any) -> bytes:
    """Serialize a module for JAX releases of the last month and later, as ``jax.export`` does."""
    month = stablehlo.StablehloCompatibilityRequirement.WEEK_4
    version = stablehlo.get_version_from_compatibility_requirement(month)
    try:
        return bytes(stablehlo.serialize_portable_artifact(module, version, allow_other_dialects=True))  # Shardy's
    except TypeError:  # older JAX, which has no such argument and no Shardy
        return bytes(stablehlo.serialize_portable_artifact(module, version))


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region:
            for each in block:
                yield each.operation
                yield from _operations(each.operation)


def _forget_places(module: Any, operations: Sequence[Any]) -> None:
    """Remove the locations in the author's files, but keep the names of operations, which profiles show.

    Equal functions are then equal programs, wherever their sources are. With the MLIR of older JAX releases, the names
    are removed, too.
    """
    try:
        for each in operations:
            name = _NAME.match(str(each.location))
            each.location = ir.Location.name(name[1]) if name else ir.Location.unknown()
    except AttributeError:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


def _rename_call(call: Any, rename: Rename) -> str:
    """Rename the target and kernel of one call, also of a split call, and return the call's own target."""
    known = _named(call.attributes)
    target = _text(known["call_target_name"])
    if target == PARTITIONER:
        fields = json.loads(_text(known["backend_config"]))
        kernel = fields["attributes"].get(_KERNEL, "")
        fields["target"], renamed = rename(fields["target"], kernel.strip('"'))
        measures = [Measure(*each) for each in fields["split"]["measured"]]
        fields["split"]["measured"] = [each._replace(targets=(fields["target"],)) for each in measures]
        if kernel:
            fields["attributes"][_KERNEL] = f'"{renamed}"'
        call.attributes["backend_config"] = ir.StringAttr.get(json.dumps(fields, sort_keys=True))
        return target
    place = next((each for each in _CONFIGS if isinstance(known.get(each), ir.DictAttr)), "")
    attributes = _named(known[place]) if place else {}
    kernel = _text(attributes.get(_KERNEL))
    name, renamed = rename(target, kernel)
    if renamed != kernel:
        call.attributes[place] = ir.DictAttr.get({**attributes, _KERNEL: ir.StringAttr.get(renamed)})
    call.attributes["call_target_name"] = ir.StringAttr.get(name)
    return name


def _named(attributes: Any) -> dict[str, Any]:
    """Return attributes by name; iteration over them yields different types in different releases."""
    pairs = [attributes[index] for index in range(len(attributes))]
    return {each.name: each.attr for each in pairs}


def _text(attribute: Any) -> str:
    """Return the text of an attribute; empty if the attribute is not a text."""
    return str(attribute.value) if isinstance(attribute, ir.StringAttr) else ""
