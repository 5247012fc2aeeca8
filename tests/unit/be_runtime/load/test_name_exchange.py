"""Names whose code is exchanged: those that are registered so, as far as a program doesn't call them."""

from __future__ import annotations

import pytest

from be_runtime.errors import RegistrationError
from be_runtime.load.registry import Registry, Target


class Exchange:
    """Notes what a registry asks of it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []
        self.called: set[str] = set()
        self.fixed: set[str] = set()

    def wrap(self, target: Target, handler: object) -> object:
        self.asked.append((f"wrap {target.name}", handler))
        return f"wrapped {handler}"

    def refusal(self, target: Target) -> RegistrationError | None:
        return RegistrationError(f"{target.name} is called") if target.name in self.called else None

    def point(self, target: Target, handler: object) -> bool:
        self.asked.append((f"point {target.name}", handler))
        return target.name not in self.fixed


def add(registry: Registry, content: str, *names: str, by_name: bool = True) -> None:
    registry.add(
        [Target(name, "cpu", content) for name in names],
        {name: lambda name=name: f"{content} of {name}" for name in names},  # type: ignore[misc]
        by_name=by_name,
    )


def test_names_are_wrapped_and_pointed_elsewhere_and_other_targets_are_not():
    registered: list[tuple[str, object, str]] = []
    registry = Registry(lambda *given: registered.append(given))
    registry.exchange = exchange = Exchange()
    add(registry, "one", "m.f")
    add(registry, "one", "be.0123", by_name=False)
    add(registry, "two", "m.f", "m.g")
    assert registered == [
        ("m.f", "wrapped one of m.f", "cpu"),
        ("be.0123", "one of be.0123", "cpu"),
        ("m.g", "wrapped two of m.g", "cpu"),
    ]
    assert ("point m.f", "two of m.f") in exchange.asked
    assert [target.content for target in registry.get("m.f")] == ["two"]
    with pytest.raises(RegistrationError, match="already registered"):
        add(registry, "two", "be.0123", by_name=False)


def test_a_name_that_is_called_refuses_the_whole_load():
    registry = Registry(lambda *_given: None)
    registry.exchange = exchange = Exchange()
    add(registry, "one", "m.f", "m.g")
    exchange.called = {"m.g"}
    exchange.asked.clear()
    with pytest.raises(RegistrationError, match=r"m\.g is called"):
        add(registry, "two", "m.f", "m.g", "m.h")
    assert exchange.asked == []
    assert registry.names() == ("m.f", "m.g")
    add(registry, "one", "m.f", "m.g")


def test_a_name_that_can_t_be_pointed_elsewhere_keeps_its_content():
    registry = Registry(lambda *_given: None)
    registry.exchange = exchange = Exchange()
    exchange.fixed = {"m.f"}
    add(registry, "one", "m.f")
    add(registry, "two", "m.f")
    assert [target.content for target in registry.get("m.f")] == ["one"]
