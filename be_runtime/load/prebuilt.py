"""Export compiled modules to a folder, and find them there without a compiler, as in a container image.

::

    <folder>/<name>/<digest>-<architectures>/   an artifact of one module, see `be_runtime.store.artifact`

A module is found by its request: sources, options, and names below the author's folders. The compiler, our release and
the paths of the folders do not matter. The author's files behind the module must be unchanged or missing. A load only
reads the folder.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from be_runtime import checks, errors, own_files
from be_runtime.jax import port
from be_runtime.load import identity, load
from be_runtime.load.module import BuiltLibrary, CompiledModule, ModuleDescription, ModuleInfo
from be_runtime.load.registry import Registry, Target
from be_runtime.request.options import BuildRequest, LoadOptions
from be_runtime.store import images, index, keys
from be_runtime.store.artifact import Artifact, open_folder, write_folder
from be_runtime.store.cache import Cache, Entry
from be_toolchain.arch import Arch
from be_toolchain.machine import local_system, trust

if TYPE_CHECKING:
    from be_runtime.report import ModuleReport

_MODULE, _KIND = "module", "prebuilt"
_OF_BUILD = frozenset({"abi", "ffi", "generator", "xla", "tools", "archs", "toolchain", own_files.HERE})
"""Fields of a module's key that depend on the build; the artifact's index has the ABI."""

_DIGITS = 32
_PER_SOURCE = 4
"""Texts of the field ``sources`` for each source: the unit's stem and path, the source's name and text."""


def register_image_target(name: str, artifact: Artifact, registry: Registry) -> None:
    """Map the image of a target, and register its handlers unless they are registered already.

    Raises
    ------
    LoadError
        The image is damaged, or not for this machine.
    """
    target = artifact.table.targets[name]
    image, library = artifact.table.images[target.image], artifact.library(target.image)
    symbols = {stage: getattr(library, symbol) for stage, symbol in target.stages.items()}

    def carry(wanted: index.Demand) -> index.Carried:
        return index.carried_library(image, images.mapped_bytes(image, library, name, wanted), target.stages)

    content = f"{target.image}:{target.stages['execute']}"
    registry.add([Target(name, target.platform, content, carry)], {name: partial(port.stage_capsules, symbols)})


class PrebuiltQuery(NamedTuple):
    """The key and folders by which a request finds its prebuilt module.

    Parameters
    ----------
    key : CacheKey
        Key of the request, without the paths of the author's folders.
    folders : tuple of Path
        The author's folders: one for each unit, then the folders of headers.
    texts : tuple of str
        The sources and flags, which may name further files.
    """

    key: keys.CacheKey
    folders: tuple[Path, ...]
    texts: tuple[str, ...] = ()


def prebuilt_query(request: BuildRequest) -> PrebuiltQuery:
    """Return the key and folders that find the prebuilt module of a request. Pure."""
    return _query_of(keys.make_key(_MODULE, *identity.request_fields(request)))


def _query_of(key: keys.CacheKey) -> PrebuiltQuery:
    """Remove the paths of the author's folders from a module's key. Pure."""
    texts = key.texts("sources")
    sources, folders = [], []
    for at in range(0, len(texts), _PER_SOURCE):
        stem, path, name, text = texts[at : at + _PER_SOURCE]
        sources += [stem, Path(name).name if path else name, text]
        folders += [Path(path).parent] if path else []
    includes = [Path(path) for path in key.texts("include_paths")]
    placeless = keys.make_key(_KIND, ("sources", sources), ("include_paths", [path.name for path in includes]))
    fields = {label: value for label, value in key.fields if label not in _OF_BUILD} | dict(placeless.fields)
    named = (*texts[_PER_SOURCE - 1 :: _PER_SOURCE], *key.texts("cflags"))
    return PrebuiltQuery(keys.CacheKey(_KIND, (*fields.items(),)), (*dict.fromkeys([*folders, *includes]),), named)


class PrebuiltFolder(NamedTuple):
    """A folder of prebuilt modules, as a store of artifacts.

    Parameters
    ----------
    root : Path
    archs : tuple of Arch
        Architectures on which a module's device code must run; empty if any code is accepted.
    memory : str
        Folder that remembers checks, see `be_runtime.store.images.is_whole`; empty to remember nothing.
    """

    root: Path
    archs: tuple[Arch, ...] = ()
    memory: str = ""

    def get(self, wanted: PrebuiltQuery) -> Artifact | None:
        """Return the artifact of a request's module; None if there is no usable one.

        Raises
        ------
        CacheError
            The folder does not exist, or another user could put libraries there.
        """
        _require_safe(self.root)
        system = local_system.LocalSystem()
        facts = system.folder_facts(self.root)
        if facts.doubtful:  # another user could exchange the folder through a folder above it
            raise errors.CacheError(
                f"prebuilt modules are not loaded: {self.root} {facts.obstacle}",
                hints=(trust.how_to_vouch(system, facts.doubtful),),
            )
        for artifact in self._of(wanted.key):
            if not self._obstacle(artifact._replace(memory=self.memory), wanted):
                return artifact._replace(is_checked=True)
        return None

    def put(self, key: keys.CacheKey, entry: Entry) -> Path | None:
        """Write the artifact of a cached module, and return its folder; None if another process removed the module."""
        wanted = _query_of(key)
        try:
            artifact = entry.artifact()
            data = artifact.image(artifact.table.image)
        except (FileNotFoundError, errors.LoadError):
            return None
        record = index.ModuleRecord.read(artifact.table.modules[key.name], artifact.where)._replace(
            sources={
                name: file.sha256
                for file in entry.manifest.dependencies.records
                if (name := _source_name(Path(file.path), wanted))
            },
            content=identity.content_hash(key, entry),
            origin=identity.origin_hash(key, entry),
            request=wanted.key.to_json(),
        )
        table = artifact.table._replace(modules={key.name: record._asdict()})
        archs = [Arch.parse(arch).sm for arch in table.images[record.image].archs]
        parent = self.root / key.name
        parent.mkdir(parents=True, exist_ok=True)
        for place in (self.root, parent):
            place.chmod(0o755)
        folder = parent / f"{_stem(wanted.key)}{'.'.join(archs) or 'host'}"
        write_folder(folder, table, {record.image: data})
        return folder

    def describe(self) -> str:
        """Return the folder, for messages."""
        return str(self.root)

    def explain(self, wanted: PrebuiltQuery) -> str:
        """Return the reason that `get` found nothing, in one line."""
        key = wanted.key
        reasons: list[str] = []
        try:
            reasons += filter(None, (self._obstacle(found, wanted) for found in self._of(key)))
            if not reasons:
                for _, other in [*_modules_in(self.root / key.name, "", reasons)]:
                    labels = [line.split(":", 1)[0] for line in other.explain(key)]
                    reasons.append(f"{key.name} was built with other {', '.join(labels)}")
        except (errors.CacheError, errors.LoadError) as error:
            reasons.append(error.message)
        language = " ".join(key.texts("language"))
        found = "; ".join(dict.fromkeys(reasons)) or f"no module has the name {key.name}"
        return f"{self.root} holds no such {language} module: {found}"

    def _of(self, key: keys.CacheKey) -> Iterator[Artifact]:
        """Iterate over the modules of a request, one for each set of architectures.

        Raises
        ------
        CacheError
            Another user could put libraries there.
        """
        for artifact, its_key in _modules_in(self.root / key.name, _stem(key), []):
            if its_key.digest == key.digest:
                yield artifact

    def _obstacle(self, artifact: Artifact, wanted: PrebuiltQuery) -> str:
        """Return the reason why a module of the right request can't be used; empty if it can."""
        name = wanted.key.name
        try:
            with index.reading(artifact.where):
                record = index.ModuleRecord.read(artifact.table.modules[name], artifact.where)
                lacking = index.lacking_arch(artifact.table.images[record.image].archs, self.archs)
                if lacking:
                    return f"{name} was built, but {lacking}"
                artifact.require_whole(record.image)
                for relative, digest in record.sources.items():
                    number, _, rest = relative.partition("/")
                    path = wanted.folders[int(number)] / rest if number else Path(relative)
                    if trust.file_sha256(path) not in (None, digest):
                        return f"{path} changed since {name} was built"
        except errors.LoadError as error:
            return error.message
        return ""


def export(cache: Cache, folder: Path) -> tuple[Path, ...]:
    """Copy every valid module of a cache into a folder of prebuilt modules.

    Returns
    -------
    tuple of Path
        The folder of each module, sorted. Existing folders are replaced.

    Raises
    ------
    CacheError
        The cache has no module, a module runs on this machine's CPU only, or the folder can't be written.
    """
    entries = dict(_cached(cache))
    native = sorted({key.name for key in entries if any(key.texts("native"))})
    if native:
        raise errors.CacheError(
            f"{', '.join(native)}: compiled with native=True, for this machine's CPU alone, so it can't be exported",
            hints=("load the modules to export without native=True, with a separate cache folder",),
        )
    try:
        store = PrebuiltFolder(folder)
        written = sorted(filter(None, (store.put(key, entry) for key, entry in entries.items())))
    except OSError as error:
        raise errors.CacheError(f"{error.filename or folder} can't be written: {error.strerror}") from error
    except errors.ArgumentError as error:
        raise errors.CacheError(error.message, hints=error.hints) from error
    if not written:
        raise errors.CacheError(
            f"there is nothing to export: the cache {cache.root} holds no modules",
            hints=("load the modules first, with the same cache folder",),
        )
    return tuple(written)


def _cached(store: Cache) -> Iterator[tuple[keys.CacheKey, Entry]]:
    """Iterate over the valid modules of this release in a cache; a key may occur twice."""
    from be_runtime.store.eviction import read_key  # a load needs no upkeep

    for info in store.entries():
        if info.kind == _MODULE:
            key = read_key(info.path)
            entry = store.get(key) if key and key.texts("generator") == (identity.own_code_digest(),) else None
            if key and entry:
                yield key, entry


def _source_name(path: Path, wanted: PrebuiltQuery) -> str:
    """Return a file's name in the index: the number of the author's folder, and the path below the folder. Pure.

    Another file keeps its whole path if a source or flag names its folder; the name is empty for the compilers' files.
    """
    for at, each in enumerate(wanted.folders):
        if path.is_relative_to(each):
            return f"{at}/{path.relative_to(each)}"
    return str(path) if any(str(path.parent) in text for text in wanted.texts) else ""


def _stem(key: keys.CacheKey) -> str:
    """Return the start of the names of the folders of a request's modules."""
    return f"{key.digest[:_DIGITS]}-"


def _modules_in(parent: Path, stem: str, problems: list[str]) -> Iterator[tuple[Artifact, keys.CacheKey]]:
    """Iterate over the modules of one name, each with its request's key; add the reason for each unusable one.

    Raises
    ------
    CacheError
        Another user could put libraries there.
    """
    try:
        names = sorted(path for path in parent.iterdir() if path.name.startswith(stem) and path.name[0] != ".")
    except OSError:
        return
    for folder in names:
        for path in (parent, folder):  # first, so that nobody else can change the contents during their checks
            _require_safe(path)
        for path in sorted(folder.rglob("*")):
            _require_safe(path)
        try:
            artifact = open_folder(folder)
            if artifact is not None and parent.name in artifact.table.modules:
                record = index.ModuleRecord.read(artifact.table.modules[parent.name], artifact.where)
                with index.reading(artifact.where):
                    key = keys.CacheKey.from_json(record.request)
                yield artifact, key
        except errors.LoadError as error:
            problems.append(f"{error.message}; {'; '.join(error.hints)}")


def _require_safe(path: Path) -> None:
    """Check that only the user and root can write to a path, by the cache's rule for entries."""
    try:
        stats = (path.lstat(), path.stat())
    except OSError as error:
        raise errors.CacheError(
            f"the folder of prebuilt modules can't be read: {path}: {error.strerror}",
            hints=("BE_PREBUILT_DIR names a folder that export_prebuilt wrote; unset it to use none",),
        ) from error
    problem = next(filter(None, (trust.distrust_entry(status, os.geteuid()) for status in stats)), "")
    if problem:
        remedy = (
            f"chmod -R go-w {path}"
            if problem.startswith("can be written")
            else "export the modules as yourself or root"
        )
        raise errors.CacheError(f"prebuilt modules are not loaded: {path} {problem}", hints=(remedy,))


def load_prebuilt(
    request: BuildRequest, options: LoadOptions, folder: PrebuiltFolder, registry: Registry
) -> CompiledModule | None:
    """Load a request's module from a folder of prebuilt modules and register its targets; None if it is missing."""
    artifact = folder.get(prebuilt_query(request))
    if artifact is None:
        return None
    record = index.ModuleRecord.read(artifact.table.modules[request.name], artifact.where)
    captures = options.allow_cuda_graph
    module = open_prebuilt(request.name, record, artifact, registry, captures_graphs=captures, mode=options.mode)
    load.register_names(module, request, options, registry)
    return module


def open_prebuilt(
    name: str,
    record: index.ModuleRecord,
    artifact: Artifact,
    registry: Registry,
    *,
    captures_graphs: bool,
    mode: checks.CheckedMode | None = None,
) -> CompiledModule:
    """Load a module that was built ahead of time, without registering its targets.

    Raises
    ------
    LoadError
        The module is damaged, or not for this machine.
    """
    made = load.describe_module(name, record, artifact)
    library = artifact.library(record.image)
    remaker = PrebuiltRebuilder(made, artifact.table.images[record.image], library)
    return CompiledModule(ModuleInfo(made, library, registry, remaker, captures_graphs=captures_graphs, mode=mode))


class PrebuiltRebuilder(NamedTuple):
    """Serves a module that was built ahead of time, see `be_runtime.load.module.Rebuilder`."""

    made: ModuleDescription
    image: index.CodeImage
    library: ctypes.CDLL

    def build(self, wanted: index.Demand) -> BuiltLibrary:
        """Return the library as it is, if it runs on the requested machines."""
        data = images.mapped_bytes(self.image, self.library, self.made.name, wanted)
        return BuiltLibrary(self.image, data, self.made.functions)

    def report(self, blocks: Sequence[int], *, loops: bool) -> ModuleReport:
        """Return cuobjdump's report on the library."""
        from be_runtime.report import report_library

        report = report_library(self.made.name, self.made.path, local_system.LocalSystem(), blocks)
        note = "a library that was built before has no report of loops: its compiler is not run again"
        return report._replace(notes=(*report.notes, note)) if loops else report

    def checked(self) -> None:
        """Return None, since there are no sources to compile."""
