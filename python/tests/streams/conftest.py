"""Fixtures of the streams tests; what tests import by name is in streams_kit."""

from streams_kit import fleet

__all__ = ["fleet"]
