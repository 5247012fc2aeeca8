"""Architectures: every spelling, order and flags, and what a toolkit can target."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_toolchain.arch import Arch, gencode_flags, parse_archs, render_archs
from be_toolchain.errors import ArchError
from be_toolchain.values import check_archs
from tests.support.machines import cuda_of, healthy

ARCHS = st.builds(Arch, st.integers(2, 99), st.integers(0, 9), st.sampled_from(["", "a", "f"]))


@given(ARCHS)
def test_every_rendered_spelling_reads_back(arch: Arch):
    spellings = (str(arch), arch.number, arch.sm, arch.compute, arch.sm.upper(), f" {arch} ")
    assert {Arch.parse(text) for text in spellings} == {arch}


@given(st.lists(ARCHS, min_size=1, max_size=6), st.sampled_from([",", ";", " ", ", ", " ; "]))
def test_lists_are_sorted_and_distinct(archs: list[Arch], separator: str):
    parsed = parse_archs(separator.join(arch.sm for arch in archs))
    assert parsed == tuple(sorted(set(archs)))
    assert parse_archs(render_archs(parsed)) == parsed


@given(st.sets(ARCHS, max_size=6))
def test_one_gencode_an_arch_and_ptx_of_the_highest_plain_one(archs: set[Arch]):
    flags = gencode_flags(tuple(archs))
    plain = sorted(arch for arch in archs if not arch.suffix)
    wanted = [(arch.compute, arch.sm) for arch in sorted(archs)]
    wanted += [(plain[-1].compute,) * 2] if plain else []
    assert flags == tuple(f"-gencode=arch={arch},code={code}" for arch, code in wanted)
    assert gencode_flags(tuple(archs), ptx_for_highest=False) == flags[: len(archs)]


@pytest.mark.parametrize(
    "text", ["", "abc", "8", "8.", ".6", "sm_", "sm-86", "8.6b", "8.66", "1234", "sm_86+PTX", "native", "8 .6", "٨.٦"]
)
def test_what_is_no_arch(text: str):
    with pytest.raises(ArchError) as caught:
        Arch.parse(text)
    assert repr(text) in str(caught.value)
    assert "sm_86" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("text", ["1.3", "10", "sm_13", "compute_10a", "0.0"])
def test_no_gpu_is_older_than_2(text: str):
    with pytest.raises(ArchError, match=r"below 2\.0") as caught:
        Arch.parse(text)
    assert text != "10" or caught.value.hints == ("did you mean 10.0?",)


@pytest.mark.parametrize("text", ["", " ", ",", "; ,", "8.0, abc"])
def test_a_list_that_is_empty_or_has_a_bad_element(text: str):
    with pytest.raises(ArchError, match="'abc'" if "abc" in text else "does not name a GPU architecture"):
        parse_archs(text)


@pytest.mark.parametrize(
    ("listed", "asked", "says"),
    [
        ("75 80 90 90a 120", "8.0, 9.0a", ""),
        ("75 80 90 90a 120", "8.0, sm_999", r"cannot target sm_999[\s\S]*sm_75, sm_80, sm_90, sm_90a, sm_120"),
        ("75 80 90 90a 120", "8.0a", "sm_80a"),
        ("75 80 90 90a 120", "6.1", "sm_61 needs an older CUDA release"),
        ("80 90", "9.0a", ""),  # it lists no suffixes: the base is asked for
        ("80 90", "10.0a", "sm_100a"),
    ],
)
def test_what_a_toolkit_can_target(listed: str, asked: str, says: str):
    toolkit = cuda_of(healthy())._replace(archs=parse_archs(listed))
    with pytest.raises(ArchError, match=says) if says else nullcontext():
        check_archs(parse_archs(asked), toolkit)
