"""Targets: idempotent, all or none, never moved to other code, and names whose code is exchanged."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from be_runtime.errors import RegistrationError
from be_runtime.load.registry import Registry, Target


class Jax:
    """Takes registrations, and refuses those it is told to."""

    def __init__(self, *refused: str) -> None:
        self.calls: list[tuple[str, object, str]] = []
        self.refused = refused

    def __call__(self, name: str, handler: object, platform: str) -> None:
        if name in self.refused:
            raise RuntimeError(f"Duplicate FFI handler registration for {name}")
        self.calls.append((name, handler, platform))


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


@pytest.fixture
def jax() -> Jax:
    return Jax()


@pytest.fixture
def registry(jax: Jax) -> Registry:
    return Registry(jax)


@pytest.fixture
def exchange(registry: Registry) -> Exchange:
    registry.exchange = exchange = Exchange()
    return exchange


def add(registry: Registry, content: str, *names: str, platform: str = "cpu", by_name: bool = False) -> None:
    makers: dict[str, Callable[[], object]] = {}
    for name in names:
        makers[name] = lambda name=name: f"{content} of {name}"  # type: ignore[misc]
    registry.add([Target(name, platform, content) for name in names], makers, by_name=by_name)


def test_targets_are_handed_over_once_and_their_handlers_not_made_again(registry: Registry, jax: Jax):
    for _ in range(2):
        add(registry, "one", "m.b", "m.a")
    registry.add([Target("m.a", "cpu", "one")], {})
    assert jax.calls == [("m.b", "one of m.b", "cpu"), ("m.a", "one of m.a", "cpu")]
    assert registry.names() == ("m.a", "m.b")


def test_other_content_registers_nothing_at_all(registry: Registry, jax: Jax):
    add(registry, "other", "m.b")
    with pytest.raises(RegistrationError, match=r"'m\.b' is already registered for cpu") as caught:
        add(registry, "one", "m.a", "m.b", "m.c")
    assert registry.names() == ("m.b",)
    assert len(jax.calls) == 1
    assert caught.value.hints


def test_a_handler_that_can_t_be_made_registers_nothing_at_all(registry: Registry, jax: Jax):
    with pytest.raises(ZeroDivisionError):
        registry.add(
            [Target("m.a", "cpu", "c"), Target("m.b", "cpu", "c")], {"m.a": lambda: "handler", "m.b": lambda: 1 / 0}
        )
    assert not jax.calls
    assert not registry.names()


def test_a_name_may_serve_two_platforms(registry: Registry, jax: Jax):
    add(registry, "one", "m.f")
    add(registry, "two", "m.f", platform="CUDA")
    assert registry.names() == ("m.f",)
    assert [platform for _name, _handler, platform in jax.calls] == ["cpu", "CUDA"]


def test_what_jax_refuses_is_an_error_of_ours_and_not_ours():
    registry = Registry(Jax("m.b"))
    with pytest.raises(RegistrationError, match=r"JAX refuses .*'m\.b'.*Duplicate"):
        add(registry, "one", "m.b")
    assert not registry.names()


def test_threads_register_once(registry: Registry, jax: Jax):
    names = [f"m.f{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            pool.submit(add, registry, "one", *names)
    assert sorted(call[0] for call in jax.calls) == sorted(names)


def test_names_are_wrapped_and_pointed_elsewhere_and_other_targets_are_not(
    registry: Registry, jax: Jax, exchange: Exchange
):
    add(registry, "one", "m.f", by_name=True)
    add(registry, "one", "be.0123")
    add(registry, "two", "m.f", "m.g", by_name=True)
    assert jax.calls == [
        ("m.f", "wrapped one of m.f", "cpu"),
        ("be.0123", "one of be.0123", "cpu"),
        ("m.g", "wrapped two of m.g", "cpu"),
    ]
    assert ("point m.f", "two of m.f") in exchange.asked
    assert [target.content for target in registry.get("m.f")] == ["two"]
    with pytest.raises(RegistrationError, match="already registered"):
        add(registry, "two", "be.0123")


def test_a_name_that_is_called_refuses_the_whole_load(registry: Registry, exchange: Exchange):
    add(registry, "one", "m.f", "m.g", by_name=True)
    exchange.called = {"m.g"}
    exchange.asked.clear()
    with pytest.raises(RegistrationError, match=r"m\.g is called"):
        add(registry, "two", "m.f", "m.g", "m.h", by_name=True)
    assert exchange.asked == []
    assert registry.names() == ("m.f", "m.g")
    add(registry, "one", "m.f", "m.g", by_name=True)


def test_a_name_that_can_t_be_pointed_elsewhere_keeps_its_content(registry: Registry, exchange: Exchange):
    exchange.fixed = {"m.f"}
    for content in ("one", "two"):
        add(registry, content, "m.f", by_name=True)
    assert [target.content for target in registry.get("m.f")] == ["one"]
