"""The ``squall`` command, inside this interpreter: ``python -m squall``."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    from squall import _squall

    # Ctrl-C drains the run, a second one aborts it; Python's own handler would raise KeyboardInterrupt when all is over.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _squall.main(["squall", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
