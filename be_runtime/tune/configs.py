"""Configurations: what an author names, as a tuple of dicts that JSON can hold. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from be_runtime.errors import ArgumentError

Config = dict[str, Any]


def expand(configs: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> tuple[Config, ...]:
    """List the configurations; of a mapping of choices, all combinations, in its order.

    Raises
    ------
    ArgumentError
        There is none, or one is no mapping of names to numbers, texts and the like.

    Examples
    --------
    >>> expand({"block": [64, 128], "vector": [1]})
    ({'block': 64, 'vector': 1}, {'block': 128, 'vector': 1})
    """
    if isinstance(configs, Mapping):
        wrong = next((name for name, values in configs.items() if not isinstance(values, list | tuple | range)), None)
        if wrong is not None:
            raise ArgumentError(
                f"configs[{wrong!r}] is {configs[wrong]!r}", hints=("list the values that it may have: [64, 128]",)
            )
        found = [dict(zip(configs, values, strict=True)) for values in itertools.product(*configs.values())]
    else:
        found = [_checked(number, each) for number, each in enumerate(configs)]
    if not found:
        raise ArgumentError("configs names no configuration", hints=("name values: configs={'block': [64, 128]}",))
    named = {name_of(each): each for each in found}
    return tuple(named.values())


def name_of(config: Mapping[str, Any]) -> str:
    """Write a configuration as text, which is the same for equal ones.

    Raises
    ------
    ArgumentError
        JSON can't hold a value.
    """
    try:
        return json.dumps(dict(config), sort_keys=True)
    except TypeError as error:
        raise ArgumentError(
            f"a configuration is {dict(config)!r}, and it is kept as JSON: {error}",
            hints=("name a choice by a number, a text or a bool, and look the rest up in the function",),
        ) from None


def _checked(number: int, config: Any) -> Config:
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise ArgumentError(
            f"configs[{number}] is {config!r}", hints=("a configuration is a dict of keyword arguments",)
        )
    return dict(config)
