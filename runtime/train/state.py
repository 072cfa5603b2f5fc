"""The state of a training: parameters, what the optimiser keeps of them, running statistics, how many steps were done.

An update writes its results where its operands lie (`donated` of its plan): every vector is there once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...errors import InvalidInput, UsageError
from .layout import Layout
from .program import AVERAGE, TrainingProgram

Arrays = dict[str, np.ndarray]


class TrainingState:
    """See the file.

    Attributes:
        layouts: of each group. vectors: `<group>.weights` and `<group>.<slot>` as they are now. parameters: views into
            them, by the tensor's name. statistics: running means and variances. steps: done until now.
        restored: how often it was taken over from elsewhere; who has copies of it looks whether they are old.
    """

    def __init__(self, program: TrainingProgram, initial: Mapping[str, np.ndarray]) -> None:
        """A state before the first step: `initial` has every parameter and statistic."""
        self.layouts = {group: Layout.of(shapes) for group, shapes in program.groups.items()}
        self._slots = ("weights", *program.slots)
        self.vectors = {f"{group}.{slot}": layout.vector()
                        for group, layout in self.layouts.items() for slot in self._slots}  # fmt: skip
        self._views = self._viewed()
        self.statistics = {name: np.array(initial[name], np.float32) for name in program.statistics}
        self.steps = self.restored = 0
        for name, view in self.parameters.items():
            view[...] = initial[name]
        for name, view in self._views.get(AVERAGE, {}).items():
            view[...] = initial[name]

    def _viewed(self) -> dict[str, Arrays]:
        """slot → tensor → view."""
        views: dict[str, Arrays] = {slot: {} for slot in self._slots}
        for group, layout in self.layouts.items():
            for slot in self._slots:
                views[slot].update(layout.views(self.vectors[f"{group}.{slot}"]))
        return views

    @property
    def parameters(self) -> Arrays:
        """The weights, by name: views, which the next step changes."""
        return self._views["weights"]

    def values(self, average: bool = False) -> Arrays:
        """The weights, or their moving average, and the running statistics, by name.

        Raises:
            UsageError: no average is kept.
        """
        if average and AVERAGE not in self._views:
            raise UsageError("no moving average is kept of the parameters", where="average", expected="ema=0.999")
        return self._views[AVERAGE if average else "weights"] | self.statistics

    def take(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Parameters and running statistics of these names become these; a moving average begins anew at them."""
        for values in (self.values(), self._views.get(AVERAGE, {})):
            for name, array in arrays.items():
                if name in values:
                    values[name][...] = array
        self.restored += 1

    def results(self) -> Arrays:
        """Where an update writes, by the names of its outputs."""
        return {f"{name}.new": vector for name, vector in self.vectors.items()}

    def tensors(self) -> Arrays:
        """All but the number of steps, by name: `weights/<parameter>`, `<slot>/<parameter>`, `statistics/<name>`."""
        named = {f"{slot}/{name}": view for slot, views in self._views.items() for name, view in views.items()}
        return named | {f"statistics/{name}": array for name, array in self.statistics.items()}

    def restore(self, tensors: Mapping[str, np.ndarray], steps: int) -> None:
        """Take over what `tensors` gave.

        Raises:
            InvalidInput: other names or shapes; nothing was taken over.
        """
        own = self.tensors()
        if set(own) != set(tensors):
            lost, extra = sorted(set(own) - set(tensors)), sorted(set(tensors) - set(own))
            raise InvalidInput("not the state of this training", expected=", ".join(lost[:5]) or "no more tensors",
                               found=", ".join(extra[:5]) or "fewer tensors")  # fmt: skip
        for name, array in own.items():
            if array.shape != tensors[name].shape or tensors[name].dtype != np.float32:
                raise InvalidInput("not the state of this training", where=name, expected=f"f32 {list(array.shape)}",
                                   found=f"{tensors[name].dtype} {list(tensors[name].shape)}")  # fmt: skip
        for name, array in own.items():
            array[...] = tensors[name]
        self.steps = steps
        self.restored += 1
