"""The commands that change something: ``install``, ``list``, ``use``, ``remove``, ``prune`` and ``doctor --fix``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from be_toolchain.cli.parser import NONE
from be_toolchain.doctor.doctor import Report, examine_machine
from be_toolchain.errors import InstallError, StoreError, ToolchainError
from be_toolchain.install.apply import apply_plan, find_repairs, gather_situation, make_plan
from be_toolchain.install.installers import Installer, find_installer
from be_toolchain.install.managed import ManagedStore, sweep
from be_toolchain.install.plan import InstallPlan, InstallRequest, Situation, choose_goals, render_plan, require_store
from be_toolchain.machine.files import (
    ENV_STORE,
    OTHER_STORE,
    find_store,
    misnamed_store,
    placed_store,
    store_dir,
)
from be_toolchain.machine.system import System
from be_toolchain.terminal import INTERRUPTED_BY_USER, WORKS, say, say_error

FAILED = 1
"""The exit code of an installation that was not possible."""

NOT_CONFIRMED = 4
"""The exit code if a plan was shown and not confirmed."""

PLAN_SCHEMA = 1
"""The version of the JSON of ``install --json``; it increases if a field changes its meaning or is removed."""


def run_command(arguments: argparse.Namespace, system: System) -> int:
    """Run a command of `parser.CHANGING`, and return its exit code."""
    try:
        for removed in sweep(system):
            say(removed, sys.stderr)
        match arguments.command:
            case "install":
                return _install(arguments, system)
            case "list":
                return _list(_store(system), as_json=arguments.json, verify=arguments.verify)
            case "use":
                return _use(_store(system), arguments.version)
            case "remove":
                return _remove(_store(system), arguments)
            case _:
                return _prune(_store(system), arguments)
    except (KeyboardInterrupt, ToolchainError) as error:
        return _report_failure(error, as_json=getattr(arguments, "json", False))


def _report_failure(error: KeyboardInterrupt | ToolchainError, *, as_json: bool) -> int:
    """Print why a command ended early, and return its exit code."""
    if isinstance(error, KeyboardInterrupt):
        say("interrupted; run the same command again to complete it", file=sys.stderr)
        return INTERRUPTED_BY_USER
    if as_json:
        problem = {"code": error.code, "message": error.message, "hints": list(error.hints)}
        say(json.dumps({"schema": PLAN_SCHEMA, "applied": False, "problem": problem}, indent=2))
    else:
        say_error(f"{error.code}: {error}")
    return FAILED


def _is_confirmed(arguments: argparse.Namespace) -> bool:
    """Ask the user whether to go ahead; with ``--yes`` the answer is yes, and without a terminal it is no."""
    if arguments.yes:
        return True
    if sys.stdin.isatty() and sys.stdout.isatty() and not getattr(arguments, "json", False):
        return input("Proceed? [y/N] ").strip().lower() in ("y", "yes")
    say(
        "nothing was changed: standard input is not a terminal, so nobody can confirm; pass --yes to go ahead",
        file=sys.stderr,
    )
    return False


def _store(system: System) -> ManagedStore:
    """Return this user's store."""
    _require_store_setting(system)
    found = find_store(system).path
    return ManagedStore(require_store(placed_store(system.environ) if found == store_dir(system.environ) else found))


def _require_store_setting(system: System) -> None:
    """Refuse a ``BE_TOOLCHAINS_DIR`` that is not absolute, and a store that other users may write to."""
    problem = misnamed_store(system.environ)
    if problem:
        raise StoreError(problem, hints=(f"set {ENV_STORE} to an absolute path, or unset it",))
    distrusted = find_store(system).problem
    if distrusted:
        raise StoreError(f"the folder of managed toolchains {distrusted}", hints=(OTHER_STORE,))


def _absolute(folder: Path | None) -> Path | None:
    """Make a folder of wheels absolute, so that pip finds it from any working folder."""
    if folder is None:
        return None
    if not folder.is_dir():
        raise InstallError(f"--wheels {folder}: no such folder")
    return folder.resolve()


def _install(arguments: argparse.Namespace, system: System) -> int:
    """Make the plans, show them, ask, and apply them."""
    _require_store_setting(system)
    cuda = arguments.cuda or ("" if arguments.host_compiler else "auto")
    request = InstallRequest(cuda=cuda, into=arguments.into, host_compiler=arguments.host_compiler)
    installer = find_installer(system, Path(sys.executable), _absolute(arguments.wheels))
    plans = _plans((request,), gather_situation(system), installer)
    if not arguments.json:
        say("\n".join(map(render_plan, plans)))
    is_idle = arguments.dry_run or all(plan.is_done for plan in plans)
    applied = not is_idle and _is_confirmed(arguments)
    if applied:
        _apply(plans, installer)
    if arguments.json:
        data = {"schema": PLAN_SCHEMA, "applied": applied, "plans": [plan.to_json() for plan in plans]}
        say(json.dumps(data, indent=2))
    return WORKS if applied or is_idle else NOT_CONFIRMED


def _plans(requests: tuple[InstallRequest, ...], situation: Situation, installer: Installer) -> tuple[InstallPlan, ...]:
    """Plan the requested installations for this machine."""
    goals = [goal for request in requests for goal in choose_goals(request, situation)]
    return tuple(make_plan(goal, situation, installer) for goal in goals)


def _apply(plans: tuple[InstallPlan, ...], installer: Installer) -> None:
    """Apply plans, and report each on standard error."""
    for plan in plans:
        if not plan.is_done:
            folder = apply_plan(plan, installer, lambda text: say(f"  {text} ...", file=sys.stderr))
            say(f"  done: {folder}", file=sys.stderr)


def _list(store: ManagedStore, *, as_json: bool, verify: bool) -> int:
    """Print the toolchains in the store."""
    rows = store.list()
    damage = {row.name: store.damage(row) for row in rows} if verify else {}
    if as_json:
        fields = [row._asdict() | {"path": str(row.path), "wheels": dict(row.wheels)} for row in rows]
        data = [row | ({"damage": damage[row["name"]]} if verify else {}) for row in fields]
        say(json.dumps({"schema": PLAN_SCHEMA, "store": str(store.root), "toolchains": data}, indent=2))
    elif not rows:
        say(f"no managed toolchains in {store.root}")
    else:
        for row in rows:
            mark = "*" if row.selected else " "
            state = "" if not verify else "  damaged" if damage[row.name] else "  intact"
            say(f"{mark} {row.name:<16} {row.path}{state}")
    for name, texts in damage.items():
        for text in texts[:5]:
            say(f"{name}: {text}", file=sys.stderr)
    return FAILED if any(damage.values()) else WORKS


def _use(store: ManagedStore, version: str) -> int:
    """Select a toolchain, or none."""
    if version == NONE:
        store.select(None)
        say("no managed toolchain is preferred")
        return WORKS
    row = store.find(version, to_use=True)
    if not row.name.startswith("cuda-"):
        raise StoreError(f"{row.name} is not a CUDA toolkit", hints=(f"name it with BE_CXX={row.path}/bin/clang++",))
    store.select(row)
    say(f"{row.name} is preferred to every other CUDA toolkit, unless a variable or a setting names one")
    return WORKS


def _remove(store: ManagedStore, arguments: argparse.Namespace) -> int:
    """Remove a toolchain."""
    row = store.find(arguments.version)
    say(f"remove {row.name} ({row.path})")
    if not _is_confirmed(arguments):
        return NOT_CONFIRMED
    store.remove(row)
    return WORKS


def _prune(store: ManagedStore, arguments: argparse.Namespace) -> int:
    """Ask whether to remove superseded versions, and remove them; `run_command` has swept leftovers."""
    rows = store.superseded()
    if not rows:
        say(f"nothing to remove: no toolchain in {store.root} is superseded by a newer patch")
    for row in rows:
        say(f"remove {row.name}: a newer patch of its release is installed ({row.path})")
    if rows and not _is_confirmed(arguments):
        return NOT_CONFIRMED
    for row in rows:
        store.remove(row)
        say(f"{row.name}: removed")
    return WORKS


def fix(report: Report, arguments: argparse.Namespace, system: System) -> int:
    """Show the repairs for the problems in a report, ask, apply them, and examine the machine again.

    Parameters
    ----------
    report : Report
        The doctor's report.
    arguments : argparse.Namespace
        The command line of the doctor.
    system : System
        The machine.

    Returns
    -------
    int
        The doctor's exit code after the repair; `NOT_CONFIRMED` if the user declined, `FAILED` if the repair failed.
    """
    try:
        situation = gather_situation(system)
        repairs = find_repairs(situation, report.problems)
        for text in repairs.manual:
            say(f"by hand: {text}")
        if not repairs.requests:
            say("no installation would repair this" if report.problems else "nothing to repair")
            return report.exit_code
        for reason, _ in repairs.requests:
            say(f"to repair: {reason}")
        installer = find_installer(system, Path(sys.executable), _absolute(arguments.wheels))
        found = _plans(tuple(request for _, request in repairs.requests), situation, installer)
        has_wheels = bool(situation.present)
        plans = tuple(plan._replace(repairs=plan.repairs or (plan.goal.into == "env" and has_wheels)) for plan in found)
        say("\n".join(map(render_plan, plans)))
        if not _is_confirmed(arguments):
            return NOT_CONFIRMED
        _apply(plans, installer)
    except (KeyboardInterrupt, ToolchainError) as error:
        return _report_failure(error, as_json=False)
    after = examine_machine(system, smoke=arguments.smoke)
    say(after.verdict)
    return after.exit_code
