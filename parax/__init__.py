"""The public face of parax: re-exports only, each loaded when first used.

`import parax` costs nothing; `parax.load` brings in the runtime alone, `parax.compile` the compiler.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .lazy import lazy_attributes

if TYPE_CHECKING:
    from . import onnx_backend as onnx_backend
    from . import torch as torch
    from . import torch_backend as torch_backend
    from .compiler.api import compile as compile
    from .compiler.frontend.head import Head as Head
    from .compiler.options import CompileOptions as CompileOptions
    from .compiler.trainer import Trainer as Trainer
    from .compiler.training.groups import ParameterGroup as ParameterGroup
    from .compiler.training.optimizers.adam import Adam as Adam
    from .compiler.training.optimizers.adam import AdamW as AdamW
    from .compiler.training.optimizers.lamb import LAMB as LAMB
    from .compiler.training.optimizers.rmsprop import Adagrad as Adagrad
    from .compiler.training.optimizers.rmsprop import RMSprop as RMSprop
    from .compiler.training.optimizers.sgd import SGD as SGD
    from .errors import AccuracyMismatch as AccuracyMismatch
    from .errors import CompilerMissing as CompilerMissing
    from .errors import CorruptPlan as CorruptPlan
    from .errors import Diverged as Diverged
    from .errors import IncompatiblePlan as IncompatiblePlan
    from .errors import InternalError as InternalError
    from .errors import InvalidData as InvalidData
    from .errors import InvalidInput as InvalidInput
    from .errors import InvalidModel as InvalidModel
    from .errors import ParaxError as ParaxError
    from .errors import ResourceLimit as ResourceLimit
    from .errors import UnsupportedOp as UnsupportedOp
    from .errors import UsageError as UsageError
    from .runtime.loading import load as load
    from .runtime.plan import Plan as Plan
    from .runtime.profiling.profile import Profile as Profile
    from .runtime.session import Session as Session
    from .runtime.train.exchange.settings import Exchange as Exchange

__version__ = "0.1.0"

if not os.path.isdir(os.path.join(__path__[0], "compiler")):
    # A checkout, found before any installation because it is the current folder: the rooms lie beside this folder.
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

_HOMES = {
    "compile": ".compiler.api",
    "onnx_backend": ".onnx_backend",
    "torch": ".torch",
    "torch_backend": ".torch_backend",
    "CompileOptions": ".compiler.options",
    "Trainer": ".compiler.trainer",
    "Head": ".compiler.frontend.head",
    "SGD": ".compiler.training.optimizers.sgd",
    "Adam": ".compiler.training.optimizers.adam",
    "AdamW": ".compiler.training.optimizers.adam",
    "ParameterGroup": ".compiler.training.groups",
    "LAMB": ".compiler.training.optimizers.lamb",
    "Adagrad": ".compiler.training.optimizers.rmsprop",
    "RMSprop": ".compiler.training.optimizers.rmsprop",
    "Exchange": ".runtime.train.exchange.settings",
    "load": ".runtime.loading",
    "Plan": ".runtime.plan",
    "Profile": ".runtime.profiling.profile",
    "Session": ".runtime.session",
    **dict.fromkeys(
        (
            "AccuracyMismatch", "CompilerMissing", "CorruptPlan", "Diverged", "IncompatiblePlan", "InternalError",
            "InvalidData", "InvalidInput", "InvalidModel", "ParaxError", "ResourceLimit", "UnsupportedOp", "UsageError",
        ),
        ".errors",
    ),
}  # fmt: skip

__all__ = ["__version__", *(name for name in _HOMES if name not in ("torch", "torch_backend"))]  # torch is optional
__getattr__ = lazy_attributes(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
