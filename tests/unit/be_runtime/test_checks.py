"""Names of checks, and findings as text."""

from __future__ import annotations

import pytest

from be_runtime import ArgumentError, Finding, Findings, checks
from be_runtime.checks import CHECKS, Checks, call_text, parse_checks


@pytest.mark.parametrize("text", [True, "all", "", ["all"], "all,"])
def test_all_checks(text: bool | str | list[str]):
    assert parse_checks(text).names == tuple(CHECKS)


def test_some_checks_in_the_order_of_the_table():
    assert parse_checks("inputs, guards").names == ("guards", "inputs")
    assert parse_checks(("inputs", "guards")).names == ("guards", "inputs")


@pytest.mark.parametrize("text", ["all,-repeat", "-repeat", ["-repeat"]])
def test_a_check_is_left_out(text: str | list[str]):
    assert set(CHECKS) - set(parse_checks(text).names) == {"repeat"}


@pytest.mark.parametrize("text", ["guard", "-guard", "guards inputs", "guards,,nothing"])
def test_a_check_that_does_not_exist(text: str):
    with pytest.raises(ArgumentError, match="there is no check") as caught:
        parse_checks(text)
    assert "guards, unwritten" in caught.value.hints[0]


@pytest.mark.parametrize("given", [3, None, [1], {"guards": 1}.values()])
def test_what_names_no_checks(given: object):
    with pytest.raises(ArgumentError, match="checks must be a bool or names of checks"):
        parse_checks(given)  # type: ignore[arg-type]


def test_a_way_to_report_that_does_not_exist():
    with pytest.raises(ArgumentError, match="'raise', 'warn' or 'collect', not 'ignore'"):
        parse_checks(True, "ignore")


def test_each_check_has_a_bit():
    bits = [Checks((name,)).bits for name in CHECKS]
    assert bits == [1 << index for index in range(len(CHECKS))]
    assert Checks((), "raise").bits == 0
    assert Checks((), "warn").bits == Checks((), "collect").bits > sum(bits)


def test_the_text_of_a_call():
    every = parse_checks(True)
    text = call_text("m.f", "a\nb.py:3", every, once=False, hidden=2)
    assert text.split("\n") == ["m.f", "a b.py:3", str(every.bits), "2", "2", ""]
    assert call_text("m.f", "", every, once=True, hidden=0).split("\n")[3] == "1"
    for names, runs in (("-unwritten", "2"), ("-repeat", "2"), ("-unwritten,-repeat", "1"), ("guards", "1")):
        assert call_text("m.f", "", parse_checks(names), once=False, hidden=0).split("\n")[3] == runs
    assert every.without("repeat") == parse_checks("-repeat")
    layouts = [None, (1, 0)]
    assert call_text("m.f", "", every, once=False, hidden=0, layouts=layouts).split("\n")[5] == "- 1,0"


def test_findings_are_fetched_when_they_are_read():
    found = Findings(lambda: found.add([Finding("guards", "m.f", "m.f writes")], ["a note"]))
    assert len(found) == 1
    assert found[0].kernel == "m.f"
    assert found[:1] == (found[0],)
    assert found.notes == ("a note",)


def test_a_report():
    one = Finding("guards", "m.f", "m.f writes", caller="a.py:3", source="k.cu:7", hints=("do this",))
    found = Findings()
    assert found.report() == "no findings"
    found.add([one, one], ["a note"])
    assert found.report() == "m.f writes\n  kernel: k.cu:7\n  called at a.py:3\n  hint: do this\n\nnote: a note"
    assert repr(found) == found.report(), "a notebook shows it"


def test_a_place_that_the_message_names_is_not_repeated():
    assert str(Finding("bounds", "m.f", "m.f: k.cu:7: index 0 is 6", source="k.cu:7")) == "m.f: k.cu:7: index 0 is 6"


def test_no_mode_is_on():
    assert checks.active() is None
