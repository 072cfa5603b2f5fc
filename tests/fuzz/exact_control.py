"""Loop and Scan as ONNX defines them: onnx.reference's own join what they should stack, and know few attributes."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun
from onnx.reference.ops.op_loop import Loop as _Loop


class Unshaped(dict):  # type: ignore[type-arg]  # one of the types that onnx.reference lets pass
    """What no step scans: its shape is not known here. Whoever computes with it fails, so that nobody judges by it."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise RuntimeError("what no step scans has no shape here")

    def copy(self) -> Unshaped:
        """As Identity hands it on."""
        return self


def _stacked(scanned: list[np.ndarray], axis: int = 0) -> Any:
    return np.stack(scanned, axis) if scanned else Unshaped()


class Loop(_Loop):
    """Values carried from step to step, then what each step adds, stacked along a new first axis."""

    def _run(self, M: Any, cond: Any, *args: Any, context: Any = None, body: Any = None, attributes: Any = None,
             bindings: Any = None) -> tuple[Any, ...]:  # fmt: skip
        names, state, step = self.body.input_names, list(args), 0
        going = cond is None or bool(np.all(cond))
        scanned: list[list[np.ndarray]] = [[] for _ in range(self.K)]
        while going and (M is None or step < int(np.asarray(M).reshape(()))):
            feeds = {**(context or {}), names[0]: np.array(step, np.int64), names[1]: np.array(going)}
            feeds.update(zip(names[2:], state, strict=True))
            results = self._run_body(feeds, attributes=attributes, bindings=bindings)
            going, state, step = bool(np.all(results[0])), list(results[1 : 1 + self.N]), step + 1
            for kept, result in zip(scanned, results[1 + self.N :], strict=True):
                kept.append(np.asarray(result))
        return self._check_and_fix_outputs((*map(np.asarray, state), *map(_stacked, scanned)))


class Scan(OpRun):  # type: ignore[misc]
    """States carried from step to step, and what each step adds, along any axis and in either direction."""

    def need_context(self) -> bool:
        """The body may use what the graph around it has made."""
        return True

    def _run(self, *args: Any, context: Any = None, body: Any = None, num_scan_inputs: int = 1,
             attributes: Any = None, bindings: Any = None, **given: Any) -> tuple[Any, ...]:  # fmt: skip
        def of(name: str, count: int) -> list[int]:
            return list(given.get(name) or [0] * count)

        state, scanned = list(args[: len(args) - num_scan_inputs]), args[len(args) - num_scan_inputs :]
        axes, backwards = of("scan_input_axes", num_scan_inputs), of("scan_input_directions", num_scan_inputs)
        moved = [np.moveaxis(x, a, 0)[:: -1 if b else 1] for x, a, b in zip(scanned, axes, backwards, strict=True)]
        made: list[list[np.ndarray]] = [[] for _ in self.body.output_names[len(state) :]]
        for step in range(len(moved[0])):
            feeds = {**(context or {}), **dict(zip(self.body.input_names, [*state, *(m[step] for m in moved)]))}
            results = self._run_body(feeds, attributes=attributes, bindings=bindings)
            for kept, result in zip(made, results[len(state) :], strict=True):
                kept.append(np.asarray(result))
            state = list(results[: len(state)])
        axes, backwards = of("scan_output_axes", len(made)), of("scan_output_directions", len(made))
        stacked = [_stacked(k[:: -1 if b else 1], a) for k, a, b in zip(made, axes, backwards, strict=True)]
        return (*map(np.asarray, state), *stacked)
