"""Names of checks, and findings as text."""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime import ArgumentError, Finding, Findings, checks
from be_runtime.checks import CHECKS, Checks, call_text, parse_checks


def names(given: Any) -> tuple[str, ...]:
    return parse_checks(given).names


def test_checks_are_named_in_the_order_of_the_table():
    assert names(True) == names("all") == names("") == names(["all"]) == names("all,") == tuple(CHECKS)
    but_repeat = tuple(name for name in CHECKS if name != "repeat")
    assert names("all,-repeat") == names("-repeat") == names(["-repeat"]) == but_repeat
    assert names("inputs, guards") == names(("inputs", "guards")) == ("guards", "inputs")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        *((text, "there is no check") for text in ("guard", "-guard", "guards inputs", "guards,,nothing")),
        *((each, "checks must be a bool or names of checks") for each in (3, None, [1], {"guards": 1}.values())),
    ],
)
def test_what_names_no_checks(given: Any, words: str):
    with pytest.raises(ArgumentError, match=words) as caught:
        parse_checks(given)
    assert "no check" not in words or "guards, unwritten" in caught.value.hints[0]


def test_a_way_to_report_that_does_not_exist():
    with pytest.raises(ArgumentError, match="'raise', 'warn' or 'collect', not 'ignore'"):
        parse_checks(True, "ignore")
    assert checks.active() is None


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


def test_a_report_of_findings_that_are_fetched_when_they_are_read():
    one = Finding("guards", "m.f", "m.f writes", caller="a.py:3", source="k.cu:7", hints=("do this",))
    assert Findings().report() == "no findings"
    found = Findings(lambda: found.add([one, one], ["a note"]))
    assert (len(found), found[0], found[:1], found.notes) == (1, one, (one,), ("a note",))
    assert found.report() == "m.f writes\n  kernel: k.cu:7\n  called at a.py:3\n  hint: do this\n\nnote: a note"
    assert repr(found) == found.report(), "a notebook shows it"
    place = Finding("bounds", "m.f", "m.f: k.cu:7: index 0 is 6", source="k.cu:7")
    assert str(place) == "m.f: k.cu:7: index 0 is 6", "a place that the message names is not repeated"
