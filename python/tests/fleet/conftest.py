"""Fixtures of the fleet tests; what tests import by name is in fleet_kit."""

from fleet_kit import fleet

__all__ = ["fleet"]
