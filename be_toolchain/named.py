"""Named tuples whose classes are cheap to make, since a cold build makes a hundred of them.

`typing.NamedTuple` compiles every annotation, and a constructor for every class: 0.1 ms a class. This one leaves
annotations as text, and compiles the constructor of a class of which many instances are made: 0.01 ms a class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["NamedTuple"]

if TYPE_CHECKING:
    from typing import NamedTuple
else:
    from _collections import _tuplegetter

    _MANY = 8
    _made = {}
    """How many instances of each class were made otherwise than by all fields in order."""

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
            from inspect import Parameter, Signature

            kind, types = Parameter.POSITIONAL_OR_KEYWORD, cls.__annotations__
            defaults = dict.fromkeys(cls._fields, Parameter.empty) | cls._field_defaults
            return Signature(
                [Parameter(each, kind, default=defaults[each], annotation=types[each]) for each in defaults]
            )

    class NamedTuple(tuple, metaclass=_Meta):
        """Base class of named tuples, as `typing.NamedTuple`."""

        __slots__ = ()

        def __new__(cls, /, *args, **kwargs):
            fields = cls._fields
            rest = fields[len(args) :]
            if rest or kwargs or len(args) > len(fields):
                given = {**cls._field_defaults, **kwargs}
                is_bound = all(map(rest.__contains__, kwargs)) and all(map(given.__contains__, rest))
                if not is_bound or len(args) > len(fields):
                    cls.__signature__.bind(*args, **kwargs)  # raises a TypeError that names the wrong argument
                _made[cls] = _made.get(cls, 0) + 1
                if _made[cls] == _MANY:
                    _compile_constructor(cls)
                args += tuple(map(given.__getitem__, rest))
            return tuple.__new__(cls, args)

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

    def _compile_constructor(cls):
        """Replace the constructor of a class by one that is four times faster."""
        names = ", ".join(cls._fields)
        constructor = eval(f"lambda cls, {names}: new(cls, ({names},))", {"new": tuple.__new__})  # noqa: S307
        constructor.__defaults__ = tuple(cls._field_defaults.values())
        cls.__new__ = staticmethod(constructor)
