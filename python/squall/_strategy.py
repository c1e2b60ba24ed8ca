"""Step strategies: objects that choose what a user does next. Without a strategy the engine chooses
tasks by weight. With one, :class:`StrategyTask` runs the iterations and records each step under its
name."""

from __future__ import annotations

import asyncio
import random
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from squall import _squall
from squall._dsl import Between, TaskMark

Check = Callable[..., Any]

#: Seconds until the strategy is asked again if it chose no step and gave no time.
_IDLE_WAIT_S = 0.1
#: Seconds without a step after which the iteration fails.
_MAX_IDLE_S = 5
#: Units that the text of ``every`` may have.
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Step:
    """A task as a strategy sees it."""

    name: str
    weight: float
    requires: tuple[str, ...]
    #: Least seconds between two starts by the same user, drawn for each start; None without a
    #: limit.
    every: Between | None
    timeout: float | None
    #: Further arguments of ``@step``, for strategies of the scenario.
    strategy_kwargs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def spec(self) -> Step:
        """The step itself: strategies written for vikhry read ``step.spec``."""
        return self

    @property
    def step_name(self) -> str:
        return self.name


@dataclass(frozen=True)
class StepSelection:
    """The choice of a strategy: steps to run concurrently, or no steps and the time to ask
    again."""

    steps: Sequence[Step]
    nearest_ready_at: float | None = None


class StepStrategy(Protocol):
    """Chooses what a user does next. ``now`` and ``next_allowed_at`` are seconds of the same clock;
    ``rng`` belongs to the user."""

    def select(
        self, steps: Sequence[Step], completed_steps: Collection[str], next_allowed_at: Mapping[str, float], now: float, rng: random.Random
    ) -> StepSelection: ...


def ready_steps(steps: Sequence[Step], completed: Collection[str], next_allowed_at: Mapping[str, float], now: float) -> list[Step]:
    """Returns the steps whose ``requires`` and ``every`` are met."""
    return [step for step in steps if all(name in completed for name in step.requires) and next_allowed_at.get(step.name, 0.0) <= now]


def _nearest(next_allowed_at: Mapping[str, float], now: float) -> float | None:
    return min((at for at in next_allowed_at.values() if at > now), default=None)


class SequentialWeightedStrategy:
    """Runs one ready step at a time, drawn at random by weight. Without a strategy the engine also
    chooses by weight, but in a fixed rotation."""

    def select(
        self, steps: Sequence[Step], completed_steps: Collection[str], next_allowed_at: Mapping[str, float], now: float, rng: random.Random
    ) -> StepSelection:
        may = ready_steps(steps, completed_steps, next_allowed_at, now)
        if not may:
            return StepSelection((), _nearest(next_allowed_at, now))
        return StepSelection(rng.choices(may, [step.weight for step in may]))


class ParallelReadyStrategy:
    """Runs all ready steps concurrently."""

    def select(
        self, steps: Sequence[Step], completed_steps: Collection[str], next_allowed_at: Mapping[str, float], now: float, rng: random.Random
    ) -> StepSelection:
        return StepSelection(ready_steps(steps, completed_steps, next_allowed_at, now), _nearest(next_allowed_at, now))


@dataclass
class _StepProgress:
    """The completed steps of a user and when each step may start again."""

    completed: set[str] = field(default_factory=set)
    next_allowed_at: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _StepFunction:
    step: Step
    call: Callable[..., Any]
    check: Check | None
    #: Whether the check takes the response; otherwise status and body.
    check_takes_response: bool


class StrategyTask:
    """The only task of a scenario with a strategy: asks the strategy and runs the chosen steps."""

    def __init__(self, strategy: StepStrategy, tasks: Sequence[tuple[TaskMark, Callable[..., Any], Check | None, bool]]) -> None:
        self._strategy = strategy
        self._functions = {
            mark.name: _StepFunction(_step(mark), call, check, takes_response) for mark, call, check, takes_response in tasks
        }
        self._steps = [one.step for one in self._functions.values()]
        self._progress: dict[int, _StepProgress] = {}

    async def iterate(self, user: Any, client: Any) -> None:
        progress = self._progress.setdefault(user.id, _StepProgress())
        chosen = await self._choose(progress, user.random)
        ended = await asyncio.gather(*(self._run(one, progress, user, client) for one in chosen), return_exceptions=True)
        for error in ended:
            if error is not None:
                raise error

    async def _choose(self, progress: _StepProgress, rng: random.Random) -> Sequence[Step]:
        first_asked_at = time.monotonic()
        while True:
            now = time.monotonic()
            selection = self._strategy.select(
                steps=self._steps,
                completed_steps=frozenset(progress.completed),
                next_allowed_at=dict(progress.next_allowed_at),
                now=now,
                rng=rng,
            )
            if selection.steps:
                return selection.steps
            at = selection.nearest_ready_at
            if at is None and now - first_asked_at > _MAX_IDLE_S:
                name = type(self._strategy).__name__
                raise RuntimeError(f"{name} chose no step for {_MAX_IDLE_S} s and gave no time to ask again (nearest_ready_at)")
            await asyncio.sleep(_IDLE_WAIT_S if at is None else max(0.0, at - now))

    async def _run(self, step: Step, progress: _StepProgress, user: Any, client: Any) -> None:
        one = self._functions[step.name]
        begun, code = time.monotonic(), "OK"
        if step.every is not None:
            progress.next_allowed_at[step.name] = begun + user.random.uniform(step.every.least, step.every.most)
        recording_client = _LastResponseClient(client)
        try:
            async with asyncio.timeout(step.timeout):
                await one.call(user, recording_client)
            if one.check is not None and recording_client.last is not None:
                last = recording_client.last
                verdict = one.check(user, last) if one.check_takes_response else one.check(user, last.status_code, _body(last))
                if verdict is False:
                    raise AssertionError("the check returned False")
            progress.completed.add(step.name)
        except BaseException as error:
            code = type(error).__name__
            raise
        finally:
            _squall.emit(step.name, time.monotonic() - begun, code == "OK", code, True)


class _LastResponseClient:
    """A client that remembers the last response for the step's check."""

    __slots__ = ("_client", "last")

    def __init__(self, client: Any) -> None:
        self._client = client
        self.last: Any = None

    async def _remember(self, operation: Any) -> Any:
        self.last = await operation
        return self.last

    async def batch(self, requests: Any) -> Any:
        answers = await self._client.batch(requests)
        self.last = answers[-1] if answers else self.last
        return answers

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        if name not in ("get", "post", "put", "patch", "delete", "head", "options", "request"):
            return method
        return lambda *args, **options: self._remember(method(*args, **options))


def _body(answer: Any) -> Any:
    try:
        return answer.json()
    except ValueError:
        return answer.text


def _step(mark: TaskMark) -> Step:
    return Step(mark.name, mark.weight, mark.requires, None if mark.every is None else _parse_range(mark.every), mark.timeout, mark.extra)


def _parse_range(text: str) -> Between:
    """Returns ``2s``, ``500ms`` or ``2s..5s`` in seconds. The plan has already rejected other
    texts."""
    times = [float(number) * _UNITS.get(unit or "s", 1.0) for number, unit in re.findall(r"([\d.]+?)(us|ms|s|m|h)?(?:\.\.|$)", text)]
    return Between(times[0], times[-1]) if times else Between(0.0, 0.0)
