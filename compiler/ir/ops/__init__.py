"""The operator catalogue: one class per operator. Importing it imports every operator module of this folder."""

from __future__ import annotations

import importlib
import pkgutil

from .base import CATALOGUE, Operator, lookup

__all__ = ["CATALOGUE", "Operator", "lookup"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f".{_module.name}", __name__)
