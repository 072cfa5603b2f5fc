"""The compiler: an ONNX model in, a plan out. Knows how plans are made; knows nothing of how cores run them.

`compile` is loaded when first used, so that the command line can print its help without loading LLVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import compile as compile
    from .options import CompileOptions as CompileOptions

_HOMES = {"compile": ".api", "CompileOptions": ".options"}

__all__ = ["CompileOptions", "compile"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'parax.compiler' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value
