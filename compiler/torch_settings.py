"""torch's losses and optimisers as ours: the same formulas and settings, or a refusal that says what differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from ..errors import UnsupportedOp, UsageError
from .training.losses import Loss, loss_named
from .training.optimizers.adam import Adam, AdamW
from .training.optimizers.base import Optimizer
from .training.optimizers.rmsprop import Adagrad, RMSprop
from .training.optimizers.sgd import SGD

_LOSSES: Mapping[type, str] = {
    torch.nn.CrossEntropyLoss: "softmax_cross_entropy",
    torch.nn.NLLLoss: "nll",
    torch.nn.MSELoss: "mse",
    torch.nn.L1Loss: "mae",
    torch.nn.BCEWithLogitsLoss: "binary_cross_entropy",
}
_OPTIMIZERS: Mapping[type, type[Optimizer]] = {
    torch.optim.SGD: SGD,
    torch.optim.Adam: Adam,
    torch.optim.AdamW: AdamW,
    torch.optim.RMSprop: RMSprop,
    torch.optim.Adagrad: Adagrad,
}
# settings of torch's that ours do not have, and must be off
_OFF = ("maximize", "amsgrad", "differentiable", "initial_accumulator_value")


def loss_of(loss: Any) -> str | Loss:
    """Our loss for one of torch's modules; others as they are.

    Raises:
        UnsupportedOp: a setting that ours do not have.
    """
    if not isinstance(loss, torch.nn.Module):
        return loss
    name = _LOSSES.get(type(loss))
    if name is None:
        raise UnsupportedOp("no such loss", where="loss", expected=", ".join(t.__name__ for t in _LOSSES),
                            found=type(loss).__name__, hint="or a name of parax's")  # fmt: skip
    for setting, plain in (("reduction", "mean"), ("weight", None), ("pos_weight", None), ("label_smoothing", 0.0)):
        if getattr(loss, setting, plain) != plain:
            raise UnsupportedOp("a loss with a setting that is not known", where=f"loss {type(loss).__name__}",
                                expected=f"{setting}={plain!r}", found=repr(getattr(loss, setting))[:60])  # fmt: skip
    options = {"ignore_index": loss.ignore_index} if hasattr(loss, "ignore_index") else {}
    return loss_named(name, **options)


def optimizer_of(optimizer: Any) -> Optimizer:
    """Our optimiser for one of torch's, with its settings; the rate is its own as it is now.

    Raises:
        UnsupportedOp: another optimiser, parameter groups that differ, a setting that ours do not have.
        UsageError: it has taken steps, whose state would be lost.
    """
    where = f"optimizer {type(optimizer).__name__}"
    cls = _OPTIMIZERS.get(type(optimizer))
    if cls is None:
        raise UnsupportedOp("no such optimiser", where=where, expected=", ".join(t.__name__ for t in _OPTIMIZERS))
    groups = [{name: v for name, v in group.items() if name != "params"} for group in optimizer.param_groups]
    if any(group != groups[0] for group in groups):
        raise UnsupportedOp("groups of parameters with settings of their own", where=where, expected="one for all",
                            found=f"{len(groups)} groups")  # fmt: skip
    if any(float(state.get("step", 1)) > 0 for state in optimizer.state.values()):  # Adagrad's begins with a 0
        raise UsageError("an optimiser that has taken steps", where=where, hint="make a new one")
    settings = dict(groups[0])
    for name in _OFF:
        if settings.get(name):
            raise UnsupportedOp("an optimiser with a setting that is not known", where=where,
                                expected=f"{name}={type(settings[name])()!r}", found=settings[name])  # fmt: skip
    if "betas" in settings:
        settings["beta1"], settings["beta2"] = settings["betas"]
    if cls is Adam and settings.get("decoupled_weight_decay"):
        cls = AdamW
    return cls(**{f.name: _number(settings[f.name]) for f in fields(cls) if f.name in settings})


def _number(value: Any) -> Any:
    """A setting as a number of Python's."""
    return value if isinstance(value, bool) else float(value)
