"""What would be installed where, over many situations; all of it pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from be_toolchain import errors
from be_toolchain.errors import CudaNotFoundError, CudaUnavailableError, InstallError
from be_toolchain.install.apply import find_repairs
from be_toolchain.install.plan import (
    PARTS,
    SIZES_MB,
    ZIG,
    Goal,
    InstallPlan,
    InstallRequest,
    Situation,
    Wheel,
    choose_goals,
    mixture_of,
    plan_install,
    render_plan,
)
from be_toolchain.known.layouts import CUDA12_WHEELS, PIP_TOOLKIT

SITE, STORE = Path("/venv/lib/python3.11/site-packages"), Path("/home/ada/.local/share/be_toolchain/toolchains")
PLAIN = Situation(site=SITE, store=STORE)
RELEASES = {"": "", "12.4": "550.54", "12.8": "570.86", "13.0": "580.82", "13.1": "590.44", "13.10": "640.10"}
PLUGINS = {
    "": ("", ()),
    "12": ("12", (("nvidia-cuda-nvcc-cu12", "12.6.85"), ("nvidia-cuda-runtime-cu12", "12.1.105"))),
    "13.0": ("13", (("nvidia-cuda-nvcc", "13.0.48"), ("nvidia-cuda-runtime", "13.0.48"))),
    "13.1": ("13", (("nvidia-cuda-nvcc", "13.1.80"), ("nvidia-cuda-runtime", "13.0.48"))),
}
WITH_CLANG = PLAIN._replace(clang="/usr/bin/clang++-19", clang_version="19.1.7")
OLD_CLANG = PLAIN._replace(clang_problem="clang 14.0.6 is older than clang 16", distribution="debian")
PARTS_130 = {"nvcc": "88", "nvvm": "88", "crt": "88", "runtime": "96", "cccl": "85"}
V130 = {f"nvidia-{'' if part == 'nvvm' else 'cuda-'}{part}": f"13.0.{patch}" for part, patch in PARTS_130.items()}
V129 = {f"nvidia-cuda-{part}-cu12": f"12.9.{patch}" for part, patch in (("nvcc", 86), ("runtime", 79), ("cccl", 27))}
MIXED = V130 | {"nvidia-nvvm": "13.5.37", "nvidia-cuda-crt": "13.5.37"}
MIXED_HERE = PLAIN._replace(present=tuple(MIXED.items()))


def without(versions: dict[str, str], name: str) -> dict[str, str]:
    return {each: version for each, version in versions.items() if each != name}


def with_driver(driver: str, plugin: str = "", situation: Situation = PLAIN) -> Situation:
    major, minimums = PLUGINS[plugin]
    return situation._replace(driver_version=driver, driver_release=RELEASES[driver], jax_cuda=major, minimums=minimums)


def goal_of(situation: Situation, cuda: str = "auto", **asked: Any) -> Goal:
    (goal,) = choose_goals(InstallRequest(cuda=cuda, **asked), situation)
    return goal


def planned(situation: Situation, versions: dict[str, str], toolkit: str = "13.0.2", **asked: Any) -> InstallPlan:
    """A plan for what an index offers."""
    rows = (("cuda-toolkit", toolkit), *versions.items())
    wheels = tuple(Wheel(name=name, version=version, hashes=("sha256:ab",)) for name, version in rows)
    return plan_install(goal_of(situation, **asked), wheels, situation)


@pytest.mark.parametrize(
    ("asked", "driver", "jax", "in_env", "in_store"),
    [
        ("auto", "", "", "==13.0.*", "==13.0.*"),
        ("auto", "", "12", "==13.0.*", "==13.0.*"),
        ("auto", "", "13.0", "==13.0.*", "==13.0.*"),
        ("auto", "", "13.1", "==13.1.*", "==13.0.*"),
        ("auto", "13.0", "", ">=13,<13.1", ">=13,<13.1"),
        ("auto", "13.0", "12", ">=13,<13.1", ">=13,<13.1"),
        ("auto", "13.0", "13.0", ">=13,<13.1", ">=13,<13.1"),
        ("auto", "13.0", "13.1", "", ">=13,<13.1"),
        ("auto", "13.1", "13.0", ">=13,<13.2", ">=13,<13.2"),
        ("auto", "13.1", "13.1", ">=13,<13.2", ">=13,<13.2"),
        ("auto", "13.10", "13.1", ">=13,<13.11", ">=13,<13.11"),
        ("13.0", "", "", "==13.0.*", "==13.0.*"),
        ("13.0", "", "13.1", "", "==13.0.*"),
        ("13.0", "12.8", "", "==13.0.*", "==13.0.*"),
        ("13.0.2", "", "", "==13.0.2", "==13.0.2"),
        ("13", "", "", ">=13,<14", ">=13,<14"),
    ],
)
def test_the_release(asked: str, driver: str, jax: str, in_env: str, in_store: str):
    """The driver decides, in an environment also the jax in it; what is named is taken, unless jax needs more."""
    situation = with_driver(driver, jax)
    for into, release in (("env", in_env), ("managed", in_store)):
        if not release:
            says = r"the jax in this environment needs CUDA 13\.1, but the driver supports 13\.0"
            with pytest.raises(InstallError, match=says if driver else r"the jax in it needs 13\.1"):
                goal_of(situation, asked, into=into)
            continue
        goal = goal_of(situation, asked, into=into)
        assert (goal.requirement, goal.into) == (f"{PIP_TOOLKIT}{release}", into)
        notes = [text for text in ("jax here is for CUDA 12", "load beside it") if jax == "12"]
        notes += ["kernels of CUDA 13.0 don't run on it"] if driver == "12.8" else []
        assert bool(goal.notes) == bool(notes)
        assert [text for text in notes if text not in goal.notes[0]] == []


@pytest.mark.parametrize("jax", PLUGINS)
@pytest.mark.parametrize("driver", ["12.4", "12.8"])
def test_a_driver_for_cuda_12_runs_nothing_that_pip_has(driver: str, jax: str):
    for into in ("env", "managed"):
        with pytest.raises(CudaUnavailableError, match=rf"the driver supports CUDA {driver}") as caught:
            goal_of(with_driver(driver, jax), into=into)
        assert not any("install --cuda 13" in hint for hint in caught.value.hints)


def test_the_place_unless_named():
    externally_managed = {"is_virtual": False, "is_external": True}
    changes: Any = ({}, {"is_virtual": False}, {"is_conda": True}, {"writable": False}, externally_managed)
    goals = [goal_of(PLAIN._replace(**change)) for change in changes]
    assert [(goal.into, goal.folder) for goal in goals] == [("env", SITE), *[("managed", STORE)] * 4]
    assert all(all(goal.why) for goal in goals)


@pytest.mark.parametrize(
    ("situation", "asked", "kind", "says", "hint"),
    [
        (PLAIN._replace(writable=False), ("auto", "env"), InstallError, "can't go into this", "use --into managed"),
        (PLAIN._replace(is_external=True), ("auto", "env"), InstallError, "can't go into this", "use --into managed"),
        (WITH_CLANG, ("12.9", "env"), InstallError, "joined into one folder", "use --into managed"),
        (PLAIN._replace(store=None), ("auto", "managed"), errors.StoreError, "no home", ""),
        *((PLAIN, (each, "env"), InstallError, "not a CUDA version", "") for each in ("newest", "13.x", "13.0.2.1.5")),
        # Older than CUDA 12 is not offered even with clang.
        (WITH_CLANG, ("11.8", "managed"), CudaUnavailableError, "PyPI has no nvcc before CUDA 13", ""),
        (WITH_CLANG, ("10", "managed"), CudaUnavailableError, "PyPI has no nvcc before CUDA 13", ""),
        (OLD_CLANG, ("12.9", "managed"), CudaUnavailableError, r"clang 14\.0\.6 is older", "apt-get install clang-19"),
    ],
)
def test_what_can_not_be(situation: Situation, asked: tuple[str, Any], kind: type[Exception], says: str, hint: str):
    with pytest.raises(kind, match=says) as caught:
        goal_of(situation, asked[0], into=asked[1])
    assert hint in str(caught.value)


def test_nothing_is_asked_for():
    assert choose_goals(InstallRequest(cuda=""), PLAIN) == ()


@pytest.mark.parametrize(
    ("driver", "asked", "offers_13"),
    [("", "12.9", True), ("13.0", "12.9", True), ("12.8", "12.9", False), ("12.8", "auto", False)],
)
def test_cuda_12_is_not_on_pypi_and_what_works_is_said(driver: str, asked: str, offers_13: bool):
    with pytest.raises(CudaUnavailableError, match="PyPI has no nvcc before CUDA 13") as caught:
        goal_of(with_driver(driver), asked)
    text = "\n".join(caught.value.hints)
    assert ("install --cuda 13.0 --into managed" in text) is offers_13
    assert "no suitable clang" in caught.value.message
    for part in ("conda install", "cuda-version=12.9", "apt-get install cuda-toolkit-12-9", "clang 16 or newer"):
        assert part in text


@pytest.mark.parametrize(
    ("driver", "asked", "specifier"),
    [("", "12.9", "==12.9.*"), ("", "12", ">=12,<13"), ("", "12.9.1", "==12.9.1"), ("12.8", "auto", ">=12,<12.9")],
)
def test_cuda_12_for_clang(driver: str, asked: str, specifier: str):
    goal = goal_of(with_driver(driver, situation=WITH_CLANG), asked)
    assert goal.requirement == f"cuda-toolkit[nvcc,cudart,cccl]{specifier}"
    assert (goal.kind, goal.into, goal.folder, goal.clang) == ("cuda-clang", "managed", STORE, "/usr/bin/clang++-19")
    assert "clang 19.1.7 (/usr/bin/clang++-19)" in goal.why[0]


def test_cuda_13_stays_the_choice_where_nothing_asks_for_12():
    assert [goal_of(with_driver(driver, situation=WITH_CLANG)).kind for driver in ("", "13.0")] == ["cuda", "cuda"]


def test_the_wheels_for_clang_are_planned_as_one_release():
    plan = planned(WITH_CLANG, V129, "12.9.2.0", cuda="12.9")
    assert (plan.name, plan.is_done) == ("cuda-12.9.2", False)
    assert {wheel.name for wheel in plan.wheels} == set(V129)
    assert "for clang, without nvcc" in render_plan(plan)


@pytest.mark.parametrize(
    ("situation", "cuda", "versions", "problem"),
    [
        (PLAIN, "auto", MIXED, "mixes releases"),
        (PLAIN, "auto", without(V130, "nvidia-nvvm"), "lacks nvidia-nvvm"),
        (PLAIN, "auto", {}, "lacks"),
        (WITH_CLANG, "12.9", V129 | {"nvidia-cuda-runtime-cu12": "12.6.77"}, "mixes releases"),
        (WITH_CLANG, "12.9", without(V129, "nvidia-cuda-cccl-cu12"), "lacks nvidia-cuda-cccl-cu12"),
    ],
)
def test_an_answer_that_would_not_compile(situation: Situation, cuda: str, versions: dict[str, str], problem: str):
    with pytest.raises(InstallError, match=problem):
        planned(situation, versions, cuda=cuda)


def test_a_plan_pins_every_part_with_its_hash_and_says_all_of_it():
    plan = planned(MIXED_HERE, V130, cuda="13.0")
    assert {wheel.requirement for wheel in plan.wheels} == {f"{n}=={v} --hash=sha256:ab" for n, v in V130.items()}
    assert dict(plan.replaces) == {"nvidia-nvvm": "13.5.37", "nvidia-cuda-crt": "13.5.37"}
    assert not plan.is_done
    text = render_plan(plan)
    for part in ("install CUDA 13.0.2", str(SITE), "nvidia-nvvm 13.0.88  (replaces 13.5.37)", "MB to download", "why:"):
        assert part in text
    assert plan.to_json()["wheels"][0] == {"name": "nvidia-cuda-nvcc", "version": "13.0.88", "hashes": ["sha256:ab"]}


def test_what_is_there_is_done_unless_an_exchange_was_interrupted():
    here = PLAIN._replace(present=tuple(V130.items()))
    assert planned(here, V130).is_done
    interrupted = planned(here._replace(interrupted="13.0.2"), V130)
    assert interrupted.repairs
    assert not interrupted.is_done
    plan = planned(PLAIN._replace(stored=("cuda-13.0.2",)), V130, into="managed")
    assert plan.is_done
    assert plan.folder == STORE / "cuda-13.0.2"
    assert "is already installed" in render_plan(plan)
    assert not plan.forced().is_done
    assert planned(PLAIN, V130, "13.0.3.0", into="managed").name == "cuda-13.0.3", "a rebuilt meta-package"


def test_a_host_compiler_is_managed_and_names_what_nvcc_needs():
    situation = PLAIN._replace(distribution="ubuntu debian")
    (goal,) = choose_goals(InstallRequest(host_compiler=True), situation)
    assert (goal.requirement, goal.into, goal.folder) == (ZIG, "managed", STORE)
    assert "apt-get install g++" in goal.notes[0]
    plan = plan_install(goal, (Wheel(name=ZIG, version="0.17.1", hashes=("sha256:ab",), size_bytes=10**8),), situation)
    assert (plan.name, plan.download_mb) == ("zig-0.17.1", 100)
    with pytest.raises(InstallError, match="has nothing"):
        plan_install(goal, (), situation)


def test_every_part_has_a_size():
    assert set(SIZES_MB) == {*PARTS, *CUDA12_WHEELS, ZIG}


@pytest.mark.parametrize(
    ("present", "wrong"),
    [
        (V130.items(), ""),
        (MIXED.items(), "different releases"),
        ([("nvidia-cuda-runtime", "13.5.37")], ""),
        ([("nvidia-cuda-nvcc", "13.0.88")], "incomplete"),
        ((V130 | {"nvidia-cuda-cccl": "13.3.5"}).items(), ""),
        ([*V130.items(), ("nvidia-nvvm", "13.5.37")], "twice: nvidia-nvvm"),
    ],
)
def test_what_is_wrong_with_an_environment(present: list[tuple[str, str]], wrong: str):
    found = mixture_of(tuple(present))
    assert wrong in found
    assert bool(wrong) is bool(found)


@pytest.mark.parametrize(
    ("situation", "cuda", "why"),
    [
        (MIXED_HERE, "13.0", "CUDA 13.0 is the release of the nvcc in it"),
        (with_driver("", "13.1", MIXED_HERE), "auto", "the jax in this environment needs it"),
        (PLAIN._replace(interrupted="13.0.2"), "13.0.2", "CUDA 13.0.2 is the release of the interrupted installation"),
        (PLAIN._replace(interrupted="unknown"), "auto", "no driver was found"),
    ],
)
def test_repairs_of_an_environment_come_with_any_report(situation: Situation, cuda: str, why: str):
    """They tell a reason of their own."""
    for problems in ((), (errors.IncoherentToolchainError("mixed"),), (CudaNotFoundError("none"),)):
        ((_, request),) = find_repairs(situation, problems).requests
        assert (request.cuda, request.into) == (cuda, "env")
        (goal,) = choose_goals(request, situation)
        assert why in goal.why[0]
        assert goal.why[1] == "this environment, whose wheels are repaired"


@pytest.mark.parametrize(
    ("problems", "request_", "manual"),
    [
        ((), None, ""),
        ((CudaNotFoundError("none"),), InstallRequest(cuda="auto"), ""),
        ((errors.HostCompilerNotFoundError("none"),), InstallRequest(host_compiler=True), "apt-get install g++"),
        ((errors.UnsupportedHostCompilerError("new", hints=("install g++-15",)),), None, "install g++-15"),
        ((errors.IncoherentToolchainError("mixed", hints=("conda install x",)),), None, "conda install x"),
    ],
)
def test_other_repairs(problems: tuple[errors.ToolchainError, ...], request_: InstallRequest | None, manual: str):
    repairs = find_repairs(PLAIN._replace(distribution="debian"), problems)
    assert [request for _, request in repairs.requests] == [request_] * (request_ is not None)
    assert bool(repairs.manual) == bool(manual)
    assert manual in "".join(repairs.manual)
