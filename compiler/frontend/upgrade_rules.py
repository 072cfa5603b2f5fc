"""Loads every file of upgrade rules."""

from . import upgrade_attributes

__all__ = ["upgrade_attributes"]
