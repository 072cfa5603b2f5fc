"""`parax.torch.compile_training`: a torch module is trained by native steps, and gets its weights back.

Owns the way of a module to an ONNX model whose initializers are the module's own tensors by name, and back. What
training makes of it is the Trainer's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from glob import escape
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from ..errors import InvalidModel, UnsupportedOp, UsageError, reported
from ..runtime.train.batches import named
from ..runtime.train.loop import Progress
from .frontend.bodies import with_inner_nodes
from .torch_export import first_line, quietly
from .torch_settings import loss_of, optimizer_of
from .trainer import Trainer
from .training.losses import Loss
from .training.optimizers.base import Optimizer

WHERE = "the module"
Tensors = Mapping[str, Any]


@reported
def compile_training(
    module: Any, loss: str | Loss | Any, optimizer: Optimizer | Any, *, example: Any, batch: int = 32, **more: Any
) -> ModuleTrainer:
    """A trainer of a torch module: forward, backward and update are native code, made now.

    The parameters that are trained are those that torch would train: they require gradients, the module's result
    depends on them, and the optimiser, where it is torch's, was given them.

    Args:
        module: an nn.Module in training mode, of f32 on the CPU.
        loss: a name, one of parax's, or torch's CrossEntropyLoss, NLLLoss, MSELoss, L1Loss or BCEWithLogitsLoss.
        optimizer: one of parax's, or torch's SGD, Adam, AdamW, RMSprop or Adagrad, whose rate is looked at before each
            step, so that torch's schedulers work.
        example: what the module is called with: a tensor, or a tuple of them; rows first, of any number.
        batch: rows of a step. more: of parax.Trainer.

    Returns:
        a parax.Trainer with `write_back`, which `fit` calls at its end.

    Raises:
        UnsupportedOp: torch cannot export the module, or training would not be torch's. UsageError: a wrong argument.
        Else as parax.Trainer.
    """
    return ModuleTrainer(module, loss, optimizer, example=example, batch=batch, **more)


class ModuleTrainer(Trainer):
    """See compile_training.

    Running statistics move as ONNX says: each shard's own, their mean, and a variance that is not corrected by
    n / (n - 1) as torch's is. Dropout draws from parax's generator.
    """

    @reported
    def __init__(
        self, module: Any, loss: str | Loss | Any, optimizer: Optimizer | Any, *, example: Any, batch: int = 32,
        **more: Any,
    ) -> None:  # fmt: skip
        if not isinstance(module, torch.nn.Module):
            raise UsageError("no module of torch", where="module", expected="an nn.Module", found=type(module).__name__)
        inputs = tuple(example) if isinstance(example, (tuple, list)) else (example,)
        _require_trainable(module)
        self.module = module
        self._tensors = {**dict(module.named_parameters(remove_duplicate=False)),
                         **dict(module.named_buffers(remove_duplicate=False))}  # fmt: skip
        wanted = self._wanted(inputs, optimizer)
        model = _exported(module, inputs)
        own = optimizer
        if isinstance(optimizer, torch.optim.Optimizer):
            own = optimizer_of(optimizer)
            more.setdefault("rate", lambda step: float(optimizer.param_groups[0]["lr"]))
        names = _names(model, wanted)
        super().__init__(model, loss_of(loss), own, batch=batch, trained=[escape(name) for name in names], **more)
        self._written = 0
        self._require_own()

    def _wanted(self, inputs: Sequence[Any], optimizer: Any) -> list[set[str]]:
        """For each parameter that torch would train, all its names: tied ones have several."""
        given = None
        if isinstance(optimizer, torch.optim.Optimizer):
            given = {id(p) for group in optimizer.param_groups for p in group["params"]}
        used = _used(self.module, inputs)
        names: dict[int, set[str]] = {}
        for name, p in self.module.named_parameters(remove_duplicate=False):
            if p.requires_grad and id(p) in used and (given is None or id(p) in given):
                names.setdefault(id(p), set()).add(name)
        if not names:
            raise InvalidModel("nothing can be trained", where=WHERE,
                               expected="one that requires gradients, is used and the optimiser's")  # fmt: skip
        return list(names.values())

    def _require_own(self) -> None:
        """Refuse what cannot be written back: a tensor that is not the module's of that name."""
        for name, array in {**self.state.parameters, **self.state.statistics}.items():
            tensor = self._tensors.get(name)
            if tensor is None or not np.array_equal(tensor.numpy(force=True), array, equal_nan=True):
                raise UnsupportedOp("torch's exporter changed a tensor of the module", where=f"{WHERE}: {name!r}")

    @reported
    def step(self, batch: Any) -> dict[str, float]:
        """See Trainer.step. A mapping of tensors or arrays, or a tuple of the module's inputs and the labels."""
        return super().step(named(batch, self.program.data))

    @reported
    def evaluate(self, batches: Iterable[Any], average: bool = False) -> dict[str, float]:
        """See Trainer.evaluate; batches as of `step`."""
        return super().evaluate((named(batch, self.program.data) for batch in batches), average)

    @reported
    def fit(self, *args: Any, **more: Any) -> Progress:
        """See Trainer.fit. At the end, whatever it is, the module has the weights of the last step."""
        try:
            return super().fit(*args, **more)
        finally:
            self.write_back()

    def write_back(self) -> None:
        """Give the module the parameters and running statistics as they are now."""
        steps, self._written = self.state.steps - self._written, self.state.steps
        with torch.no_grad():
            for name, array in {**self.state.parameters, **self.state.statistics}.items():
                self._tensors[name].copy_(torch.from_numpy(array))
            for name in self.state.statistics:
                owner, _, what = name.rpartition(".")
                count = self._tensors.get(f"{owner}.num_batches_tracked" if owner else "num_batches_tracked")
                if what == "running_mean" and count is not None:
                    count += steps


def _require_trainable(module: Any) -> None:
    """Refuse layers whose training would not be torch's.

    Raises:
        UnsupportedOp: see above.
    """
    kinds = torch.nn.modules
    for name, layer in module.named_modules():
        where = f"{WHERE}: {name or 'itself'} ({type(layer).__name__})"
        if isinstance(layer, (kinds.batchnorm._BatchNorm, kinds.dropout._DropoutNd)) and not layer.training:
            raise UnsupportedOp("a layer in evaluation mode", where=where, hint="call module.train()")
        if isinstance(layer, kinds.batchnorm._BatchNorm) and layer.running_mean is None:
            raise UnsupportedOp("a normalisation without running statistics", where=where)
        if isinstance(layer, kinds.batchnorm._BatchNorm) and layer.momentum is None:
            raise UnsupportedOp("running statistics that are plain averages", where=where,
                                expected="a momentum", found=None)  # fmt: skip


def _used(module: Any, inputs: Sequence[Any]) -> set[int]:
    """Which parameters the module's results depend on; the module stays as it is, its buffers too."""
    own = dict(module.named_parameters())
    copies = {name: p.detach().clone().requires_grad_(p.requires_grad) for name, p in own.items()}
    buffers = {name: b.detach().clone() for name, b in module.named_buffers()}
    wanted = [name for name, copy in copies.items() if copy.requires_grad]
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            found = torch.func.functional_call(module, {**copies, **buffers}, tuple(inputs), tie_weights=True)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise UsageError("the module cannot be called so", where="example", found=first_line(error)) from error
    results = [t for t in _tensors_of(found) if t.requires_grad]
    if not results or not wanted:
        return set()
    gradients = torch.autograd.grad(sum(t.sum() for t in results), [copies[n] for n in wanted], allow_unused=True)
    return {id(own[name]) for name, gradient in zip(wanted, gradients, strict=True) if gradient is not None}


def _tensors_of(results: Any) -> Iterator[Any]:
    if isinstance(results, torch.Tensor):
        yield results
    elif isinstance(results, Mapping):
        for value in results.values():
            yield from _tensors_of(value)
    elif isinstance(results, (tuple, list)):
        for value in results:
            yield from _tensors_of(value)


def _exported(module: Any, inputs: Sequence[Any]) -> Any:
    """The module as an ONNX model of any number of rows, unchanged by an optimiser, whose Dropout waits for training.

    Raises:
        UnsupportedOp: torch cannot. UsageError: onnxscript, which it exports by, is not installed.
    """
    if find_spec("onnxscript") is None:
        raise UsageError("onnxscript is not installed", where="parax.torch", hint="pip install 'parax[torch]'")
    rows = torch.export.Dim("batch")
    given = tuple(torch.cat([t, t]) if len(t) == 1 else t for t in inputs)  # torch takes 1 for a size of its own
    try:
        with quietly(), torch.random.fork_rng(devices=[]):
            program = torch.onnx.export(module, given, dynamo=True, optimize=False, verbose=False,
                                        dynamic_shapes=tuple({0: rows} for _ in given))  # fmt: skip
            model = program.model_proto
    except Exception as error:  # those of torch's exporters have no common base
        raise UnsupportedOp("torch cannot export it to ONNX", where=WHERE, found=first_line(error)) from error
    for owner in (model.graph, *model.functions):
        for node in with_inner_nodes(owner.node):
            if node.op_type == "Dropout":
                del node.input[2:]
    return model


def _names(model: Any, wanted: Sequence[set[str]]) -> list[str]:
    """The name of each parameter in the model.

    Raises:
        UnsupportedOp: one has none, or two, which training would tell apart.
    """
    there = {tensor.name for tensor in model.graph.initializer}
    names = []
    for own in wanted:
        found = sorted(own & there)
        if len(found) != 1:
            raise UnsupportedOp("torch's exporter did not keep a parameter", where=f"{WHERE}: {sorted(own)[0]!r}",
                                expected="one initializer of its name", found=len(found))  # fmt: skip
        names += found
    return names


__all__ = ["ModuleTrainer", "compile_training"]
