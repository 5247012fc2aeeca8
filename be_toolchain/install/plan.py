"""Choose the wheels and the folder of an installation, with reasons; a plan is a value that can be printed. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from be_toolchain.errors import CudaUnavailableError, InstallError, StoreError
from be_toolchain.find.coherence import judge_driver
from be_toolchain.known import layouts, versions
from be_toolchain.machine import files, system

Target = Literal["env", "managed"]
Kind = Literal["cuda", "cuda-clang", "host-compiler"]


class InstallRequest(NamedTuple):
    """A user's request for an installation.

    Parameters
    ----------
    cuda : str
        ``"auto"``, a release such as ``"13.0"``, or an exact version such as ``"13.0.2"``; empty for no CUDA.
    into : {"env", "managed"}, optional
        Python's environment, or the store of managed toolchains. By default, the plan chooses.
    host_compiler : bool
        Install a C++ compiler.
    why : str
        The reason for `cuda` if a repair chose it; empty if the user did.
    """

    cuda: str = ""
    into: Target | None = None
    host_compiler: bool = False
    why: str = ""


class Situation(NamedTuple):
    """The facts that an installation depends on.

    Parameters
    ----------
    machine : str
        ``"x86_64"`` or ``"aarch64"``.
    site : Path
        The environment's site-packages folder.
    store : Path, optional
        The folder of managed toolchains; None without a home.
    is_virtual, is_conda, is_external : bool
        Whether Python runs in a virtual environment or a conda prefix, or is managed by its Linux distribution.
    writable : bool
        Whether `site` can be written.
    driver_version, driver_release : str
        The newest CUDA version that the driver supports, and the release of the driver; empty without a driver.
    jax_cuda : str
        The CUDA major version of jax's plugin, empty without one.
    minimums : tuple of (package, version)
        The minimum versions of CUDA wheels that jax's plugin requires in its environment.
    present : tuple of (package, version)
        The CUDA wheels in `site`; a package that an interrupted exchange left twice is listed twice.
    interrupted : str
        The target release of an interrupted exchange in `site`; empty without one.
    stored : tuple of str
        The names of the managed toolchains.
    clang, clang_version : str
        The path and version of a clang++ that compiles CUDA 12, or empty.
    clang_problem : str
        The reason why the clang on this machine can't compile CUDA 12; empty without a clang.
    distribution : str
        ``ID`` and ``ID_LIKE`` of ``/etc/os-release``.
    """

    site: Path
    store: Path | None
    machine: str = "x86_64"
    is_virtual: bool = True
    is_conda: bool = False
    is_external: bool = False
    writable: bool = True
    driver_version: str = ""
    driver_release: str = ""
    jax_cuda: str = ""
    minimums: tuple[tuple[str, str], ...] = ()
    present: tuple[tuple[str, str], ...] = ()
    interrupted: str = ""
    stored: tuple[str, ...] = ()
    clang: str = ""
    clang_version: str = ""
    clang_problem: str = ""
    distribution: str = ""


class Wheel(NamedTuple):
    """One wheel as an index offers it.

    Parameters
    ----------
    name, version : str
        The Python distribution and its version.
    hashes : tuple of str
        The accepted hashes, ``"sha256:<hex>"``. A download must have one of them.
    size_bytes : int, optional
        The size of the download; None if it is unknown.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    size_bytes: int | None = None

    @property
    def requirement(self) -> str:
        """The line of a requirements file that accepts only this wheel."""
        return " ".join((f"{self.name}=={self.version}", *(f"--hash={digest}" for digest in self.hashes)))


class Goal(NamedTuple):
    """The target of an installation, before the index is asked for wheels.

    Parameters
    ----------
    kind : {"cuda", "cuda-clang", "host-compiler"}
        The kind of compiler; ``"cuda-clang"`` is the set of CUDA 12 wheels for clang, without nvcc.
    requirement : str
        The requirement for the index, which pins all parts.
    into : {"env", "managed"}
        Python's environment, or the store of managed toolchains.
    folder : Path
        The site-packages folder, or the store.
    why, notes : tuple of str
        The reason for each choice, and remarks for the user.
    clang : str
        The clang that compiles with it; empty if nvcc compiles.
    """

    kind: Kind
    requirement: str
    into: Target
    folder: Path
    why: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    clang: str = ""


class InstallPlan(NamedTuple):
    """An installation as it will be carried out.

    Parameters
    ----------
    goal : Goal
        The goal that it meets.
    version : str
        The version of the toolkit or compiler, ``"13.0.2"``.
    wheels : tuple of Wheel
        The wheels to install, all pinned.
    replaces : tuple of (package, version)
        The packages that they replace in the environment.
    repairs : bool
        Whether the environment is in the middle of an interrupted exchange.
    is_done : bool
        Whether everything is installed already.
    download_mb, installed_mb : int
        The approximate sizes.
    """

    goal: Goal
    version: str
    wheels: tuple[Wheel, ...]
    replaces: tuple[tuple[str, str], ...] = ()
    repairs: bool = False
    is_done: bool = False
    download_mb: int = 0
    installed_mb: int = 0

    @property
    def name(self) -> str:
        """The name in the store."""
        return f"{'zig' if self.goal.kind == 'host-compiler' else 'cuda'}-{self.version}"

    @property
    def folder(self) -> Path:
        """The folder that the files go into."""
        return self.goal.folder / self.name if self.goal.into == "managed" else self.goal.folder

    def forced(self) -> InstallPlan:
        """Return the same plan for installed files that differ from their wheels."""
        return self._replace(is_done=False, repairs=True)

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON data.

        Returns
        -------
        dict
            ``kind``, ``version``, ``into``, ``folder``, ``wheels`` with ``hashes``, ``replaces``, ``repairs``,
            ``is_done``, ``download_mb``, ``installed_mb``, ``why`` and ``notes``.
        """
        names = ("version", "repairs", "is_done", "download_mb", "installed_mb")
        wheels = [{"name": each.name, "version": each.version, "hashes": list(each.hashes)} for each in self.wheels]
        return {
            "kind": self.goal.kind,
            "into": self.goal.into,
            "folder": str(self.folder),
            "wheels": wheels,
            "replaces": [{"name": name, "version": version} for name, version in self.replaces],
            **{name: getattr(self, name) for name in names},
            "why": list(self.goal.why),
            "notes": list(self.goal.notes),
        }


def render_plan(plan: InstallPlan) -> str:
    """Render a plan as text, which the user confirms.

    Parameters
    ----------
    plan : InstallPlan
        The plan.

    Returns
    -------
    str
        Lines without a final newline.
    """
    compiler = {
        "cuda": f"CUDA {plan.version}",
        "cuda-clang": f"CUDA {plan.version} for clang, without nvcc,",
        "host-compiler": f"C++ compiler of ziglang {plan.version}",
    }[plan.goal.kind]
    place = "this environment" if plan.goal.into == "env" else "the store of managed toolchains"
    verb = "repair" if plan.repairs else "install"
    lines = [f"{verb} {compiler} into {place}: {plan.folder}"]
    if plan.is_done:
        lines = [f"{compiler} is already installed (in {place}: {plan.folder})"]
    old = dict(plan.replaces)
    for wheel in plan.wheels:
        change = f"  (replaces {old[wheel.name]})" if wheel.name in old else ""
        lines.append(f"  {wheel.name} {wheel.version}{change}")
    if not plan.is_done:
        sizes = f"about {plan.download_mb} MB to download, {plan.installed_mb} MB installed"
        lines.append(f"  {sizes}; hashes are verified")
    lines.extend(f"  why: {reason}" for reason in plan.goal.why)
    lines.extend(f"  note: {note}" for note in plan.goal.notes)
    return "\n".join(lines)


DEFAULT_RELEASE = "13.0"
"""The release without a driver; its output runs on every driver for CUDA 13."""

FIRST_PIP_MAJOR = 13
"""The first CUDA major version whose nvcc is on PyPI."""

CLANG_MAJOR = 12
"""The CUDA major version whose wheels hold no nvcc, so that clang compiles with them."""

ZIG = "ziglang"

PARTS = {row.pip: row for row in layouts.COMPONENTS}
"""The component rows by their wheels' names."""

SIZES_MB = {
    "nvidia-cuda-nvcc": (37, 116),
    "nvidia-nvvm": (62, 140),
    "nvidia-cuda-crt": (1, 1),
    "nvidia-cuda-runtime": (3, 8),
    "nvidia-cuda-cccl": (4, 15),
    "nvidia-cuda-nvcc-cu12": (41, 98),
    "nvidia-cuda-runtime-cu12": (4, 8),
    "nvidia-cuda-cccl-cu12": (3, 15),
    ZIG: (101, 500),
}
"""The approximate megabytes to download, and on disk, of each wheel of release 13.0, and of ziglang 0.17."""


class _Choice(NamedTuple):
    """A CUDA release as a version specifier; if it has no nvcc, `clang` compiles with it."""

    specifier: str
    release: str
    why: str
    notes: tuple[str, ...] = ()
    clang: str = ""


def choose_goals(request: InstallRequest, situation: Situation) -> tuple[Goal, ...]:
    """Choose the requirements to ask the package index for.

    Parameters
    ----------
    request : InstallRequest
        The user's request.
    situation : Situation
        The facts about the machine.

    Returns
    -------
    tuple of Goal
        One goal for CUDA, one for a C++ compiler, or both.

    Raises
    ------
    CudaUnavailableError
        The index has no such compiler, or the driver supports none that it has.
    InstallError
        The compiler can't be installed into the requested place.
    """
    goals = []
    if request.cuda:
        goals.append(_cuda_goal(request, situation))
    if request.host_compiler:
        why = "zig's clang includes its own headers and libc++, so C++ kernels compile without a system compiler"
        note = f"nvcc's host side still needs the system's compiler: {system.host_package(situation.distribution)}"
        goals.append(Goal("host-compiler", ZIG, "managed", require_store(situation.store), (why,), (note,)))
    return tuple(goals)


def _cuda_goal(request: InstallRequest, situation: Situation) -> Goal:
    """Choose the goal for a CUDA toolkit."""
    into, why = _choose_target(request, situation)
    choice = _choose_release(request, into, situation)
    if choice.clang:
        if request.into == "env":
            problem = "clang needs its wheels joined into one folder"
            hints = ("use --into managed", 'the wheels alone: pip install "brainevent-toolchain[cuda12]"')
            raise InstallError(f"CUDA {choice.release} can't go into this environment: {problem}", hints=hints)
        into, why = "managed", "a folder of its own: clang needs the wheels joined into one"
    kind: Kind = "cuda-clang" if choice.clang else "cuda"
    requirement = f"{layouts.PIP_TOOLKIT_12 if choice.clang else layouts.PIP_TOOLKIT}{choice.specifier}"
    folder = situation.site if into == "env" else require_store(situation.store)
    return Goal(kind, requirement, into, folder, (choice.why, why), choice.notes, choice.clang)


def require_store(store: Path | None) -> Path:
    """Return the folder of the store; raise StoreError if there is none."""
    if store is None:
        raise StoreError("there is no home folder for managed toolchains", hints=(f"set {files.ENV_STORE}=/a/folder",))
    return store


def _choose_target(request: InstallRequest, situation: Situation) -> tuple[Target, str]:
    """Choose the environment or the store; return the choice with its reason."""
    obstacle = "" if situation.writable else f"{situation.site} is not writable"
    if situation.is_external:
        obstacle = "its distribution manages this Python (PEP 668)"
    if request.into == "env":
        if obstacle:
            raise InstallError(f"CUDA can't go into this environment: {obstacle}", hints=("use --into managed",))
        return "env", f"this environment, {'whose wheels are repaired' if request.why else 'as --into env requests'}"
    if request.into == "managed":
        return "managed", "a folder of its own, as --into managed requests: no package of this environment changes"
    if not obstacle and situation.is_virtual and not situation.is_conda:
        return "env", "Python runs in a virtual environment (--into managed would share the toolkit)"
    reason = obstacle or ("a conda prefix" if situation.is_conda else "Python is not in a virtual environment")
    return "managed", f"a folder of its own, because {reason}"


def _choose_release(request: InstallRequest, into: Target, situation: Situation) -> _Choice:
    """Choose a release, with its reason."""
    asked = request.cuda
    why = request.why or f"CUDA {asked} was asked for"
    minimums = [versions.release_of(version) for name, version in situation.minimums if name in PARTS]
    least = max(minimums, key=versions.version_key, default="") if into == "env" else ""
    if asked == "auto":
        return _choose_auto(least, situation)
    if re.fullmatch(r"\d+(\.\d+){0,3}", asked) is None:
        raise InstallError(f"{asked!r} is not a CUDA version", hints=("use auto, 13.0 or 13.0.2",))
    numbers = versions.version_key(asked)
    if numbers[0] < CLANG_MAJOR or (numbers[0] == CLANG_MAJOR and not situation.clang):
        raise _no_nvcc(why, situation)
    if len(numbers) == 1:
        specifier, release = f">={numbers[0]},<{numbers[0] + 1}", f"{numbers[0]}.99"
    else:
        release = versions.release_of(asked)
        specifier = f"=={release}.*" if len(numbers) == 2 else f"=={asked}"
    notes: tuple[str, ...] = ()
    if len(numbers) > 1 and situation.driver_version:
        rows = judge_driver(release, situation.driver_version, situation.driver_release)
        notes = tuple("; ".join(filter(None, row)) for row in rows)
    if numbers[0] == CLANG_MAJOR:
        return _for_clang(specifier, asked, why, notes, situation)
    if least and versions.version_key(release) < versions.version_key(least):
        problem, hint = f"the jax in it needs {least} or newer", f"use --into managed, or --cuda {least}"
        raise InstallError(f"CUDA {asked} can't go into this environment: {problem}", hints=(hint,))
    return _Choice(specifier, release, why, notes)


def _for_clang(specifier: str, release: str, why: str, notes: tuple[str, ...], situation: Situation) -> _Choice:
    """Choose CUDA 12's wheels for this machine's clang."""
    named = f"clang {situation.clang_version} ({situation.clang})"
    why = f"{why}; PyPI has no nvcc for it, and {named} compiles with its ptxas, libdevice and headers"
    note = f"an nvcc on this machine comes before it in the search, unless: python -m be_toolchain use {release}"
    return _Choice(specifier, release, why, (*notes, note), situation.clang)


def _choose_auto(least: str, situation: Situation) -> _Choice:
    """Choose the newest release that the driver and jax allow."""
    beside = ("jax here is for CUDA 12; kernels of CUDA 13 load beside it on driver 580 or newer",)
    notes = beside if situation.jax_cuda == "12" else ()
    if not situation.driver_version:
        release = max(least or DEFAULT_RELEASE, DEFAULT_RELEASE, key=versions.version_key)
        why = "its output runs on the oldest drivers for CUDA 13"
        if release != DEFAULT_RELEASE:
            why = "the jax in this environment needs it"
        return _Choice(f"=={release}.*", release, f"CUDA {release}: no driver was found; {why}", notes)
    major, minor, *_ = (*versions.version_key(situation.driver_version), 0)
    why = f"the newest release that the driver for CUDA {situation.driver_version} fully supports"
    if major == CLANG_MAJOR and situation.clang:
        return _for_clang(f">={major},<{major}.{minor + 1}", f"{major}.{minor}", why, (), situation)
    if major < FIRST_PIP_MAJOR:
        raise _no_nvcc(f"the driver supports CUDA {situation.driver_version}", situation)
    if least and versions.version_key(least) > (major, minor):
        raise CudaUnavailableError(
            f"the jax in this environment needs CUDA {least}, but the driver supports {situation.driver_version}",
            hints=("update the driver", "or use --into managed, which leaves jax's packages alone"),
        )
    return _Choice(f">={FIRST_PIP_MAJOR},<{major}.{minor + 1}", f"{major}.{minor}", why, notes)


def _no_nvcc(problem: str, situation: Situation) -> CudaUnavailableError:
    """Make the error for CUDA 12, with every alternative that works here."""
    hints = []
    if not situation.clang:
        hints.append(
            f"clang {layouts.MIN_CLANG_FOR_CUDA} or newer compiles with the CUDA 12 wheels: "
            f"{system.clang_package(situation.distribution)}, then this command again"
        )
    driver = versions.version_key(situation.driver_release)[:1]
    if not situation.driver_version or driver >= (layouts.MIN_DRIVER_FOR_CUDA[13],):
        seen = f"driver {situation.driver_release}" if driver else f"driver {layouts.MIN_DRIVER_FOR_CUDA[13]} or newer"
        hints.append(
            f"{seen} runs kernels of nvcc 13, also beside jax[cuda12]: "
            f"python -m be_toolchain install --cuda {DEFAULT_RELEASE} --into managed"
        )
    hints.append('conda has an nvcc 12: conda install -c conda-forge cuda-nvcc cuda-cudart-dev "cuda-version=12.9"')
    hints.append(
        "NVIDIA's package repository has it, too: apt-get install cuda-toolkit-12-9, or dnf install cuda-toolkit-12-9"
    )
    without = "" if situation.clang else f"; {situation.clang_problem or 'no suitable clang was found'}"
    return CudaUnavailableError(
        f"{problem}, and PyPI has no nvcc before CUDA {FIRST_PIP_MAJOR}: nvidia-cuda-nvcc-cu12 holds ptxas and "
        f"libdevice, but neither nvcc nor cicc{without}",
        hints=tuple(hints),
    )


def plan_install(goal: Goal, wheels: tuple[Wheel, ...], situation: Situation) -> InstallPlan:
    """Turn an index's answer into a plan.

    Parameters
    ----------
    goal : Goal
        The goal.
    wheels : tuple of Wheel
        The index's answer: the wheels to install, including the meta package.
    situation : Situation
        The facts about the machine.

    Returns
    -------
    InstallPlan

    Raises
    ------
    InstallError
        The answer lacks a part or mixes releases, so that the toolkit would not work.
    """
    if goal.kind != "host-compiler":
        version = _short(next((wheel.version for wheel in wheels if wheel.name == "cuda-toolkit"), ""))
        parts = _PARTS_OF[goal.kind]
        kept = tuple(wheel for wheel in wheels if wheel.name in parts)
        _check_parts(goal, kept, parts)
    else:
        kept = tuple(wheel for wheel in wheels if wheel.name == ZIG)
        version = kept[0].version if kept else ""
    if not version:
        raise InstallError(f"the package index has nothing for {goal.requirement}")
    sizes = [SIZES_MB.get(wheel.name, (0, 0)) for wheel in kept]
    known = [wheel.size_bytes / 1e6 if wheel.size_bytes else size[0] for wheel, size in zip(kept, sizes, strict=True)]
    download_mb, installed_mb = round(sum(known)), sum(size[1] for size in sizes)
    plan = InstallPlan(goal, version, kept, download_mb=download_mb, installed_mb=installed_mb)
    if goal.into == "managed":
        return plan._replace(is_done=plan.name in situation.stored)
    wanted = {wheel.name: wheel.version for wheel in kept}
    present = sorted(row for row in situation.present if row[0] in wanted)
    return plan._replace(
        replaces=tuple(row for row in situation.present if wanted.get(row[0], row[1]) != row[1]),
        repairs=bool(situation.interrupted),
        is_done=not situation.interrupted and present == sorted(wanted.items()),
    )


def _short(version: str) -> str:
    """Strip the trailing zero from the version of a rebuilt meta package.

    Examples
    --------
    >>> _short("13.0.3.0")
    '13.0.3'
    """
    words = version.split(".")
    return ".".join(words[:3]) if words[3:] == ["0"] else version


_PARTS_OF: dict[str, tuple[str, ...]] = {"cuda": tuple(PARTS), "cuda-clang": tuple(layouts.CUDA12_WHEELS)}
_OWN_RELEASE = {name for name, row in PARTS.items() if not row.same_release} | {"nvidia-cuda-cccl-cu12"}


def _check_parts(goal: Goal, wheels: tuple[Wheel, ...], parts: tuple[str, ...]) -> None:
    """Check that no part is missing and all are of one release, since old meta packages do not pin every part."""
    missing = sorted(set(parts) - {wheel.name for wheel in wheels})
    releases = {versions.release_of(wheel.version) for wheel in wheels if wheel.name not in _OWN_RELEASE}
    if missing or len(releases) != 1:
        listed = ", ".join(f"{wheel.name} {wheel.version}" for wheel in wheels) or "nothing"
        problem = f"lacks {', '.join(missing)}" if missing else "mixes releases"
        raise InstallError(f"the package index's answer to {goal.requirement} {problem}: {listed}")


def mixture_of(present: tuple[tuple[str, str], ...]) -> str:
    """Describe the fault of an environment's CUDA wheels; empty if there is no fault, or no wheel of nvcc.

    Examples
    --------
    >>> mixture_of((("nvidia-cuda-nvcc", "13.0.88"),))
    'incomplete: no nvidia-nvvm, nvidia-cuda-crt, nvidia-cuda-runtime, nvidia-cuda-cccl'
    """
    rows = [(name, version) for name, version in present if name in PARTS]
    names = [name for name, _ in rows]
    if "nvidia-cuda-nvcc" not in names:
        return ""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"installed twice: {', '.join(twice)}"
    missing = [name for name in PARTS if name not in names]
    if missing:
        return f"incomplete: no {', '.join(missing)}"
    releases = {versions.release_of(version) for name, version in rows if PARTS[name].same_release}
    if len(releases) > 1:
        return "of different releases: " + ", ".join(f"{name} {version}" for name, version in rows)
    return ""
