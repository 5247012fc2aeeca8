"""Make and apply plans of installations, and choose repairs for the doctor's problems."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sysconfig
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from be_toolchain import errors
from be_toolchain.errors import InstallError, ToolchainError
from be_toolchain.find.clang import find_clang
from be_toolchain.find.compilers import Compilers
from be_toolchain.find.devices import probe_devices
from be_toolchain.install.compilers import build_library, join_wheels, try_clang, write_compiler
from be_toolchain.install.installers import Installer, check_wheel, dist_infos_of, read_record
from be_toolchain.install.managed import ManagedStore, flush, make_workplace
from be_toolchain.install.plan import (
    FIRST_PIP_MAJOR,
    Goal,
    InstallPlan,
    InstallRequest,
    Situation,
    mixture_of,
    plan_install,
)
from be_toolchain.known import layouts
from be_toolchain.known.layouts import JAX_PLUGIN, normalize, parse_dist_info, parse_requirement
from be_toolchain.known.versions import release_of, version_key
from be_toolchain.machine.files import INTERRUPTED, find_store
from be_toolchain.machine.system import System, distribution_of, host_package
from be_toolchain.settings import parse_preferences
from be_toolchain.terminal import many

_CUDA_WHEELS = frozenset(row.pip for row in layouts.COMPONENTS)


def gather_situation(system: System, *, site: Path | None = None) -> Situation:
    """Gather the facts about the environment, the store, the driver and jax.

    Parameters
    ----------
    system : System
        The machine.
    site : Path, optional
        The site-packages folder. The default is the folder of the running Python.

    Returns
    -------
    Situation
    """
    site = site or Path(sysconfig.get_path("purelib"))
    devices = probe_devices(system)
    store = find_store(system).path
    names = system.list_dir(site)
    jax_cuda, metadata = _jax_plugin(system, site, names)
    marker = system.read_text(site / INTERRUPTED)
    version = re.search(r'"version": "([0-9.]+)"', marker or "")
    interrupted = version[1] if version else "" if marker is None else "unknown"
    probes, clang = find_clang(system, Compilers(system, parse_preferences(system.environ), None).each(for_cuda=True))
    return Situation(
        machine=system.machine,
        site=site,
        store=store,
        is_virtual=len(system.prefixes) > 1,
        is_conda=any(system.is_dir(prefix / "conda-meta") for prefix in system.prefixes[:1]),
        is_external=len(system.prefixes) == 1
        and system.is_file(Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"),
        writable=system.folder_facts(site).writable,
        driver_version=devices.driver_version or "",
        driver_release=devices.driver_release or "",
        jax_cuda=jax_cuda,
        minimums=parse_minimums(metadata),
        present=parse_present(names),
        interrupted=interrupted,
        stored=tuple(row.name for row in ManagedStore(store).list()) if store is not None else (),
        clang=str(clang.compiler.path) if clang else "",
        clang_version=clang.compiler.version if clang else "",
        clang_problem=next((probe.reason for probe in probes if probe.reason.startswith("clang ")), "")
        if clang is None
        else "",
        distribution=distribution_of(system),
    )


def _jax_plugin(system: System, site: Path, names: tuple[str, ...]) -> tuple[str, str]:
    """Return the CUDA major version of JAX's newest plugin, and its METADATA; both are empty without a plugin."""
    rows = ((name, parse_dist_info(name)) for name in names)
    matches = ((name, JAX_PLUGIN.fullmatch(row[0])) for name, row in rows if row is not None)
    cuda, name = max(((int(match[1]), name) for name, match in matches if match is not None), default=(0, ""))
    return (str(cuda), system.read_text(site / name / "METADATA") or "") if name else ("", "")


def parse_minimums(metadata: str) -> tuple[tuple[str, str], ...]:
    """Read the minimum versions of CUDA wheels that the METADATA of jax's CUDA plugin requires.

    Examples
    --------
    >>> parse_minimums('Requires-Dist: nvidia-cuda-nvcc>=13.0.48; sys_platform == "linux" and extra == "with-cuda"')
    (('nvidia-cuda-nvcc', '13.0.48'),)
    """
    from packaging.metadata import parse_email

    written = parse_email(metadata)[0].get("requires_dist", [])
    found = [requirement for requirement in map(parse_requirement, written) if requirement is not None]
    rows = [(each.name, bound) for each in found for bound in each.specifier if bound.operator == ">="]
    return _of_cuda(normalize(name, bound.version) for name, bound in rows)


def parse_present(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Find the CUDA wheels among the names in a site-packages folder.

    Examples
    --------
    >>> parse_present(("nvidia_nvvm-13.0.88.dist-info", "numpy-2.3.0.dist-info"))
    (('nvidia-nvvm', '13.0.88'),)
    """
    return _of_cuda(normalize(*row) for row in map(parse_dist_info, names) if row is not None)


def _of_cuda(rows: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Keep the CUDA wheels that a toolkit is made of."""
    return tuple(row for row in rows if row[0] in _CUDA_WHEELS)


Say = Callable[[str], None]


def make_plan(goal: Goal, situation: Situation, installer: Installer) -> InstallPlan:
    """Ask the index for the wheels of a goal, and verify the wheels that are installed already.

    Raises
    ------
    InstallError
        The index can't be reached, or its wheels do not fit together.
    """
    with make_workplace() as work:
        wheels = installer.resolve(goal.requirement, work)
    plan = plan_install(goal, wheels, situation)
    return plan.forced() if plan.is_done and _find_damage(plan, plan.folder) else plan


def apply_plan(plan: InstallPlan, installer: Installer, say: Say = lambda _: None) -> Path:
    """Apply a plan.

    Parameters
    ----------
    plan : InstallPlan
        The plan; nothing happens if it is done.
    installer : Installer
        The program that fetches wheels.
    say : callable, optional
        Called with a line for each step.

    Returns
    -------
    Path
        The folder with the files.

    Raises
    ------
    InstallError
        The installation failed. A managed toolchain is unchanged. An environment is unchanged or marked as interrupted:
        searches take no compiler from it, and the same installation repairs it.
    """
    if plan.is_done:
        return plan.folder
    _check_room(plan, installer.system)
    if plan.goal.into == "managed":
        return _apply_managed(plan, ManagedStore(plan.goal.folder), installer, say)
    return _apply_env(plan, installer, say)


def _check_room(plan: InstallPlan, system: System) -> None:
    """Refuse an installation that would fail for lack of room or permissions."""
    facts = system.folder_facts(plan.goal.folder)
    if not facts.writable:
        raise InstallError(f"{facts.standing} is not writable", hints=("name another folder with BE_TOOLCHAINS_DIR",))
    if not facts.executable:
        hints = ("name a folder on another file system with BE_TOOLCHAINS_DIR",)
        raise InstallError(f"programs in {facts.standing} can't be run: it is mounted noexec", hints=hints)
    needed = (plan.download_mb + plan.installed_mb) * 1_000_000
    if facts.free_bytes is not None and facts.free_bytes < needed:
        free = facts.free_bytes // 1_000_000
        raise InstallError(f"{facts.standing} has {free} MB free, about {needed // 1_000_000} MB are needed")


def _write_requirements(plan: InstallPlan, work: Path) -> Path:
    """Write the requirements file that accepts exactly the plan's wheels, and return its path."""
    path = work / "requirements.txt"
    path.write_text("".join(f"{wheel.requirement}\n" for wheel in plan.wheels), encoding="utf-8")
    return path


def _find_damage(plan: InstallPlan, site: Path) -> list[str]:
    """List the differences between installed files and the plan's wheels."""
    return [text for wheel in plan.wheels for text in check_wheel(site, wheel.name, wheel.version)]


def _require_intact(plan: InstallPlan, site: Path) -> None:
    """Raise InstallError if installed files differ from the plan's wheels."""
    wrong = _find_damage(plan, site)
    if wrong:
        shown = "\n".join(f"  {text}" for text in wrong[:5])
        raise InstallError(f"installed files that differ from the wheels: {len(wrong)}\n{shown}")


def _apply_managed(plan: InstallPlan, store: ManagedStore, installer: Installer, say: Say) -> Path:
    """Build a toolchain beside the others and publish it by one rename."""
    with store.stage() as work:
        tree = work / "tree"
        say(f"downloading and unpacking {many(len(plan.wheels), 'wheel')} (about {plan.download_mb} MB)")
        installer.install_tree(_write_requirements(plan, work), tree, work)
        say("verifying every file")
        _require_intact(plan, tree)
        _name_libraries(tree)
        if plan.goal.kind == "host-compiler":
            say("building its C++ library (a minute, once)")
            write_compiler(tree, installer.system.machine)
            problem = build_library(tree, work, installer.system)
            if problem:
                raise InstallError(f"the compiler of ziglang does not work here: {problem}")
        wheels = tuple((wheel.name, wheel.version) for wheel in plan.wheels)
        if plan.goal.kind == "cuda-clang":
            say("joining them into one folder, and compiling a kernel")
            problem = try_clang(plan.goal.clang, join_wheels(tree, dict(wheels)), work, installer.system)
            if problem:
                raise InstallError(f"{plan.goal.clang} does not compile with CUDA {plan.version}: {problem}")
        return store.publish(tree, plan.name, wheels).path


def _name_libraries(tree: Path) -> None:
    """Add the library names of NVIDIA's installer: CMake's FindCUDAToolkit searches for ``lib64/libcudart.so``."""
    for folder in tree.glob("nvidia/cu[0-9][0-9]/lib"):
        rows = [(folder.parent / "lib64", folder)]
        rows += [(folder / f"{path.name.partition('.so.')[0]}.so", path) for path in folder.glob("lib*.so.*")]
        for link, target in rows:
            if not link.exists():
                link.symlink_to(target.name)


def _apply_env(plan: InstallPlan, installer: Installer, say: Say) -> Path:
    """Download all wheels, then exchange the environment's wheels while a marker marks the environment."""
    site = plan.goal.folder
    marker = site / INTERRUPTED
    record = {"version": plan.version, "wheels": {wheel.name: wheel.version for wheel in plan.wheels}}
    before = _installed(site)
    with make_workplace() as work:
        requirements = _write_requirements(plan, work)
        say(f"downloading {many(len(plan.wheels), 'wheel')} (about {plan.download_mb} MB)")
        installer.download(requirements, work)
        say("replacing the environment's wheels")
        marker.write_text(json.dumps(record), encoding="utf-8")
        flush(site)
        try:
            if plan.repairs:
                wipe(site, tuple(wheel.name for wheel in plan.wheels))
            installer.exchange(requirements, work, force=plan.repairs)
        except InstallError:
            if not plan.repairs and _installed(site) == before:
                marker.unlink(missing_ok=True)
            raise
        say("verifying every file")
        _require_intact(plan, site)
        flush(site)
        marker.unlink(missing_ok=True)
    return site


def _installed(site: Path) -> tuple[tuple[str, str], ...]:
    """Return the CUDA wheels in a folder."""
    return parse_present(tuple(sorted(entry.name for entry in site.iterdir())))


def wipe(site: Path, names: tuple[str, ...]) -> None:
    """Remove distributions that pip can no longer uninstall: the files of each RECORD, and the record.

    Parameters
    ----------
    site : Path
        The folder of packages.
    names : tuple of str
        Distributions; other files stay.
    """
    root = site.resolve()
    for name in names:
        for folder, _ in dist_infos_of(site, name):
            rows: tuple[tuple[str, str], ...] = ()
            with contextlib.suppress(OSError):
                rows = read_record(folder)
            for path, _ in rows:
                target = site / path
                if root in target.resolve().parents:
                    target.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
    # A killed pip leaves the files that it was replacing in folders whose names begin with a tilde.
    patterns = ("~vidia*", "nvidia/~*", "nvidia/cu1?/~*", "nvidia/cu1?/*/~*")
    for stash in [path for pattern in patterns for path in site.glob(pattern)]:
        shutil.rmtree(stash, ignore_errors=True)


class Repairs(NamedTuple):
    """The repairs for a report.

    Parameters
    ----------
    requests : tuple of (reason, InstallRequest)
        The installations, each with the problem that it repairs.
    manual : tuple of str
        The repairs for the user, with their commands.
    """

    requests: tuple[tuple[str, InstallRequest], ...] = ()
    manual: tuple[str, ...] = ()


def find_repairs(situation: Situation, problems: tuple[ToolchainError, ...]) -> Repairs:
    """Choose the installations that solve the doctor's problems.

    Parameters
    ----------
    situation : Situation
        The facts about the machine.
    problems : tuple of ToolchainError
        The problems of the doctor's report.

    Returns
    -------
    Repairs
        The repairs. Wheels of different releases are repaired even if another toolkit is in use, since a search tries
        them first.
    """
    broken = _broken_environment(situation)
    requests = [broken] if broken is not None else []
    manual: list[str] = []
    for problem in problems:
        if isinstance(problem, errors.HostCompilerNotFoundError):
            requests.append((problem.message, InstallRequest(host_compiler=True)))
            manual.append(f"for nvcc, and as the better C++ compiler: {host_package(situation.distribution)}")
        elif not isinstance(problem, errors.CudaNotFoundError):
            manual.extend(problem.hints[:1])
        elif broken is None and isinstance(problem, errors.IncoherentToolchainError):
            manual.extend(problem.hints)
        elif broken is None:
            requests.append((problem.message, InstallRequest(cuda="auto")))
    return Repairs(requests=tuple(requests), manual=tuple(dict.fromkeys(manual)))


def _broken_environment(situation: Situation) -> tuple[str, InstallRequest] | None:
    """Find the installation that makes the environment's CUDA wheels one release again."""
    if situation.interrupted:
        known = situation.interrupted if situation.interrupted[0].isdigit() else "auto"
        reason = f"an installation of CUDA wheels into {situation.site} was interrupted"
        why = f"CUDA {known} is the release of the interrupted installation"
        return reason, InstallRequest(cuda=_fitting(known, situation), into="env", why=why)
    wrong = mixture_of(situation.present)
    if not wrong:
        return None
    nvcc = next(version for name, version in situation.present if name == "nvidia-cuda-nvcc")
    release = release_of(nvcc)
    why = f"CUDA {release} is the release of the nvcc in it"
    request = InstallRequest(cuda=_fitting(release, situation), into="env", why=why)
    return f"the CUDA wheels in {situation.site} are {wrong}", request


def _fitting(release: str, situation: Situation) -> str:
    """Return a release if JAX's plugin in the environment accepts it, else the newest release that fits."""
    if release == "auto" or version_key(release)[0] < FIRST_PIP_MAJOR:
        return "auto"
    least = max((version_key(release_of(version)) for _, version in situation.minimums), default=())
    return release if version_key(release) >= least else "auto"
