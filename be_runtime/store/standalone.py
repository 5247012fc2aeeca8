"""The Python of kernels that need only JAX where they are installed: ``_kernels/__init__.py``. Pure."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Mapping
from typing import Any

from be_runtime.call.resolve import CallSignature
from be_runtime.call.signature import describe
from be_runtime.errors import ArgumentError
from be_runtime.signature.grammar import parse_spec
from be_runtime.signature.model import AttrKind, Param, Role
from be_runtime.store.bundle import Index, image_file, target_name
from be_runtime.store.contents import Handlers, parse_contents
from be_runtime.store.images import required_flags
from be_toolchain.terminal import printable

STANDALONE = "__init__.py"
"""Name of the file: the folder of a bundle is then a Python package."""

_HEAD = '''\
"""Kernels of {package}, built ahead of time. They need only JAX.

    import jax
    from {package} import _kernels

    _kernels.call("{example}", result=jax.ShapeDtypeStruct((3,), "float32"))(...)

Each kernel is also a function, which takes the arrays, `result` and the attributes at once. Written by
`python -m be_runtime build --standalone`, which replaces this file.
"""

import ctypes
import hashlib
import importlib.metadata
import importlib.resources
import os
from typing import Any

import jax
import numpy as np

TARGETS = {targets}
"""The FFI target of each kernel, for `jax.ffi.ffi_call`."""

_IMAGES = {images}
"""The files of code, and the platform of each."""

_STAGES = {stages}
"""The file of each target, and the symbol of its handler for each stage."""

_ATTRIBUTES = {attributes}
"""The attributes of each kernel: the type of its numbers, that in which XLA carries them, whether it is an array."""

_CPU_FLAGS = {flags}
"""Flags in /proc/cpuinfo of the instructions that the code has."""

_libraries: dict[str, Any] = {{}}


def _library(file: str) -> Any:
    """Map a file of code, once, if it is what was built."""
    if file not in _libraries:
        part = importlib.resources.files(__name__) / file
        expected = file.rpartition("/")[2].partition(".")[0]
        with importlib.resources.as_file(part) as path:
            if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
                raise ImportError(f"{{path}} is damaged: install {package} again")
            _libraries[file] = ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    return _libraries[file]


def _check_cpu() -> None:
    """Refuse a CPU that lacks instructions."""
    with open("/proc/cpuinfo") as file:
        has = next((line.partition(":")[2].split() for line in file if line.startswith("flags")), _CPU_FLAGS)
    lacking = sorted(set(_CPU_FLAGS) - set(has))
    if lacking:
        raise ImportError(f"the kernels of {package} need a CPU with {{', '.join(lacking)}}")


def _register() -> None:
    """Register the targets of the platforms that are installed."""
    if _CPU_FLAGS:
        _check_cpu()
    plugins = importlib.metadata.entry_points(group="jax_plugins")
    has_cuda = any("cuda" in plugin.name for plugin in plugins)
    for target, (file, stages) in _STAGES.items():
        if _IMAGES[file] == "cpu" or has_cuda:
            library = _library(file)
            handlers = {{stage: jax.ffi.pycapsule(getattr(library, symbol)) for stage, symbol in stages.items()}}
            jax.ffi.register_ffi_target(target, handlers, platform=_IMAGES[file])


def _carried(name: str, value: Any, form: Any) -> Any:
    """Return an attribute as XLA carries it."""
    if form is None:
        return str(value)
    if isinstance(form, dict):
        return {{field: _carried(f"{{name}}.{{field}}", each, form[field]) for field, each in value.items()}}
    kind, carried, is_array = form
    found = np.frombuffer(np.asarray(value, jax.numpy.dtype(kind)).tobytes(), carried)
    if not is_array and found.dtype == np.uint64 and found[0] >= 2**63:
        raise OverflowError(f"{{name}} is {{value}}, and jax.ffi takes integers below 2**63")
    return found if is_array else found[0]


def call(name: str, result: Any, **options: Any) -> Any:
    """Return a kernel as a function of arrays and attributes.

    Parameters
    ----------
    name : str
        One of `TARGETS`.
    result : jax.ShapeDtypeStruct or sequence of them
        Shapes and dtypes of the results.
    **options
        As for `jax.ffi.ffi_call`, such as ``vmap_method``.
    """
    forms = _ATTRIBUTES[name]
    function = jax.ffi.ffi_call(TARGETS[name], result, **options)

    def run(*arrays: Any, **attributes: Any) -> Any:
        unknown = sorted(set(attributes) - set(forms))
        if unknown:
            raise TypeError(f"{{name}} has no attribute {{unknown[0]!r}}; it has {{', '.join(forms) or 'none'}}")
        return function(*arrays, **{{key: _carried(key, value, forms[key]) for key, value in attributes.items()}})

    return run

'''

_CLASS = '''
class {module}:
    """Kernels of the module {module}."""
'''

_FUNCTION = '''
    @staticmethod
    def {function}(*arrays: Any, result: Any, **attributes: Any) -> Any:
        """{doc}"""
        return call("{module}.{function}", result)(*arrays, **attributes)
'''

_TAKEN = frozenset(["Any", "call", "ctypes", "hashlib", "importlib", "jax", "np", "os"])


def render_standalone(package: str, index: Index) -> str:
    """Write the Python file for a bundle.

    Parameters
    ----------
    package : str
        Name of the package.
    index : Index

    Raises
    ------
    ArgumentError
        A kernel needs more than JAX.
    """
    refuse_launched(package, index.functions)
    targets, attributes, classes = {}, {}, []
    owners: dict[str, list[str]] = {}
    for module, row in index.modules.items():
        functions = parse_contents(row["functions"])
        for function, handlers in functions.items():
            signature = _signature(f"{package}.{module}.{function}", handlers)
            name = f"{module}.{function}"
            targets[name] = _own(_target(index, row["image"], handlers), package)
            attributes[name] = {each.name: _form(signature.label, each) for each in signature.with_role(Role.ATTR)}
            owners.setdefault(function, []).append(module)
        if _is_free(module):
            shown = ((each, _signature(each, found)) for each, found in functions.items() if _is_free(each))
            texts = [
                _FUNCTION.format(module=module, function=each, doc=_doc(found, f"{module}.{each}"))
                for each, found in shown
            ]
            classes.append(_CLASS.format(module=module) + "".join(texts))
    alone = [(name, of[0]) for name, of in owners.items() if len(of) == 1 and _is_free(name) and _is_free(of[0])]
    head = _HEAD.format(
        package=package,
        example=next(iter(targets)),
        targets=_literal(targets),
        images=_literal({image_file(digest, image): image.platform for digest, image in index.images.items()}),
        stages=_literal(
            {
                _own(name, package): (image_file(target.image, index.images[target.image]), dict(target.stages))
                for name, target in index.targets.items()
            }
        ),
        attributes=_literal(attributes),
        flags=sorted({flag for image in index.images.values() for flag in required_flags(image.baseline)}),
    )
    aliases = [f"{name} = {module}.{name}\n" for name, module in alone if name not in index.modules]
    return "\n\n".join([head + "\n".join(classes), "".join(aliases), "_register()\n"])


def refuse_launched(package: str, kernels: Iterable[str]) -> None:
    """Refuse kernels without host code.

    Raises
    ------
    ArgumentError
        There are some.
    """
    for name in kernels:
        raise _refused(f"kernels.{name} of {package}", "it has no host code, and is launched")


def _signature(label: str, handlers: Handlers) -> CallSignature:
    named = zip(parse_spec(handlers.spec), handlers.names or ("",) * len(handlers.spec), strict=False)
    params = tuple(param if param.name else param._replace(name=name) for param, name in named)
    if any(param.role is Role.SCRATCH and param.axes is not None for param in params):
        raise _refused(label, "its scratch memory is measured in each call")
    return CallSignature(label, params, handlers.doc)


def _target(index: Index, image: str, handlers: Handlers) -> str:
    names = (target_name(image, symbol) for symbol in (handlers.graph, handlers.plain))
    return next(name for name in names if name in index.targets)


def _own(target: str, package: str) -> str:
    """Return a name that no other package has: XLA refuses a second copy of an image under the name of the first."""
    return f"{target}.{package}"


def _form(label: str, param: Param) -> Any:
    """Return how XLA carries an attribute; None for a text."""
    match param.kind:
        case AttrKind.STRING | AttrKind.ENUM:
            return None
        case AttrKind.STRUCT:
            forms = {field.name: _form(label, field) for field in param.fields}
            arrays = [name for name, form in forms.items() if isinstance(form, tuple) and form[2]]
            if arrays:  # JAX hashes attributes, and arrays in dictionaries have no hash
                raise _refused(label, f"{param.name}.{arrays[0]} is an array in a structure")
            return forms
        case AttrKind.DTYPE:
            raise _refused(label, f"its attribute {param.name} is a dtype")
    assert param.dtype is not None, "discovery gives every attribute a type"
    if param.kind is AttrKind.ARRAY:
        return (param.dtype.name, param.dtype.array_type.name, True)
    return (param.dtype.name, param.dtype.attr_type.name, param.dtype.attr_parts > 0)


def _refused(what: str, reason: str) -> ArgumentError:
    return ArgumentError(
        f"{what} can't be standalone: {reason}, which takes be_runtime",
        hints=("build without --standalone, and let the package depend on brainevent-toolchain",),
    )


def _doc(signature: CallSignature, name: str) -> str:
    """Return the docstring of a function: the author's text, the arg_spec, and a call."""
    arrays = [each.name or f"array{number}" for number, each in enumerate(signature.with_role(Role.ARG))]
    given = [
        f"{each.name}={'...' if each.default is None else repr(each.default)}"
        for each in signature.with_role(Role.ATTR)
    ]
    text = f"{describe(signature)}\n\nCall it as {name}({', '.join([*arrays, 'result=...', *given])})."
    escaped = printable(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "\n".join(f"        {line}".rstrip() for line in escaped.splitlines()).lstrip() + "\n        "


def _is_free(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("_") and name not in _TAKEN


def _literal(table: Mapping[str, object]) -> str:
    """Write a table, each row in a line of its own."""
    return "".join(["{\n", *(f"    {name!r}: {value!r},\n" for name, value in sorted(table.items())), "}"])
