"""An installation as frozen values: the request, the facts about the machine, and the plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

Target = Literal["env", "managed"]
Kind = Literal["cuda", "cuda-clang", "host-compiler"]


class InstallRequest(NamedTuple):
    """A user's request for an installation.

    Parameters
    ----------
    cuda : str
        ``"auto"``, a release such as ``"13.0"``, or an exact version such as ``"13.0.2"``; empty for no CUDA.
    into : {"env", "managed"}, optional
        Python's environment, or the store of managed toolchains; chosen when not given.
    host_compiler : bool
        Install a C++ compiler.
    why : str
        The reason for `cuda` where a repair chose it; empty where the user did.
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
        The CUDA version that the driver supports and the driver's own number; empty without a driver.
    jax_cuda : str
        The CUDA major version of jax's plugin, empty without one.
    minimums : tuple of (package, version)
        The minimum versions of CUDA wheels that jax's plugin requires in its environment.
    present : tuple of (package, version)
        The CUDA wheels in `site`; a package that an interrupted exchange left twice is listed twice.
    interrupted : str
        The target release of an interrupted exchange in `site`; empty when there was none.
    stored : tuple of str
        The names of the managed toolchains.
    clang, clang_version : str
        The path and version of a clang++ that compiles CUDA 12, or empty.
    clang_problem : str
        Why the clang on this machine can't compile CUDA 12; empty without a clang.
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
        The accepted hashes, ``"sha256:<hex>"``; a download must have one of them.
    size_bytes : int, optional
        The size of the download, where known.
    """

    name: str
    version: str
    hashes: tuple[str, ...]
    size_bytes: int | None = None

    @property
    def requirement(self) -> str:
        """The line of a requirements file that accepts this wheel alone."""
        return " ".join((f"{self.name}=={self.version}", *(f"--hash={digest}" for digest in self.hashes)))


class Goal(NamedTuple):
    """The target of an installation before the index was asked which wheels meet it.

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
        The clang that compiles with it; empty where nvcc does.
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
        return {
            "kind": self.goal.kind,
            "version": self.version,
            "into": self.goal.into,
            "folder": str(self.folder),
            "wheels": [
                {"name": wheel.name, "version": wheel.version, "hashes": list(wheel.hashes)} for wheel in self.wheels
            ],
            "replaces": [{"name": name, "version": version} for name, version in self.replaces],
            "repairs": self.repairs,
            "is_done": self.is_done,
            "download_mb": self.download_mb,
            "installed_mb": self.installed_mb,
            "why": list(self.goal.why),
            "notes": list(self.goal.notes),
        }


def render_plan(plan: InstallPlan) -> str:
    """Render a plan as the text that the user confirms.

    Parameters
    ----------
    plan : InstallPlan
        The plan.

    Returns
    -------
    str
        Lines without a final newline.
    """
    what = {
        "cuda": f"CUDA {plan.version}",
        "cuda-clang": f"CUDA {plan.version} for clang, without nvcc,",
        "host-compiler": f"C++ compiler of ziglang {plan.version}",
    }[plan.goal.kind]
    place = "this environment" if plan.goal.into == "env" else "the store of managed toolchains"
    verb = "is there already" if plan.is_done else "repair" if plan.repairs else "install"
    head = f"{what} {verb}" if plan.is_done else f"{verb} {what}"
    lines = [f"{head} (in {place}: {plan.folder})" if plan.is_done else f"{head} into {place}: {plan.folder}"]
    old = dict(plan.replaces)
    for wheel in plan.wheels:
        change = f"  (replaces {old[wheel.name]})" if wheel.name in old else ""
        lines.append(f"  {wheel.name} {wheel.version}{change}")
    if not plan.is_done:
        lines.append(
            f"  about {plan.download_mb} MB to download, {plan.installed_mb} MB installed; hashes are verified"
        )
    lines.extend(f"  why: {reason}" for reason in plan.goal.why)
    lines.extend(f"  note: {note}" for note in plan.goal.notes)
    return "\n".join(lines)
