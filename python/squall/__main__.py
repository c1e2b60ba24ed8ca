"""Runs the ``squall`` command inside this interpreter: ``python -m squall``."""

import sys


def main() -> int:
    """Runs the command line and returns its exit code."""
    # ``signal`` without its enums, which are slow to import.
    import _signal

    from squall import _squall

    # The engine handles Ctrl-C: the first drains the run, the second aborts it. Python's handler
    # would raise KeyboardInterrupt only after the run.
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    return _squall.main(["squall", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
