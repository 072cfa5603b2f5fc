"""Loop as ONNX defines it, for onnx.reference: its own needs a condition, and joins what it should stack."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.reference.ops.op_loop import Loop as _Loop


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
        if step == 0 and self.K:
            raise RuntimeError("what no step scans has no shape here")
        return self._check_and_fix_outputs((*map(np.asarray, state), *map(np.stack, scanned)))
