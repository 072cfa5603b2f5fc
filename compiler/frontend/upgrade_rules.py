"""Loads every file of upgrade rules."""

from . import upgrade_attributes, upgrade_contrib, upgrade_runtime, upgrade_semantics, upgrade_withdrawn

__all__ = ["upgrade_attributes", "upgrade_contrib", "upgrade_runtime", "upgrade_semantics", "upgrade_withdrawn"]
