"""GPUs, asked through a libcuda that is a Python object, and through nvidia-smi's text."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain.arch import Arch
from be_toolchain.doctor.doctor import examine_machine
from be_toolchain.find.devices import Device, DeviceReport, ask_aside, parse_driver_release, parse_smi, probe_devices
from be_toolchain.find.record import device_archs
from be_toolchain.machine.system import RunResult
from tests.support.machines import Libcuda, MemorySystem

Change = Callable[[MemorySystem], object]
SMI = "0, GPU-aa11, NVIDIA H200, 9.0, 580.82.07\n1, GPU-bb22, NVIDIA A100, 8.0, 580.82.07\n"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build\n"
INFORMATION = "/proc/driver/nvidia/gpus/0000:0f:00.0/information"


def machine_with(cuda: Libcuda | None = None, smi: str | None = None, **environ: str) -> MemorySystem:
    machine = MemorySystem(environ={"PATH": "/usr/bin", **environ})
    if cuda is not None:
        machine.libraries["libcuda.so.1"] = cuda
    if smi is not None:
        head = "| NVIDIA-SMI 580.82.07   Driver Version: 580.82.07   CUDA Version: 13.0 |"
        machine.program(
            "/usr/bin/nvidia-smi",
            lambda _, argv: RunResult(argv=argv, returncode=0, stdout=smi if len(argv) > 1 else head),
        )
    return machine


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
    answer = machine.files["/usr/bin/g++"].program
    assert answer is not None

    def answer_and_tell(inner: MemorySystem, argv: tuple[str, ...]) -> RunResult:
        looked.set()
        return answer(inner, argv)

    machine.program("/usr/bin/g++", answer_and_tell)
    found = examine_machine(machine, devices=ask_aside(machine)).devices
    assert [device.name for device in found.devices] == ["NVIDIA H200"]


@pytest.mark.parametrize(
    ("machine", "version", "says"),
    [
        (machine_with(), None, "no NVIDIA driver is installed"),
        (machine_with(Libcuda(init=100), CUDA_VISIBLE_DEVICES="-1"), "13.0", "CUDA_VISIBLE_DEVICES='-1'"),
        (machine_with(Libcuda(init=803)), "13.0", "cuInit failed with CUDA error 803"),
        (MemorySystem(libraries={"libcuda.so.1": object()}), None, "is not a CUDA driver"),
    ],
)
def test_where_no_gpu_is_found_it_says_why(machine: MemorySystem, version: str | None, says: str):
    report = probe_devices(machine)
    assert (report.devices, report.driver_version) == ((), version)
    assert says in (report.problem or "")


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
    texts = (VERSION, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat", "")
    assert [parse_driver_release(text) for text in texts] == ["580.82.07", "535.104.05", None]


@pytest.fixture
def gpu_machine() -> MemorySystem:
    machine = machine_with(Libcuda())
    machine.write("/proc/driver/nvidia/version", VERSION)
    machine.write(INFORMATION, "Model: NVIDIA H200\nIRQ: 12\nBus Location: 0f\n")
    machine.write("/proc/sys/kernel/random/boot_id", "b1")
    return machine


@pytest.mark.parametrize(
    ("asks", "change"),
    [
        (1, lambda _: None),
        (1, lambda m: m.write(INFORMATION, "Model: NVIDIA H200\nIRQ: 13\nBus Location: 0f\n")),
        (2, lambda m: m.write("/proc/driver/nvidia/version", VERSION.replace("580", "590"))),
        (2, lambda m: m.write(INFORMATION.replace("0f", "1f"), "Model: NVIDIA L4\n")),
        (2, lambda m: m.write(INFORMATION.replace("0f", "10"))),
        (2, lambda m: m.write("/proc/sys/kernel/random/boot_id", "b2")),
        (2, lambda m: m.write("/dev/nvidia0")),
        (2, lambda m: setattr(m, "environ", {"CUDA_VISIBLE_DEVICES": "0"})),
        (2, lambda m: setattr(m, "environ", {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})),
    ],
)
def test_archs_are_remembered(gpu_machine: MemorySystem, tmp_path: Path, asks: int, change: Change):
    """Until something changes; an interrupt's number is no reason to ask again."""
    assert device_archs(gpu_machine, tmp_path) == (Arch(9, 0),)
    change(gpu_machine)
    assert device_archs(gpu_machine, tmp_path) == (Arch(9, 0),)
    assert gpu_machine.libraries["libcuda.so.1"].inits == asks


def test_a_damaged_memory_and_a_kernel_that_shows_nothing(gpu_machine: MemorySystem, tmp_path: Path):
    device_archs(gpu_machine, tmp_path)
    (tmp_path / "devices.json").write_text("{")
    assert device_archs(gpu_machine, tmp_path) == (Arch(9, 0),)
    machine = machine_with(Libcuda())
    assert device_archs(machine, tmp_path / "none") == device_archs(machine, tmp_path / "none")
    assert machine.libraries["libcuda.so.1"].inits == 2
    assert not (tmp_path / "none").exists()
