"""The rows of CQL statements, and the settings of their database."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

from squall._errors import ScenarioError

#: The settings of ``@scenario(cql={…})``, as ``[cql]`` of a TOML scenario has them.
_TEXTS = ("user", "keyspace", "consistency", "datacenter", "compression")
_SECRETS = ("password", "truststore_password", "keystore_password")
_FILES = ("truststore", "keystore")
_NUMBERS = ("port", "connections")
_SETTINGS = ("nodes", "timeout", "hostname_verification", *_TEXTS, *_SECRETS, *_FILES, *_NUMBERS)


class CqlRow(tuple[Any, ...]):
    """A row: ``row["total"]``, ``row.total`` and ``row[0]`` are the same column."""

    __slots__ = ()
    #: The names of the columns.
    columns: tuple[str, ...] = ()
    #: The same, also in a row with a column named `columns`.
    _names: tuple[str, ...] = ()
    _positions: Mapping[str, int] = {}

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(self._position(key, KeyError))
        return super().__getitem__(key)

    def __getattr__(self, name: str) -> Any:
        return super().__getitem__(self._position(name, AttributeError))

    def keys(self) -> tuple[str, ...]:
        return self._names

    def asdict(self) -> dict[str, Any]:
        return dict(zip(self._names, self, strict=True))

    def __repr__(self) -> str:
        return f"CqlRow({', '.join(f'{name}={value!r}' for name, value in zip(self._names, self, strict=True))})"

    def _position(self, name: str, error: type[Exception]) -> int:
        try:
            return self._positions[name]
        except KeyError:
            raise error(f"the row has no column {name!r}: it has {', '.join(self._names)}") from None


class CqlRows(Sequence[CqlRow]):
    """The rows of a statement; empty if it returns none."""

    __slots__ = ("_rows", "columns")

    def __init__(self, columns: tuple[str, ...], rows: list[CqlRow]) -> None:
        #: The names of the columns.
        self.columns = columns
        self._rows = rows

    def one(self) -> CqlRow | None:
        """Returns the first row; None if there is none."""
        return self._rows[0] if self._rows else None

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[CqlRow]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"CqlRows({self._rows!r})"


@lru_cache(maxsize=256)
def _row_class(columns: tuple[str, ...]) -> type[CqlRow]:
    positions = {name: position for position, name in enumerate(columns)}
    # `__getattr__` is not asked for names that a tuple or a row has, such as `count`.
    hidden = [name for name in positions if hasattr(CqlRow, name) and not name.startswith("_")]
    values = {name: property(itemgetter(positions[name])) for name in hidden}
    names = {"__slots__": (), "columns": columns, "_names": columns, "_positions": positions}
    return type("CqlRow", (CqlRow,), {**names, **values})


def make_rows(columns: list[str], rows: list[tuple[Any, ...]]) -> CqlRows:
    """Returns the rows that the database sent. The engine calls it."""
    names = tuple(columns)
    row_class = _row_class(names)
    return CqlRows(names, [row_class(row) for row in rows])


def read_settings(given: Any, file: str, line: int) -> dict[str, list[str]] | None:
    """Returns the settings of ``@scenario(cql={…})`` as texts."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ScenarioError(f"cql={given!r}: give a dict such as {{'nodes': ['127.0.0.1']}}", file, line)
    settings = {}
    for name, value in given.items():
        if name not in _SETTINGS:
            raise ScenarioError(f"cql has no setting {name!r}: there are {', '.join(sorted(_SETTINGS))}", file, line)
        settings[name] = _setting(name, value, file, line)
    return settings


def _setting(name: str, value: Any, file: str, line: int) -> list[str]:
    if name == "nodes":
        nodes = [value] if isinstance(value, str) else value
        if not isinstance(nodes, (list, tuple)) or not all(isinstance(node, str) for node in nodes):
            raise ScenarioError(f"cql: nodes={value!r}: give a list of hosts, such as ['10.0.0.1', '10.0.0.2:9043']", file, line)
        return list(nodes)
    if name in _NUMBERS:
        if type(value) is not int or value < 1:
            raise ScenarioError(f"cql: {name}={value!r}: give a whole number of 1 or more", file, line)
        return [str(value)]
    if name == "timeout" and isinstance(value, (int, float)) and not isinstance(value, bool):
        return [f"{value}s"]
    if name == "hostname_verification":
        if not isinstance(value, bool):
            raise ScenarioError(f"cql: {name}={value!r}: give True or False", file, line)
        return ["true" if value else "false"]
    if not isinstance(value, str):
        raise ScenarioError(f"cql: {name}={value!r}: give a string", file, line)
    if name in _FILES:
        return [os.path.join(os.path.dirname(file), value)]
    return [_secret(name, value, file, line) if name in _SECRETS else value]


def _secret(setting: str, text: str, file: str, line: int) -> str:
    """Returns the text behind ``@FILE`` or ``$NAME``, escaped so that it is not resolved again."""
    if text.startswith("@") and not text.startswith("@@") and len(text) > 1:
        path = os.path.join(os.path.dirname(file), text[1:])
        try:
            with open(path, encoding="utf-8") as secret:
                text = secret.read().rstrip("\r\n")
        except OSError as error:
            raise ScenarioError(f"cql: {setting}: cannot read {path}: {error.strerror}", file, line) from None
    elif text.startswith("$") and text[1:].isidentifier():
        name = text[1:]
        if name not in os.environ:
            raise ScenarioError(f"cql: {setting}: the environment variable {name} is not set", file, line)
        text = os.environ[name]
    else:
        return text
    return text[:1] + text if text[:1] in ("@", "$") else text
