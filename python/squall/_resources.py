"""Resources (accounts, carts) that one user at a time holds. This module has the pools that a
scenario declares and ``self.resources`` of a user. The engine keeps the pools, for this process or
the fleet."""

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
    from squall._squall import Operation, OperationQueue, ResourceLease


class Resource(dict[str, Any]):
    """A resource that only this user holds."""

    __slots__ = ("_lease", "pool")

    pool: str
    _lease: ResourceLease

    @property
    def held(self) -> bool:
        """Whether the lease is still valid: False after a release, or after this worker lost
        contact for too long and the resource may belong to another user."""
        return self._lease.held()

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Pools:
    """The pools that a scenario declares."""

    def __init__(self, declarations: Mapping[str, ResourceDeclaration]) -> None:
        self._factories = {
            name: (payload_factory(declaration, _run_without_waiting), declaration.limit)
            for name, declaration in declarations.items()
            if declaration.make is not None
        }
        #: Name of each pool and its initial resources in JSON.
        self.contents = [(declaration.name, _read_rows(declaration)) for declaration in declarations.values()]

    def factory_of(self, name: str) -> tuple[Callable[[int], str] | None, int | None]:
        """Returns the factory of a pool and its limit; None and None without a factory."""
        return self._factories.get(name, (None, None))


class Resources:
    """``self.resources`` of one user. The engine releases what the user still holds at its end."""

    __slots__ = ("_leased", "_pools", "queue")

    #: The operation queue of the user's asyncio task, if the user has one.
    queue: OperationQueue | None

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._leased: list[Resource] = []
        self.queue = None

    def acquire(self, name: str, wait: float = 0.0) -> Any:
        """Takes a resource that no other user of the fleet holds. In ``async def``, await it.

        If all are in use it waits up to ``wait`` seconds, in the order of requests, and then raises
        ``ResourcesExhausted``.
        """
        make, limit = self._pools.factory_of(name)
        if _blocking.in_fiber() or _squall.on_blocking_thread():
            return self._hold(name, _blocking.wait(_squall.acquire_resource(name, wait, make, limit, None)))
        return _PendingAcquire(self, name, _squall.acquire_resource(name, wait, make, limit, self.queue))

    def _hold(self, name: str, lease: ResourceLease) -> Resource:
        resource = Resource(json.loads(lease.payload))
        resource.pool, resource._lease = name, lease
        resource.setdefault("resource_name", name)
        resource.setdefault("resource_id", lease.id)
        self._leased.append(resource)
        return resource

    def release(self, resource: Resource | str, resource_id: str | int | None = None) -> CompletedAwaitable:
        """Gives a resource back: the object, or its pool and id. ``await`` is optional."""
        for index, held in enumerate(self._leased):
            named = held.pool == resource and str(held["resource_id"]) == str(resource_id)
            if held is resource or named:
                self._leased.pop(index)._lease.release()
                return CompletedAwaitable()
        raise ValueError("this user does not hold that resource")

    def release_all(self) -> None:
        """Gives back all resources of this user."""
        while self._leased:
            self._leased.pop()._lease.release()


class CompletedAwaitable:
    """An awaitable that is complete."""

    __slots__ = ()

    def __await__(self) -> Iterator[Any]:
        return iter(())


class _PendingAcquire:
    """The awaitable that :meth:`Resources.acquire` returns."""

    __slots__ = ("_name", "_operation", "_resources")

    def __init__(self, resources: Resources, name: str, operation: Operation[ResourceLease]) -> None:
        self._resources, self._name, self._operation = resources, name, operation

    def __await__(self) -> Generator[Any, None, Resource]:
        lease = yield from self._operation.__await__()
        return self._resources._hold(self._name, lease)


def payload_factory(declaration: ResourceDeclaration, run: Callable[[Any, str], Any]) -> Callable[[int], str]:
    """Returns a function that makes the resource with a number, in JSON; ``run`` runs a coroutine of
    the factory."""
    make = declaration.make
    assert make is not None
    takes = len(inspect.signature(make).parameters)

    def make_payload(number: int) -> str:
        made_resource = make(*(number, None)[:takes])
        if inspect.iscoroutine(made_resource):
            made_resource = run(made_resource, declaration.name)
        if not isinstance(made_resource, Mapping):
            raise TypeError(f"the factory of {declaration.name!r} returned {type(made_resource).__name__}, not a dict")
        try:
            return json.dumps(dict(made_resource))
        except (TypeError, ValueError) as error:
            raise TypeError(f"the factory of {declaration.name!r} must return values that JSON can hold: {error}") from None

    return make_payload


def _run_without_waiting(coroutine: Any, name: str) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise TypeError(f"the factory of {name!r} waits for something, but a factory must not wait")


def _read_rows(declaration: ResourceDeclaration) -> list[str]:
    """Returns the rows of a pool's file in JSON; none if the pool has a factory."""
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
