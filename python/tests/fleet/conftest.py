"""Fixtures of the fleet tests; classes and functions that tests import are in fleet_kit."""

from fleet_kit import fleet

__all__ = ["fleet"]
