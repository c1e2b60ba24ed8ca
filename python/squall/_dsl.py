"""The decorators and base class of scenarios: ``VUser``, ``@scenario``, ``@task``, ``@resource``,
``between``. They only record their arguments; ``squall._load`` reads them."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload

from squall._cql import read_settings
from squall._errors import ScenarioError
from squall._thresholds import DeclaredThresholds, number_text, read_thresholds

if TYPE_CHECKING:
    from squall._browser import UserBrowser
    from squall._resources import Resources

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

#: The keys of the argument ``browser``, beside ``args``.
BROWSER_KEYS = ("executable", "timeout", "viewport", "screenshots", "grid", "token")
#: All tasks declared while a scenario file is loaded: (file, qualified name, line).
declared: list[tuple[str, str, int]] = []
#: The set-up and tear-down of the file that is loaded.
hooks: dict[str, Callable[..., Any]] = {}
#: The resources of the file that is loaded, by name.
resources: dict[str, ResourceDeclaration] = {}
#: The probes of the file that is loaded, by name.
probes: dict[str, ProbeMark] = {}


@dataclass(frozen=True)
class Between:
    """A range of seconds from which each use draws a time, uniformly."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"{number_text(self.least)}s..{number_text(self.most)}s"


@dataclass(frozen=True)
class TaskMark:
    """The arguments of ``@task``."""

    name: str
    weight: float
    requires: tuple[str, ...]
    every: str | None
    timeout: float | None
    file: str
    line: int
    #: Further arguments for the scenario's step strategy.
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ScenarioMark:
    """The arguments of ``@scenario``."""

    name: str | None
    target: str | None
    #: The arguments that set the load, by name, as text.
    load: Mapping[str, str]
    thresholds: DeclaredThresholds
    file: str
    line: int
    threads_for_blocking: int | None = None
    #: The keys of ``browser`` as text, and the switches of the browser.
    browser: Mapping[str, str] = field(default_factory=dict)
    browser_args: Sequence[str] = ()
    #: Whether ``loadpilot.scenario`` made it.
    from_loadpilot: bool = False
    #: The settings of ``cql``, as texts.
    cql: Mapping[str, list[str]] | None = None


@dataclass(frozen=True)
class ResourceDeclaration:
    """A pool that ``@resource`` declares."""

    name: str
    #: The factory; None if the resources come from a file.
    make: Callable[..., Any] | None
    limit: int | None
    file: str
    line: int
    #: The file that the resources come from.
    source: str | None = None


@dataclass(frozen=True)
class ProbeMark:
    """The arguments of ``@probe``."""

    name: str
    function: Callable[..., Any]
    every: str
    timeout: float | None
    file: str
    line: int


class VUser:
    """A virtual user. Subclass it, add tasks, and keep the state of the user on ``self``."""

    #: The user's number within the run: 0, 1, 2, …
    id: int = 0
    #: Seed of :attr:`random`: equal for the same user of runs with the same ``--seed``.
    seed: int = 0
    #: The value that ``@set_up`` returned.
    shared: Any = None
    #: The pools that ``@resource`` declares.
    resources: Resources
    #: Chooses what the user does next, see :class:`squall.ParallelReadyStrategy`. With None the
    #: engine chooses by weight.
    step_strategy: Any = None

    @cached_property
    def browser(self) -> UserBrowser:
        """The user's browser: ``page = await self.browser.new_page()`` is a page of Playwright."""
        from squall._browser import UserBrowser

        return UserBrowser(self)

    @cached_property
    def random(self) -> random.Random:
        """The user's random numbers: runs with the same ``--seed`` draw the same ones."""
        return random.Random(self.seed)


def between(least: float, most: float) -> Between:
    """Returns a random time between ``least`` and ``most`` seconds, for ``pause`` and ``every``."""
    if not 0 <= least <= most:
        raise _error(f"between({least}, {most}): give two numbers, 0 <= least <= most")
    return Between(least, most)


def scenario(
    cls: object = None,
    /,
    *,
    rate: float | str | None = None,
    rps: float | str | None = None,
    users: int | None = None,
    duration: float | str | None = None,
    ramp_up: float | str | None = None,
    mode: str | None = None,
    steps: int | None = None,
    stages: str | Sequence[tuple[float | str, float]] | None = None,
    pause: float | str | Between | None = None,
    warm_up: float | str | None = None,
    thresholds: Mapping[str, float | str] | Sequence[str] | str | None = None,
    target: str | None = None,
    name: str | None = None,
    threads_for_blocking: int | None = None,
    browser: Mapping[str, Any] | None = None,
    cql: Mapping[str, Any] | None = None,
) -> Callable[[C], C]:
    """Sets the load of a class of users. Flags of the command line override it.

    ``rate`` (or ``rps``) starts iterations at a fixed rate, independent of response times.
    ``users`` runs that number of users, each waiting ``pause`` between two iterations. ``mode`` is
    the shape over time: ``constant``, ``ramp``, ``step`` (with ``steps``) or ``spike``; ``stages``
    is a list of (duration, level) instead. ``thresholds`` decide whether the run passes:
    ``["p99<500ms", "error_rate<1%"]``, ``{"p99": "500ms", "error_rate": "1%"}`` or ``{"p99_ms": 500,
    "error_rate": 1.0}`` (the rate in percent). ``threads_for_blocking`` runs plain functions on up to that number of threads,
    so that calls such as ``time.sleep`` block only their own user; 0 never does. ``browser`` has the keys of
    ``[browser]`` in TOML: ``{"grid": "ws://host:8080", "token": "$GRID_TOKEN"}``. ``cql`` is the database of
    ``client.cql``: ``{"nodes": ["10.0.0.1"], "keyspace": "shop"}``.
    """
    file, line = _caller()
    if cls is not None:
        raise ScenarioError("write @scenario() with parentheses and its load: @scenario(rate=50, duration='1m')", file, line)
    for argument, text in (("name", name), ("target", target)):
        if text is not None and not isinstance(text, str):
            raise ScenarioError(f"{argument}={text!r}: give a string", file, line)
    if rate is not None and rps is not None:
        raise ScenarioError("rate and rps mean the same: give only one", file, line)
    if threads_for_blocking is not None and (type(threads_for_blocking) is not int or not 0 <= threads_for_blocking <= 10_000):
        raise ScenarioError(f"threads_for_blocking={threads_for_blocking!r}: give a number from 0 to 10000", file, line)
    given: dict[str, Any] = {
        "rate": rate,
        "rps": rps,
        "users": users,
        "pause": pause,
        "duration": duration,
        "ramp_up": ramp_up,
        "mode": mode,
        "steps": steps,
        "stages": _stages(stages, file, line),
        "warm_up": warm_up,
    }
    times = {"pause", "duration", "ramp_up", "warm_up"}
    load = {key: _text(value, seconds=key in times) for key, value in given.items() if value is not None}
    keys, args = _browser_keys(browser, file, line)
    mark = ScenarioMark(name, target, load, read_thresholds(thresholds, file, line), file, line, threads_for_blocking, keys, args)
    mark = replace(mark, cql=read_settings(cql, file, line))

    def decorate(cls: C) -> C:
        if not isinstance(cls, type):
            raise ScenarioError("@scenario belongs on a class", file, line)
        cls.__squall_scenario__ = mark  # type: ignore[attr-defined]
        return cls

    return decorate


@overload
def task(function: F, /) -> F: ...
@overload
def task(
    name: str | None = None,
    *,
    weight: float = 1,
    requires: str | Sequence[str] = (),
    every: float | str | Between | None = None,
    timeout: float | None = None,
) -> Callable[[F], F]: ...
def task(
    name: Any = None,
    *,
    weight: float = 1,
    requires: str | Sequence[str] = (),
    every: float | str | Between | None = None,
    timeout: float | None = None,
) -> Any:
    """Makes a method a task, which users repeat.

    ``weight`` is its share of the iterations. ``requires`` names tasks that the same user must
    complete first. ``every`` is the least time between two starts by the same user. ``timeout``
    (seconds) interrupts an iteration that takes longer.
    """
    file, line = _caller()
    if isinstance(name, (bool, int, float, bytes, tuple, list, dict)):
        hint = f"; for its share of the load write @task(weight={name!r})" if type(name) in (int, float) else ""
        raise ScenarioError(f"name={name!r}: give a string{hint}", file, line)
    if name is not None and not isinstance(name, str):
        return _mark(name, TaskMark(getattr(name, "__name__", ""), 1, (), None, None, file, line))
    if not (isinstance(weight, (int, float)) and 0 < weight < float("inf")):
        raise ScenarioError(f"weight={weight!r}: give a number above 0", file, line)
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < 1e9):
        raise ScenarioError(f"timeout={timeout!r}: give seconds above 0", file, line)
    if every is not None and not isinstance(every, (int, float, str, Between)):
        raise ScenarioError(f"every={every!r}: give seconds, a string like '2s', or between(2, 5)", file, line)
    needed = (requires,) if isinstance(requires, str) else tuple(requires)
    pace = None if every is None else _text(every, seconds=True)

    def decorate(function: F) -> F:
        return _mark(function, TaskMark(name or function.__name__, weight, needed, pace, timeout, file, line))

    return decorate


#: The same as :func:`task`, under vikhry's name.
step = task


def resource(name: str, *, limit: int | None = None, file: str | None = None) -> Callable[[F], F]:
    """Makes a module-level function the factory of a pool: ``await self.resources.acquire(name)``
    hands out what it returns.

    Squall calls it with a number that is unique in the pool and the fleet; it returns a dict that
    JSON can hold. Released resources are handed out again; ``limit`` is the most that are made.
    ``resource(name, file="users.csv")``, on a line of its own, uses the rows of a CSV or JSONL file
    in the folder of this file instead.
    """
    here, line = _caller()
    if not isinstance(name, str):
        raise ScenarioError('write @resource(name="users"): a pool needs a name', here, line)
    if limit is not None and not (isinstance(limit, int) and limit > 0):
        raise ScenarioError(f"limit={limit!r}: give a whole number of 1 or more, or leave it out", here, line)
    if not re.fullmatch(r"[A-Za-z0-9_.:-]{1,128}", name):
        raise ScenarioError(f"{name!r} is not a valid resource name: use letters, digits, _ . : and -", here, line)
    if name in resources and (resources[name].file, resources[name].line) != (here, line):
        raise ScenarioError(f"resource {name!r} is already defined in line {resources[name].line}", here, line)
    if file is not None:
        if limit is not None or not file.endswith((".csv", ".jsonl", ".ndjson")):
            raise ScenarioError("resources come from a .csv, .jsonl or .ndjson file, and all of its rows are used", here, line)
        resources[name] = ResourceDeclaration(name, None, None, here, line, os.path.join(os.path.dirname(here), file))

    def decorate(function: F) -> F:
        if file is not None:
            raise ScenarioError(f"resource {name!r} comes from a file: write resource(…) on a line of its own", here, line)
        resources[name] = ResourceDeclaration(name, function, limit, here, line)
        return function

    return decorate


def set_up(function: F) -> F:
    """Makes a module-level function the set-up of the run: Squall calls it once, before the first
    user, on one machine of a fleet.

    It may take the parameters of the run (a dict). Its result must be JSON and becomes
    ``self.shared`` of every user. Squall does not measure it. If it raises, the run does not start.
    """
    return _hook("set_up", function)


def tear_down(function: F) -> F:
    """Makes a module-level function the tear-down of the run: Squall calls it once, after the last
    user, with the result of the set-up."""
    return _hook("tear_down", function)


def _hook(name: str, function: F) -> F:
    code = function.__code__
    place = (code.co_filename, code.co_firstlineno)
    before = hooks[name].__code__ if name in hooks else code
    # The same line appears twice if a module of the scenario imports the scenario file.
    if before.co_filename == place[0] and before.co_firstlineno != place[1]:
        raise ScenarioError(f"@{name} is already defined in line {before.co_firstlineno}", *place)
    if code.co_argcount > 1:
        raise ScenarioError(f"@{name} takes at most one argument", *place)
    hooks[name] = function
    return function


@overload
def probe(function: F, /) -> F: ...
@overload
def probe(
    name: str | None = None, *, every: float | str | None = None, every_s: float | None = None, timeout: float | None = None
) -> Callable[[F], F]: ...
def probe(name: Any = None, *, every: float | str | None = None, every_s: float | None = None, timeout: float | None = None) -> Any:
    """Makes a module-level function a probe, which measures something beside the load: the depth of
    a queue, the size of a table.

    One process of the run calls it at an interval (1 s by default) during the whole run. It returns
    a number, True, False or None. The numbers are the series ``name`` (in the report's unit,
    milliseconds); an exception or False counts as a failure. It may take one argument, a
    :class:`squall.ProbeContext`.
    """
    file, line = _caller()
    if callable(name):
        # `@probe` without parentheses.
        return _probe(name, ProbeMark(name.__name__, name, "1s", None, file, line))
    pace = every if every is not None else every_s if every_s is not None else 1.0
    if not isinstance(pace, str) and not (isinstance(pace, (int, float)) and 0 < pace < 1e9):
        raise ScenarioError(f"every={pace!r}: give seconds above 0, or a string like '500ms'", file, line)
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout < 1e9):
        raise ScenarioError(f"timeout={timeout!r}: give seconds above 0", file, line)

    def decorate(function: F) -> F:
        return _probe(function, ProbeMark(name or function.__name__, function, _text(pace, seconds=True), timeout, file, line))

    return decorate


def _probe(function: F, mark: ProbeMark) -> F:
    before = probes.get(mark.name, mark)
    if (before.file, before.line) != (mark.file, mark.line):
        raise ScenarioError(f"probe {mark.name!r} is already defined in line {before.line}", mark.file, mark.line)
    probes[mark.name] = mark
    return function


def _mark(function: F, mark: TaskMark) -> F:
    if isinstance(function, (staticmethod, classmethod, property)) or not callable(function):
        raise ScenarioError(f"a task is a method that takes (self, client), not a {type(function).__name__}", mark.file, mark.line)
    function.__squall_task__ = mark  # type: ignore[attr-defined]
    # Tasks made by a factory function share its qualified name, so the task's name distinguishes
    # them.
    name = function.__qualname__
    declared.append((mark.file, f"{name} {mark.name}" if "<locals>" in name.rpartition(".")[0] else name, mark.line))
    return function


def _caller() -> tuple[str, int]:
    frame = sys._getframe(2)
    return frame.f_code.co_filename, frame.f_lineno


def _error(message: str) -> ScenarioError:
    frame = sys._getframe(2)
    return ScenarioError(message, frame.f_code.co_filename, frame.f_lineno)


def _text(value: Any, *, seconds: bool) -> str:
    if seconds and isinstance(value, (int, float)) and not isinstance(value, bool):
        return f"{number_text(value)}s"
    return number_text(value) if isinstance(value, float) else str(value)


def _browser_keys(given: Any, file: str, line: int) -> tuple[dict[str, str], list[str]]:
    """Returns the keys of ``browser``, with the secret behind ``@FILE`` or ``$NAME``, and the switches."""
    if not isinstance(given or {}, Mapping):
        raise ScenarioError(f"browser={given!r}: give a dict, such as {{'viewport': '1280x720'}}", file, line)
    keys = dict(given or {})
    args = keys.pop("args", [])
    if not isinstance(args, (list, tuple)) or not all(isinstance(arg, str) for arg in args):
        raise ScenarioError(f"browser: args={args!r}: give a list of switches", file, line)
    for key, value in keys.items():
        if key not in BROWSER_KEYS:
            raise ScenarioError(f"browser has no key {key!r}; there are: args, {', '.join(BROWSER_KEYS)}", file, line)
        if not isinstance(value, (str, int, float)) or (key != "timeout" and not isinstance(value, str)):
            raise ScenarioError(f"browser: {key}={value!r}: give a string", file, line)
    texts = {key: _text(value, seconds=key == "timeout") for key, value in keys.items()}
    token = texts.get("token", "")
    if token.startswith("$"):
        if token[1:] not in os.environ:
            raise ScenarioError(f"browser: token: the environment variable {token[1:]} is not set", file, line)
        texts["token"] = os.environ[token[1:]]
    elif token.startswith("@"):
        path = os.path.join(os.path.dirname(file), token[1:])
        try:
            with open(path, encoding="utf-8") as secret:
                texts["token"] = secret.read().rstrip()
        except OSError as error:
            raise ScenarioError(f"browser: token: cannot read {path}: {error.strerror}", file, line) from None
    return texts, list(args)


def _stages(stages: Any, file: str, line: int) -> str | None:
    if stages is None or isinstance(stages, str):
        return stages
    if not isinstance(stages, (list, tuple)):
        raise ScenarioError(f"stages={stages!r}: give a list of (duration, level)", file, line)
    for stage in stages:
        if not (isinstance(stage, (list, tuple)) and len(stage) == 2):
            raise ScenarioError(f"stages: {stage!r} is not a pair (duration, level), such as ('30s', 100)", file, line)
    return ",".join(f"{_text(lasts, seconds=True)}:{_text(level, seconds=False)}" for lasts, level in stages)
