"""Finds absolute URLs in a scenario. A scenario with one may run without a target; one without any
would send nothing, so the run is rejected before it starts."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

#: Host of a URL whose real host only the code computes.
_UNKNOWN_HOST = "target.invalid"


def first_origin(module: ModuleType, params: Mapping[str, Any]) -> str | None:
    """Returns scheme and host of the first absolute URL in a scenario or its parameters, or
    None."""
    for text in _string_constants(module, params):
        found = re.match(r"(https?)://([^/?#]*)", text)
        if found:
            host = found[2] if re.fullmatch(r"[\w.-]+(:\d+)?|\[[\da-fA-F:]+\](:\d+)?", found[2]) else _UNKNOWN_HOST
            return f"{found[1]}://{host}"
    return None


def _string_constants(module: ModuleType, params: Mapping[str, Any]) -> Iterator[str]:
    yield from (value for value in params.values() if isinstance(value, str))
    yield from (value for name, value in vars(module).items() if isinstance(value, str) and not name.startswith("__"))
    with tokenize.open(str(module.__file__)) as file:
        tree = ast.parse(file.read())
    # A URL in a docstring is only documentation.
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value
