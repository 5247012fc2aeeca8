"""GPUs, asked through a libcuda that is a Python object, and through nvidia-smi's text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain.arch import Arch
from be_toolchain.find.device_memory import device_archs
from be_toolchain.find.devices import Device, DeviceReport, ask_aside, parse_driver_release, parse_smi, probe_devices
from be_toolchain.machine.system import RunResult
from be_toolchain.report.doctor import examine_machine
from tests.support.machines import Libcuda, MemorySystem

SMI = "0, GPU-aa11, NVIDIA H200, 9.0, 580.82.07\n1, GPU-bb22, NVIDIA A100, 8.0, 580.82.07\n"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n"


def machine_with(cuda: Libcuda | None = None, smi: str | None = None, **environ: str) -> MemorySystem:
    machine = MemorySystem(environ={"PATH": "/usr/bin", **environ})
    if cuda is not None:
        machine.libraries["libcuda.so.1"] = cuda
    if smi is not None:
        machine.program("/usr/bin/nvidia-smi", answer_smi(smi))
    return machine


def answer_smi(listed: str) -> Callable[[MemorySystem, tuple[str, ...]], RunResult]:
    def answer(_machine: MemorySystem, argv: tuple[str, ...]) -> RunResult:
        text = listed if len(argv) > 1 else "| NVIDIA-SMI 580.82.07   Driver Version: 580.82.07   CUDA Version: 13.0 |"
        return RunResult(argv=argv, returncode=0, stdout=text)

    return answer


def test_libcuda_lists_all():
    machine = machine_with(Libcuda(gpus=(("NVIDIA H200", 9, 0), ("NVIDIA L4", 8, 9))), smi=SMI)
    machine.write("/proc/driver/nvidia/version", VERSION)
    assert probe_devices(machine) == DeviceReport(
        driver_version="13.0",
        driver_release="580.82.07",
        devices=(
            Device(index=0, name="NVIDIA H200", arch=Arch(9, 0)),
            Device(index=1, name="NVIDIA L4", arch=Arch(8, 9)),
        ),
        found_via="libcuda",
    )
    assert machine.commands == []


def test_the_driver_is_asked_while_the_doctor_looks_around():
    looked = threading.Event()

    class Patient(Libcuda):
        def cuInit(self, flags: int) -> int:  # noqa: N802
            return super().cuInit(flags) if looked.wait(10) else 999

    machine = machine_with(Patient())
    machine.gxx("/usr/bin/g++")
    compiler = machine.files["/usr/bin/g++"]
    answer = compiler.program
    assert answer is not None

    def answer_and_tell(inner: MemorySystem, argv: tuple[str, ...]) -> RunResult:
        looked.set()
        return answer(inner, argv)

    compiler.program = answer_and_tell
    assert [device.name for device in examine_machine(machine, devices=ask_aside(machine)).devices.devices] == [
        "NVIDIA H200"
    ]


def test_no_driver():
    report = probe_devices(machine_with())
    assert (report.devices, report.driver_version) == ((), None)
    assert "no NVIDIA driver is installed" in (report.problem or "")


def test_a_driver_without_visible_gpus_says_what_hides_them():
    report = probe_devices(machine_with(Libcuda(init=100), CUDA_VISIBLE_DEVICES="-1"))
    assert (report.driver_version, report.devices) == ("13.0", ())
    assert "CUDA_VISIBLE_DEVICES='-1'" in (report.problem or "")


def test_a_failing_driver_names_the_call():
    assert "cuInit failed with CUDA error 803" in (probe_devices(machine_with(Libcuda(init=803))).problem or "")


def test_a_stub_library_is_no_driver():
    machine = MemorySystem(libraries={"libcuda.so.1": object()})
    assert "is not a CUDA driver" in (probe_devices(machine).problem or "")


def test_nvidia_smi_is_asked_when_libcuda_is_not_there():
    report = probe_devices(machine_with(smi=SMI))
    assert [device.arch.sm for device in report.devices] == ["sm_90", "sm_80"]
    assert (report.driver_version, report.driver_release, report.found_via) == ("13.0", "580.82.07", "nvidia-smi")


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, "H200 A100"), ("1,0", "A100 H200"), ("GPU-bb", "A100"), ("0,7,1", "H200"), ("", ""), ("-1", "")],
)
def test_visibility_applies_to_nvidia_smi_too(visible: str | None, names: str):
    devices, _ = parse_smi(SMI, visible)
    assert [device.name.removeprefix("NVIDIA ") for device in devices] == names.split()
    assert [device.index for device in devices] == list(range(len(devices)))


def test_driver_release_of_both_kernel_modules():
    assert parse_driver_release(VERSION) == "580.82.07"
    assert parse_driver_release("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat") == "535.104.05"
    assert parse_driver_release("") is None


@pytest.fixture
def gpu_machine() -> MemorySystem:
    machine = machine_with(Libcuda())
    machine.write("/proc/driver/nvidia/version", VERSION)
    machine.write(
        "/proc/driver/nvidia/gpus/0000:0f:00.0/information", "Model: NVIDIA H200\nIRQ: 12\nBus Location: 0f\n"
    )
    machine.write("/proc/sys/kernel/random/boot_id", "b1")
    return machine


def inits(machine: MemorySystem) -> int:
    return int(machine.libraries["libcuda.so.1"].inits)


def test_archs_are_remembered(gpu_machine: MemorySystem, tmp_path: Path):
    assert device_archs(gpu_machine, tmp_path) == device_archs(gpu_machine, tmp_path) == (Arch(9, 0),)
    assert inits(gpu_machine) == 1
    gpu_machine.write(
        "/proc/driver/nvidia/gpus/0000:0f:00.0/information", "Model: NVIDIA H200\nIRQ: 13\nBus Location: 0f\n"
    )
    device_archs(gpu_machine, tmp_path)
    assert inits(gpu_machine) == 1, "an interrupt number is no reason to ask again"


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.write("/proc/driver/nvidia/version", VERSION.replace("580", "590")),
        lambda m: m.write("/proc/driver/nvidia/gpus/0000:1f:00.0/information", "Model: NVIDIA L4\n"),
        lambda m: m.write("/proc/driver/nvidia/gpus/0000:10:00.0/information"),
        lambda m: m.write("/proc/sys/kernel/random/boot_id", "b2"),
        lambda m: m.write("/dev/nvidia0"),
        lambda m: setattr(m, "environ", {"CUDA_VISIBLE_DEVICES": "0"}),
        lambda m: setattr(m, "environ", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ],
)
def test_a_change_makes_it_ask_again(
    gpu_machine: MemorySystem, tmp_path: Path, change: Callable[[MemorySystem], object]
):
    device_archs(gpu_machine, tmp_path)
    change(gpu_machine)
    device_archs(gpu_machine, tmp_path)
    assert inits(gpu_machine) == 2


def test_where_the_kernel_shows_nothing_it_always_asks(tmp_path: Path):
    machine = machine_with(Libcuda())
    device_archs(machine, tmp_path)
    device_archs(machine, tmp_path)
    assert inits(machine) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_memory_is_ignored(gpu_machine: MemorySystem, tmp_path: Path):
    device_archs(gpu_machine, tmp_path)
    (tmp_path / "devices.json").write_text("{")
    assert device_archs(gpu_machine, tmp_path) == (Arch(9, 0),)
