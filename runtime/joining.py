"""Requests of one plan put together along the batch, and their results taken apart. Owns which may be put together.

Rows of a batch are independent, so a request's results do not depend on the rows beside its own. Pure work on arrays;
knows nothing of threads.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ..errors import UsageError
from .bindings import Shape
from .executor import Executor
from .manifest import Manifest
from .requests import Request
from .router import Router

MOST_ROWS = 32
"""Rows of a batch where neither plan nor caller say how many an instance takes at a time. A weight of 4 bytes then
serves 64 operations, 16 a byte: more than a core does while it reads one (13 on the CPU of the README's tables), so
that reading the weights sets the pace no more."""
MOST_SHARED_NBYTES = 1 << 16
"""Of an input without a batch axis, which has to be compared before two requests are put together."""
Arrays = Sequence[np.ndarray]


class Joining:
    """How requests of one session are put together.

    Attributes:
        most_rows: of a batch: as many as an instance takes at a time, within what the plan allows.
    """

    def __init__(self, executor: Executor) -> None:
        """For requests that these instances run.

        Raises:
            UsageError: the rows of the plan's requests are not independent.
        """
        manifest = executor.manifest
        batch = manifest.batch
        if batch is None or not executor.is_direct or executor.code is None:
            raise _not_independent(manifest)
        self._axes_in = [batch.axes.get(spec.name) for spec in manifest.inputs]
        self._axes_out = [batch.axes[spec.name] for spec in manifest.outputs]
        most = next(symbol.max for symbol in manifest.symbols if symbol.name == batch.symbol)
        wanted = executor.micro_batch or MOST_ROWS
        self.most_rows = wanted if most is None else min(wanted, most)

    def key(self, arrays: Arrays, rows: int) -> Hashable:
        """The same for requests that may be put together; None where that does not pay, or costs too much.

        Args:
            arrays: the inputs, in the order of the plan's. rows: of the request.
        """
        if not 0 < rows < self.most_rows:
            return None
        parts: list[Hashable] = []
        for array, axis in zip(arrays, self._axes_in, strict=True):
            if axis is not None:
                parts.append(array.shape[:axis] + array.shape[axis + 1 :])
            elif array.nbytes > MOST_SHARED_NBYTES:
                return None
            else:
                parts.append((array.shape, array.tobytes()))
        return tuple(parts)

    def run(self, requests: Sequence[Request], router: Router) -> bool:
        """Run requests of one key as one; False where that failed: one of them may be wrong, or all too large."""
        given, wanted = [request.arrays for request in requests], [request.outputs for request in requests]
        try:
            nbytes = sum(array.nbytes for arrays in (*given, *wanted) for array in arrays)
            router.allowance().afford(nbytes, f"a batch of {len(requests)} requests")
            shapes = self._shapes(given[0], sum(request.binding.rows for request in requests))
            binding = router.binding(shapes)
            results = [np.empty(*shape_dtype) for shape_dtype in binding.outputs or ()]
            router.serve(binding, self._joined(given, shapes), results)
            self._hand_out(results, wanted)
        except Exception:  # whatever it was, each request meets its own error when it runs alone
            return False
        return True

    def _shapes(self, first: Arrays, rows: int) -> tuple[Shape, ...]:
        """The inputs' shapes of a batch of so many rows, in which this request is."""
        pairs = zip(first, self._axes_in, strict=True)
        return tuple(a.shape if axis is None else (*a.shape[:axis], rows, *a.shape[axis + 1 :]) for a, axis in pairs)

    def _joined(self, given: Sequence[Arrays], shapes: Sequence[Shape]) -> list[np.ndarray]:
        """The inputs of the batch: C-contiguous, as native code reads them."""
        joined = []
        for arrays, axis, shape in zip(zip(*given, strict=True), self._axes_in, shapes, strict=True):
            whole = arrays[0] if axis is None else np.empty(shape, arrays[0].dtype)
            joined.append(whole if axis is None else np.concatenate(arrays, axis, out=whole))
        return joined

    def _hand_out(self, results: Arrays, wanted: Sequence[Arrays]) -> None:
        """Copy each request's rows of the results into memory of its own."""
        for i, (result, axis) in enumerate(zip(results, self._axes_out, strict=True)):
            first = 0
            for outputs in wanted:
                last = first + outputs[i].shape[axis]
                where = (*(slice(None) for _ in range(axis)), slice(first, last))
                outputs[i][...] = result[where]
                first = last


def _not_independent(manifest: Manifest) -> UsageError:
    reasons = "; ".join(manifest.not_split)
    return UsageError(
        "requests of this plan cannot be batched", where="batch_window", expected="a plan whose rows are independent",
        found=reasons or "no open batch dimension",
        hint="leave batch_window out" if reasons else "compile with the batch left open, as in dims={'N': (1, 64)}",
    )  # fmt: skip
