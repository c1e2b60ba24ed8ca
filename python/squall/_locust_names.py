"""Words of Locust's that mean nothing here: refused with what to write instead, before a run in which nobody waits or everything fails."""

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

#: Something may be given a client, by a line that says so or by one that names no attribute.
_MAKES_CLIENT = re.compile(r"\.client\b[^=\n]*=(?!=)|setattr|__dict__|__getattr|\bvars\(")


def reject_locust_names(classes: list[type]) -> None:
    """Refuses ``wait_time``, ``self.client`` and ``catch_response`` of these users."""
    for cls in classes:
        sources = list(_class_bodies(cls))
        has_client = hasattr(cls, "client") or any(_MAKES_CLIENT.search(whole) for _, _, whole, _ in sources)
        for file, first, _, body in sources:
            for node, message in _locust_uses(body, has_client):
                raise ScenarioError(message, file, first + node.lineno - 1)


def _class_bodies(cls: type) -> Iterator[tuple[str, int, str, list[ast.stmt]]]:
    """Of each class that it is made of: file, first line, the file's text, the body."""
    for base in cls.__mro__:
        try:
            file = inspect.getfile(base)
            lines, first = inspect.getsourcelines(base)
            whole = inspect.getsource(sys.modules[base.__module__])
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError, ValueError, KeyError):
            continue
        if not file.startswith(HERE) and isinstance(tree.body[0], ast.ClassDef):
            yield file, first, whole, tree.body[0].body


def _locust_uses(body: list[ast.stmt], has_client: bool) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "wait_time" for target in targets):
            yield statement, "wait_time is Locust's word: write @scenario(pause=between(1, 5)), or give --pause 1s..5s"
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and node.attr == "client" and _is_name(node.value, "self") and not has_client:
                yield node, "there is no self.client: a user's client is the argument of its methods, as in def browse(self, client)"
            if isinstance(node, ast.Call) and any(word.arg == "catch_response" for word in node.keywords) and _is_request(node.func):
                yield node, "catch_response is Locust's word: judge the answer in check_<task>(self, response), or raise where it is wrong"


def _is_request(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in METHODS


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
