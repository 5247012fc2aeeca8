"""Targets: idempotent, all or none, and never moved to other code."""

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


def target(name: str, content: str = "c", platform: str = "cpu") -> Target:
    return Target(name=name, platform=platform, content=content)


def handlers(*names: str) -> dict[str, Callable[[], object]]:
    return {name: lambda name=name: f"handler of {name}" for name in names}  # type: ignore[misc]


def test_targets_are_handed_over_once():
    jax = Jax()
    registry = Registry(jax)
    for _ in range(3):
        registry.add([target("m.b"), target("m.a")], handlers("m.a", "m.b"))
    assert jax.calls == [("m.b", "handler of m.b", "cpu"), ("m.a", "handler of m.a", "cpu")]
    assert registry.names() == ("m.a", "m.b")


def test_a_handler_that_is_live_is_not_made_again():
    registry = Registry(Jax())
    registry.add([target("m.f")], handlers("m.f"))
    registry.add([target("m.f")], {})


def test_other_content_registers_nothing_at_all():
    jax = Jax()
    registry = Registry(jax)
    registry.add([target("m.b")], handlers("m.b"))
    with pytest.raises(RegistrationError, match=r"'m\.b' is already registered for cpu") as caught:
        registry.add([target("m.a"), target("m.b", "other"), target("m.c")], handlers("m.a", "m.b", "m.c"))
    assert registry.names() == ("m.b",)
    assert len(jax.calls) == 1
    assert caught.value.hints


def test_a_handler_that_can_t_be_made_registers_nothing_at_all():
    jax = Jax()
    registry = Registry(jax)

    def fail() -> object:
        raise KeyError("m.b")

    with pytest.raises(KeyError):
        registry.add([target("m.a"), target("m.b")], {**handlers("m.a"), "m.b": fail})
    assert not jax.calls
    assert not registry.names()


def test_a_name_may_serve_two_platforms():
    jax = Jax()
    registry = Registry(jax)
    registry.add([target("m.f", "one")], handlers("m.f"))
    registry.add([target("m.f", "two", "CUDA")], handlers("m.f"))
    assert registry.names() == ("m.f",)
    assert [platform for _name, _handler, platform in jax.calls] == ["cpu", "CUDA"]


def test_what_jax_refuses_is_an_error_of_ours_and_not_ours():
    registry = Registry(Jax("m.b"))
    with pytest.raises(RegistrationError, match=r"JAX refuses .*'m\.b'.*Duplicate"):
        registry.add([target("m.b")], handlers("m.b"))
    assert not registry.names()


def test_threads_register_once():
    jax = Jax()
    registry = Registry(jax)
    names = [f"m.f{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(50):
            pool.submit(registry.add, [target(name) for name in names], handlers(*names))
    assert sorted(call[0] for call in jax.calls) == sorted(names)
