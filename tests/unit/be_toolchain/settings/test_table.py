"""The table of environment variables."""

from __future__ import annotations

import pytest

from be_toolchain.errors import PreferenceError
from be_toolchain.settings.preferences import parse_preferences
from be_toolchain.settings.table import RECORD_VARIABLES, RUNTIME, SEARCH


def test_no_variable_is_used_twice():
    variables = [name for row in (*RUNTIME.values(), *SEARCH) for name in row.variables]
    assert len(set(variables)) == len(variables)


def test_a_recorded_answer_depends_on_all_that_steers_the_search():
    assert {name for row in SEARCH for name in row.variables} < set(RECORD_VARIABLES)


@pytest.mark.parametrize(("text", "allowed"), [("1", True), ("on", True), ("No", False), (" ", False)])
def test_a_switch_of_the_search_is_read_like_any_other(text: str, allowed: bool):
    environ = {"BE_ALLOW_UNSUPPORTED_COMPILER": text}
    assert parse_preferences(environ).allow_unsupported_compiler is allowed


def test_a_switch_that_is_neither_on_nor_off_is_refused():
    environ = {"BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER": "maybe"}
    with pytest.raises(
        PreferenceError, match="BRAINEVENT_ALLOW_UNSUPPORTED_COMPILER is 'maybe', expected 1, true, yes"
    ):
        parse_preferences(environ)
