"""Fixtures of the streams tests; classes and functions that tests import are in streams_kit."""

from streams_kit import fleet

__all__ = ["fleet"]
