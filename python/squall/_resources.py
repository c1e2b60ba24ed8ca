"""Unique things (accounts, carts) that users hold one at a time. The pools themselves are the run's: of this process, or of the whole
fleet; here is what a scenario declares of them and one user's hand in them."""

from __future__ import annotations

import csv
import inspect
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall import _blocking, _squall
from squall._dsl import Factory
from squall._errors import ScenarioError

if TYPE_CHECKING:
    from squall._squall import Loan, Operation, Port


class Resource(dict[str, Any]):
    """Something that this user holds and nobody else."""

    __slots__ = ("_loan", "pool")

    pool: str
    _loan: Loan

    @property
    def held(self) -> bool:
        """Whether it is certainly nobody else's: False once it was released, or after this worker was away for too long."""
        return self._loan.held()

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Pools:
    """The pools that a scenario declares."""

    def __init__(self, factories: Mapping[str, Factory]) -> None:
        self._makers = {
            name: (_maker(factory), factory.limit) if factory.make is not None else (None, None) for name, factory in factories.items()
        }
        #: Name and what is in it at the start, in JSON.
        self.stock = [(factory.name, _rows(factory)) for factory in factories.values()]

    def maker(self, name: str) -> tuple[Callable[[int], str] | None, int | None]:
        """What makes more of a pool's things, and how many there may be."""
        return self._makers.get(name, (None, None))


class Resources:
    """One user's hand in the pools: what it still holds at its end goes back by itself."""

    __slots__ = ("_held", "_pools", "port")

    #: The way out of the user's asyncio task, if it lives in one.
    port: Port | None

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._held: list[Resource] = []
        self.port = None

    def acquire(self, name: str, wait: float = 0.0) -> Any:
        """Takes a resource that nobody else holds, nowhere in the fleet. In ``async def``, await it.

        If all are held it waits up to ``wait`` seconds, after those who came earlier, and then raises ``ResourcesExhausted``.
        """
        make, limit = self._pools.maker(name)
        if _blocking.in_fiber():
            return self._taken(name, _blocking.wait(_squall.borrow(name, wait, make, limit, None)))
        return _Acquiring(self, name, _squall.borrow(name, wait, make, limit, self.port))

    def _taken(self, name: str, loan: Loan) -> Resource:
        taken = Resource(json.loads(loan.payload))
        taken.pool, taken._loan = name, loan
        taken.setdefault("resource_name", name)
        taken.setdefault("resource_id", loan.id)
        self._held.append(taken)
        return taken

    def release(self, resource: Resource | str, resource_id: str | int | None = None) -> Done:
        """Gives a resource back: the thing itself, or its pool and id. It may be awaited, and is done either way."""
        for index, held in enumerate(self._held):
            named = held.pool == resource and str(held["resource_id"]) == str(resource_id)
            if held is resource or named:
                self._held.pop(index)._loan.release()
                return Done()
        raise ValueError("this user does not hold that resource")

    def release_all(self) -> None:
        """Gives everything back."""
        while self._held:
            self._held.pop()._loan.release()


class Done:
    """Something that has happened; there is nothing to wait for."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return iter(())


class _Acquiring:
    """A resource on its way."""

    __slots__ = ("_name", "_operation", "_resources")

    def __init__(self, resources: Resources, name: str, operation: Operation[Loan]) -> None:
        self._resources, self._name, self._operation = resources, name, operation

    def __await__(self) -> Generator[Any, None, Resource]:
        loan = yield from self._operation.__await__()
        return self._resources._taken(self._name, loan)


def _maker(factory: Factory) -> Callable[[int], str]:
    make = factory.make
    assert make is not None
    takes = len(inspect.signature(make).parameters)

    def made(number: int) -> str:
        thing = make(*(number, None)[:takes])
        if inspect.iscoroutine(thing):
            thing = _finish(thing, factory.name)
        if not isinstance(thing, Mapping):
            raise TypeError(f"the factory of {factory.name!r} returned {type(thing).__name__}, not a dict")
        try:
            return json.dumps(dict(thing))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the factory of {factory.name!r} must return what JSON can hold: {error}") from None

    return made


def _finish(coroutine: Any, name: str) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise TypeError(f"the factory of {name!r} waits for something; make resources without waiting")


def _rows(factory: Factory) -> list[str]:
    """The rows of a pool that comes from a file, in JSON."""
    if factory.source is None:
        return []
    try:
        with open(factory.source, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file)) if factory.source.endswith(".csv") else [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError, csv.Error) as error:
        raise ScenarioError(f"resource {factory.name!r}: cannot read {factory.source}: {error}", factory.file, factory.line) from None
    if not rows or not all(isinstance(row, dict) and None not in row and None not in row.values() for row in rows):
        message = f"resource {factory.name!r}: {factory.source} must have rows, each with all its columns (.csv) or an object (.jsonl)"
        raise ScenarioError(message, factory.file, factory.line)
    return [json.dumps(row) for row in rows]
