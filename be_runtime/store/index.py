"""The index of an artifact: code images by hash, the tables of functions, and the inputs of the code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar

from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError
from be_runtime.own_files import ABI, FFI_CLAIM, check_abi
from be_runtime.request.options import Language
from be_runtime.store.folder import DIGEST
from be_toolchain.arch import Arch, runs_on
from be_toolchain.machine.trust import LARGEST
from be_toolchain.named import NamedTuple

INDEX, IMAGES = "index.json", "images"
"""Names of the index and of the folder of images in an artifact's folder."""

FORMAT = 1
"""Version of the format. Raise it if an older reader would misunderstand the index."""

LARGEST_INDEX = 1 << 22
"""Limit in bytes. Parsing 64 MiB of brackets takes 12 s. The index of a module that includes Thrust has 0.6 MB."""

HASH_DIGITS = 32
"""Hexadecimal digits of an image's hash in the names of its targets."""

Kind = Literal["library", "cubin", "ptx", "hsaco", "program"]
_ENDINGS: dict[Kind, str] = {"library": "so", "cubin": "cubin", "ptx": "ptx", "hsaco": "hsaco", "program": "stablehlo"}

_LONGEST_TEXT, _MOST_TEXTS, _MOST_FOLDERS = 1024, 30_000, 100_000
"""Limits of `Inputs`. A module that includes Thrust has 9,000 texts."""

T = TypeVar("T")


def serves(built: Sequence[Arch], wanted: Sequence[Arch]) -> bool:
    """Return whether a library runs on all wanted architectures; it has PTX of its highest plain architecture.

    Examples
    --------
    >>> serves([Arch(8, 0), Arch(9, 0, "a")], [Arch(8, 6)])
    True
    >>> serves([Arch(9, 0, "a")], [Arch(10, 0)])
    False
    """
    ptx = [max(generic)] if (generic := [arch for arch in built if not arch.suffix]) else []
    code = [*((arch, False) for arch in built), *((arch, True) for arch in ptx)]
    return all(any(runs_on(arch, each, is_ptx=is_ptx) for arch, is_ptx in code) for each in wanted)


def lacking_arch(archs: Sequence[str], wanted: Sequence[Arch]) -> str:
    """Return the reason that code does not run on all wanted architectures; empty if it does.

    Examples
    --------
    >>> lacking_arch(["8.0"], [Arch.parse("9.0a")])
    'its code for sm_80 does not run on sm_90a'
    """
    built = tuple(map(Arch.parse, archs))
    if not built or serves(built, wanted):
        return ""
    have, want = ("/".join(arch.sm for arch in each) for each in (built, wanted))
    return f"its code for {have} does not run on {want}"


class CodeImage(NamedTuple):
    """One file of code; its key in the index is the SHA-256 of its bytes.

    Parameters
    ----------
    kind : {"library", "cubin", "ptx", "hsaco", "program"}
        An hsaco is a code object for AMD GPUs, a program is the output of ``jax.export``.
    platform : str
        JAX's name of the platform: ``"cpu"``, ``"CUDA"`` or ``"ROCM"``; empty for a program.
    size : int
        In bytes.
    archs : tuple of str
        Architectures of its device code, such as ``"9.0"`` or ``"gfx942"``.
    baseline : str
        Instruction level of its host code, such as ``"x86-64-v3"``; empty for the level of every such machine.
    """

    kind: Kind
    platform: str
    size: int
    archs: tuple[str, ...] = ()
    baseline: str = ""


class ImageTarget(NamedTuple):
    """An FFI target, and the image with its handlers.

    Parameters
    ----------
    image : str
        Hash of the image.
    platform : str
    stages : dict of str to str
        Symbol of the handler for each stage: ``"execute"``, and ``"instantiate"`` where there is one.
    """

    image: str
    platform: str
    stages: Mapping[str, str]


class Inputs(NamedTuple):
    """The inputs of an artifact, for another machine; paths begin with names of `be_runtime.store.sharing.Roots`.

    Parameters
    ----------
    digest, kind, name : str
        Digest, kind and name of the movable key.
    dependencies, others : tuple of (str, str)
        Path and hash of each input, see `Manifest`.
    absent : tuple of (str, int, tuple of str)
        Folders, each with the names that the build did not find in it. The number is the position of the first row
        for the same folder.
    host : str
        Machine of the build.
    seconds : float
        Duration of the build.
    """

    digest: str
    kind: str
    name: str
    dependencies: tuple[tuple[str, str], ...] = ()
    others: tuple[tuple[str, str], ...] = ()
    absent: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    host: str = ""
    seconds: float = 0.0


class Index(NamedTuple):
    """The index of an artifact.

    Parameters
    ----------
    machine : str
        Machine of the host code, as returned by ``platform.machine()``.
    images : dict of str to CodeImage
    targets : dict of str to ImageTarget
    kernels : dict
        Kernels for the launcher, by id; see `be_runtime.kernels.launcher`.
    modules, functions : dict
        Rows for calls from Python, by name; empty in an exported program.
    program : dict
        Description of an exported program; empty in a package.
    inputs : Inputs or None
        Inputs of the code, if the artifact moves between machines.
    """

    machine: str
    images: Mapping[str, CodeImage]
    targets: Mapping[str, ImageTarget] = {}
    kernels: Mapping[str, Any] = {}
    modules: Mapping[str, Any] = {}
    functions: Mapping[str, Any] = {}
    program: Mapping[str, Any] = {}
    inputs: Inputs | None = None

    @property
    def image(self) -> str:
        """Hash of the only image.

        Raises
        ------
        ValueError
            There are several, or none.
        """
        (digest,) = self.images
        return digest


def target_name(image: str, symbol: str) -> str:
    """Return the name of a target, which is equal in every process, and different for different code.

    Examples
    --------
    >>> target_name("0123456789abcdef" * 4, "be_ffi_ops_fire")
    'be.0123456789abcdef0123456789abcdef.be_ffi_ops_fire'
    """
    return f"be.{image[:HASH_DIGITS]}.{symbol}"


def image_file(digest: str, image: CodeImage) -> str:
    """Return the path of an image in an artifact's folder.

    Examples
    --------
    >>> image_file("00ff", CodeImage("library", "cpu", 10))
    'images/00ff.so'
    """
    return f"{IMAGES}/{digest}.{_ENDINGS[image.kind]}"


def render_index(index: Index) -> str:
    """Write an index as JSON. Equal indexes give equal text.

    Raises
    ------
    ArgumentError
        The index is larger than a reader accepts.
    """
    document = {
        "format": FORMAT,
        "abi": ABI,
        "ffi": FFI_CLAIM,
        **index._asdict(),
        "images": {digest: image._asdict() for digest, image in index.images.items()},
        "targets": {name: target._asdict() for name, target in index.targets.items()},
        "inputs": index.inputs and index.inputs._asdict(),
    }
    if index.inputs is None:
        del document["inputs"]
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if len(text) > LARGEST_INDEX:
        raise ArgumentError(
            f"the kernels have an index of more than {LARGEST_INDEX >> 20} MiB", hints=("split them in two",)
        )
    return text


def parse_index(text: str | bytes, where: str) -> Index:
    """Parse the text of `render_index`, and check its types.

    Parameters
    ----------
    text : str or bytes
    where : str
        Place of the artifact, for messages.

    Raises
    ------
    LoadError
        The index is damaged, or has a format or ABI that this release does not read.
    """
    with reading(where):
        if len(text) > LARGEST_INDEX:
            raise ValueError(f"it has more than {LARGEST_INDEX >> 20} MiB")
        document = json.loads(text)
        number, abi = typed(int, document["format"]), typed(int, document["abi"])
    if number != FORMAT:
        hint = "update brainevent-toolchain here" if number > FORMAT else "build it again with this release"
        raise LoadError(f"{where} has format {number}, and this be_runtime reads format {FORMAT}", hints=(hint,))
    check_abi(abi, where)
    with reading(where):
        images = {digest: _image(digest, row) for digest, row in document["images"].items()}
        return Index(
            machine=typed(str, document["machine"]),
            images=images,
            targets={name: _target(name, row, images) for name, row in document["targets"].items()},
            **{name: typed(dict, document[name]) for name in ("kernels", "modules", "functions", "program")},
            inputs=_inputs(document["inputs"]) if "inputs" in document else None,
        )


def _image(digest: str, row: Mapping[str, Any]) -> CodeImage:
    image = CodeImage(**row)
    typed(int, image.size)
    _texts(image.platform, image.baseline, *typed(list, image.archs))
    if (
        image.kind not in _ENDINGS or not DIGEST.fullmatch(digest) or not 0 <= image.size <= LARGEST
    ):  # the digest names a file
        raise ValueError(f"an image {digest!r} of kind {image.kind!r}")
    return image._replace(archs=tuple(image.archs))


def _target(name: str, row: Mapping[str, Any], images: Mapping[str, CodeImage]) -> ImageTarget:
    target = ImageTarget(**row)
    _texts(target.platform, target.stages["execute"], *target.stages.values())
    if images[target.image].kind != "library" or not name.startswith(target_name(target.image, "")):
        raise ValueError(f"the target {name!r} of the image {target.image!r}")
    return target


def _inputs(row: Mapping[str, Any]) -> Inputs:
    """Check the types and the limits of the inputs, which another machine wrote."""
    inputs = Inputs(**row)
    inputs = inputs._replace(
        dependencies=_rows(inputs.dependencies, str, str),
        others=_rows(inputs.others, str, str),
        absent=_rows(inputs.absent, str, int, list),
    )
    texts = [inputs.digest, inputs.kind, inputs.name, inputs.host]
    texts += [text for pair in (*inputs.dependencies, *inputs.others) for text in pair]
    texts += [text for folder, _, names in inputs.absent for text in (folder, *names)]
    _texts(*texts)
    is_small = len(texts) <= _MOST_TEXTS and sum(text.count("/") for text in texts) <= _MOST_FOLDERS
    is_time = type(inputs.seconds) in (int, float) and math.isfinite(inputs.seconds)
    if not is_small or max(map(len, texts)) > _LONGEST_TEXT or any(at < 0 for _, at, _ in inputs.absent) or not is_time:
        raise ValueError("its inputs are not possible")
    return inputs._replace(absent=tuple((folder, at, tuple(names)) for folder, at, names in inputs.absent))


def _rows(rows: Any, *kinds: type) -> tuple[Any, ...]:
    """Check a list of lists whose items have exactly these types."""
    if any(type(row) is not list or (*map(type, row),) != kinds for row in typed(list, rows)):
        raise TypeError(f"a row that is not of {len(kinds)} values of the right types")
    return tuple(map(tuple, rows))


def _texts(*values: object) -> None:
    """Check that every value of an index is a str."""
    for value in values:
        typed(str, value)


def typed(kind: type[T], value: object) -> T:
    """Return a value of an index; raise TypeError unless it has exactly this type."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of the type {kind.__name__}")
    return value


@contextlib.contextmanager
def reading(where: str) -> Iterator[None]:
    """Convert errors about the values of an index to a `LoadError` that names it, except errors of this package.

    Raises
    ------
    LoadError
        A value in the index is not valid.
    """
    try:
        yield
    except BeRuntimeError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise LoadError(
            f"{where} has a damaged index: {type(error).__name__}: {error!s:.300}",
            hints=("copy, install or build it again",),
        ) from error


ENDS = "ends the process"
"""Beginning of a line of `Handlers.warning` about the function, see `be_runtime.errors.ExitWarning`."""


class Handlers(NamedTuple):
    """One function of a module: the symbols of its handlers, and its call signature.

    Parameters
    ----------
    plain, graph : str
        Symbols of the handlers without and with the trait that lets a command buffer capture them.
    warning : str
        Warning to show when the module is loaded; empty for most functions. Further lines begin with `ENDS`, or are
        about the module, see `be_runtime.errors.DeviceCodeWarning`; its first function has them.
    call_name : str
        Qualified C++ name of the function.
    spec : tuple of str
        Tokens of its arg_spec, with all types.
    names : tuple of str
        C++ name of the parameter for each token; empty if the names are unknown.
    doc : str
        The author's description.
    instantiate : str
        Symbol of the handler that makes the state; empty for a function without state.
    """

    plain: str
    graph: str
    warning: str = ""
    call_name: str = ""
    spec: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    doc: str = ""
    instantiate: str = ""

    def stages(self, *, captures_graphs: bool) -> dict[str, str]:
        """Return the symbol of the handler for each stage.

        Examples
        --------
        >>> Handlers("be_ffi_f", "be_graph_f").stages(captures_graphs=True)
        {'execute': 'be_graph_f'}
        """
        execute = {"execute": self.graph if captures_graphs else self.plain}
        return {"instantiate": self.instantiate, **execute} if self.instantiate else execute


def render_contents(functions: Mapping[str, Handlers]) -> str:
    """Format the functions of a module as JSON, so that a load reads no source."""
    return json.dumps({"functions": functions})


def parse_contents(text: str | bytes) -> dict[str, Handlers]:
    """Parse the text of `render_contents`.

    Examples
    --------
    >>> parse_contents(render_contents({"f": Handlers("be_ffi_f", "be_graph_f", spec=("arg", "ret"))}))["f"].spec
    ('arg', 'ret')
    """
    rows: dict[str, list[Any]] = json.loads(text)["functions"]
    return {
        name: Handlers._make(tuple(each) if isinstance(each, list) else each for each in row)
        for name, row in rows.items()
    }


class ModuleRecord(NamedTuple):
    """The row of a compiled module in an index.

    Parameters
    ----------
    language : {"cpp", "cuda"}
    image : str
        Hash of its library.
    functions : str
        See `render_contents`.
    sources : dict of str to str
        Hash of each source file of the package.
    captures_graphs : bool
    content, origin : str
        See `be_runtime.load.module.ModuleDescription`; if empty, the hash of the library is used.
    request : str
        Key of the request, as JSON, if modules are found by their request.
    """

    language: Language
    image: str
    functions: str
    sources: Mapping[str, str]
    captures_graphs: bool = True
    content: str = ""
    origin: str = ""
    request: str = ""

    @classmethod
    def read(cls, row: Mapping[str, Any], where: str) -> Self:
        """Make a record from the row of an index, after a check of its types.

        Raises
        ------
        LoadError
            A field is missing, unknown or of another type.
        """
        with reading(where):
            record = cls(**row)
            sources = typed(dict, record.sources)
            _texts(record.image, record.functions, record.content, record.origin, record.request)
            _texts(*sources, *sources.values())
            typed(bool, record.captures_graphs)
            if record.language not in ("cpp", "cuda"):
                raise ValueError(f"{record.language!r} is not a language")
            return record

    def contents(self) -> dict[str, Handlers]:
        """Return the functions of the module, after a check of their types.

        Raises
        ------
        ValueError, LookupError, TypeError, AttributeError
            The index is damaged.
        """
        found = parse_contents(self.functions)
        for handlers in found.values():
            for value in handlers:
                _texts(*(value if type(value) is tuple else (value,)))
        return found


class Demand(NamedTuple):
    """The machines that an exported target must run on.

    Parameters
    ----------
    baseline : str
        Instruction level of host code, such as ``"x86-64-v3"``; empty for the level of every such machine.
    archs : tuple of str
        Architectures of device code, such as ``"9.0"``; empty to take the code as it was compiled.
    kernel : str
        Id of the kernel that a call of the launcher names; empty for other targets.
    """

    baseline: str
    archs: tuple[str, ...] = ()
    kernel: str = ""


class Carried(NamedTuple):
    """The code of a target for an exported program.

    Parameters
    ----------
    library : str
        Hash of the library with the handlers.
    stages : dict of str to str
        Symbol of the handler for each stage.
    images : dict of str to (CodeImage, bytes)
        The library, and images of the kernel, by hash.
    symbol : str
        Last part of the target's name; by default the symbol of its handler.
    kernel : str
        Id of the kernel, derived from its content.
    kernels : dict
        Row of the kernel in the index.
    """

    library: str
    stages: Mapping[str, str]
    images: Mapping[str, tuple[CodeImage, bytes]]
    symbol: str = ""
    kernel: str = ""
    kernels: Mapping[str, object] = {}

    @property
    def target(self) -> str:
        """The name of the target."""
        return target_name(self.library, self.symbol or self.stages["execute"])

    @property
    def row(self) -> ImageTarget:
        """The row of the target in an index."""
        return ImageTarget(self.library, self.images[self.library][0].platform, self.stages)


Carry = Callable[[Demand], Carried]
"""Function that returns a target's code for a demand."""


def carried_library(image: CodeImage, data: bytes, stages: Mapping[str, str]) -> Carried:
    """Return the code of a target that needs one library and nothing else."""
    digest = hashlib.sha256(data).hexdigest()
    return Carried(digest, stages, {digest: (image, data)})
