"""Attributes of a package that load the module they live in when first used (PEP 562).

A package's `__init__` must stay cheap to import: a command prints its help, and a plan starts, without the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from .errors import as_parax_error, is_of_the_compiler


def import_home(home: str, package: str, name: str) -> ModuleType:
    """The module `home`, relative to the package, for who asked for the package's `name`.

    Raises:
        CompilerMissing: it is the compiler's, whose libraries are not installed.
    """
    try:
        return import_module(home, package)
    except ModuleNotFoundError as error:
        if not is_of_the_compiler(error.name):
            raise
        raise as_parax_error(error, f"{package}.{name}") from error


def lazy_attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package.

    Args:
        package: its `__name__`.
        homes: public name → the module it lives in, relative to the package; a name equal to the last part of the
            module's is the module itself.
    """

    def load(name: str) -> Any:
        """Import the attribute, and keep it.

        Raises:
            AttributeError: the package has none of that name.
            CompilerMissing: it is the compiler's, whose libraries are not installed.
        """
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_home(home, package, name)
        value = module if home.endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return load
