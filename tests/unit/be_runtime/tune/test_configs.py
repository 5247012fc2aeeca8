"""Configurations as an author names them."""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.tune.configs import expand, name_of


def test_all_combinations_come_in_the_authors_order():
    found = expand({"block": [256, 64], "vector": (1, 4)})
    assert [(each["block"], each["vector"]) for each in found] == [(256, 1), (256, 4), (64, 1), (64, 4)]


def test_a_list_is_taken_as_it_is_without_repetition():
    assert expand([{"a": 1}, {"a": 2}, {"a": 1}]) == ({"a": 1}, {"a": 2})


def test_equal_configurations_have_one_name():
    assert name_of({"a": 1, "b": "x"}) == name_of({"b": "x", "a": 1})


@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({}, ""),
        ([], "names no configuration"),
        ({"block": []}, "names no configuration"),
        ({"block": 64}, "configs['block'] is 64"),
        ([64], "configs[0] is 64"),
        ([{1: 2}], "configs[0] is {1: 2}"),
        ([{"kind": object}], "kept as JSON"),
    ],
)
def test_what_is_no_configuration_is_refused(configs: Any, said: str):
    if configs == {}:
        assert expand(configs) == ({},), "no choice is one configuration"
        return
    with pytest.raises(ArgumentError) as refused:
        expand(configs)
    assert said in str(refused.value)
    assert refused.value.hints
