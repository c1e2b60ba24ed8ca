"""The kinds of functions that a scenario can have, as a parameter of tests."""

from __future__ import annotations

import pytest

#: Runs a test with coroutines and with plain functions: how a function begins, and what stands
#: before a client call in it.
BOTH = pytest.mark.parametrize(("fn", "wait"), [("async def", "await "), ("def", "")], ids=["async", "plain"])
