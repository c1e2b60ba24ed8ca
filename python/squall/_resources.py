"""Unique things (accounts, carts) that users hold one at a time. The pools themselves are the run's: of this process, or of the whole
fleet; here is what a scenario declares of them and one user's hand in them."""

from __future__ import annotations

import csv
import inspect
import json
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall import _blocking, _squall
from squall._dsl import ResourceDeclaration
from squall._errors import ScenarioError

if TYPE_CHECKING:
    from squall._squall import Loan, Operation, Port


class Resource(dict[str, Any]):
    """Something that this user holds and nobody else."""

    __slots__ = ("_lease", "pool")

    pool: str
    _lease: Loan

    @property
    def held(self) -> bool:
        """Whether it is certainly nobody else's: False once it was released, or after this worker was away for too long."""
        return self._lease.held()

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Pools:
    """The pools that a scenario declares."""

    def __init__(self, declarations: Mapping[str, ResourceDeclaration]) -> None:
        self._factories = {
            name: (_payload_factory(declaration), declaration.limit)
            for name, declaration in declarations.items()
            if declaration.make is not None
        }
        #: Name and what is in it at the start, in JSON.
        self.contents = [(declaration.name, _read_rows(declaration)) for declaration in declarations.values()]

    def factory_of(self, name: str) -> tuple[Callable[[int], str] | None, int | None]:
        """What makes more of a pool's things, and how many there may be."""
        return self._factories.get(name, (None, None))


class Resources:
    """One user's hand in the pools: what it still holds at its end goes back by itself."""

    __slots__ = ("_leased", "_pools", "queue")

    #: The way out of the user's asyncio task, if it lives in one.
    queue: Port | None

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._leased: list[Resource] = []
        self.queue = None

    def acquire(self, name: str, wait: float = 0.0) -> Any:
        """Takes a resource that nobody else holds, nowhere in the fleet. In ``async def``, await it.

        If all are held it waits up to ``wait`` seconds, after those who came earlier, and then raises ``ResourcesExhausted``.
        """
        make, limit = self._pools.factory_of(name)
        if _blocking.in_fiber():
            return self._hold(name, _blocking.wait(_squall.borrow(name, wait, make, limit, None)))
        return _PendingAcquire(self, name, _squall.borrow(name, wait, make, limit, self.queue))

    def _hold(self, name: str, lease: Loan) -> Resource:
        resource = Resource(json.loads(lease.payload))
        resource.pool, resource._lease = name, lease
        resource.setdefault("resource_name", name)
        resource.setdefault("resource_id", lease.id)
        self._leased.append(resource)
        return resource

    def release(self, resource: Resource | str, resource_id: str | int | None = None) -> CompletedAwaitable:
        """Gives a resource back: the thing itself, or its pool and id. It may be awaited, and is done either way."""
        for index, held in enumerate(self._leased):
            named = held.pool == resource and str(held["resource_id"]) == str(resource_id)
            if held is resource or named:
                self._leased.pop(index)._lease.release()
                return CompletedAwaitable()
        raise ValueError("this user does not hold that resource")

    def release_all(self) -> None:
        """Gives everything back."""
        while self._leased:
            self._leased.pop()._lease.release()


class CompletedAwaitable:
    """Something that has happened; there is nothing to wait for."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return iter(())


class _PendingAcquire:
    """A resource on its way."""

    __slots__ = ("_name", "_operation", "_resources")

    def __init__(self, resources: Resources, name: str, operation: Operation[Loan]) -> None:
        self._resources, self._name, self._operation = resources, name, operation

    def __await__(self) -> Generator[Any, None, Resource]:
        lease = yield from self._operation.__await__()
        return self._resources._hold(self._name, lease)


def _payload_factory(declaration: ResourceDeclaration) -> Callable[[int], str]:
    make = declaration.make
    assert make is not None
    takes = len(inspect.signature(make).parameters)

    def made(number: int) -> str:
        thing = make(*(number, None)[:takes])
        if inspect.iscoroutine(thing):
            thing = _run_without_waiting(thing, declaration.name)
        if not isinstance(thing, Mapping):
            raise TypeError(f"the factory of {declaration.name!r} returned {type(thing).__name__}, not a dict")
        try:
            return json.dumps(dict(thing))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the factory of {declaration.name!r} must return what JSON can hold: {error}") from None

    return made


def _run_without_waiting(coroutine: Any, name: str) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise TypeError(f"the factory of {name!r} waits for something; make resources without waiting")


def _read_rows(declaration: ResourceDeclaration) -> list[str]:
    """The rows of a pool that comes from a file, in JSON."""
    if declaration.source is None:
        return []
    try:
        with open(declaration.source, encoding="utf-8-sig", newline="") as file:
            if declaration.source.endswith(".csv"):
                rows: list[Any] = list(csv.DictReader(file))
            else:
                rows = [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError, csv.Error) as error:
        message = f"resource {declaration.name!r}: cannot read {declaration.source}: {error}"
        raise ScenarioError(message, declaration.file, declaration.line) from None
    if not rows or not all(isinstance(row, dict) and None not in row and None not in row.values() for row in rows):
        rule = "must have rows, each with all its columns (.csv) or an object (.jsonl)"
        message = f"resource {declaration.name!r}: {declaration.source} {rule}"
        raise ScenarioError(message, declaration.file, declaration.line)
    return [json.dumps(row) for row in rows]
