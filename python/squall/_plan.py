"""What a scenario declares, as data: each value with the file and line that gives it, and with the
name that the code uses for it. Nothing is validated here: the Rust host reads these objects by
attribute name, and squall-scenario validates them together with the flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from squall._dsl import ScenarioMark, TaskMark
from squall._errors import display_path

T = TypeVar("T")


@dataclass(frozen=True)
class SourceLine:
    """A line of code, with the setting that it gives as the code names it: ``duration``,
    ``task 'browse': every``."""

    file: str
    line: int
    setting: str | None = None


@dataclass(frozen=True)
class Sourced(Generic[T]):
    """A value and where the scenario gives it."""

    value: T
    location: SourceLine


@dataclass(frozen=True)
class PlanTask:
    """A task without its code."""

    name: Sourced[str]
    weight: Sourced[float]
    requires: list[Sourced[str]]
    every: Sourced[str] | None


@dataclass(frozen=True)
class ScenarioPlan:
    """A scenario without its code."""

    #: Where the class is.
    location: SourceLine
    name: Sourced[str]
    #: Base of relative URLs, unless the command line gives one.
    target: Sourced[str] | None
    #: Scheme and host of the first absolute URL; with one, the scenario needs no target.
    absolute_origin: str | None
    #: The load by the names of ``@scenario``'s arguments.
    load: Mapping[str, Sourced[str]]
    thresholds: list[Sourced[str]]
    #: The database by the names of its settings; None if the scenario declares none.
    cql: Mapping[str, Sourced[list[str]]] | None
    tasks: list[PlanTask]
    #: The keys of the argument ``browser``, and the switches of the browser.
    browser: Mapping[str, Sourced[str]]
    browser_args: list[Sourced[str]]
    #: What the reader of the scenario should know about its settings.
    notes: list[str]


def scenario_plan(
    name: str,
    location: SourceLine,
    mark: ScenarioMark | None,
    target: str | None,
    absolute_origin: str | None,
    tasks: Sequence[TaskMark],
) -> ScenarioPlan:
    """Returns the plan of the scenario at ``location``; ``mark`` is its ``@scenario``, if any."""

    def given(value: T, setting: str) -> Sourced[T]:
        return Sourced(value, SourceLine(location.file, location.line, setting))

    return ScenarioPlan(
        location=location,
        name=given(name, "name"),
        target=given(target, "target") if target else None,
        absolute_origin=absolute_origin,
        load={argument: given(text, argument) for argument, text in mark.load.items()} if mark else {},
        thresholds=[given(threshold, "thresholds") for threshold in mark.thresholds.texts] if mark else [],
        cql={name: given(texts, f"cql: {name}") for name, texts in mark.cql.items()} if mark and mark.cql is not None else None,
        tasks=[_plan_task(task) for task in tasks],
        browser={key: given(text, f"browser: {key}") for key, text in mark.browser.items()} if mark else {},
        browser_args=[given(switch, "browser: args") for switch in mark.browser_args] if mark else [],
        notes=list(mark.thresholds.notes) if mark else [],
    )


def _plan_task(mark: TaskMark) -> PlanTask:
    def given(value: T, argument: str) -> Sourced[T]:
        return Sourced(value, SourceLine(display_path(mark.file), mark.line, f"task {mark.name!r}: {argument}"))

    return PlanTask(
        name=given(mark.name, "name"),
        weight=given(float(mark.weight), "weight"),
        requires=[given(task, "requires") for task in mark.requires],
        every=given(mark.every, "every") if mark.every else None,
    )
