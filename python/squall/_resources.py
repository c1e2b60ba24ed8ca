"""Pools of unique things (accounts, carts) that users hold one at a time. This is the pool of one process."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Generator, Mapping
from typing import Any

from squall._dsl import Factory
from squall._errors import ResourcesExhausted


class Resource(dict[str, Any]):
    """What a factory made. Can be awaited, so that ``async def`` and plain ``def`` acquire it with the same words."""

    __slots__ = ("number", "pool")

    pool: str
    number: int

    def __await__(self) -> Generator[Any, None, Resource]:
        return self
        yield

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


class Pools:
    """All pools of a run in this process. Of several processes, each makes every so-manieth number: no two hold the same."""

    def __init__(self, factories: Mapping[str, Factory], part: tuple[int, int] = (0, 1)) -> None:
        self._factories = factories
        self._made = dict.fromkeys(factories, part[0])
        self._step = part[1]
        self._free: dict[str, deque[Resource]] = {name: deque() for name in factories}

    def take(self, name: str) -> Resource:
        factory = self._factories.get(name)
        if factory is None:
            known = ", ".join(self._factories) or "none"
            raise KeyError(f"there is no resource {name!r}; the scenario makes: {known}")
        if self._free[name]:
            return self._free[name].popleft()
        number = self._made[name]
        if factory.limit is not None and number >= factory.limit:
            elsewhere = ", or belong to other processes" if self._step > 1 else ""
            raise ResourcesExhausted(f"all {factory.limit} of {name!r} are held{elsewhere}")
        self._made[name] += self._step
        made = Resource(_call(factory, number))
        made.pool, made.number = name, number
        made.setdefault("resource_name", name)
        made.setdefault("resource_id", str(number))
        return made

    def give(self, resource: Resource) -> None:
        self._free[resource.pool].append(resource)


class Resources:
    """One user's hand in the pools: what it still holds at its end goes back by itself."""

    __slots__ = ("_held", "_pools")

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._held: list[Resource] = []

    def acquire(self, name: str) -> Resource:
        """Takes a resource that nobody else holds. In ``async def``, await it."""
        taken = self._pools.take(name)
        self._held.append(taken)
        return taken

    def release(self, resource: Resource | str, resource_id: str | int | None = None) -> None:
        """Gives a resource back: the thing itself, or its pool and id."""
        for index, held in enumerate(self._held):
            named = held.pool == resource and str(held["resource_id"]) == str(resource_id)
            if held is resource or named:
                self._pools.give(self._held.pop(index))
                return
        raise ValueError("this user does not hold that resource")

    def release_all(self) -> None:
        """Gives everything back."""
        while self._held:
            self._pools.give(self._held.pop())


def _call(factory: Factory, number: int) -> Mapping[str, Any]:
    takes = len(inspect.signature(factory.make).parameters)
    made = factory.make(*(number, None)[:takes])
    if inspect.iscoroutine(made):
        made = _finish(made, factory.name)
    if not isinstance(made, Mapping):
        raise TypeError(f"the factory of {factory.name!r} returned {type(made).__name__}, not a dict")
    return made


def _finish(coroutine: Any, name: str) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as ended:
        return ended.value
    coroutine.close()
    raise TypeError(f"the factory of {name!r} waits for something; make resources without waiting")
