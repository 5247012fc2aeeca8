"""Our named tuples behave as `typing.NamedTuple`'s."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing

import jax
import pytest

from be_toolchain import named


class Ours(named.NamedTuple):
    """A value."""

    path: typing.Any
    sizes: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """The sum of the sizes."""
        return sum(self.sizes)


class Theirs(typing.NamedTuple):
    """A value."""

    path: typing.Any
    sizes: tuple[int, ...] = ()


class Kept(Ours):
    """A value with a place for more."""

    more = 0


def test_values_are_as_those_of_typing():
    ours, theirs = Ours("a", sizes=(1, 2)), typing.cast("Ours", Theirs("a", sizes=(1, 2)))
    assert (ours, hash(ours), repr(ours)) == (theirs, hash(theirs), repr(theirs).replace("Theirs", "Ours"))
    assert (ours.path, ours.sizes, ours.total) == ("a", (1, 2), 3)
    assert (ours._asdict(), ours._replace(path="b")) == (theirs._asdict(), theirs._replace(path="b"))
    assert (Ours._fields, Ours._field_defaults) == (Theirs._fields, Theirs._field_defaults)
    assert Ours._make(["a", (1,)]) == ("a", (1,))
    assert str(inspect.signature(Ours)) == "(path: 'typing.Any', sizes: 'tuple[int, ...]' = ())"
    match ours:
        case Ours(path, (1, last)):
            assert (path, last) == ("a", 2)


def test_copies_and_pickles_are_equal_and_of_the_same_class():
    value = Ours("a", (1,))
    copies = [copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))]  # noqa: S301
    assert [(type(each), each) for each in copies] == [(Ours, value)] * 3


def test_jax_takes_them_apart():
    assert jax.tree.map(lambda leaf: leaf + 1, Ours(1, (2,))) == Ours(2, (3,))


def test_a_subclass_has_the_same_fields_and_may_have_attributes():
    kept = Kept("a")
    kept.more = 5
    assert (kept.path, kept.more, kept._fields) == ("a", 5, Ours._fields)


def test_a_constructor_that_is_compiled_for_many_instances_takes_the_same():
    class Many(named.NamedTuple):
        path: str
        sizes: tuple[int, ...] = ()

    values = [Many("a", sizes=(number,)) for number in range(20)] + [Many(path="a"), Many("a", (1,))]
    assert values == [("a", (number,)) for number in range(20)] + [("a", ()), ("a", (1,))]
    assert Many.__new__ is not named.NamedTuple.__new__
    assert str(inspect.signature(Many)) == "(path: 'str', sizes: 'tuple[int, ...]' = ())"
    with pytest.raises(TypeError):
        Many(path="a", other=1)  # type: ignore[call-arg]


def test_wrong_fields_are_type_errors_and_values_stay():
    make: typing.Any = Ours
    for call in (make, lambda: make("a", other=1), lambda: make._make(["a"]), lambda: make("a")._replace(other=1)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(AttributeError):
        make("a").path = "b"
