"""`torch.compile(model, backend="parax")`: plans in the place of the graphs that TorchDynamo captures.

Inference on CPUs: a graph that a plan cannot take the place of, and every call that wants gradients, runs as torch
would run it, which is said once. Weights are constants of a plan; every call looks whether they are still the same
(tensor, version, place in memory), and if not, compiles again. What changes memory behind torch's back, through
`.data`, a NumPy view or another process, is not seen: call `torch.compiler.reset()` after it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import fx

from ..errors import ParaxError, UnsupportedOp, UsageError, reported
from ..log import inform
from .api import compile
from .compare import Tolerance, difference
from .torch_export import WHERE, Exported, export, weights_of

if TYPE_CHECKING:
    from ..runtime.session import Session

NAME = "parax"
MOST_PLANS = 8  # of a graph: sizes or weights that always change are not worth compiling for
_FOR_COMPILE, _FOR_SESSIONS = {"hint", "target", "options"}, {"instances", "cores", "cores_per_instance"}
_DTYPES = {
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool,
}  # fmt: skip
_KINDS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


@reported
def backend(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """A function in the place of the graph; its plan is compiled when it is first called.

    Args:
        module: as TorchDynamo captured it. example_inputs: what it was captured for; not looked at.
        options: `hint`, `target` and `options` as of `parax.compile`; `instances`, `cores` and
            `cores_per_instance` as of `Plan.session`.

    Raises:
        UsageError: no such option; onnxscript, which torch exports by, is not installed.
    """
    given = dict(options or {})
    unknown = sorted(map(str, given.keys() - _FOR_COMPILE - _FOR_SESSIONS))
    if unknown:
        expected = ", ".join(sorted(_FOR_COMPILE | _FOR_SESSIONS))
        raise UsageError("no such option", where="options", expected=expected, found=", ".join(unknown))
    if find_spec("onnxscript") is None:
        raise UsageError("onnxscript is not installed", where=NAME, hint="pip install 'parax[torch]'")
    return Captured(module, given)


def register() -> None:
    """Make the backend's name known to torch, where the package's entry point does not."""
    if NAME not in torch._dynamo.list_backends(exclude_tags=()):
        torch._dynamo.register_backend(backend, name=NAME)


@dataclass(frozen=True)
class Weight:
    """A weight as it was when a plan was compiled. `at`: its position among the arguments; None: the graph's own."""

    at: int | None
    tensor: Any
    version: int
    place: int

    @classmethod
    def now(cls, at: int | None, tensor: Any) -> Weight:
        """As it is now."""
        return cls(at, tensor, tensor._version, tensor.data_ptr())

    def is_in(self, args: Sequence[Any]) -> bool:
        """Whether it is still the same."""
        tensor = self.tensor if self.at is None else args[self.at]
        return tensor is self.tensor and tensor._version == self.version and tensor.data_ptr() == self.place


@dataclass(frozen=True)
class Result:
    """A result of the graph: a tensor, whose axes lie in memory in `order` (None: as in numpy), or a constant."""

    is_tensor: bool
    constant: Any = None
    order: tuple[int, ...] | None = None

    @classmethod
    def like(cls, value: Any) -> Result:
        """As torch gave it."""
        if not isinstance(value, torch.Tensor):
            return cls(False, value)
        order = tuple(sorted(range(value.ndim), key=lambda axis: -value.stride(axis)))
        return cls(True, order=None if value.is_contiguous() else order)

    def laid_out(self, tensor: Any) -> Any:
        """The tensor in that order: code after the graph may look at it as at torch's own."""
        if self.order is None:
            return tensor
        return tensor.permute(self.order).contiguous().permute(tuple(np.argsort(self.order).tolist()))


class Engine:
    """A plan in the place of a graph, for some sizes of its arguments."""

    def __init__(self, exported: Exported, results: Sequence[Result], kind: type, session: Session) -> None:
        """`results`: of the graph, in order; `kind`: tuple or list, which they come in."""
        self.exported, self.session = exported, session
        self._results, self._kind = results, kind
        self._feeds = [(spec.name, at) for spec, at in zip(session.inputs, exported.inputs, strict=True)]
        self._names = [spec.name for spec in session.outputs]

    def run(self, args: Sequence[Any]) -> Any:
        """The graph's results.

        Raises:
            ParaxError: as Session.run.
        """
        found = self.session.run({name: _array(args[at]) for name, at in self._feeds})
        tensors = iter(_tensor(found[name], spec.dtype) for name, spec in zip(self._names, self.session.outputs))
        return self._kind(r.laid_out(next(tensors)) if r.is_tensor else r.constant for r in self._results)


class Captured:
    """A captured graph that may be called: by plans where it can be, by torch where not."""

    def __init__(self, module: fx.GraphModule, options: Mapping[str, Any]) -> None:
        self._module, self._options = module, options
        self._lifted = weights_of(module)
        self._weights: list[Weight] = []
        self._engines: list[Engine] = []
        self._n_plans = 0
        self._lock = threading.Lock()
        self._refused = False
        self._told: set[str] = set()

    def __call__(self, *args: Any) -> Any:
        """Run the graph on what TorchDynamo gives it."""
        if self._refused:
            return self._module(*args)
        if torch.is_grad_enabled() and self._wants_gradients(args):
            self._tell("gradients are wanted: call it under torch.inference_mode() or torch.no_grad()")
            return self._module(*args)
        try:
            engine = self._engine_for(args)
            return engine.run(args) if engine is not None else self._module(*args)
        except ParaxError as error:  # such as an index out of range, which torch has its own words for
            self._tell(str(error))
            return self._module(*args)

    def _wants_gradients(self, args: Sequence[Any]) -> bool:
        own = self._module.parameters()
        return any(isinstance(a, torch.Tensor) and a.requires_grad for group in (args, own) for a in group)

    def _engine_for(self, args: Sequence[Any]) -> Engine | None:
        """The engine for these arguments, compiled now if there is none; None where torch is to run them."""
        if not all(weight.is_in(args) for weight in self._weights):
            with self._lock:
                inform(f"{NAME}: weights of a torch module have changed; its plans are compiled again")
                self._engines, self._weights = [], []
        for engine in self._engines:
            if engine.exported.fits(args):
                return engine
        with self._lock:
            if self._n_plans == MOST_PLANS:
                self._refuse(f"{MOST_PLANS} plans were compiled for one graph, as sizes or weights always change")
                return None
            self._n_plans += 1
            try:
                engine = self._compiled(args)
            except ParaxError as error:
                self._refuse(str(error))
                return None
            self._engines.append(engine)
            return engine

    def _compiled(self, args: Sequence[Any]) -> Engine:
        """An engine, and that it gives torch's results for these arguments.

        Raises:
            ParaxError: it does not, or there can be none.
        """
        _require_plain([*args, *self._module.parameters(), *self._module.buffers()])
        inner = [at for at in self._lifted if isinstance(args[at], torch.Tensor) and not args[at].is_inference()]
        weights = [Weight.now(at, args[at]) for at in inner]
        weights += [Weight.now(None, t) for t in (*self._module.parameters(), *self._module.buffers())]
        exported = export(self._module, args, inner)
        expected = self._module(*args)  # only now: what writes to its arguments has been refused
        results = [Result.like(value) for value in expected]
        _require_own_memory(expected, args)
        plan = compile(exported.model, **{k: v for k, v in self._options.items() if k in _FOR_COMPILE})
        session = plan.session(**{k: v for k, v in self._options.items() if k in _FOR_SESSIONS})
        n_results = sum(result.is_tensor for result in results)
        if len(session.inputs) != len(exported.inputs) or len(session.outputs) != n_results:
            raise UnsupportedOp("torch's exporter left out inputs or outputs", where=WHERE)
        engine = Engine(exported, results, type(expected), session)
        _require_alike(engine.run(args), expected)
        self._weights = weights
        return engine

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self._engines, self._weights = [], []
        self._tell(reason)

    def _tell(self, reason: str) -> None:
        """Say once for each reason that torch runs the graph."""
        if reason not in self._told:
            self._told.add(reason)
            text = f'torch.compile(backend="{NAME}"): a graph runs in eager mode: {reason}'
            inform(text)
            warnings.warn(text, stacklevel=2)


def _require_plain(values: Sequence[Any]) -> None:
    """Raises UnsupportedOp for tensors that are not plain memory of this machine, or of types parax lacks."""
    for value in values:
        if not isinstance(value, torch.Tensor):
            continue
        is_plain = type(value) in _KINDS and value.device.type == "cpu" and value.layout == torch.strided
        if not is_plain or value.dtype not in _DTYPES:
            found = f"{type(value).__name__} of {value.dtype} on {value.device}, {value.layout}"
            raise UnsupportedOp("not a tensor for a CPU", where=WHERE, found=found)


def _require_own_memory(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    """Raises UnsupportedOp where results are views of arguments or each other: later writes would be seen in both."""
    places = [v.untyped_storage().data_ptr() for v in (*inputs, *outputs) if isinstance(v, torch.Tensor) and v.numel()]
    n_inputs = sum(isinstance(v, torch.Tensor) and v.numel() > 0 for v in inputs)
    if len({*places}) < len({*places[:n_inputs]}) + len(places) - n_inputs:
        raise UnsupportedOp("a result is a view of an argument or another result", where=WHERE)


def _require_alike(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Raises UnsupportedOp where the plan's results are not torch's."""
    for number, (ours, right) in enumerate(zip(found, expected, strict=True)):
        if not isinstance(right, torch.Tensor):
            continue
        is_short = right.dtype == torch.bfloat16
        got, want = (t.float().numpy() if is_short else t.numpy(force=True) for t in (ours, right))
        allowed = Tolerance(coarsest="bfloat16" if is_short else "")
        compared = difference(f"result {number}", got, want, allowed)
        if not compared.passed or ours.dtype != right.dtype:
            problem = compared.problem or f"type {ours.dtype}, expected {right.dtype}"
            raise UnsupportedOp(f"the plan's result is not torch's: {problem}", where=f"{WHERE}, result {number}")


def _array(tensor: Any) -> np.ndarray:
    """The tensor's memory as an array; of bfloat16, which numpy lacks, as 16-bit integers."""
    if tensor.dtype == torch.bfloat16:
        found: np.ndarray = tensor.detach().contiguous().view(torch.int16).numpy().view(np.uint16)
    else:
        found = tensor.numpy(force=True)
    return found


def _tensor(array: np.ndarray, dtype: str) -> Any:
    """An array of the session's as a tensor of the same memory."""
    if dtype == "bf16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)
