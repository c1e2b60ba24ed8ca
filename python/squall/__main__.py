"""Runs the ``squall`` command inside this interpreter: ``python -m squall``."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    from squall import _squall

    # The engine handles Ctrl-C: the first drains the run, the second aborts it. Python's handler
    # would raise KeyboardInterrupt only after the run.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _squall.main(["squall", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
