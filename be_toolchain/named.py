"""Named tuples whose classes are cheap to make, since a cold build makes a hundred of them.

`typing.NamedTuple` compiles every annotation, and a constructor for every class: 0.1 ms a class. This one leaves
annotations as text, and compiles the constructor when the first instance is made: 0.01 ms a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from _collections import _tuplegetter

    class _Meta(type):
        def __new__(cls, name, bases, namespace):
            if bases != (tuple,) and "_fields" not in vars(bases[0]):
                fields = tuple(namespace.get("__annotations__", ()))
                defaults = {field: namespace.pop(field) for field in fields if field in namespace}
                getters = {field: _tuplegetter(number, "") for number, field in enumerate(fields)}
                named = {"__slots__": (), "_fields": fields, "_field_defaults": defaults, "__match_args__": fields}
                namespace = {**namespace, **getters, **named}
            return super().__new__(cls, name, bases, namespace)

        @property
        def __signature__(cls):
            import inspect

            whole = inspect.signature(_constructor(cls))
            return whole.replace(parameters=[*whole.parameters.values()][1:])

    class NamedTuple(tuple, metaclass=_Meta):
        """Base class of named tuples, as `typing.NamedTuple`."""

        __slots__ = ()

        def __new__(cls, /, *args, **kwargs):
            return _constructor(cls)(cls, *args, **kwargs)

        @classmethod
        def _make(cls, iterable):
            made = tuple.__new__(cls, iterable)
            if len(made) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, not {len(made)}")
            return made

        def _replace(self, /, **changes):
            unknown = changes.keys() - set(self._fields)
            if unknown:
                raise TypeError(f"{type(self).__name__} has no fields {', '.join(sorted(unknown))}")
            return tuple.__new__(type(self), map(changes.get, self._fields, self))

        __replace__ = _replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            values = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self):
            return tuple(self)

    def _constructor(cls):
        """Compile the constructor of a class, and put it in place of the one that compiles."""
        owner = next(each for each in cls.__mro__ if "_fields" in vars(each))
        made = vars(owner).get("__new__")
        if made is None:
            names = ", ".join(owner._fields)
            text = f"lambda _cls, {names}: _new(_cls, ({names}{',' * bool(names)}))"
            function = eval(text, {"_new": tuple.__new__, "__builtins__": {}, "__name__": owner.__module__})  # noqa: S307
            function.__name__, function.__qualname__ = "__new__", f"{owner.__qualname__}.__new__"
            function.__defaults__ = tuple(owner._field_defaults.values())
            function.__annotations__ = dict(owner.__annotations__)
            made = owner.__new__ = staticmethod(function)
        return made.__func__
