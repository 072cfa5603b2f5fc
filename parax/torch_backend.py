"""`import parax.torch_backend`: the compiler's module of that name, its backend registered with torch.

Needed only where torch does not find the package's entry point: in a checkout that is not installed.
"""

import sys
from typing import TYPE_CHECKING

from .lazy import import_home

if TYPE_CHECKING:
    from .compiler.torch_backend import backend as backend
    from .compiler.torch_backend import register as register

_backend = import_home(".compiler.torch_backend", "parax", "torch_backend")
_backend.register()
sys.modules[__name__] = _backend
