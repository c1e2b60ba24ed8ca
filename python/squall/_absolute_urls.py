"""Whether a scenario can do without a target: where it holds an absolute URL, its requests may all say where they go. Where it does not,
a run without a target would send nothing, and is refused before it begins."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

#: Stands for a host that only the code knows.
_UNKNOWN_HOST = "target.invalid"


def first_origin(module: ModuleType, params: Mapping[str, Any]) -> str | None:
    """The scheme and host of the first absolute URL that a scenario or its parameters hold; None if there is none."""
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
    # A docstring may say how the file is run.
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value
