"""`import parax.torch_backend`: the compiler's module of that name, its backend registered with torch.

Needed only where torch does not find the package's entry point: in a checkout that is not installed.
"""

import sys

from .compiler import torch_backend
from .compiler.torch_backend import backend as backend
from .compiler.torch_backend import register as register

torch_backend.register()
sys.modules[__name__] = torch_backend
