"""Loads the scenarios of a file: finds the tasks, checks and hooks of their classes. Rejects what
cannot work with one message that names file and line. Runs no task. The Rust host calls
:func:`load_all` and reads the :class:`PythonScenario` objects by attribute name."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import os
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall import _blocking, _browser, _dsl, _not_awaited, _probe, _squall, compat
from squall._absolute_urls import first_origin
from squall._constant import ConstantRequest
from squall._dsl import ScenarioMark, TaskMark, VUser
from squall._errors import ScenarioError, describe, display_path
from squall._hooks import Hooks
from squall._locust_names import reject_locust_names
from squall._modes import choose_loop, choose_modes, choose_threads
from squall._plan import ScenarioPlan, SourceLine, scenario_plan
from squall._resources import Pools, Resources
from squall._scenario_file import choose_classes, execute, line_of, reject_redefinitions
from squall._sources import ScenarioSources
from squall._strategy import StrategyTask

#: Threads for plain functions that block, unless the scenario or the command line gives a number.
_DEFAULT_THREADS = 256

# A child process that a scenario forks must not continue the run of its parent.
os.register_at_fork(after_in_child=_squall.mark_forked_child)


@dataclass
class ScenarioFunction:
    """A function that the engine calls with the user and its client."""

    call: Callable[..., Any]
    is_async: bool


@dataclass
class ScenarioTask(ScenarioFunction):
    """A task with its check, timeout and mode."""

    name: str
    check: Callable[..., Any] | None
    timeout: float | None
    mark: TaskMark
    #: The requests of a constant task; None if the task runs as Python code.
    requests: list[ConstantRequest] | None = None
    #: Why the task runs in its mode.
    mode_reason: str = ""
    #: Whether the check takes the response; otherwise status and body.
    check_takes_response: bool = False


@dataclass
class PythonScenario:
    """A loaded scenario."""

    name: str
    file: str
    line: int
    #: The scenario without its code.
    plan: ScenarioPlan
    tasks: list[ScenarioTask]
    on_start: list[ScenarioFunction]
    on_stop: list[ScenarioFunction]
    make_user: Callable[[int, int], Any]
    describe: Callable[[BaseException], str] = describe
    new_fiber: Callable[..., Any] | None = _blocking.new_fiber
    blocking_client: Callable[..., Any] = _blocking.BlockingClient
    params: Mapping[str, Any] = field(default_factory=dict)
    #: The declared pools: name and initial resources in JSON.
    pool_contents: list[tuple[str, list[str]]] = field(default_factory=list)
    #: Set-up and tear-down of the run.
    hooks: Hooks | None = None
    #: Whether each user runs on_init, on_start or on_stop. Not about ``hooks``, which run once.
    has_lifecycle_hooks: bool = False
    #: Whether users start at once, and run their tasks also after a failed ``on_start``.
    begins_like_loadpilot: bool = False
    #: Whether coroutines run on an asyncio loop, and why or why not.
    on_asyncio: bool = False
    mode_reason: str = ""
    #: Whether a task uses a browser, which is then started before the first user.
    uses_browser: bool = False
    #: Whether these are the probes, which run as long as the scenarios do.
    is_probe: bool = False
    cls: type = object
    #: The scenario's coroutine functions, without Squall's wrappers.
    coroutines: list[Callable[..., Any]] = field(default_factory=list)
    #: Class name of its step strategy, if it has one.
    strategy: str | None = None
    #: The most threads for plain functions that block; 0 if they run on the engine's thread only.
    threads_for_blocking: int = _DEFAULT_THREADS
    #: Why plain functions run on threads from the start; None if they do not.
    blocking_reason: str | None = None


def load(
    path: str,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> PythonScenario:
    """Loads the only scenario of the file ``path``, or the one named ``scenario``."""
    loaded = load_all(path, scenario, params, mode)
    if len(loaded) > 1:
        names = ", ".join(one.name for one in loaded)
        raise ScenarioError(f"this file has several scenarios: choose one with --scenario: {names}", loaded[0].file, loaded[1].line)
    return loaded[0]


def load_all(
    path: str,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
    mode: str | None = None,
    threads_for_blocking: int | None = None,
) -> list[PythonScenario]:
    """Loads all scenarios of the file ``path`` that run together, or only the one named
    ``scenario``; then its probes, if it has any.

    ``mode`` is ``auto`` (chosen from the code), ``static`` (all tasks must be constant),
    ``stepped`` (the engine resumes coroutines) or ``asyncio`` (coroutines run on an asyncio loop).
    ``threads_for_blocking`` is the flag of that name.
    """
    compat.install(os.path.dirname(os.path.abspath(path)))
    _not_awaited.install_hook()
    try:
        module = execute(path)
        reject_redefinitions(module, path)
        given = dict(params or {})
        pools = Pools(dict(_dsl.resources))
        classes = choose_classes(module, path, scenario)
        reject_locust_names(classes)
        hooks = Hooks(dict(_dsl.hooks), given) if _dsl.hooks else None
        first_url_origin = first_origin(module, given)
        loaded = [_load_class(cls, path, given, pools, hooks, first_url_origin) for cls in classes]
        if given and not any(hasattr(cls, "on_init") for cls in classes) and not _dsl.probes and "set_up" not in _dsl.hooks:
            raise ScenarioError(f"the run has parameters, but {classes[0].__name__} has no on_init to take them", path)
        _reject_duplicate_names(loaded)
        sources = ScenarioSources([module.__name__, *(base.__module__ for cls in classes for base in cls.__mro__)])
        for one in loaded:
            choose_modes(one, mode or "auto", sources)
            choose_threads(one, threads_for_blocking)
        if _dsl.probes:
            target = loaded[0].plan.target
            loaded.append(_load_probes(path, given, pools, target.value if target else None, first_url_origin))
            choose_loop(loaded[-1], "auto", sources)
        return loaded
    except ScenarioError as error:
        error.file = display_path(error.file or path)
        raise


def _reject_duplicate_names(loaded: list[PythonScenario]) -> None:
    seen: dict[str, int] = {}
    for one in loaded:
        if one.name in seen:
            raise ScenarioError(f"scenario {one.name!r} is already defined in line {seen[one.name]}", one.file, one.line)
        seen[one.name] = one.line


def _load_probes(path: str, params: dict[str, Any], pools: Pools, target: str | None, first_url_origin: str | None) -> PythonScenario:
    """Returns all probes of the file as the tasks of one extra user."""
    marks = list(_dsl.probes.values())
    tasks = []
    for mark in marks:
        task, call = _probe.probe_task(mark, params)
        is_async = _is_async(call, mark.name, mark.file, mark.line)
        tasks.append(ScenarioTask(call, is_async, mark.name, None, mark.timeout, task, mode_reason="it is a probe"))

    def make_user(number: int, seed: int) -> Any:
        user = VUser()
        user.id, user.seed = number, seed
        user.resources = Resources(pools)
        return user

    here = SourceLine(display_path(path), marks[0].line)
    loaded = PythonScenario(
        name="probe",
        file=here.file,
        line=here.line,
        plan=scenario_plan("probe", here, None, target, first_url_origin, [task.mark for task in tasks]),
        tasks=tasks,
        on_start=[],
        on_stop=[],
        make_user=make_user,
        is_probe=True,
        coroutines=[task.call for task in tasks if task.is_async],
        cls=VUser,
    )
    return loaded


def _with_browser(function: Callable[..., Any], mark: TaskMark) -> Callable[..., Any]:
    """Returns a task of ``(user, client)`` for one that takes ``page`` or ``browser``."""
    names = _browser.browser_parameters(function)
    if names is None:
        return function
    if not inspect.iscoroutinefunction(function):
        message = f"task {mark.name!r} takes a browser's page and must be async def: Playwright's API is awaited"
        raise ScenarioError(message, mark.file, mark.line)
    return _browser.with_browser(function, names)


def _load_class(
    cls: type, path: str, params: dict[str, Any], pools: Pools, hooks: Hooks | None, first_url_origin: str | None
) -> PythonScenario:
    own: ScenarioMark | None = cls.__dict__.get("__squall_scenario__")
    mark: ScenarioMark | None = own or getattr(cls, "__squall_scenario__", None)
    line = mark.line if mark else line_of(cls)
    target: str | None = (mark.target if mark else None) or getattr(cls, "__squall_target__", None)
    tasks = _tasks(cls, path, line)
    starts, stops = _hooks(cls, params)
    strategy = getattr(cls, "step_strategy", None)
    strategy = strategy() if isinstance(strategy, type) else strategy
    coroutines = _coroutines(cls, tasks)
    if strategy is not None:
        tasks = [_strategy_task(strategy, tasks)]

    def make_user(number: int, seed: int) -> Any:
        user = cls()
        user.id, user.seed = number, seed
        user.resources = Resources(pools)
        if hooks is not None:
            user.shared = hooks.made
        return user

    name = (mark.name if mark else None) or cls.__name__
    here = SourceLine(display_path(mark.file if mark else path), line)
    return PythonScenario(
        name=name,
        file=display_path(path),
        line=line,
        plan=scenario_plan(name, here, mark, target, first_url_origin, [task.mark for task in tasks]),
        tasks=tasks,
        on_start=starts,
        on_stop=stops,
        make_user=make_user,
        params=params,
        pool_contents=pools.contents,
        hooks=hooks,
        has_lifecycle_hooks=bool(starts or stops),
        begins_like_loadpilot=mark is not None and mark.from_loadpilot,
        cls=cls,
        coroutines=coroutines,
        strategy=type(strategy).__name__ if strategy is not None else None,
    )


def _strategy_task(strategy: Any, tasks: list[ScenarioTask]) -> ScenarioTask:
    """Returns the one task of a scenario whose strategy chooses its steps."""
    first = tasks[0].mark
    if not callable(getattr(strategy, "select", None)):
        message = "step_strategy needs a method select(steps, completed_steps, next_allowed_at, now, rng)"
        raise ScenarioError(message, first.file, first.line)
    for task in tasks:
        if not task.is_async:
            message = f"task {task.name!r} must be async def: a step_strategy runs steps concurrently"
            raise ScenarioError(message, task.mark.file, task.mark.line)
    steps = StrategyTask(strategy, [(task.mark, task.call, task.check, task.check_takes_response) for task in tasks])
    mark = TaskMark("steps", 1, (), None, None, first.file, first.line)
    return ScenarioTask(steps.iterate, True, "steps", None, None, mark)


def _coroutines(cls: type, tasks: list[ScenarioTask]) -> list[Callable[..., Any]]:
    hooks = [_own_hook(cls, name) for name in ("on_init", "on_start", "on_stop")]
    functions = [*(task.call for task in tasks), *(hook for hook in hooks if hook is not None)]
    return [function for function in functions if inspect.iscoroutinefunction(function)]


def _tasks(cls: type, path: str, line: int) -> list[ScenarioTask]:
    names = dict.fromkeys(name for base in reversed(cls.__mro__) for name in vars(base))
    checks = {name for name in names if name.startswith("check_") and callable(getattr(cls, name))}
    tasks: dict[str, ScenarioTask] = {}
    for name in names:
        function = getattr(cls, name)
        mark: TaskMark | None = getattr(function, "__squall_task__", None)
        if mark is None:
            continue
        function = _with_browser(_as_coroutine(function), mark)
        if mark.name in tasks:
            first = tasks[mark.name].mark.line
            raise ScenarioError(f"task {mark.name!r} is already defined in line {first}", mark.file, mark.line)
        if not _accepts_arguments(function, None, None):
            raise ScenarioError(f"task {mark.name!r} must take (self, client)", mark.file, mark.line)
        check = _check(cls, name, mark, checks)
        tasks[mark.name] = ScenarioTask(
            call=function,
            is_async=_is_async(function, mark.name, mark.file, mark.line),
            name=mark.name,
            check=check,
            timeout=mark.timeout,
            mark=mark,
            check_takes_response=check is not None and _takes_response(check),
        )
    if not tasks:
        raise ScenarioError(f"{cls.__name__} has no task: mark at least one method with @task", path, line)
    _reject_unknown_names(cls, tasks, checks)
    return list(tasks.values())


def _check(cls: type, method: str, mark: TaskMark, checks: set[str]) -> Callable[..., Any] | None:
    for name in (f"check_{method}", f"check_{mark.name}"):
        if name in checks:
            check: Callable[..., Any] = getattr(cls, name)
            if inspect.iscoroutinefunction(check):
                raise ScenarioError(f"{name} must be a plain def: a check cannot wait", *_location_of(check))
            if not (_takes_response(check) or _accepts_arguments(check, None, 200, {})):
                raise ScenarioError(f"{name} must take (self, status_code, body) or (self, response)", *_location_of(check))
            return check
    return None


def _takes_response(check: Callable[..., Any]) -> bool:
    return _accepts_arguments(check, None, None) and not _accepts_arguments(check, None, 200, {})


def _accepts_arguments(function: Callable[..., Any], *arguments: Any) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def _reject_unknown_names(cls: type, tasks: Mapping[str, ScenarioTask], checks: set[str]) -> None:
    for task in tasks.values():
        for needed in task.mark.requires:
            if needed not in tasks:
                hint = _did_you_mean(needed, tasks)
                raise ScenarioError(f"task {task.name!r} requires {needed!r}, which does not exist{hint}", task.mark.file, task.mark.line)
    methods = {task.call.__name__ for task in tasks.values()} | set(tasks)
    for check in sorted(checks):
        if check.removeprefix("check_") not in methods:
            hint = _did_you_mean(check.removeprefix("check_"), tasks)
            raise ScenarioError(f"{check} has no task{hint}", *_location_of(getattr(cls, check)))


def _did_you_mean(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are: {', '.join(known)}"


def _hooks(cls: type, params: dict[str, Any]) -> tuple[list[ScenarioFunction], list[ScenarioFunction]]:
    starts: list[ScenarioFunction] = []
    stops: list[ScenarioFunction] = []
    on_init = _own_hook(cls, "on_init")
    if on_init is not None:
        starts.append(_init_hook(on_init, params, getattr(cls, "__squall_client__", None)))
    for name, hooks in (("on_start", starts), ("on_stop", stops)):
        function = _own_hook(cls, name)
        if function is not None:
            hooks.append(_hook(function, name))
    return starts, stops


def _own_hook(cls: type, name: str) -> Callable[..., Any] | None:
    """Returns the hook of a class; None for the empty ones that exist only for ``super()``."""
    function: Callable[..., Any] | None = getattr(cls, name, None)
    if function is not None and not callable(function):
        raise ScenarioError(f"{name} = {function!r}: it must be a method", *_attribute_location(cls, name))
    return None if function is None or getattr(function, "__squall_nothing__", False) else _as_coroutine(function)


def _hook(function: Callable[..., Any], name: str) -> ScenarioFunction:
    is_async = _is_async(function, name, *_location_of(function))
    takes = len(inspect.signature(function).parameters)
    if takes == 1:
        plain = function
        if is_async:

            async def awaited(user: Any, client: Any) -> None:
                await plain(user)

            return ScenarioFunction(awaited, True)
        return ScenarioFunction(lambda user, client: plain(user), False)
    if takes != 2:
        raise ScenarioError(f"{name} must take (self, client)", *_location_of(function))
    return ScenarioFunction(function, is_async)


def _init_hook(on_init: Callable[..., Any], params: dict[str, Any], bind: Callable[..., None] | None) -> ScenarioFunction:
    """Returns on_init with the run's parameters. ``bind`` hands the client to users that keep it
    (vikhry)."""
    try:
        inspect.signature(on_init).bind(None, **params)
    except TypeError as error:
        raise ScenarioError(f"on_init: {error}; give parameters with --param name=value", *_location_of(on_init)) from None
    if _is_async(on_init, "on_init", *_location_of(on_init)):

        async def awaited(user: Any, client: Any) -> None:
            if bind is not None:
                bind(user, client)
            await on_init(user, **params)

        return ScenarioFunction(awaited, True)

    def plain(user: Any, client: Any) -> None:
        on_init(user, **params)

    return ScenarioFunction(plain, False)


def _as_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a coroutine function for a callable that hides one: the plain def of a decorator, or
    an object with an async __call__. Returns other functions unchanged."""
    called = inspect.getattr_static(type(function), "__call__", None)
    hidden = inspect.iscoroutinefunction(inspect.unwrap(function)) or inspect.iscoroutinefunction(called)
    if inspect.iscoroutinefunction(function) or not hidden:
        return function

    @functools.wraps(function)
    async def awaited(*args: Any, **options: Any) -> Any:
        result = function(*args, **options)
        return await result if inspect.isawaitable(result) else result

    return awaited


def _is_async(function: Callable[..., Any], name: str, file: str | None, line: int | None) -> bool:
    if inspect.iscoroutinefunction(function):
        return True
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ScenarioError(f"{name} is a generator: use `await` (or plain calls), not `yield`", file, line)
    if not _blocking.available:
        message = f"{name} is a plain def, which needs the package greenlet: pip install greenlet, or write async def"
        raise ScenarioError(message, file, line)
    return False


def _location_of(function: Callable[..., Any]) -> tuple[str, int] | tuple[None, None]:
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None) or getattr(inspect.getattr_static(type(function), "__call__", None), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else (None, None)


def _attribute_location(cls: type, name: str) -> tuple[str, int]:
    """Returns file and line where a class assigns its attribute ``name``."""
    base = next(base for base in cls.__mro__ if name in vars(base))
    lines, first = inspect.getsourcelines(base)
    for node in ast.walk(ast.parse(textwrap.dedent("".join(lines)))):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            first += node.lineno - 1
            break
    return inspect.getfile(base), first
