"""The way of any request from what a caller hands in to native memory: whole, in pieces or step by step.

Owns what is checked of a request. It must not know sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InvalidInput, UsageError
from .bindings import Binding
from .executor import Executor
from .limits import Allowance, within
from .manifest import Manifest, TensorSpec
from .router import Router
from .steps import Program
from .tensors import caller_outputs, input_array, is_fit, ordered_inputs

Arrays = Mapping[str, np.ndarray]
Serve = Callable[[Binding, Sequence[np.ndarray], Sequence[np.ndarray]], None]


class Checked:
    """Requests of one session.

    Attributes:
        inputs: the plan's. defaults: of inputs that a request may leave out.
    """

    def __init__(
        self, signature: tuple[Sequence[TensorSpec], Sequence[TensorSpec]], manifest: Manifest, defaults: Arrays,
        router: Router, serve: Serve, program: Program,
    ) -> None:  # fmt: skip
        """serve: runs native requests, as `router.serve`. program: runs others step by step."""
        self.inputs, self._outputs = signature
        self._names = [spec.name for spec in self._outputs]
        self._places = {spec.name: i for i, spec in enumerate(self.inputs)}
        self._fixed, self.defaults, self._donated = manifest.fixed, defaults, manifest.donated_numbers()
        self._keeps_state = bool(manifest.states)
        self._router, self._serve, self._program = router, serve, program

    def check(
        self, feeds: Any, out: Arrays | None, allowance: Allowance | None = None
    ) -> tuple[Binding, list[np.ndarray], dict[str, np.ndarray]]:
        """A request's binding, its inputs fit for native code, and the caller's memory for outputs.

        Raises:
            UsageError: the plan keeps state: see `CallSequence`. Others as of `Session.run`.
        """
        if self._keeps_state:
            raise UsageError("calls of a plan with state are each of another size", where="Session.prepare",
                             hint="run them")  # fmt: skip
        with within(allowance or self._router.allowance()):
            arrays = ordered_inputs(feeds, self.inputs, self.defaults, self._fixed)
        binding = self.binding(arrays)
        return binding, arrays, caller_outputs(out, self._outputs, binding.outputs, arrays, self._donated)

    def allocate(self, binding: Binding, own: Arrays) -> list[np.ndarray]:
        """Memory for all outputs of a native request."""
        pairs = zip(self._names, binding.outputs or (), strict=True)
        return [own[name] if name in own else np.empty(*shape_dtype) for name, shape_dtype in pairs]

    def allocated(self, binding: Binding, own: Arrays) -> dict[str, np.ndarray]:
        """The same by name, in the plan's order."""
        return dict(zip(self._names, self.allocate(binding, own), strict=True))

    def run(self, feeds: Any, out: Arrays | None) -> dict[str, np.ndarray]:
        """Check and convert the inputs, then run them whole, in pieces or step by step."""
        allowance = self._router.allowance()
        return self.run_checked(*self.check(feeds, out, allowance), allowance)

    def run_checked(
        self, binding: Binding, arrays: Sequence[np.ndarray], own: dict[str, np.ndarray], allowance: Allowance
    ) -> dict[str, np.ndarray]:
        """All outputs of a request that `check` has been through."""
        if not self._router.is_native(binding):
            results = self._run_steps(binding, arrays, own, allowance)
        else:
            results = self.allocate(binding, own)
            self._serve(binding, arrays, results)
        return dict(zip(self._names, results, strict=True))

    def changed(self, place: int, value: Any, like: np.ndarray, times: int = 1) -> np.ndarray:
        """Another array for an input, of so many times the rows. Raises InvalidInput: of another type or shape."""
        if not self.inputs[place].is_tensor:
            return input_array(value, self.inputs[place])
        shape = like.shape if times == 1 else (times * like.shape[0], *like.shape[1:])
        if value.__class__ is np.ndarray and value.dtype is like.dtype and value.shape == shape and is_fit(value):
            return value
        spec = self.inputs[place]
        array = input_array(value, spec)
        if array.shape != shape:
            raise InvalidInput("another shape than this request was prepared for", where=f"input {spec.name!r}",
                               expected=list(shape), found=list(array.shape))  # fmt: skip
        return array

    def place(self, name: str) -> int:
        """The number of an input. Raises InvalidInput: there is none of that name."""
        if name not in self._places:
            expected = ", ".join(map(str, self.inputs)) or "no input"
            raise InvalidInput(f"no input is named {name!r:.200}", expected=expected)
        return self._places[name]

    def binding(self, arrays: Sequence[np.ndarray]) -> Binding:
        """The binding of inputs that are fit for native code. Raises InvalidInput: the plan does not allow them."""
        return self._router.binding(tuple(getattr(value, "shape", ()) for value in arrays))

    def serve(self, binding: Binding, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Run a native request."""
        self._serve(binding, arrays, outputs)

    def allowance(self) -> Allowance:
        """What one request may take, from now on."""
        return self._router.allowance()

    def _run_steps(
        self, binding: Binding, arrays: Sequence[np.ndarray], own: dict[str, np.ndarray], allowance: Allowance
    ) -> list[np.ndarray]:
        """A request of a plan in steps, likewise."""
        found: list[list[np.ndarray]] = []

        def run(executor: Executor, there: Binding) -> None:
            found.append(self._program.run(executor, there, arrays, own, allowance))

        if own or allowance.limits.nbytes is not None or self._program.is_settled:
            self._router.route(binding, run)
        else:  # not yet as requests will run: to time it would tell nothing of the ways
            run(self._router.executor, binding)
        return found[0]
