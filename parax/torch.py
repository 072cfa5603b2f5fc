"""`parax.torch`: training torch modules with plans; the compiler's module by its public name.

The inference backend of `torch.compile` needs no import: it is `parax.torch_backend`.
"""

import sys
from typing import TYPE_CHECKING

from .lazy import import_home

if TYPE_CHECKING:
    from .compiler.torch_training import ModuleTrainer as ModuleTrainer
    from .compiler.torch_training import compile_training as compile_training

sys.modules[__name__] = import_home(".compiler.torch_training", "parax", "torch")
