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


# What a command loads that runs no code of the user.
_COMMAND_MODULES = {"squall", "squall.__main__", "squall._squall"}


def run() -> None:
    """Runs the command line and ends the process."""
    code = main()
    if _COMMAND_MODULES.issuperset(name for name in sys.modules if name.startswith("squall")):
        # Without code of the user the interpreter has nothing to end, which would take as long as its start.
        import os

        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
