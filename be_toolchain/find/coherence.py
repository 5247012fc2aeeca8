"""Rules on whether the parts of a toolchain, its driver, jax and the folders fit together, and the facts they judge."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.arch import Arch, parse_archs, runs_on
from be_toolchain.errors import PreferenceError
from be_toolchain.known import layouts
from be_toolchain.known.layouts import JAX_PLUGIN, parse_dist_infos
from be_toolchain.known.versions import release_of, version_key
from be_toolchain.machine.files import KERNELS, usual_cache
from be_toolchain.machine.system import FolderFacts, System
from be_toolchain.machine.trust import against_building, against_libraries
from be_toolchain.settings import CACHE_LIMIT_MIB, RUNTIME, parse_ccbin, read_setting, set_variables
from be_toolchain.values import Component, CudaToolkit, HostCompiler, HostLimits, Nvcc, Warned

TEMPORARY_VARIABLES = ("TMPDIR", "TEMP", "TMP")

_FAN_DIGITS = 2

_CUDA12 = frozenset((*layouts.CUDA12_WHEELS, "nvidia-cuda-nvrtc-cu12"))
_NUMBA = frozenset(("nvidia-nvvm", "nvidia-nvjitlink"))


class Cached(NamedTuple):
    """The contents of the cache.

    Parameters
    ----------
    entries, size_bytes : int
        The number of entries, and the bytes of their files.
    limit_mib : int
        The limit to which builds prune the cache, in MiB.
    """

    entries: int
    size_bytes: int
    limit_mib: int


class Surroundings(NamedTuple):
    """The facts about jax, the C library and folders that the rules judge.

    Parameters
    ----------
    jaxlib : str
        The version of jaxlib; empty when jax is not installed.
    jax_plugins : tuple of (name, version)
        jax's CUDA plugins.
    cuda12_wheels : tuple of (name, version)
        The CUDA 12 wheels with compilers or their parts.
    nvrtc : str
        The version of NVRTC's wheel for CUDA 13 or newer; empty without it.
    numba_wheels : tuple of (name, version)
        The wheels of NVVM and nvJitLink, which numba-cuda uses; empty without numba-cuda.
    named_archs : tuple of Arch
        The architectures that ``BE_COMPUTE_CAPABILITIES`` names.
    libc : str
        The C library, as in `System.libc`.
    cache_variable : str
        The variable that names the cache folder; empty if none does. The runtime replaces an unusable default folder
        with a temporary one, but never a named folder.
    cache, temporary : FolderFacts
        The folder of built modules, and the folder of the compilers' intermediate files.
    cached : Cached
        The contents of the cache.
    """

    jaxlib: str
    jax_plugins: tuple[tuple[str, str], ...]
    cuda12_wheels: tuple[tuple[str, str], ...]
    nvrtc: str
    numba_wheels: tuple[tuple[str, str], ...]
    named_archs: tuple[Arch, ...]
    libc: str
    cache_variable: str
    cache: FolderFacts
    temporary: FolderFacts
    cached: Cached


def probe_surroundings(system: System) -> Surroundings:
    """Examine installed distributions by the names of their records, and folders, without importing anything."""
    cache_variable, named = find_cache(system.environ)
    cache = system.folder_facts(named)
    kernels = (cache.own_part or cache.path) / KERNELS
    cache = cache._replace(readable=cache.readable and system.folder_facts(kernels).readable)
    installed: dict[str, str] = {}
    for folder in system.site_dirs:
        for name, version in parse_dist_infos(system.list_dir(folder)).items():
            installed.setdefault(name, version)
    has_numba = system.has_package("numba_cuda")
    named_archs = _valid_setting("compute_capabilities", system.environ)
    return Surroundings(
        jaxlib=installed.get("jaxlib", ""),
        jax_plugins=tuple(sorted(item for item in installed.items() if JAX_PLUGIN.fullmatch(item[0]))),
        cuda12_wheels=tuple(sorted(item for item in installed.items() if item[0] in _CUDA12)),
        nvrtc=installed.get("nvidia-cuda-nvrtc", ""),
        numba_wheels=tuple(sorted(item for item in installed.items() if item[0] in _NUMBA and has_numba)),
        named_archs=parse_archs(named_archs) if named_archs else (),
        libc=system.libc,
        cache_variable=cache_variable,
        cache=cache,
        temporary=system.folder_facts(temporary_dir(system.environ)),
        cached=_count_entries(system, kernels),
    )


def _count_entries(system: System, kernels: Path) -> Cached:
    """Count the entries of a cache and their bytes, by names and sizes."""
    fans = [kernels / fan for fan in system.list_dir(kernels) if len(fan) == _FAN_DIGITS]
    digests = [fan / digest for fan in fans for digest in system.list_dir(fan)]
    entries = [digest / variant for digest in digests for variant in system.list_dir(digest)]
    stamps = [system.stat(entry / name) for entry in entries for name in system.list_dir(entry)]
    size = sum(stamp.size_bytes for stamp in stamps if stamp is not None and not stamp.is_dir)
    return Cached(len(entries), size, _valid_setting("cache_max_size_mib", system.environ) or CACHE_LIMIT_MIB)


def _valid_setting(name: str, environ: Mapping[str, str]) -> Any:
    """Read a setting; None if it is not set or not valid."""
    try:
        return read_setting(RUNTIME[name], environ)
    except PreferenceError:
        return None


def find_cache(environ: Mapping[str, str]) -> tuple[str, Path]:
    """Return the variable that names the runtime's cache folder, empty if none does, and the folder.

    A variable with an invalid value is ignored here: it is reported with the other settings.

    Examples
    --------
    >>> find_cache({"HOME": "/home/ada", "BE_CACHE_DIR": "~/kernels"})
    ('BE_CACHE_DIR', PosixPath('/home/ada/kernels'))
    """
    named = _valid_setting("cache_dir", environ)
    if named is None:
        return "", usual_cache(environ)
    return set_variables(RUNTIME["cache_dir"].variables, environ)[0][0], named


def temporary_dir(environ: Mapping[str, str]) -> Path:
    """Return the folder of the intermediate files of gcc and nvcc."""
    return Path(next((environ[name] for name in TEMPORARY_VARIABLES if environ.get(name)), "/tmp"))  # noqa: S108 - looked at, not written


class Rejection(NamedTuple):
    """The reason why a toolkit can't be used, and the repair; `mixed` is true if its parts are of several releases."""

    reason: str
    hint: str = ""
    mixed: bool = False


FIRST_FROM_PIP = (12,)
"""The first release of CUDA that `install` can install."""


def find_mixture(components: tuple[Component, ...], release: str, hint: str, measure: str = "nvcc") -> Rejection | None:
    """Find parts of another release than the part `measure`, nvcc or ptxas; ignore unknown versions.

    An older ptxas refuses the code of a newer cicc (``Unsupported .version``), and CUDA headers need the compiler
    headers (crt) of their own release.
    """
    lenient = {row.name for row in layouts.COMPONENTS if not row.same_release}
    strangers = ", ".join(
        f"{component.name} {component.version}"
        for component in components
        if component.version and component.name not in lenient and release_of(component.version) != release
    )
    if not strangers:
        return None
    reason = f"parts of different releases: {measure} is of CUDA {release}, but {strangers}"
    return Rejection(reason, hint, mixed=True)


def repair_hint(release: str, *, layout: str, root: Path, found_via: str) -> str:
    """Return the command that repairs a toolkit: afterwards it is complete, and its parts are of one release.

    Parameters
    ----------
    release : str
        The release of nvcc.
    layout, root, found_via
        The fields of `CudaToolkit`.

    Examples
    --------
    >>> repair_hint("13.0", layout="nvidia", root=Path("/usr/local/cuda"), found_via="managed")
    'python -m be_toolchain install --cuda 13.0 --into managed'
    """
    ours = f"python -m be_toolchain install --cuda {release} --into managed"
    if layout == "clang" or found_via in layouts.MANAGED_STEPS:
        return ours
    if layout == "pip":
        return f'python -m be_toolchain doctor --fix, or python -m pip install "{layouts.PIP_TOOLKIT}=={release}.*"'
    if layout == "conda":
        return f'conda install -p {root} cuda-nvcc cuda-cudart-dev "cuda-version={release}"'
    anew = f"reinstall CUDA {release} in {root}"
    return f"{ours}, or {anew}" if version_key(release) >= FIRST_FROM_PIP else anew


def judge_release(release: str) -> str:
    """Return the reason why a toolkit of a release is too old; empty if it is not."""
    least = ".".join(map(str, layouts.MIN_CUDA_RELEASE))
    if version_key(release) < layouts.MIN_CUDA_RELEASE:
        return f"CUDA {release} is older than {least}, the first that compiles C++17"
    return ""


def judge_host(compiler: HostCompiler, limits: HostLimits) -> str:
    """Return the reason why nvcc refuses a host compiler; empty if nvcc accepts it.

    Parameters
    ----------
    compiler : HostCompiler
        The host compiler.
    limits : HostLimits
        The toolkit's limits.

    Returns
    -------
    str

    Examples
    --------
    >>> from pathlib import Path
    >>> new = HostCompiler(path=Path("/usr/bin/g++-99"), family="gcc", version="99.1", target="", found_via="PATH")
    >>> judge_host(new, HostLimits(gcc_max=15))
    'gcc 99.1 is newer than gcc 15, the newest that this nvcc accepts'
    """
    least, most = (0, limits.gcc_max) if compiler.family == "gcc" else (limits.clang_min or 0, limits.clang_max)
    named = f"{compiler.family} {compiler.version}"
    if "zig" in compiler.banner:
        return f"{named} is zig's and has libc++, which CUDA's headers refuse"
    if most is not None and compiler.major > most:
        return f"{named} is newer than {compiler.family} {most}, the newest that this nvcc accepts"
    if compiler.major < least:
        return f"{named} is older than {compiler.family} {least}, the oldest that this nvcc accepts"
    return ""


def judge_libc(libc: str, toolkit: CudaToolkit) -> tuple[Warned, ...]:
    """Warn of a C library that a toolkit does not work with.

    Parameters
    ----------
    libc : str
        ``"glibc 2.36"``; empty for another C library.
    toolkit : CudaToolkit
        The toolkit, whose headers may contradict the C library.

    Returns
    -------
    tuple of Warned
        NVIDIA's programs need glibc, and its headers declare functions that a newer glibc declares differently.
    """
    name, _, version = libc.partition(" ")
    if name != "glibc":
        message = f"the C library is not glibc, which the programs of CUDA {toolkit.release} need"
        return (Warned(message, "use a system or a container with glibc"),)
    clash = toolkit.compiler.host_limits.libc_below if isinstance(toolkit.compiler, Nvcc) else ""
    if not clash or version_key(version) < version_key(clash):
        return ()
    message = (
        f"crt/math_functions.h of CUDA {toolkit.release} needs a glibc below {clash}, and this machine has {version}: "
        'nvcc fails with "exception specification is incompatible"'
    )
    return (Warned(message, "use a newer CUDA release, or a conda toolkit with its own sysroot"),)


def judge_jax(release: str, plugins: tuple[tuple[str, str], ...], jaxlib: str, *, has_gpu: bool) -> tuple[Warned, ...]:
    """Warn if a toolkit's kernels and the CUDA libraries of JAX do not fit together.

    Parameters
    ----------
    release : str
        The toolkit's release, ``"13.0"``.
    plugins : tuple of (name, version)
        jax's CUDA plugins, ``("jax-cuda13-plugin", "0.11.2")``.
    jaxlib : str
        The version of jaxlib; empty when jax is not installed.
    has_gpu : bool
        Whether the machine has a GPU.

    Examples
    --------
    >>> [row.message for row in judge_jax("13.0", (("jax-cuda12-plugin", "0.11.2"),), "0.11.2", has_gpu=True)]
    ['jax runs on CUDA 12 (jax-cuda12-plugin), the toolkit is of CUDA 13.0: kernels contain a runtime of their own, which needs driver 580 or newer']
    """  # noqa: E501 - a doctest's expected line cannot be broken
    major = version_key(release)[0]
    rows = []
    for name, version in plugins:
        theirs = int(name.removeprefix("jax-cuda").split("-")[0])
        if theirs != major:
            least = layouts.MIN_DRIVER_FOR_CUDA.get(major)
            needs = f", which needs driver {least} or newer" if least and major > theirs else ""
            message = f"jax runs on CUDA {theirs} ({name}), the toolkit is of CUDA {release}: kernels contain a runtime"
            hint = f'python -m pip install "jax[cuda{major}]", or use a CUDA {theirs} toolkit'
            rows.append(Warned(f"{message} of their own{needs}", hint))
        if jaxlib and version != jaxlib:
            message = f"{name} {version} does not match jaxlib {jaxlib}: jax will not use the GPU"
            rows.append(Warned(message, f'python -m pip install "jax[cuda{theirs}]=={jaxlib}"'))
    if jaxlib and has_gpu and not plugins:
        message = "jax is installed without a CUDA plugin: it will not use the GPU"
        rows.append(Warned(message, f'python -m pip install "jax[cuda{major}]=={jaxlib}"'))
    return tuple(rows)


def judge_cuda12_wheels(wheels: tuple[tuple[str, str], ...]) -> Warned | None:
    """Describe the compilers in an environment's CUDA 12 wheels; None if the wheel with ptxas is not installed.

    Parameters
    ----------
    wheels : tuple of (name, version)
        The installed wheels.

    Examples
    --------
    >>> judge_cuda12_wheels((("nvidia-cuda-nvcc-cu12", "12.9.86"),)).message
    'nvidia-cuda-nvcc-cu12 12.9.86 holds ptxas and libdevice, but neither nvcc nor cicc; nvidia-cuda-nvrtc-cu12, which compiles kernels without launchers, is not installed'
    """  # noqa: E501 - a doctest's expected line cannot be broken
    versions = dict(wheels)
    version = versions.get("nvidia-cuda-nvcc-cu12")
    if version is None:
        return None
    nvrtc = versions.get("nvidia-cuda-nvrtc-cu12")
    compiles = "compiles kernels without launchers"
    rest = f"NVRTC {nvrtc} {compiles}" if nvrtc else f"nvidia-cuda-nvrtc-cu12, which {compiles}, is not installed"
    return Warned(
        f"nvidia-cuda-nvcc-cu12 {version} holds ptxas and libdevice, but neither nvcc nor cicc; {rest}",
        f"python -m be_toolchain install --cuda {release_of(version)} installs a set of them for clang, "
        "which compiles launchers too; or install --cuda 13.0 with driver 580 or newer",
    )


LEAST_ROOM_BYTES = 200 << 20
"""Free bytes that a few modules and their staging folders need."""


def judge_folder(purpose: str, facts: FolderFacts, remedy: str, *, keeps_libraries: bool = True) -> tuple[Warned, ...]:
    """Warn of a folder in which nothing can be built, or from which nothing that was built can be loaded.

    Parameters
    ----------
    purpose : str
        The folder's purpose in messages, such as ``"cache"``.
    facts : FolderFacts
        The facts about the folder.
    remedy : str
        The hint, which names a setting.
    keeps_libraries : bool
        Whether files in the folder are loaded later, so that other users must not be able to write there.

    Examples
    --------
    >>> facts = FolderFacts(path=Path("/c"), standing=Path("/c"), obstacle="can be written by other users (mode 777)")
    >>> judge_folder("cache", facts, "")[0].message
    'the cache folder /c can be written by other users (mode 777)'
    """
    if keeps_libraries:
        reasons = tuple(against_libraries(facts))
    elif facts.standing != facts.path:
        reasons = ("does not exist: nvcc fails",)
    else:
        reasons = tuple(against_building(facts))
    return tuple(Warned(f"the {purpose} folder {facts.path} {reason}", remedy) for reason in reasons)


def judge_room(purpose: str, facts: FolderFacts, remedy: str) -> tuple[Warned, ...]:
    """Warn of a folder that is nearly full; parameters as in `judge_folder`."""
    if facts.free_bytes is not None and facts.free_bytes < LEAST_ROOM_BYTES:
        message = f"the {purpose} folder {facts.path} has {facts.free_bytes >> 20} MiB left"
        return (Warned(message, f"free some space, or {remedy}"),)
    return ()


def render_limits(limits: HostLimits) -> str:
    """Render the accepted host compilers as text.

    Examples
    --------
    >>> render_limits(HostLimits(gcc_max=15, clang_min=3, clang_max=20))
    'gcc up to 15, clang up to 20'
    """
    rows = (("gcc", limits.gcc_max), ("clang", limits.clang_max))
    return ", ".join(f"{family} up to {most}" for family, most in rows if most is not None) or "any compiler"


def judge_driver(release: str, driver_version: str, driver_release: str) -> tuple[Warned, ...]:
    """Warn of a driver that can't run all code that a CUDA release compiles.

    Parameters
    ----------
    release : str
        The toolkit's release, ``"13.0"``.
    driver_version : str
        The CUDA version that the driver supports, ``"12.8"``.
    driver_release : str
        The driver's own number, ``"570.86"``, or empty.

    Returns
    -------
    tuple of Warned
        Machine code runs within a major version. PTX needs a driver at least as new as the compiler that made it.

    Examples
    --------
    >>> [row.message for row in judge_driver("13.1", "13.0", "580.82")]
    ['the driver supports CUDA 13.0 and cannot translate PTX of CUDA 13.1; machine code for its own GPUs runs']
    """
    ours, theirs = version_key(release), version_key(driver_version)
    if ours <= theirs:
        return ()
    if ours[0] > theirs[0]:
        least = layouts.MIN_DRIVER_FOR_CUDA.get(ours[0])
        branch = f" (driver {driver_release})" if driver_release else ""
        message = f"the driver supports CUDA {driver_version}{branch}; kernels of CUDA {release} don't run on it"
        hint = f"install driver {least} or newer, or use a CUDA {theirs[0]} toolkit" if least else ""
        return (Warned(message, hint),)
    message = f"the driver supports CUDA {driver_version} and cannot translate PTX of CUDA {release}"
    hint = f"name the GPU's architecture, use CUDA {driver_version} or older, or install a driver for CUDA {release}"
    return (Warned(f"{message}; machine code for its own GPUs runs", hint),)


def judge_nvrtc(nvrtc: str, release: str, driver_version: str) -> Iterator[Warned]:
    """Warn of an NVRTC that is newer than the driver; `judge_driver` judges an NVRTC of the toolkit's release.

    Parameters
    ----------
    nvrtc : str
        The version of NVRTC's wheel, ``"13.5.37"``; empty without it. One of a newer major release than the driver's is
        not used.
    release : str
        The toolkit's release; empty without a toolkit.
    driver_version : str
        The CUDA version that the driver supports, ``"13.0"``.

    Examples
    --------
    >>> [row.message for row in judge_nvrtc("13.5.37", "", "13.0")]
    ['the driver supports CUDA 13.0 and cannot translate PTX of NVRTC 13.5; machine code for its own GPUs runs']
    """
    ours, theirs = version_key(nvrtc)[:2], version_key(driver_version)[:2]
    if nvrtc and release_of(nvrtc) != release and ours[0] == theirs[0] and ours > theirs:
        message = f"the driver supports CUDA {driver_version} and cannot translate PTX of NVRTC {release_of(nvrtc)}"
        hint = f'python -m pip install "nvidia-cuda-nvrtc=={driver_version}.*", or a newer driver'
        yield Warned(f"{message}; machine code for its own GPUs runs", hint)


def judge_nvjitlink(wheels: tuple[tuple[str, str], ...]) -> Iterator[Warned]:
    """Warn of an nvJitLink that is older than the NVVM whose PTX it links for numba-cuda.

    Parameters
    ----------
    wheels : tuple of (name, version)
        As in `Surroundings.numba_wheels`.

    Examples
    --------
    >>> wheels = ("nvidia-nvjitlink", "13.0.88"), ("nvidia-nvvm", "13.5.37")
    >>> [row.message for row in judge_nvjitlink(wheels)]
    ['nvJitLink 13.0 is older than NVVM 13.5 and cannot link its PTX: GPU kernels of Numba fail']
    """
    versions = dict(wheels)
    if len(versions) < len(_NUMBA):
        return
    linker, compiler = release_of(versions["nvidia-nvjitlink"]), release_of(versions["nvidia-nvvm"])
    if version_key(linker) < version_key(compiler):
        message = f"nvJitLink {linker} is older than NVVM {compiler} and cannot link its PTX: GPU kernels of Numba fail"
        yield Warned(message, f'python -m pip install "nvidia-nvjitlink=={compiler}.*"')


def judge_named_archs(
    named: tuple[Arch, ...], present: Iterable[Arch], release: str, driver_version: str
) -> Iterator[Warned]:
    """Warn of GPUs on this machine that ``BE_COMPUTE_CAPABILITIES`` leaves only PTX that is newer than the driver.

    Parameters
    ----------
    named, present : tuple of Arch
        The architectures that the variable names, and the architectures of the GPUs.
    release, driver_version : str
        The toolkit's release, and the CUDA version that the driver supports.

    Examples
    --------
    >>> (row,) = judge_named_archs((Arch(8, 0),), [Arch(8, 6), Arch(9, 0)], "13.5", "13.0")
    >>> row.message
    'BE_COMPUTE_CAPABILITIES leaves sm_90, a GPU of this machine, only PTX of CUDA 13.5, which the driver for CUDA 13.0 cannot translate: kernels fail there'
    """  # noqa: E501 - a doctest's expected line cannot be broken
    ours, theirs = version_key(release), version_key(driver_version)
    for gpu in present if ours[0] == theirs[0] and ours > theirs else ():
        has_code = any(runs_on(arch, gpu) for arch in named)
        if not has_code and any(not arch.suffix and runs_on(arch, gpu, is_ptx=True) for arch in named):
            text = f"BE_COMPUTE_CAPABILITIES leaves {gpu.sm}, a GPU of this machine, only PTX of CUDA {release}, "
            text += f"which the driver for CUDA {driver_version} cannot translate: kernels fail there"
            yield Warned(text, f"add {gpu.sm} to BE_COMPUTE_CAPABILITIES, or use CUDA {driver_version} or older")


def judge_archs(present: Iterable[Arch], toolkit: CudaToolkit) -> Iterator[Warned]:
    """Warn of GPUs on this machine that the toolkit can't make machine code for."""
    for arch in present if toolkit.archs else ():
        if arch not in toolkit.archs:
            is_new = arch > max(toolkit.archs)
            hint = f"use a newer {toolkit.compiler.newer}" if is_new else "use an older CUDA release"
            yield Warned(f"{toolkit.title} cannot target {arch.sm}, a GPU of this machine", hint)


def judge_conda(compiler: HostCompiler, conda_roots: tuple[str, ...]) -> Iterator[Warned]:
    """Warn of a compiler outside of the conda prefix that Python runs in."""
    for root in conda_roots:
        if not str(compiler.path).startswith(f"{root}/"):
            message = f"Python runs in the conda prefix {root}, but {compiler.path} does not belong to it"
            needs = "its output may need a newer libstdc++ than conda's"
            yield Warned(f"{message}: {needs}", f"conda install -p {root} gxx")


def judge_flags(chosen: HostCompiler, appended_flags: str) -> Iterator[Warned]:
    """Warn of a host compiler in NVCC_APPEND_FLAGS: nvcc takes the last ``-ccbin``, which overrides the chosen one."""
    named = parse_ccbin(appended_flags)
    if named and named not in (str(chosen.path), chosen.path.name):
        message = f"NVCC_APPEND_FLAGS names the host compiler {named}, which nvcc will use instead of {chosen.path}"
        yield Warned(message, "take -ccbin out of NVCC_APPEND_FLAGS")


def refused_settings(environ: Mapping[str, str], around: Surroundings) -> tuple[PreferenceError, ...]:
    """Return an error for each setting that keeps all load functions from working."""
    refused = list(find_bad_settings(environ))
    if around.cache_variable:  # the runtime replaces an unusable default folder
        remedy = f"set {around.cache_variable} to a folder of your own, or unset it"
        serves = around.cache.writable or around.cached.entries > 0  # entries of a read-only cache are loaded
        rows = judge_folder("cache", around.cache._replace(writable=serves), remedy)
        refused += [PreferenceError(f"{row.message} ({around.cache_variable})", hints=(row.hint,)) for row in rows]
    return tuple(refused)


def find_bad_settings(environ: Mapping[str, str]) -> Iterator[PreferenceError]:
    """Yield an error for every variable in use that has an invalid value: all load functions refuse it.

    Examples
    --------
    >>> next(find_bad_settings({"BE_MAX_JOBS": "many"})).message
    "BE_MAX_JOBS is 'many', expected a whole number above 0"
    """
    for setting in RUNTIME.values():
        try:
            read_setting(setting, environ)
        except PreferenceError as error:
            yield error
