"""The command that starts `squall` in tests. It is a separate module because several folders have a
conftest.py, and tests can import only one module of that name."""

from __future__ import annotations

import sys

SQUALL = [sys.executable, "-m", "squall"]
