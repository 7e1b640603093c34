"""What a class gets when it is defined, and how its methods are made later."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.kernel.dataclass.constructor import InitSource

if TYPE_CHECKING:
    from collections.abc import Callable

_NO_FIELDS = ("ClassVar", "typing.ClassVar", "KW_ONLY", "InitVar")
_OPTIONS = {"frozen", "slots", "kw_only", "eq", "repr"}
_FACTS = ("__dataclass_fields__", "__dataclass_params__", "__match_args__")
# The option of the standard library that makes a method, by the method.
_MAKES = {"__repr__": {"repr": True}, "__eq__": {"eq": True}, "__hash__": {"eq": True, "unsafe_hash": True}}


class _Shape:
    """What a class was defined with, and what is made from it."""

    def __init__(self, cls: type, options: dict[str, bool]) -> None:
        self.frozen = options.get("frozen", False)
        self._kw_only = options.get("kw_only", False)
        self.annotations: dict[str, str] = cls.__dict__.get("__annotations__", {})  # noqa: RUF063 - as fast as can be
        self.defaults = {name: cls.__dict__[name] for name in self.annotations if name in cls.__dict__}
        for name, default in self.defaults.items():
            if type(default).__hash__ is None:
                raise ValueError(f"mutable default {default!r} for field {name}: use default_factory")

    def make(self, cls: type, name: str) -> Any:  # noqa: ANN401 - a method
        """Make a method and put it on the class."""
        method = self._make_init(cls) if name == "__init__" else getattr(self._twin(cls, **_MAKES[name]), name)
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method

    def add_facts(self, cls: type) -> None:
        """Put on the class what the standard library keeps on one: its fields, its parameters, their order."""
        twin: Any = self._twin(cls)
        twin.__dataclass_params__.frozen = self.frozen
        for name in _FACTS:
            if isinstance(cls.__dict__.get(name), _LateFact):
                setattr(cls, name, getattr(twin, name))

    def _twin(self, cls: type, **methods: bool) -> type:
        """Return a class with the same fields, on which the standard library has made these methods."""
        body = {"__annotations__": self.annotations, "__module__": cls.__module__, **self.defaults}
        twin = type(cls.__name__, _bases(cls), body)
        wanted = {"init": False, "repr": False, "eq": False, "kw_only": self._kw_only, **methods}
        return dataclasses.dataclass(**wanted)(twin)

    def _make_init(self, cls: type) -> Callable[..., None]:
        source = InitSource(frozen=self.frozen)
        if _bases(cls):
            for field in dataclasses.fields(cls):
                source.add(field.name, field, kw_only=bool(field.kw_only))
        else:
            self._add_fields(source)
        return source.compile(post_init=hasattr(cls, "__post_init__"))

    def _add_fields(self, source: InitSource) -> None:
        """Read the fields from the annotations; a twin would take three times as long."""
        kw_only = self._kw_only
        for name, kind in self.annotations.items():
            if _is_field(kind):
                default = self.defaults.get(name, dataclasses.MISSING)
                own = getattr(default, "kw_only", kw_only) if isinstance(default, dataclasses.Field) else kw_only
                source.add(name, default, kw_only=kw_only if own is dataclasses.MISSING else own)
            kw_only = kw_only or str(kind).endswith("KW_ONLY")


class _LateFact:
    """Stands on a class for something that the standard library keeps there, until somebody looks at it."""

    def __init__(self, cls: type, name: str, shape: _Shape) -> None:
        self._cls, self._name, self._shape = cls, name, shape

    def __get__(self, instance: object, owner: type) -> Any:  # noqa: ANN401 - whatever is kept there
        self._shape.add_facts(self._cls)
        return self._cls.__dict__[self._name]


class _LateSignature:
    """Makes the constructor for whoever asks for the signature of the class, who then looks at the constructor."""

    def __init__(self, cls: type, shape: _Shape) -> None:
        self._cls, self._shape = cls, shape

    def __get__(self, instance: object, owner: type) -> None:
        del self._cls.__signature__  # type: ignore[attr-defined]
        self._shape.make(self._cls, "__init__")


def define(cls: type, options: dict[str, bool]) -> type:
    """Give a class its slots and guards, and placeholders for its methods."""
    if unknown := options.keys() - _OPTIONS:
        raise TypeError(f"this dataclass does not take {', '.join(sorted(unknown))}; use the standard library's")
    shape = _Shape(cls, options)
    hashes = _hashes(cls, options)
    cls = _with_slots(cls, shape) if options.get("slots") else _plain(cls, shape)
    if "__init__" not in cls.__dict__:
        _add_late(cls, "__init__", shape)
        cls.__signature__ = _LateSignature(cls, shape)  # type: ignore[attr-defined]
    for name in ("__repr__", "__eq__"):
        if options.get(name.strip("_"), True) and name not in cls.__dict__:
            _add_late(cls, name, shape)
    if hashes is True:
        _add_late(cls, "__hash__", shape)
    elif hashes is None:
        cls.__hash__ = None  # type: ignore[assignment]
    for name in _FACTS:
        if name != "__match_args__" or name not in cls.__dict__:
            setattr(cls, name, _LateFact(cls, name, shape))
    if shape.frozen:
        _guard(cls)
    return cls


def _is_field(annotation: object) -> bool:
    return not str(annotation).startswith(_NO_FIELDS)


def _add_late(cls: type, name: str, shape: _Shape) -> None:
    def late(self: object, /, *args: Any, **named: Any) -> Any:  # noqa: ANN401 - those of the method
        return shape.make(cls, name)(self, *args, **named)

    late.__name__ = name
    setattr(cls, name, late)


def _hashes(cls: type, options: dict[str, bool]) -> bool | None:
    """Tell whether the class gets a hash: True, False for what it has or inherits, None for no hash at all."""
    own = cls.__dict__.get("__hash__", False)
    if not options.get("eq", True) or not (own is False or (own is None and "__eq__" in cls.__dict__)):
        return False
    return True if options.get("frozen") else None


def _bases(cls: type) -> tuple[type, ...]:
    """Return one class that has the fields of all the bases of this one."""
    fields: dict[str, Any] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= getattr(base, "__dataclass_fields__", {})
    facts = {"__dataclass_fields__": fields, "__dataclass_params__": SimpleNamespace(frozen=False)}
    return (type("Bases", (), facts),) if fields else ()


def _plain(cls: type, shape: _Shape) -> type:
    """Leave the defaults on the class, but not the objects that describe a field."""
    for name, default in shape.defaults.items():
        if isinstance(default, dataclasses.Field):
            delattr(cls, name)
            if default.default is not dataclasses.MISSING:
                setattr(cls, name, default.default)
    return cls


def _with_slots(cls: type, shape: _Shape) -> type:
    """Return the class with a slot for each field of its own. Slots cannot be added, so it is a new class."""
    fields = [name for name, kind in shape.annotations.items() if _is_field(kind)]
    inherited = {slot for base in cls.__mro__[1:] for slot in getattr(base, "__slots__", ())}
    left_out = {"__dict__", "__weakref__", *fields}
    body = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    body["__slots__"] = tuple(name for name in fields if name not in inherited)
    made = type(cls)(cls.__name__, cls.__bases__, body)
    made.__qualname__ = cls.__qualname__
    return made


def _guard(cls: type) -> None:
    """Refuse to change the fields of an object, as the standard library does; copies are made past the guard."""

    def refuses(self: object, name: str) -> bool:
        return type(self) is cls or name in cls.__dataclass_fields__  # type: ignore[attr-defined]

    def set_field(self: object, name: str, value: object) -> None:
        if refuses(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        object.__setattr__(self, name, value)

    def delete_field(self: object, name: str) -> None:
        if refuses(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        object.__delattr__(self, name)

    added = {"__setattr__": set_field, "__delattr__": delete_field}
    if "__slots__" in cls.__dict__:
        added |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in added.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)


def _get_state(self: Any) -> list[Any]:  # noqa: ANN401 - any dataclass
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:  # noqa: ANN401 - any dataclass
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
