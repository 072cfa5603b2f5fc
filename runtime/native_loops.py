"""Loops whose iterations native code runs, many a call: memory for what they stack, and how many iterations a call has.

Native code is told the numbers of the first iteration and of the first that is not to be; it says where it ended, and
whether the condition still holds. So many iterations are run at a time as take some milliseconds, for Ctrl-C and the
request's limits, and as there is memory for what they stack. What becomes of a Loop's results is as in control.py.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .bindings import Signature
from .control import single, truth
from .instance import Instance
from .limits import afford, afford_tensor, current
from .manifest import HostStep, TensorSpec
from .memory import address_of

FIRST, MOST = 256, 1 << 20
"""Iterations of the first call, and of any."""
QUICK_SECONDS = 5e-3
"""A call that takes less is followed by one of twice as many iterations."""
CHUNK_NBYTES = 16 << 20
"""Of what the iterations of one call stack, if it is more than one iteration's."""
BEGIN, END, ENDED, HOLDS = range(4)
"""The words by which native code is told the iterations, and answers; compiler/backend/link_programs.py knows them."""

Rows = tuple[Sequence[tuple[int, ...] | None], int]
"""Of each scan output the shape of an iteration's part, None where nobody reads it; and their bytes together."""


class NativeLoop:
    """A Loop of a plan."""

    def __init__(
        self, step: HostStep, specs: Mapping[str, TensorSpec], signature: Signature, failure: Callable[[int], Exception]
    ) -> None:
        """`failure`: the error of a nonzero answer of native code."""
        assert step.native is not None
        self._step, self._native, self._signature, self._failure = step, step.native, signature, failure
        self._n_states = step.n_states
        stacked = step.outputs[step.n_states :]
        self._stacked = [None if name is None else specs[name] for name in stacked]
        self._fixed_rows: Rows | None = None
        if all(isinstance(d, int) for spec in self._stacked if spec is not None for d in (spec.dims or (0,))[1:]):
            self._fixed_rows = self._rows({})

    def run(self, instance: Instance, operands: Sequence[Any], values: dict[str, int]) -> list[Any]:
        """The Loop's results: final states and stacked scan outputs, those unused or of no iteration as None.

        Args:
            instance: whose dimensions are set. operands: trip count, condition, states, captured values.
            values: of the symbols.

        Raises:
            InvalidInput: a trip count or condition that is not one element, or what native code refuses.
            ResourceLimit: scan outputs grow beyond the request's memory, or its time is over.
        """
        (limit, condition), given = (*operands[:2], None, None)[:2], operands[2:]
        trips = None if limit is None else int(single(limit, "the trip count"))
        going = condition is None or truth(condition)
        states, captured = list(given[: self._n_states]), given[self._n_states :]
        rows, nbytes = self._fixed_rows or self._rows(values)
        most = min(MOST, max(1, CHUNK_NBYTES // max(nbytes, 1)))
        chunks: list[list[Any]] = []
        words = np.zeros(4, np.int64)
        count, allowance, held = min(FIRST, most), current(), 0
        instance.reserve(*self._signature.memory(self._native, values), afford)
        while going and (trips is None or words[ENDED] < trips):
            allowance.tick("Loop")
            left = count if trips is None else min(count, trips - int(words[ENDED]))
            stacks = self._made(rows, left)
            states, seconds = self._called(instance, words, left, states, captured, stacks)
            made, going = int(words[ENDED] - words[BEGIN]), bool(words[HOLDS])
            chunks.append([None if stack is None else stack[:made] for stack in stacks])
            allowance.stacked += made * nbytes
            held += made * nbytes
            count = min(most, 2 * count) if seconds < QUICK_SECONDS else count
        if len(chunks) > 1:
            allowance.afford(held, "scan outputs")  # what was stacked and the whole for a moment
        stacked = self._joined(chunks)
        allowance.stacked -= held
        return [*states, *stacked]

    def _rows(self, values: dict[str, int]) -> Rows:
        """What one iteration stacks."""
        rows = [None if spec is None else self._signature.shape((spec.dims or (0,))[1:], values)
                for spec in self._stacked]  # fmt: skip
        nbytes = sum(math.prod(shape) * spec.numpy.itemsize
                     for shape, spec in zip(rows, self._stacked, strict=True) if shape is not None and spec is not None)
        return rows, nbytes

    def _made(self, rows: Sequence[tuple[int, ...] | None], count: int) -> list[np.ndarray | None]:
        """Memory for the scan outputs of so many iterations."""
        found: list[np.ndarray | None] = []
        for shape, spec in zip(rows, self._stacked, strict=True):
            if shape is None or spec is None:
                found.append(None)
                continue
            afford_tensor((count, *shape), spec.numpy.itemsize, f"value {spec.name!r}")
            found.append(np.empty((count, *shape), spec.numpy))
        return found

    def _called(
        self, instance: Instance, words: np.ndarray, count: int, states: Sequence[Any], captured: Sequence[Any],
        stacks: Sequence[np.ndarray | None],
    ) -> tuple[list[Any], float]:  # fmt: skip
        """The states after so many iterations more, and the seconds that the call took."""
        found = []
        for state in states:
            afford_tensor(state.shape, state.dtype.itemsize, "a loop's state")
            found.append(np.empty(state.shape, state.dtype))
        words[BEGIN] = words[ENDED]
        words[END] = words[BEGIN] + count
        arrays = [words, *states, *captured, *found, *(stack for stack in stacks if stack is not None)]
        for slot, array in enumerate(arrays):
            instance.io[slot] = address_of(array)
        instance.leader.run = instance.code.segments[self._native.segment]
        began = time.perf_counter()
        try:
            status = instance.code.team(instance.worker)
            if status:
                raise self._failure(status)
        except BaseException:  # as in Executor.run_on
            instance.clear_failure()
            raise
        return found, time.perf_counter() - began

    def _joined(self, chunks: Sequence[Sequence[Any]]) -> list[Any]:
        """What the calls stacked, each output in one piece; None for one of no iteration or that nobody reads."""
        if not chunks:
            return [None] * len(self._stacked)
        parts = list(zip(*chunks, strict=True))
        if len(chunks) == 1:  # unless most of the memory is of iterations that were not
            return [p if p is None or 2 * len(p) >= len(p.base) else p.copy() for (p,) in parts]
        return [None if any(p is None for p in each) else np.concatenate(each) for each in parts]
