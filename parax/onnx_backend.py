"""`import parax.onnx_backend`: the compiler's module of that name under its public one.

Owns no more than the name: what Python finds here is that module itself, so that both names mean one thing.
"""

import sys
from typing import TYPE_CHECKING

from .lazy import import_home

if TYPE_CHECKING:
    from .compiler.onnx_backend import Rep as Rep
    from .compiler.onnx_backend import is_compatible as is_compatible
    from .compiler.onnx_backend import prepare as prepare
    from .compiler.onnx_backend import run_model as run_model
    from .compiler.onnx_backend import run_node as run_node
    from .compiler.onnx_backend import supports_device as supports_device

sys.modules[__name__] = import_home(".compiler.onnx_backend", "parax", "onnx_backend")
