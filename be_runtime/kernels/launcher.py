"""GPU kernels without host code: their images and parameters, the cache of compiled ones, and the native launcher."""

from __future__ import annotations

import ctypes
import hashlib
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from be_runtime import dtypes, errors
from be_runtime.jax import port
from be_runtime.load import obtain, process, registry
from be_runtime.load.identity import Field
from be_runtime.request.build_tools import no_architecture, wanted_archs
from be_runtime.settings import require_jit
from be_runtime.store import cache, index, keys
from be_runtime.store.artifact import write_images
from be_runtime.store.images import library_bytes
from be_toolchain.arch import Arch, GpuArch, parse_gpu_arch, runs_on
from be_toolchain.find.record import device_archs
from be_toolchain.machine.forks import ThreadLock

if TYPE_CHECKING:
    from be_runtime.store.sharing import Shareable


ID_DIGITS = 32
"""Hexadecimal digits of a kernel's id."""


TARGET = "be_runtime.launch"
"""FFI target of launches by the launcher that a session builds."""

SYMBOL = "be_launch"
"""Last part of the target's name for a launcher in an artifact."""

STAGES = {"instantiate": "be_launch_instantiate", "execute": "be_launch_execute"}
"""Symbols of a launcher's handlers by their stages."""

CUDA = port.PLATFORMS["cuda"]
_NATIVE, _LDFLAGS = {CUDA: "launcher"}, ("-ldl",)
"""The source of the launcher for each platform, and linker flags."""


class Form(IntEnum):
    """The work of one launch of an image: one call or a batch."""

    SINGLE = 0
    BATCH = 1


class KernelImage(NamedTuple):
    """A kernel compiled for one architecture.

    Parameters
    ----------
    arch : Arch or AmdArch
        Architecture that it was compiled for.
    entry : str
        Name of the kernel in the image.
    data : bytes
        A cubin, PTX text, or a code object for AMD GPUs.
    is_ptx : bool
        True for PTX.
    form : Form
        One call, or a batch along an axis of the grid.
    batch_axis : int
        Axis of the grid for a batch, 1 or 2.
    is_cooperative : bool
        True if the kernel synchronizes its whole grid.
    extra : tuple of int
        Numbers of its compiler for the launch; the function that made the image reads them.
    """

    arch: GpuArch
    entry: str
    data: bytes
    is_ptx: bool = False
    form: Form = Form.SINGLE
    batch_axis: int = 0
    is_cooperative: bool = False
    extra: tuple[int, ...] = ()

    @property
    def cuda_arch(self) -> Arch:
        """The architecture of an image for NVIDIA's GPUs."""
        assert isinstance(self.arch, Arch), "CUDA's launcher and tools get no image for other GPUs"
        return self.arch

    @property
    def described(self) -> index.CodeImage:
        """The image's row in an index."""
        kind: index.Kind = "ptx" if self.is_ptx else "hsaco" if self.arch.language == "hip" else "cubin"
        return index.CodeImage(kind, port.PLATFORMS[self.arch.language], len(self.data), (str(self.arch),))


class Kernel(NamedTuple):
    """A kernel for the launcher.

    Parameters
    ----------
    id : str
        Hash of the kernel's content, equal in every process.
    name : str
        Name in messages.
    images : tuple of KernelImage
    """

    id: str
    name: str
    images: tuple[KernelImage, ...]

    @property
    def platform(self) -> str:
        """JAX's name of the platform that runs the kernel: ``"CUDA"`` or ``"ROCM"``."""
        (platform,) = {image.described.platform for image in self.images}
        return platform

    @property
    def batch_axis(self) -> int:
        """The axis of the grid that a batch may use on every device; 0 for none."""
        axes = {image.arch: 0 for image in self.images}
        axes |= {image.arch: image.batch_axis for image in self.images if image.form is Form.BATCH}
        (axis, *others) = set(axes.values())
        return 0 if others else axis

    @property
    def is_cooperative(self) -> bool:
        """True if the whole grid must run at once."""
        return any(image.is_cooperative for image in self.images)


class KernelParam(NamedTuple):
    """One parameter of a kernel.

    Parameters
    ----------
    name : str
        Name; may be empty.
    type : str
        Type as written.
    is_pointer : bool
    is_const : bool
        True if the kernel can't write to the memory behind the pointer.
    dtype : DType or None
        Element type; None if unknown.
    """

    name: str
    type: str
    is_pointer: bool
    is_const: bool
    dtype: dtypes.DType | None


def content_id(images: Sequence[KernelImage]) -> str:
    """Hash images into the id of a kernel whose source has no stable identity."""
    digest = hashlib.sha256()
    for image in images:
        kind = f"{image.arch} {image.is_ptx} {image.form}"
        for part in (kind.encode(), image.entry.encode(), image.data):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:ID_DIGITS]


Images = dict[str, tuple[index.CodeImage, bytes]]
"""Descriptions and bytes of images by their hashes."""


class Compiled(NamedTuple):
    """A compiler's output.

    Parameters
    ----------
    images : tuple of KernelImage
    read : BuildOutput
        Files that the compiler read.
    compiler : tuple of str
        The compiler's own description, which does not depend on its path.
    """

    images: tuple[KernelImage, ...]
    read: cache.BuildOutput = cache.BuildOutput(())
    compiler: tuple[str, ...] = ()


class Origin(NamedTuple):
    """The part of a kernel's id that describes its source.

    The id is part of the JAX program, which must be equal on all hosts. So the id consists of contents, of the
    compiler's own description, and of names below the author's folders. The cache's key also contains the paths and the
    version of our own code.

    Parameters
    ----------
    key : CacheKey
        All inputs of the compilation, except the files that are read.
    folders : tuple of Path
        Folders in which the author's headers are searched, in order.
    compilers : callable
        Function that returns fields that identify the compilers by content; the cache's key has their paths.
    """

    key: keys.CacheKey
    folders: tuple[Path, ...] = ()
    compilers: Callable[[], tuple[Field, ...]] = tuple


def obtain_kernel(
    key: keys.CacheKey, origin: Origin, compile_now: Callable[[Path], Compiled], name: str, session: registry.Session
) -> Kernel:
    """Return the kernel of a key from the cache, or compile it once for all processes.

    Parameters
    ----------
    key : CacheKey
        Key of the kernel in this machine's cache.
    origin : Origin
        Source of its id.
    compile_now : callable
        Function that compiles the kernel in an empty folder, its argument.

    Raises
    ------
    CacheError
        The cache's folder can't be used, or another process takes too long to compile the same kernel.
    """
    recipe = _KernelRecipe(key, origin, compile_now, name, session)
    attempts = obtain.Attempts(session)
    while attempts.should_try():
        entry = obtain.find_or_build(recipe, session.module_store, session, force=attempts.must_rebuild)
        with attempts.using(entry):
            artifact = entry.artifact()
            with index.reading(artifact.where):
                (row,) = artifact.table.kernels.values()
                kernel = kernel_of(_identify(origin, row["compiler"], entry), {**row, "name": name}, artifact.image)
    return kernel


def compile_uncached(name: str, session: registry.Session, compile_now: Callable[[None], Compiled]) -> Kernel:
    """Compile a kernel without a key, since its content can't be read.

    Raises
    ------
    LoadError
        ``BE_JIT`` is ``never``.
    """
    require_jit(session.settings, name)
    images = compile_now(None).images
    return Kernel(content_id(images), name, images)


class _KernelRecipe(NamedTuple):
    """The making of a kernel's images, see `be_runtime.load.obtain.Recipe`."""

    key: keys.CacheKey
    origin: Origin
    compile_now: Callable[[Path], Compiled]
    name: str
    session: registry.Session

    def make(self, folder: Path) -> cache.BuildOutput:
        """Compile the kernel."""
        settings = self.session.settings
        require_jit(settings, self.name)
        try:
            compiled = self.compile_now(folder)
        except errors.BuildError as error:
            if settings.verbose:
                obtain.say_output(error)
            raise
        identity, row, images = kernel_record(Kernel("", self.name, compiled.images))
        table = index.Index(
            platform.machine(),
            {digest: image for digest, (image, _) in images.items()},
            kernels={identity: row | {"compiler": compiled.compiler}},
        )
        names = write_images(folder, table, {digest: data for digest, (_, data) in images.items()})
        return compiled.read._replace(outputs=names)

    def share(self) -> Shareable:
        """Return the part of the entry that other machines can use."""
        return share_kernel(self.key, self.origin, self.session)


def share_kernel(key: keys.CacheKey, origin: Origin, session: registry.Session) -> Shareable:
    """Describe a kernel's entry for other machines."""
    folders = [*map(str, origin.folders)]  # the options have no paths, and one may lie in another
    contents = keys.make_key(key.kind, ("compilers", ""), ("folders", folders), *origin.compilers())
    fields = {**dict(key.fields), **dict(origin.key.fields), **dict(contents.fields)}
    return obtain.shareable(keys.CacheKey(key.kind, tuple(sorted(fields.items()))), session, origin.folders)


def _identify(origin: Origin, compiler: Sequence[str], entry: cache.Entry) -> str:
    """Hash the inputs of a kernel into its id, and also the outputs if an input is unknown."""
    manifest = entry.manifest
    key = keys.make_key(
        "kernel-id",
        ("origin", origin.key.digest),
        ("compiler", compiler),
        ("read", sorted(_contents(manifest.dependencies.paths, manifest.dependencies.sha256s, origin.folders))),
        ("made", manifest.outputs.sha256s if manifest.uncertain else ()),
    )
    return key.digest[:ID_DIGITS]


def _contents(paths: Sequence[str], digests: Sequence[str], folders: Sequence[Path]) -> Iterator[str]:
    """Describe each file by its content, and by its path below one of the folders or else its file name."""
    for path, digest in zip(map(Path, paths), digests, strict=True):
        found = ((at, folder) for at, folder in enumerate(folders) if path.is_relative_to(folder))
        at, folder = next(found, (-1, path.parent))
        yield f"{digest} {at} {path.relative_to(folder)}"


def _image(row: Mapping[str, Any], data: bytes) -> KernelImage:
    """Make an image from its row and its data; raise TypeError or ValueError for an invalid row."""
    fields = {name: value for name, value in row.items() if name != "image"}
    image = KernelImage(**fields, data=data)
    index.typed(str, image.entry)
    index.typed(int, image.batch_axis)
    for flag in (image.is_ptx, image.is_cooperative):
        index.typed(bool, flag)
    extra = tuple(index.typed(int, number) for number in image.extra)
    return image._replace(arch=parse_gpu_arch(str(image.arch)), form=Form(image.form), extra=extra)


def kernel_record(kernel: Kernel) -> tuple[str, dict[str, Any], Images]:
    """Describe a kernel for an index: its id, which hashes its content alone, its row and its images.

    Examples
    --------
    >>> from be_toolchain.arch import Arch
    >>> id, row, images = kernel_record(Kernel("", "scale", (KernelImage(Arch(9, 0), "scale", b"code"),)))
    >>> row["images"][0]["arch"], [image.kind for image, _ in images.values()]
    ('9.0', ['cubin'])
    """
    rows, images = [], Images()
    for image in kernel.images:
        digest, arch = hashlib.sha256(image.data).hexdigest(), str(image.arch)
        row = image._asdict() | {"arch": arch, "form": int(image.form), "image": digest}
        rows.append({name: value for name, value in row.items() if name != "data" and (name != "extra" or value)})
        images[digest] = image.described, image.data
    return content_id(kernel.images), {"name": kernel.name, "images": rows}, images


def kernel_of(id_: str, record: Mapping[str, Any], read: Callable[[str], bytes]) -> Kernel:
    """Make the kernel that `kernel_record` describes.

    Parameters
    ----------
    id_ : str
    record : mapping
        Row of the kernel.
    read : callable
        Function that returns the bytes of an image by its hash.
    """
    return Kernel(id_, record["name"], tuple(_image(row, read(row["image"])) for row in record["images"]))


def archs_of(record: Mapping[str, Any]) -> tuple[str, ...]:
    """List the architectures of a kernel's code; ``"9.0+PTX"`` stands for code that also runs on later ones.

    Examples
    --------
    >>> archs_of({"images": [{"arch": "8.0", "is_ptx": False}, {"arch": "9.0", "is_ptx": True}]})
    ('8.0', '9.0+PTX')
    """
    return tuple(dict.fromkeys(row["arch"] + "+PTX" * row["is_ptx"] for row in record["images"]))


def lacking(record: Mapping[str, Any], devices: tuple[Arch, ...]) -> str:
    """Return the reason why a kernel's code runs on no device of several; empty if it runs on one, or without devices.

    Examples
    --------
    >>> record = {"images": [{"arch": "8.0", "is_ptx": False}]}
    >>> lacking(record, (Arch(8, 6),))
    ''
    >>> lacking(record, (Arch(9, 0),))
    'it has code for 8.0, and the GPU here is 9.0'
    """
    code = [(arch, row["is_ptx"]) for row in record["images"] if isinstance(arch := parse_gpu_arch(row["arch"]), Arch)]
    if not devices or any(runs_on(arch, device, is_ptx=is_ptx) for device in devices for arch, is_ptx in code):
        return ""
    return f"it has code for {', '.join(archs_of(record))}, and the GPU here is {', '.join(map(str, devices))}"


Again = Callable[[tuple[Arch, ...]], Kernel]
"""Function that compiles a kernel for other architectures."""


class _Image(ctypes.Structure):
    """``be_launch_image`` of ``native/launcher.cc``."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("arch", "is_ptx", "is_exact", "form")),
        *(("entry", ctypes.c_char_p), ("data", ctypes.c_char_p), ("size", ctypes.c_int64)),
    )


class Launcher:
    """A loaded launcher and the kernels that are defined in it.

    Parameters
    ----------
    library : ctypes.CDLL
    target : str
        Name of its target, which this object registers.
    read : callable
        Function that returns the library's bytes for exported programs.
    platform : str
        JAX's name of the platform whose kernels it launches.
    """

    def __init__(self, library: ctypes.CDLL, target: str, read: Callable[[ctypes.CDLL], bytes], platform: str) -> None:
        self.target, self.platform = target, platform
        self._library, self._read = library, read
        self._define = library.be_launch_define
        self._define.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Image), ctypes.c_int64)
        self._define.restype = None
        self._known: dict[str, tuple[Kernel, Again | None]] = {}
        self._lock = ThreadLock()
        stages = {stage: getattr(library, symbol) for stage, symbol in STAGES.items()}
        row = registry.Target(name=target, platform=platform, content="launcher", carry=self.carry)
        process.PROCESS.registry.add([row], {target: lambda: port.stage_capsules(stages)})

    def define(self, kernel: Kernel, again: Again | None = None) -> None:
        """Define a kernel before its first call; repeated definitions do nothing.

        Parameters
        ----------
        kernel : Kernel
        again : callable, optional
            Function that compiles the kernel for other architectures, for exported programs.
        """
        with self._lock:
            if kernel.id in self._known:
                return
            images = (_Image * len(kernel.images))(*map(_as_struct, kernel.images))
            self._define(kernel.id.encode(), kernel.name.encode(), images, len(images))
            self._known[kernel.id] = (kernel, again)

    def carry(self, wanted: index.Demand) -> index.Carried:
        """Return the launcher and the requested images of a kernel, for an exported program.

        Raises
        ------
        GeneratorError
            There are no images for a requested architecture, and they can't be compiled.
        """
        kernel = _for_archs(*self._known[wanted.kernel], tuple(map(Arch.parse, wanted.archs)))
        name, row, images = kernel_record(kernel)
        made = carried_launcher(self._read(self._library), self.platform)
        return made._replace(images={**made.images, **images}, kernel=name, kernels={name: row})


T = TypeVar("T")


class Memo(Generic[T]):
    """Objects by their keys. Each is made once, while other threads wait."""

    def __init__(self) -> None:
        self._made: dict[object, T] = {}
        self._lock = ThreadLock()

    def get(self, key: object, make: Callable[[], T]) -> T:
        """Return the object of a key."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


class _Launchers(Memo[Launcher]):
    """The launchers of a process by their targets."""


def launcher_of(
    target: str,
    load: Callable[[], ctypes.CDLL],
    read: Callable[[ctypes.CDLL], bytes] = library_bytes,
    platform: str = CUDA,
) -> Launcher:
    """Return this process's launcher of a target; it is loaded and registered on first use.

    Parameters
    ----------
    target : str
    load : callable
        Function that loads its library, called on first use.
    read : callable
        Function that returns the bytes of the library for exported programs.
    platform : str
        JAX's name of the platform whose kernels it launches.
    """
    return process.PROCESS.only(_Launchers, _Launchers).get(target, lambda: Launcher(load(), target, read, platform))


def own_launcher(session: registry.Session, platform: str = CUDA) -> Launcher:
    """Return the launcher that the session takes from its cache or builds.

    Raises
    ------
    ToolchainError, BuildError, LoadError
        The launcher can't be compiled or loaded, or the platform has no launcher.
    """
    from be_runtime.load.native_library import native_library

    if platform not in _NATIVE:
        hint = f"kernels run on {', '.join(_NATIVE)}; others are experimental"
        raise errors.LoadError(f"be_runtime has no launcher for {platform}, so the kernel can't run", hints=(hint,))
    name = _NATIVE[platform]
    return launcher_of(
        TARGET, lambda: native_library(name, session, _LDFLAGS), lambda _: launcher_image(session, platform), platform
    )


def launcher_image(session: registry.Session, platform: str = CUDA) -> bytes:
    """Return the launcher's library, for an artifact."""
    from be_runtime.load.native_library import native_image

    return native_image(_NATIVE[platform], session, _LDFLAGS)


def carried_launcher(data: bytes, platform: str = CUDA) -> index.Carried:
    """Describe a launcher's library for an artifact."""
    image = index.CodeImage("library", platform, len(data))
    return index.carried_library(image, data, STAGES)._replace(symbol=SYMBOL)


def _for_archs(kernel: Kernel, again: Again | None, archs: tuple[Arch, ...]) -> Kernel:
    """Return a kernel with images for the requested architectures, compiled if necessary."""
    built = tuple(dict.fromkeys(image.cuda_arch for image in kernel.images))
    lacking = sorted({*archs} - {*built} - {arch.base for arch in built})
    if lacking and again is None:
        raise errors.GeneratorError(
            f"the kernel {kernel.name} was built for {', '.join(map(str, built))} ahead of time, and not for "
            f"{', '.join(map(str, lacking))}",
            hints=("export for the architectures that it was built for", "or build its package for the others"),
        )
    made = kernel if again is None else again(archs or built)
    built_way, made_way = (
        (each.batch_axis, each.is_cooperative, {image.extra for image in each.images}) for each in (kernel, made)
    )
    if made_way != built_way:
        raise errors.GeneratorError(
            f"the kernel {kernel.name} is launched in another way on {', '.join(map(str, archs))} than on the GPU here",
            hints=("export for these architectures in a process of their own: set_compute_capabilities(...)",),
        )
    kept = (image for image in made.images if not archs or {image.arch, image.cuda_arch.base} & {*archs})
    return made._replace(images=tuple(kept))


def _as_struct(image: KernelImage) -> _Image:
    """Convert an image to the C struct; PTX gets a final zero byte."""
    data = image.data + b"\0" if image.is_ptx else image.data
    arch = image.cuda_arch.major * 10 + image.cuda_arch.minor
    is_exact = image.cuda_arch.suffix == "a"
    return _Image(arch, image.is_ptx, is_exact, image.form, image.entry.encode(), data, len(data))


def ptx_arch(archs: Sequence[Arch], *, with_ptx: bool) -> Arch | None:
    """Return the architecture for PTX, the latest without a suffix; None if no PTX is wanted."""
    return max((arch for arch in archs if with_ptx and not arch.suffix), default=None)


def choose_archs(asked: str | None, session: registry.Session) -> tuple[Arch, ...]:
    """Choose the architectures to compile for: the requested ones, or else the present devices' architectures.

    Raises
    ------
    ArgumentError
        No architecture is requested, and none can be detected.
    """
    detect = partial(device_archs, session.system, record_dir=session.record_dir)
    archs = wanted_archs(asked, session.archs, session.settings, detect)
    if not archs:
        raise no_architecture("the architecture to compile for is not known")
    return archs
