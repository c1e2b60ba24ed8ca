"""Rejects names of Locust's API that Squall would ignore, with what to write instead. Without this,
users would not wait (``wait_time``) or every task would fail (``self.client``)."""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator

from squall._constant import METHODS
from squall._errors import ScenarioError
from squall._sources import HERE

#: Source text that may assign a client attribute, by name or dynamically.
_MAKES_CLIENT = re.compile(r"\.client\b[^=\n]*=(?!=)|setattr|__dict__|__getattr|\bvars\(")


def reject_locust_names(classes: list[type]) -> None:
    """Raises :class:`ScenarioError` if a class uses ``wait_time``, ``self.client`` or
    ``catch_response``."""
    for cls in classes:
        sources = list(_class_bodies(cls))
        has_client = hasattr(cls, "client") or any(_MAKES_CLIENT.search(text) for _, _, text, _ in sources)
        for file, first, _, body in sources:
            for node, message in _locust_uses(body, has_client):
                raise ScenarioError(message, file, first + node.lineno - 1)


def _class_bodies(cls: type) -> Iterator[tuple[str, int, str, list[ast.stmt]]]:
    """Yields file, first line, text of the file and body of the class and each base class."""
    for base in cls.__mro__:
        try:
            file = inspect.getfile(base)
            lines, first = inspect.getsourcelines(base)
            text = inspect.getsource(sys.modules[base.__module__])
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError, ValueError, KeyError):
            continue
        if not file.startswith(HERE) and isinstance(tree.body[0], ast.ClassDef):
            yield file, first, text, tree.body[0].body


def _locust_uses(body: list[ast.stmt], has_client: bool) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "wait_time" for target in targets):
            yield statement, "wait_time is Locust's: write @scenario(pause=between(1, 5)), or give --pause 1s..5s"
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr == "client" and _is_name(node.value, "self") and not has_client:
                yield node, "self.client does not exist: methods take the client as an argument, as in def browse(self, client)"
            if isinstance(node, ast.Call) and any(keyword.arg == "catch_response" for keyword in node.keywords) and _is_request(node.func):
                yield node, "catch_response is Locust's: check the response in check_<task>(self, response), or raise an exception"


def _is_request(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in METHODS


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
