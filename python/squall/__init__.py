"""Squall scenarios: ``from squall import VUser, task``. The names are those of ``squall._api``.

This file imports nothing, because every ``squall`` command loads it and most commands need no
Python: the first use of a name loads the API."""

# A name that type checkers know. Importing it from ``typing`` would slow the start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from squall._api import *  # noqa: F403
else:

    def __getattr__(name):
        # Other names with an underscore are modules: ``from squall import _load`` asks for an attribute first.
        if not name.startswith("_") or name in ("__all__", "__version__"):
            import squall._api as api

            globals().update({public: getattr(api, public) for public in api.__all__}, __all__=api.__all__)
            if name in globals():
                return globals()[name]
        raise AttributeError(f"module 'squall' has no attribute {name!r}", name=name)

    def __dir__():
        import squall._api as api

        return sorted({*globals(), *api.__all__})
