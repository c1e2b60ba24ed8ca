"""Chooses how the code of a scenario runs: the mode of each task, whether coroutines run on an asyncio
loop, and how many threads run plain functions. Runs none of it. ``squall._load`` calls it."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from typing import TYPE_CHECKING

from squall._asyncio_usage import asyncio_reason
from squall._blocking_usage import blocking_reason
from squall._constant import NotConstant, constant_requests
from squall._dsl import ScenarioMark, VUser
from squall._errors import ScenarioError
from squall._sources import ScenarioSources

if TYPE_CHECKING:
    from squall._load import PythonScenario


def choose_modes(loaded: PythonScenario, mode: str, sources: ScenarioSources) -> None:
    for task in loaded.tasks:
        try:
            task.mode_reason = "its source proves that its requests are constant"
            if mode in ("stepped", "asyncio"):
                raise NotConstant(f"of --mode {mode}")
            if loaded.strategy is not None:
                raise NotConstant(f"{loaded.strategy} chooses its steps")
            if task.check is not None:
                raise NotConstant("it has a check")
            if task.timeout is not None:
                raise NotConstant("it has a timeout")
            task.requests = constant_requests(task.call, sources)
        except NotConstant as reason:
            task.mode_reason = str(reason)
            if mode == "static":
                message = f"--mode static: task {task.name!r} cannot run without Python: {reason}"
                raise ScenarioError(message, task.mark.file, task.mark.line) from None
    if mode == "static" and loaded.has_lifecycle_hooks:
        raise ScenarioError("--mode static: on_init, on_start and on_stop need Python", loaded.file, loaded.line)
    loaded.uses_browser = _uses_browser(loaded, sources)
    choose_loop(loaded, mode, sources)


def _uses_browser(loaded: PythonScenario, sources: ScenarioSources) -> bool:
    """Returns whether the code names ``self.browser``, or a task takes ``page`` or ``browser``."""
    place = next((task.mark for task in loaded.tasks if getattr(task.call, "__squall_browser__", False)), None)
    is_own = inspect.getattr_static(loaded.cls, "browser", None) is vars(VUser)["browser"]
    named = is_own and sources.reads_attribute(loaded.cls, "browser")
    if place is None and not named:
        return False
    file, line = (place.file, place.line) if place else (loaded.file, loaded.line)
    if importlib.util.find_spec("playwright") is None:
        message = "browser users need the package playwright: pip install playwright (its own browsers are not needed)"
        raise ScenarioError(message, file, line)
    # Takes long, and the engine's thread has no time for it during the run.
    importlib.import_module("playwright.async_api")
    return True


def choose_loop(loaded: PythonScenario, mode: str, sources: ScenarioSources) -> None:
    """Decides whether the engine resumes the coroutines or an asyncio loop runs them."""
    constant = {task.call for task in loaded.tasks if task.requests is not None}
    running = [function for function in loaded.coroutines if function not in constant]
    if loaded.uses_browser:
        if mode in ("stepped", "static"):
            raise ScenarioError(f"--mode {mode}: Playwright's pages need asyncio", loaded.file, loaded.line)
        loaded.on_asyncio, loaded.mode_reason = True, "it uses a browser"
    elif mode == "asyncio":
        loaded.on_asyncio, loaded.mode_reason = True, "of --mode asyncio"
    elif loaded.strategy is not None:
        loaded.on_asyncio, loaded.mode_reason = True, f"{loaded.strategy} chooses its steps"
    elif mode == "stepped":
        loaded.mode_reason = "of --mode stepped"
    elif running:
        reason = asyncio_reason(loaded.cls, running, sources)
        loaded.on_asyncio, loaded.mode_reason = reason is not None, reason or "its coroutines use no asyncio library"
    else:
        loaded.mode_reason = "it has no coroutines"
    for task in loaded.tasks if loaded.on_asyncio else ():
        if task.requests is not None:
            # Background tasks of the user keep running on the loop during this task, and the engine
            # performs their operations only while a function of the user runs on the loop.
            task.requests, task.mode_reason = None, "its user runs on asyncio"


def choose_threads(loaded: PythonScenario, flag: int | None) -> None:
    """Decides whether plain functions run on threads from the start, and on how many."""
    mark: ScenarioMark | None = getattr(loaded.cls, "__squall_scenario__", None)
    declared = mark.threads_for_blocking if mark else None
    given = flag if flag is not None else declared
    running = [*loaded.on_start, *loaded.on_stop, *(task for task in loaded.tasks if task.requests is None)]
    plain = [function.call for function in running if not function.is_async]
    if given is not None:
        loaded.threads_for_blocking = given
        if plain and given:
            loaded.blocking_reason = f"of {'threads_for_blocking' if flag is None else '--threads-for-blocking'}"
    elif plain and (reason := blocking_reason(loaded.cls, plain)):
        loaded.blocking_reason = reason
