"""What would be installed where, over many situations; all of it pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from be_toolchain.errors import (
    CudaNotFoundError,
    CudaUnavailableError,
    HostCompilerNotFoundError,
    IncoherentToolchainError,
    InstallError,
    StoreError,
    UnsupportedHostCompilerError,
)
from be_toolchain.install.model import Goal, InstallRequest, Situation, Wheel, render_plan
from be_toolchain.install.plan import PARTS, SIZES_MB, ZIG, choose_goals, mixture_of, plan_install
from be_toolchain.install.repair import find_repairs
from be_toolchain.known.catalog import CUDA12_WHEELS
from be_toolchain.machine.system_packages import clang_package, host_package

SITE, STORE = Path("/venv/lib/python3.11/site-packages"), Path("/home/ada/.local/share/be_toolchain/toolchains")
PLAIN = Situation(site=SITE, store=STORE)
DRIVER_12 = PLAIN._replace(driver_version="12.8", driver_release="570.86.10")
DRIVER_13_0 = PLAIN._replace(driver_version="13.0", driver_release="580.82.07")
DRIVER_13_2 = PLAIN._replace(driver_version="13.2", driver_release="595.10")
NEWER_JAX = PLAIN._replace(
    jax_cuda="13", minimums=(("nvidia-cuda-nvcc", "13.1.80"), ("nvidia-cuda-runtime", "13.0.48"))
)
WITH_CLANG = PLAIN._replace(clang="/usr/bin/clang++-19", clang_version="19.1.7")
V130 = {
    "nvidia-cuda-nvcc": "13.0.88",
    "nvidia-nvvm": "13.0.88",
    "nvidia-cuda-crt": "13.0.88",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-cuda-cccl": "13.0.85",
}
V129 = {
    "nvidia-cuda-nvcc-cu12": "12.9.86",
    "nvidia-cuda-runtime-cu12": "12.9.79",
    "nvidia-cuda-cccl-cu12": "12.9.27",
}
MIXED = V130 | {"nvidia-nvvm": "13.5.37", "nvidia-cuda-crt": "13.5.37"}


def offered(versions: dict[str, str], toolkit: str = "13.0.2") -> tuple[Wheel, ...]:
    rows = (("cuda-toolkit", toolkit), *versions.items())
    return tuple(Wheel(name=name, version=version, hashes=("sha256:ab",)) for name, version in rows)


def goal_of(situation: Situation, **asked: str) -> Goal:
    (goal,) = choose_goals(InstallRequest(**({"cuda": "auto"} | asked)), situation)  # type: ignore[arg-type]
    return goal


@pytest.mark.parametrize(
    ("situation", "asked", "specifier"),
    [
        (PLAIN, "auto", "==13.0.*"),
        (PLAIN, "13.0", "==13.0.*"),
        (PLAIN, "13.0.2", "==13.0.2"),
        (PLAIN, "13", ">=13,<14"),
        (DRIVER_12, "13.0", "==13.0.*"),
        (DRIVER_13_0, "auto", ">=13,<13.1"),
        (DRIVER_13_2, "auto", ">=13,<13.3"),
        (NEWER_JAX, "auto", "==13.1.*"),
    ],
)
def test_the_release(situation: Situation, asked: str, specifier: str):
    assert goal_of(situation, cuda=asked).requirement == f"cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]{specifier}"


@pytest.mark.parametrize(
    ("change", "into", "folder"),
    [
        ({}, "env", SITE),
        ({"is_virtual": False}, "managed", STORE),
        ({"is_conda": True}, "managed", STORE),
        ({"writable": False}, "managed", STORE),
        ({"is_virtual": False, "is_external": True}, "managed", STORE),
    ],
)
def test_the_place_unless_named(change: dict[str, bool], into: str, folder: Path):
    goal = goal_of(PLAIN._replace(**change))  # type: ignore[arg-type]
    assert (goal.into, goal.folder) == (into, folder)
    assert all(goal.why)


@pytest.mark.parametrize("change", [{"writable": False}, {"is_external": True}])
def test_an_environment_that_cannot_take_it(change: dict[str, bool]):
    with pytest.raises(InstallError, match="can't go into this environment") as caught:
        goal_of(PLAIN._replace(**change), into="env")  # type: ignore[arg-type]
    assert caught.value.hints == ("use --into managed",)


def test_without_a_home_there_is_no_store():
    with pytest.raises(StoreError, match="no home"):
        goal_of(PLAIN._replace(store=None), into="managed")


def test_jax_in_the_environment_keeps_older_releases_out_of_it():
    with pytest.raises(InstallError, match=r"the jax in it needs 13\.1"):
        goal_of(NEWER_JAX, cuda="13.0", into="env")
    assert goal_of(NEWER_JAX, cuda="13.0", into="managed").requirement.endswith("==13.0.*")


def test_jax_and_driver_that_exclude_each_other():
    with pytest.raises(CudaUnavailableError, match=r"needs CUDA 13\.1, but the driver supports 13\.0"):
        goal_of(NEWER_JAX._replace(driver_version="13.0"))


def test_a_driver_too_old_for_what_was_named_is_noted():
    (note,) = goal_of(DRIVER_12, cuda="13.0").notes
    assert "kernels of CUDA 13.0 don't run on it" in note


def test_jax_for_cuda_12_on_a_driver_for_13():
    (note,) = goal_of(DRIVER_13_0._replace(jax_cuda="12")).notes
    assert "load beside it" in note


@pytest.mark.parametrize(
    ("situation", "asked", "offers_13"),
    [(PLAIN, "12.9", True), (DRIVER_13_0, "12.9", True), (DRIVER_12, "12.9", False), (DRIVER_12, "auto", False)],
)
def test_cuda_12_is_not_on_pypi_and_what_works_is_said(situation: Situation, asked: str, offers_13: bool):
    with pytest.raises(CudaUnavailableError, match="PyPI has no nvcc before CUDA 13") as caught:
        goal_of(situation, cuda=asked)
    text = "\n".join(caught.value.hints)
    assert ("install --cuda 13.0 --into managed" in text) is offers_13
    assert "no suitable clang" in caught.value.message
    for part in ("conda install", "cuda-version=12.9", "apt-get install cuda-toolkit-12-9", "clang 16 or newer"):
        assert part in text


@pytest.mark.parametrize("asked", ["11.8", "10"])
def test_what_is_older_than_cuda_12_is_not_offered_even_with_clang(asked: str):
    with pytest.raises(CudaUnavailableError, match="PyPI has no nvcc before CUDA 13"):
        goal_of(WITH_CLANG, cuda=asked)


@pytest.mark.parametrize(
    ("situation", "asked", "specifier"),
    [
        (WITH_CLANG, "12.9", "==12.9.*"),
        (WITH_CLANG, "12", ">=12,<13"),
        (WITH_CLANG, "12.9.1", "==12.9.1"),
        (WITH_CLANG._replace(driver_version="12.8", driver_release="570.86.10"), "auto", ">=12,<12.9"),
    ],
)
def test_cuda_12_for_clang(situation: Situation, asked: str, specifier: str):
    goal = goal_of(situation, cuda=asked)
    assert goal.requirement == f"cuda-toolkit[nvcc,cudart,cccl]{specifier}"
    assert (goal.kind, goal.into, goal.folder, goal.clang) == ("cuda-clang", "managed", STORE, "/usr/bin/clang++-19")
    assert "clang 19.1.7 (/usr/bin/clang++-19)" in goal.why[0]


def test_cuda_13_stays_the_choice_where_nothing_asks_for_12():
    assert goal_of(WITH_CLANG).kind == "cuda"
    assert goal_of(WITH_CLANG._replace(driver_version="13.0", driver_release="580.82.07")).kind == "cuda"


def test_cuda_12_for_clang_is_no_part_of_an_environment():
    with pytest.raises(InstallError, match="joined into one folder") as caught:
        goal_of(WITH_CLANG, cuda="12.9", into="env")
    assert "use --into managed" in caught.value.hints


def test_the_clang_that_does_not_fit_is_named():
    situation = PLAIN._replace(clang_problem="clang 14.0.6 is older than clang 16", distribution="debian")
    with pytest.raises(CudaUnavailableError, match=r"clang 14\.0\.6 is older") as caught:
        goal_of(situation, cuda="12.9")
    assert "apt-get install clang-19" in caught.value.hints[0]


def test_the_wheels_for_clang_are_planned_as_one_release():
    goal = goal_of(WITH_CLANG, cuda="12.9")
    plan = plan_install(goal, offered(V129, "12.9.2.0"), WITH_CLANG)
    assert (plan.name, plan.is_done) == ("cuda-12.9.2", False)
    assert {wheel.name for wheel in plan.wheels} == set(V129)
    assert "for clang, without nvcc" in render_plan(plan)
    with pytest.raises(InstallError, match="mixes releases"):
        plan_install(goal, offered(V129 | {"nvidia-cuda-runtime-cu12": "12.6.77"}, "12.9.2"), WITH_CLANG)
    with pytest.raises(InstallError, match="lacks nvidia-cuda-cccl-cu12"):
        plan_install(goal, offered({name: V129[name] for name in list(V129)[:2]}, "12.9.2"), WITH_CLANG)


@pytest.mark.parametrize("asked", ["newest", "13.x", "", "13.0.2.1.5"])
def test_words_that_are_no_version(asked: str):
    if not asked:
        assert choose_goals(InstallRequest(cuda=asked), PLAIN) == ()
        return
    with pytest.raises(InstallError, match="is not a CUDA version"):
        goal_of(PLAIN, cuda=asked)


def test_a_plan_pins_every_part_with_its_hash_and_says_all_of_it():
    situation = PLAIN._replace(present=tuple(MIXED.items()))
    plan = plan_install(goal_of(situation, cuda="13.0"), offered(V130), situation)
    assert {wheel.requirement for wheel in plan.wheels} == {f"{n}=={v} --hash=sha256:ab" for n, v in V130.items()}
    assert dict(plan.replaces) == {"nvidia-nvvm": "13.5.37", "nvidia-cuda-crt": "13.5.37"}
    assert not plan.is_done
    text = render_plan(plan)
    for part in ("install CUDA 13.0.2", str(SITE), "nvidia-nvvm 13.0.88  (replaces 13.5.37)", "MB to download", "why:"):
        assert part in text
    assert plan.to_json()["wheels"][0] == {"name": "nvidia-cuda-nvcc", "version": "13.0.88", "hashes": ["sha256:ab"]}


def test_what_is_there_is_done():
    here = PLAIN._replace(present=tuple(V130.items()))
    assert plan_install(goal_of(here), offered(V130), here).is_done
    stored = PLAIN._replace(stored=("cuda-13.0.2",))
    plan = plan_install(goal_of(stored, into="managed"), offered(V130), stored)
    assert plan.is_done
    assert plan.folder == STORE / "cuda-13.0.2"
    assert "is there already" in render_plan(plan)
    assert not plan.forced().is_done


def test_an_interrupted_exchange_is_never_done():
    here = PLAIN._replace(present=tuple(V130.items()), interrupted="13.0.2")
    plan = plan_install(goal_of(here), offered(V130), here)
    assert plan.repairs
    assert not plan.is_done


def test_rebuilt_meta_packages_do_not_name_folders_oddly():
    plan = plan_install(goal_of(PLAIN, into="managed"), offered(V130, "13.0.3.0"), PLAIN)
    assert plan.name == "cuda-13.0.3"


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        (MIXED, "mixes releases"),
        ({name: version for name, version in V130.items() if name != "nvidia-nvvm"}, "lacks nvidia-nvvm"),
        ({}, "lacks"),
    ],
)
def test_an_answer_that_would_not_compile_is_refused(versions: dict[str, str], problem: str):
    with pytest.raises(InstallError, match=problem):
        plan_install(goal_of(PLAIN), offered(versions), PLAIN)


def test_a_host_compiler_is_managed_and_names_what_nvcc_needs():
    situation = PLAIN._replace(distribution="ubuntu debian")
    (goal,) = choose_goals(InstallRequest(host_compiler=True), situation)
    assert (goal.requirement, goal.into, goal.folder) == (ZIG, "managed", STORE)
    assert "apt-get install g++" in goal.notes[0]
    plan = plan_install(goal, (Wheel(name=ZIG, version="0.17.1", hashes=("sha256:ab",), size_bytes=10**8),), situation)
    assert (plan.name, plan.download_mb) == ("zig-0.17.1", 100)
    with pytest.raises(InstallError, match="has nothing"):
        plan_install(goal, (), situation)


def test_host_packages():
    assert host_package("fedora") == "dnf install gcc-c++"
    assert host_package("") == "conda install gxx"
    assert clang_package("ubuntu debian").startswith("apt-get install clang-19")


def test_every_part_has_a_size():
    assert set(SIZES_MB) == {*PARTS, *CUDA12_WHEELS, ZIG}


@pytest.mark.parametrize(
    ("present", "wrong"),
    [
        (V130, ""),
        (MIXED, "different releases"),
        ({"nvidia-cuda-runtime": "13.5.37"}, ""),
        ({"nvidia-cuda-nvcc": "13.0.88"}, "incomplete"),
        (V130 | {"nvidia-cuda-cccl": "13.3.5"}, ""),
    ],
)
def test_what_is_wrong_with_an_environment(present: dict[str, str], wrong: str):
    found = mixture_of(tuple(present.items()))
    assert wrong in found
    assert bool(wrong) is bool(found)


def test_a_wheel_that_is_there_twice():
    assert "twice: nvidia-nvvm" in mixture_of((*V130.items(), ("nvidia-nvvm", "13.5.37")))


@pytest.mark.parametrize(
    ("situation", "cuda", "why"),
    [
        (PLAIN._replace(present=tuple(MIXED.items())), "13.0", "CUDA 13.0 is the release of the nvcc in it"),
        (NEWER_JAX._replace(present=tuple(MIXED.items())), "auto", "the jax in this environment needs it"),
        (PLAIN._replace(interrupted="13.0.2"), "13.0.2", "CUDA 13.0.2 is the release of the interrupted installation"),
        (PLAIN._replace(interrupted="unknown"), "auto", "no driver was found"),
    ],
)
def test_repairs_of_an_environment_come_with_any_report_and_tell_their_own_reason(
    situation: Situation, cuda: str, why: str
):
    for problems in ((), (IncoherentToolchainError("mixed"),), (CudaNotFoundError("none"),)):
        ((_, request),) = find_repairs(situation, problems).requests
        assert (request.cuda, request.into) == (cuda, "env")
        (goal,) = choose_goals(request, situation)
        assert why in goal.why[0]
        assert goal.why[1] == "this environment, whose wheels are repaired"


def test_other_repairs():
    assert find_repairs(PLAIN, ()).requests == ()
    ((_, request),) = find_repairs(PLAIN, (CudaNotFoundError("none"),)).requests
    assert request == InstallRequest(cuda="auto")
    repairs = find_repairs(PLAIN._replace(distribution="debian"), (HostCompilerNotFoundError("none"),))
    assert repairs.requests[0][1] == InstallRequest(host_compiler=True)
    assert "apt-get install g++" in repairs.manual[0]
    repairs = find_repairs(PLAIN, (UnsupportedHostCompilerError("new", hints=("install g++-15",)),))
    assert (repairs.requests, repairs.manual) == ((), ("install g++-15",))
    repairs = find_repairs(PLAIN, (IncoherentToolchainError("mixed", hints=("conda install x",)),))
    assert (repairs.requests, repairs.manual) == ((), ("conda install x",))
