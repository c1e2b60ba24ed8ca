"""How the tests start `squall`. A module of its own: there are several conftest.py, and only one can be imported by that name."""

from __future__ import annotations

import sys

SQUALL = [sys.executable, "-m", "squall"]
