"""Records: classes whose annotations define the fields of an event. Creating or reading a record
checks its values."""

from __future__ import annotations

import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, ClassVar, Self

from squall.streams._errors import Misconfigured

_MISSING: Any = object()
_PRIMITIVE = (int, float, bool, str, bytes)
_Convert = Callable[[Any], Any]
_Plain = dict[str, Any]


class Record:
    """The content of an event::

        class Order(Record):
            order_id: int
            amount: float = 0.0
            items: list[str] = []

    With ``class Order(Record, primitive=True)`` every attribute is a field of the Redis entry, and
    only int, float, bool, str and bytes are allowed. Records may contain records.
    """

    _primitive: ClassVar[bool] = False
    _shape: ClassVar[list[tuple[str, type | None, _Convert, Any]] | None] = None

    def __init_subclass__(cls, *, primitive: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._primitive = primitive or any(getattr(base, "_primitive", False) for base in cls.__bases__)
        cls._shape = None

    def __init__(self, **values: Any) -> None:
        unknown = values.keys() - {name for name, *_ in self._fields()}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}")
        self._fill(values)

    @classmethod
    def _fields(cls) -> list[tuple[str, type | None, _Convert, Any]]:
        """Returns name, exact type that needs no conversion, conversion and default of each field.
        Computed at the first use, because annotations may name classes that come later in the
        file."""
        if cls._shape is None:
            hints = {name: hint for name, hint in typing.get_type_hints(cls).items() if typing.get_origin(hint) is not ClassVar}
            hints = {name: hint for name, hint in hints.items() if not name.startswith("_")}
            if cls._primitive and not all(hint in _PRIMITIVE for hint in hints.values()):
                raise Misconfigured(f"{cls.__name__} is primitive: its fields must be int, float, bool, str or bytes")
            cls._shape = [
                (name, hint if isinstance(hint, type) and hint in _EXACT else None, _convert(hint), getattr(cls, name, _default(hint)))
                for name, hint in hints.items()
            ]
        return cls._shape

    @classmethod
    def _read(cls, values: Any) -> Self:
        """Creates a record from a plain dict; ignores fields that the record does not have."""
        if not isinstance(values, dict):
            raise ValueError(f"{cls.__name__} is a dict of fields, not {_kind(values)}")
        self = cls.__new__(cls)
        self._fill(values)
        return self

    @classmethod
    def _read_flat(cls, values: dict[str, bytes]) -> Self:
        """Creates a record from the fields of a Redis entry, whose values are bytes."""
        plain: _Plain = {}
        for name, kind, _, _ in cls._fields():
            if name in values:
                try:
                    plain[name] = _from_bytes(kind, values[name])
                except (ValueError, UnicodeDecodeError) as error:
                    raise ValueError(f"{cls.__name__}.{name}: {error}") from None
        return cls._read(plain)

    def _fill(self, values: _Plain) -> None:
        own = self.__dict__
        for name, exact, convert, default in self._fields() if self._shape is None else self._shape:
            value = values.get(name, _MISSING)
            if value is _MISSING:
                if default is _MISSING:
                    raise ValueError(f"{type(self).__name__} needs a field {name!r}")
                value = default.copy() if type(default) in (list, dict, set) else default
            elif type(value) is not exact:
                try:
                    value = convert(value)
                except (ValueError, TypeError, ArithmeticError) as error:
                    raise ValueError(f"{type(self).__name__}.{name}: {error}") from None
            own[name] = value

    def dict(self) -> _Plain:
        """Returns the values by name."""
        return {name: _plain(self.__dict__[name], False) for name, *_ in self._fields()}

    def _wire(self) -> _Plain:
        return {name: _plain(self.__dict__[name], True) for name, *_ in self._fields()}

    def _wire_flat(self) -> list[tuple[bytes, bytes]]:
        values = ((name, self.__dict__[name]) for name, *_ in self._fields())
        return [(name.encode(), value if isinstance(value, bytes) else str(value).encode()) for name, value in values]

    def copy(self, **changes: Any) -> Self:
        """Returns a copy of the record with other values in some fields."""
        return type(self)(**{**{name: self.__dict__[name] for name, *_ in self._fields()}, **changes})

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.__dict__.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name, *_ in self._fields())})"


#: Types whose values need no conversion if their type is exactly this one.
_EXACT = {int, float, bool, str, bytes}


def _default(hint: Any) -> Any:
    """Returns None for an optional field, which may be missing."""
    return None if typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in typing.get_args(hint) else _MISSING


def _kind(value: object) -> str:
    return f"{value!r:.60} ({type(value).__name__})"


def _convert(hint: Any) -> _Convert:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _convert(args[0])
    if hint is Any:
        return lambda value: value
    if hint is type(None):
        return _none
    if origin in (typing.Union, types.UnionType):
        return _any_of(args)
    if origin is typing.Literal:
        return _one_of(args)
    if origin in (list, set, frozenset) or hint in (list, set, frozenset):
        return _collection(origin or hint, args)
    if origin is tuple or hint is tuple:
        return _tuple(args)
    if origin is dict or hint is dict:
        return _mapping(args)
    if isinstance(hint, type):
        if issubclass(hint, Record):
            return lambda value: value if isinstance(value, hint) else hint._read(value)
        if issubclass(hint, enum.Enum):
            return hint
        if hint in _SCALARS:
            return _SCALARS[hint]
    raise Misconfigured(f"a record cannot hold {hint!r}")


def _none(value: Any) -> None:
    if value is not None:
        raise ValueError(f"{_kind(value)} is not None")


def _any_of(hints: tuple[Any, ...]) -> _Convert:
    exact = tuple(hint for hint in hints if isinstance(hint, type))
    converts = [_convert(hint) for hint in hints]

    def convert(value: Any) -> Any:
        if type(value) in exact or (value is None and type(None) in hints):
            return value
        for one in converts:
            try:
                return one(value)
            except (ValueError, TypeError, ArithmeticError):
                continue
        raise ValueError(f"{_kind(value)} is none of {', '.join(getattr(hint, '__name__', str(hint)) for hint in hints)}")

    return convert


def _one_of(values: tuple[Any, ...]) -> _Convert:
    def convert(value: Any) -> Any:
        if value not in values:
            raise ValueError(f"{_kind(value)} is none of {values}")
        return value

    return convert


def _collection(kind: Callable[[Any], Any], args: tuple[Any, ...]) -> _Convert:
    item = _convert(args[0]) if args else _convert(Any)

    def convert(value: Any) -> Any:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise ValueError(f"{_kind(value)} is not a list")
        return kind(item(one) for one in value)

    return convert


def _tuple(args: tuple[Any, ...]) -> _Convert:
    if not args or args[-1] is Ellipsis:
        return _collection(tuple, args[:1])
    converts = [_convert(hint) for hint in args]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != len(converts):
            raise ValueError(f"{_kind(value)} does not have {len(converts)} items")
        return tuple(one(item) for one, item in zip(converts, value, strict=True))

    return convert


def _mapping(args: tuple[Any, ...]) -> _Convert:
    key, item = (_convert(args[0]), _convert(args[1])) if args else (_convert(Any), _convert(Any))

    def convert(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{_kind(value)} is not a dict")
        return {key(name): item(one) for name, one in value.items()}

    return convert


def _int(value: Any) -> int:
    if isinstance(value, (int, str)) or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise ValueError(f"{_kind(value)} is not an int")


def _float(value: Any) -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{_kind(value)} is not a float")


def _bool(value: Any) -> bool:
    if isinstance(value, bool) or (type(value) is int and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{_kind(value)} is not a bool")


def _str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (int, float, decimal.Decimal)) and not isinstance(value, bool):
        return str(value)
    raise ValueError(f"{_kind(value)} is not a str")


def _bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    raise ValueError(f"{_kind(value)} is not bytes")


def _read_as(kind: type, read: Callable[[str], Any]) -> _Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return read(str(value))
        raise ValueError(f"{_kind(value)} is not a {kind.__name__}")

    return convert


def _datetime(text: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromtimestamp(float(text), datetime.UTC)
    except ValueError:
        return datetime.datetime.fromisoformat(text)


def _timedelta(text: str) -> datetime.timedelta:
    return datetime.timedelta(seconds=float(text))


_SCALARS: dict[type, _Convert] = {
    int: _int,
    float: _float,
    bool: _bool,
    str: _str,
    bytes: _bytes,
    datetime.datetime: _read_as(datetime.datetime, _datetime),
    datetime.date: _read_as(datetime.date, datetime.date.fromisoformat),
    datetime.time: _read_as(datetime.time, datetime.time.fromisoformat),
    datetime.timedelta: _read_as(datetime.timedelta, _timedelta),
    decimal.Decimal: _read_as(decimal.Decimal, decimal.Decimal),
    uuid.UUID: _read_as(uuid.UUID, uuid.UUID),
}


def _from_bytes(kind: type | None, value: bytes) -> Any:
    if kind is bytes:
        return value
    text = value.decode()
    if kind is bool:
        if text not in ("True", "true", "1", "False", "false", "0"):
            raise ValueError(f"{text!r} is not True or False")
        return text in ("True", "true", "1")
    return text if kind is str or kind is None else kind(text)


def _plain(value: Any, wire: bool) -> Any:
    """Returns ``value`` as plain data; with ``wire`` as data that JSON can hold."""
    kind = type(value)
    if kind in (int, str, float, bool) or value is None:
        return value
    if isinstance(value, Record):
        return value._wire() if wire else value.dict()
    if isinstance(value, dict):
        return {(_plain(key, wire)): _plain(one, wire) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = [_plain(one, wire) for one in value]
        return items if wire or kind is list else kind(items)
    if not wire:
        return value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, enum.Enum):
        return _plain(value.value, wire)
    if isinstance(value, bytes):
        return value.decode()
    return str(value)
