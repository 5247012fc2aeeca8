"""Architectures: every spelling, order and flags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_toolchain.arch import Arch, gencode_flags, parse_archs, render_archs
from be_toolchain.errors import ArchError

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


@given(st.sets(ARCHS, min_size=1, max_size=6))
def test_one_gencode_an_arch_and_ptx_of_the_highest_plain_one(archs: set[Arch]):
    flags = gencode_flags(tuple(archs))
    plain = sorted(arch for arch in archs if not arch.suffix)
    code = [flag.rpartition(",code=")[2] for flag in flags]
    assert code[: len(archs)] == [arch.sm for arch in sorted(archs)]
    assert code[len(archs) :] == ([plain[-1].compute] if plain else [])
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
    if text == "10":
        assert caught.value.hints == ("did you mean 10.0?",)


@pytest.mark.parametrize("text", ["", " ", ",", "; ,"])
def test_an_empty_list(text: str):
    with pytest.raises(ArchError, match="names no GPU architecture"):
        parse_archs(text)


def test_a_list_names_its_bad_element():
    with pytest.raises(ArchError, match="'abc'"):
        parse_archs("8.0, abc")


def test_suffixed_archs_have_no_ptx():
    assert gencode_flags((Arch(9, 0, "a"),)) == ("-gencode=arch=compute_90a,code=sm_90a",)
    assert gencode_flags(()) == ()
