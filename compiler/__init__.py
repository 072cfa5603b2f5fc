"""The compiler: an ONNX model in, a plan out. Knows how plans are made; knows nothing of how cores run them.

`compile` is loaded when first used, so that the command line can print its help without loading LLVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_attributes

if TYPE_CHECKING:
    from .api import compile as compile
    from .options import CompileOptions as CompileOptions

_HOMES = {"compile": ".api", "CompileOptions": ".options"}

__all__ = ["CompileOptions", "compile"]

__getattr__ = lazy_attributes(__name__, _HOMES)
