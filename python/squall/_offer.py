"""What a scenario declares, for an orchestrator that offers it: parameters, resource pools, probes,
and the factories that make resources. It runs no user."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from squall import _dsl, compat
from squall._dsl import ResourceDeclaration
from squall._resources import payload_factory
from squall._scenario_file import choose_classes, execute

#: Name, kind, whether it is required, annotation, default in JSON.
Param = tuple[str, str, bool, str | None, str | None]


@dataclass(frozen=True)
class Offer:
    """What a scenario declares."""

    #: The parameters of ``on_init``.
    params: list[Param]
    #: Whether ``on_init`` takes parameters that are not listed.
    takes_any_param: bool
    #: Names of the resource pools.
    resources: list[str]
    #: Names of the probes.
    probes: list[str]
    declarations: Mapping[str, ResourceDeclaration]

    def make_resource(self, pool: str, number: int) -> str | None:
        """Runs the factory of a pool and returns the resource in JSON; None if the pool has none.
        Unlike in a run, a factory may wait, because no user waits for it."""
        declaration = self.declarations.get(pool)
        if declaration is None or declaration.make is None:
            return None
        return payload_factory(declaration, _run_to_end)(number)


def describe(path: str, wanted: str | None = None) -> Offer:
    """Imports the scenario and returns what it declares; ``wanted`` chooses one of several."""
    compat.install(os.path.dirname(os.path.abspath(path)))
    on_init = getattr(choose_classes(execute(path), path, wanted)[0], "on_init", None)
    params, takes_any = ([], "set_up" in _dsl.hooks) if on_init is None else _params_of(on_init)
    return Offer(params, takes_any, list(_dsl.resources), list(_dsl.probes), dict(_dsl.resources))


def _params_of(on_init: Any) -> tuple[list[Param], bool]:
    found = []
    takes_any = False
    for parameter in list(inspect.signature(on_init).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_any = True
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            required = parameter.default is parameter.empty
            default = None if required else json.dumps(parameter.default, default=repr)
            found.append((parameter.name, parameter.kind.name.lower(), required, _annotation(parameter), default))
    return found, takes_any


def _annotation(parameter: inspect.Parameter) -> str | None:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    # With `from __future__ import annotations` it is the text of the annotation.
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _run_to_end(coroutine: Coroutine[Any, Any, Any], name: str) -> Any:
    return asyncio.run(coroutine)
