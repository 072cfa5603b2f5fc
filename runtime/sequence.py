"""State that stays in the runtime's memory: each call of a sequence finds what the one before left.

Owns that memory. A state of a fixed shape is one array, which calls overwrite. One that grows lies with that axis
outermost, in memory for the longest that the plan allows, or for twice as much whenever it is full: a call reads the
front and writes behind it. Which of both a plan keeps, the compiler decided (`compiler/frontend/state.py`).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InvalidInput, UsageError
from .bindings import Binding
from .checked import Checked
from .dims import evaluate
from .limits import Allowance, within
from .manifest import Manifest, State, TensorSpec
from .memory import aligned_bytes
from .tensors import caller_outputs, input_array, ordered_inputs, plain

LEAST_ROWS = 16
"""Of memory for a state whose greatest length the plan does not say."""


class CallSequence:
    """Calls of a plan with state, one after the other; several sequences of a session run side by side.

    Attributes:
        inputs, outputs: what calls take and give: the plan's, without state.
        called: the tensors of the last call, by the names of all of the plan's inputs.
    """

    def __init__(self, manifest: Manifest, runs: Checked) -> None:
        """At its beginning: as after `reset`.

        Raises:
            UsageError: the plan was compiled without state.
        """
        if not manifest.states:
            raise UsageError("the plan keeps no state", where=f"plan {manifest.name!r}",
                             hint="compile it with --state past=present (parax.compile: state=)")  # fmt: skip
        self._manifest, self._runs = manifest, runs
        self.inputs, self.outputs = manifest.signature
        places = {spec.name: i for i, spec in enumerate(manifest.outputs)}
        own = {spec.name: i for i, spec in enumerate(manifest.inputs)}
        self._cells = [_Cell(state, manifest.inputs[own[state.input]], own[state.input], places[state.output],
                             _most(manifest, own[state.input])) for state in manifest.states]  # fmt: skip
        self._given = [own[spec.name] for spec in self.inputs]
        self._made = [places[spec.name] for spec in self.outputs]
        self._told = [(s.name, s.input, s.axis) for s in manifest.symbols if s.input in self._given]
        self._busy = threading.Lock()
        self._is_spoilt = False
        self.called: dict[str, np.ndarray] = {}

    def reset(self, content: Mapping[str, Any] | None = None) -> None:
        """Begin anew.

        Args:
            content: by names of state inputs, in the model's own order of axes, what the first call finds; what is not
                given is empty where it grows, and else zeros.

        Raises:
            InvalidInput: no state has that name, or another type or shape. UsageError: a call is running.
        """
        given = {} if content is None else plain(content, "state")
        cells = {cell.state.input: cell for cell in self._cells}
        unknown = [name for name in given if name not in cells]
        if unknown:
            raise InvalidInput(f"no state is named {unknown[0]!r:.200}", expected=", ".join(cells))
        with _Alone(self._busy):
            for name, cell in cells.items():
                cell.begin(given.get(name), self._runs.allowance())
            self._is_spoilt = False

    @property
    def length(self) -> int:
        """Of the states that grow, along that axis; 0 where none does."""
        return max((cell.length for cell in self._cells if cell.grows), default=0)

    def content(self) -> dict[str, np.ndarray]:
        """Copies of the states by the names of their inputs, in the model's own order of axes.

        Raises:
            UsageError: a call is running, or one has failed half-way.
        """
        with _Alone(self._busy):
            self._require_whole()
            return {cell.state.input: cell.content() for cell in self._cells if cell.is_begun}

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Run one call: as `Session.run`, without the states.

        A call that is refused leaves the state as it was; so does one that fails, where all states grow.

        Raises:
            InvalidInput: a wrong name, shape, element type or value; a state would be longer than the plan allows.
            ResourceLimit: not enough memory.
            UsageError: another call of this sequence is running, or one failed half-way: `reset` begins anew.
        """
        with _Alone(self._busy):
            self._require_whole()
            allowance = self._runs.allowance()
            with within(allowance):
                given = ordered_inputs(inputs, self.inputs, self._runs.defaults, self._manifest.fixed)
            arrays = self._with_state(given, allowance)
            binding = self._runs.binding(arrays)
            assert binding.outputs is not None
            expected = [binding.outputs[i] for i in self._made]
            own = caller_outputs(out, self.outputs, expected, given)
            outputs: list[Any] = [None] * len(binding.outputs)
            for i, spec, (shape, dtype) in zip(self._made, self.outputs, expected, strict=True):
                outputs[i] = own[spec.name] if spec.name in own else np.empty(shape, dtype)
            for cell in self._cells:
                outputs[cell.output] = cell.room(binding.outputs[cell.output][0], allowance)
                arrays[cell.input] = cell.front()  # which may have moved
            self.called = {spec.name: array for spec, array in zip(self._manifest.inputs, arrays, strict=True)}
            self._serve(binding, arrays, outputs)
            for cell in self._cells:
                cell.is_begun, cell.length = True, len(outputs[cell.output]) if cell.grows else 0
            return {spec.name: outputs[i] for i, spec in zip(self._made, self.outputs, strict=True)}

    def _with_state(self, given: list[np.ndarray], allowance: Allowance) -> list[np.ndarray]:
        """All inputs of the plan, in its order."""
        arrays: list[Any] = [None] * len(self._manifest.inputs)
        for i, array in zip(self._given, given, strict=True):
            arrays[i] = array
        sizes = {name: arrays[i].shape[axis] for name, i, axis in self._told}
        for cell in self._cells:
            cell.fit(sizes, allowance)
            arrays[cell.input] = cell.front()
        return arrays

    def _serve(self, binding: Binding, arrays: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        try:
            self._runs.serve(binding, arrays, outputs)
        except BaseException:  # Ctrl-C, too
            self._is_spoilt = not all(cell.grows for cell in self._cells)
            raise

    def _require_whole(self) -> None:
        if self._is_spoilt:
            raise UsageError("a call failed half-way, and its state is neither the old nor the new one",
                             where="sequence", hint="reset() begins anew")  # fmt: skip


class _Alone:
    """Lets one call of a sequence run at a time."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise UsageError("a sequence's calls run one after the other", where="sequence", found="another is running",
                             hint="each thread wants a sequence of its own: session.sequence()")  # fmt: skip

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Cell:
    """One state's memory.

    Attributes:
        input, output: its numbers among the plan's. length: of what it holds, where it grows. most: the greatest.
        is_begun: whether a call has left something, or whoever began anew.
    """

    def __init__(self, state: State, spec: TensorSpec, place: int, output: int, most: int | None) -> None:
        self.state, self.spec, self.input, self.output, self.most = state, spec, place, output, most
        self.grows, self.length, self.is_begun = state.axis is not None, 0, False
        self._array: np.ndarray | None = None
        self._order = _order(state, spec)
        self._shape: tuple[int, ...] | None = None  # where it grows: without the first axis; None: not known yet
        self._sizes: Mapping[str, int] = {}

    def begin(self, content: Any, allowance: Allowance) -> None:
        """Hold this, or nothing, for which memory that grows is kept. Raises InvalidInput: of another type or rank."""
        self.length, self.is_begun, self._shape, self._sizes = 0, False, None, {}
        if content is None:
            self._array = self._array if self.grows else None
            return
        with within(allowance):
            array = input_array(content, self.spec)
            self._array = np.ascontiguousarray(array.transpose(self._order)) if self.grows else array.copy()
        self.length = len(self._array) if self.grows else 0
        self._shape, self.is_begun = self._array.shape[1:] if self.grows else self._array.shape, True

    def fit(self, sizes: Mapping[str, int], allowance: Allowance) -> None:
        """Have the shape that a call of these sizes wants; memory at the first one.

        Raises:
            InvalidInput: another shape than at the calls before.
        """
        if self._shape is not None and sizes == self._sizes:
            return
        dims = (self.spec.dims or ())[1 if self.grows else 0 :]
        shape = tuple(evaluate(dim, sizes) for dim in dims)
        if self.is_begun and shape != self._shape:
            raise InvalidInput("the state of this sequence has another shape", where=f"state {self.state.input!r}",
                               expected=list(self._shape or ()), found=list(shape),
                               hint="reset() begins anew")  # fmt: skip
        self._shape = shape
        if self._array is None or self._array.shape[1 if self.grows else 0 :] != shape:
            rows = (LEAST_ROWS if self.most is None else self.most) if self.grows else None
            self._array = self._zeros(shape if rows is None else (rows, *shape), allowance)
        self._sizes = dict(sizes)

    def front(self) -> np.ndarray:
        """What it holds, as the plan's input."""
        assert self._array is not None
        return self._array[: self.length] if self.grows else self._array

    def room(self, shape: tuple[int, ...], allowance: Allowance) -> np.ndarray:
        """Memory for what the plan leaves, which begins where `front` does.

        Raises:
            InvalidInput: longer than the plan allows, or of another shape. ResourceLimit: no memory for it.
        """
        assert self._array is not None and self._shape is not None
        if (shape[1:] if self.grows else shape) != self._shape:
            raise InvalidInput("a call would leave a state of another shape", where=f"state {self.state.input!r}",
                               expected=list(self._shape), found=list(shape))  # fmt: skip
        if not self.grows:
            return self._array
        if self.most is not None and shape[0] > self.most:
            symbol = (self.spec.dims or ("",))[0]
            raise InvalidInput("the sequence is too long", where=f"state {self.state.input!r}", found=shape[0],
                               expected=f"{symbol} of at most {self.most}",
                               hint=f"reset() begins anew; --dim {symbol}=0..N allows more when compiling")  # fmt: skip
        if shape[0] > len(self._array):
            rows = max(shape[0], min(2 * len(self._array), self.most or 2 * len(self._array)))
            larger = self._zeros((rows, *self._shape), allowance)
            larger[: self.length] = self._array[: self.length]
            self._array = larger
        return self._array[: shape[0]]

    def content(self) -> np.ndarray:
        """A copy in the model's order of axes."""
        back = tuple(self._order.index(a) for a in range(len(self._order)))
        return self.front().transpose(back).copy()

    def _zeros(self, shape: tuple[int, ...], allowance: Allowance) -> np.ndarray:
        dtype = self.spec.numpy
        nbytes = math.prod(shape) * dtype.itemsize
        allowance.afford(nbytes, f"state {self.state.input!r}")
        if dtype.hasobject:
            return np.zeros(shape, dtype)
        return aligned_bytes(nbytes)[:nbytes].view(dtype).reshape(shape)


def _order(state: State, spec: TensorSpec) -> tuple[int, ...]:
    """The model's axes in the plan's order."""
    rank, axis = len(spec.dims or ()), state.axis
    return tuple(range(rank)) if axis is None else (axis, *(a for a in range(rank) if a != axis))


def _most(manifest: Manifest, place: int) -> int | None:
    """The greatest length that a state may have, if the plan says any."""
    dims = manifest.inputs[place].dims or (0,)
    return next((s.max for s in manifest.symbols if s.name == dims[0] and s.input == place), None)


__all__ = ["CallSequence"]
