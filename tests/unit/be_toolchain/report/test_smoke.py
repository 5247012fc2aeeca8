"""Trials, on machines whose programs answer at once; tests/compile and tests/cuda have the real ones."""

from __future__ import annotations

import pytest

from be_toolchain.cli import main as cli
from tests.support.machines import SITE, Libcuda, MemorySystem, answering


def doctor(machine: MemorySystem, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = cli.main(["doctor", "--smoke"], system=machine)
    return code, capsys.readouterr().out


def test_all_works(capsys: pytest.CaptureFixture[str]):
    machine = answering("sum 4950, started")
    machine.write(f"{SITE}/jaxlib-0.10.2.dist-info/METADATA")
    code, text = doctor(machine, capsys)
    assert code == 0
    assert "built and ran a program" in text
    assert "there is no GPU to run it on" in text
    assert "built a kernel and called it from JAX" in text


def test_a_gpu_runs_the_program(capsys: pytest.CaptureFixture[str]):
    machine = answering("sum 4950, sum 500500")
    machine.libraries["libcuda.so.1"] = Libcuda()
    code, text = doctor(machine, capsys)
    assert code == 0
    assert "ran it on NVIDIA H200" in text
    assert "jax is not installed" in text
    assert any("-gencode=arch=compute_90,code=sm_90" in argv for argv in machine.commands)


def test_a_compiler_that_fails(capsys: pytest.CaptureFixture[str]):
    machine = answering("")
    machine.build_fails = True
    code, text = doctor(machine, capsys)
    assert code == 2
    assert "smoke: C++" in text
    assert "g++: exit status 1: compilation stopped" in text
    assert "error: no such thing" in text


def test_a_wrong_result(capsys: pytest.CaptureFixture[str]):
    code, text = doctor(answering("sum 4950"), capsys)
    assert code == 1
    assert "it printed 'sum 4950' instead of 'started'" in text


def test_an_ffi_call_that_fails_is_a_failure_of_cxx(capsys: pytest.CaptureFixture[str]):
    machine = answering("sum 4950, started")
    machine.write(f"{SITE}/jaxlib-0.10.2.dist-info/METADATA")
    machine.ffi_prints = "sum 0 on cpu"
    assert doctor(machine, capsys)[0] == 2


def test_nothing_to_try(capsys: pytest.CaptureFixture[str]):
    code, text = doctor(MemorySystem(), capsys)
    assert code == 2
    assert "there is no compiler" in text
    assert "there is no toolkit" in text
