"""The standard `onnx.backend` interface (prepare, run_model, run_node, supports_device) on top of parax.

Follows onnx/backend/base.py, so that tools and test suites written for any ONNX backend run on this one.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ParaxError, UsageError, reported
from .api import compile
from .frontend.single_node import model_of_node

if TYPE_CHECKING:
    from ..runtime.plan import Plan
    from .frontend.parse import Source

Feeds = Mapping[str, Any] | Sequence[Any] | np.ndarray


class Rep:
    """A prepared model; `run` may be called any number of times.

    Attributes:
        plan: what was compiled.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._session = plan.session()
        self._outputs = namedtuple("Outputs", [spec.name for spec in plan.outputs], rename=True)  # type: ignore[misc]

    @reported
    def run(self, inputs: Feeds, **kwargs: Any) -> tuple[np.ndarray, ...]:
        """Run on inputs by name, in the model's order, or a single array.

        Returns:
            The outputs in the model's order; a named tuple where their names are Python names.
        """
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if not isinstance(inputs, Mapping):
            names = [spec.name for spec in self.plan.inputs]
            if len(inputs) != len(names):
                raise UsageError("wrong number of inputs", expected=len(names), found=len(inputs))
            inputs = dict(zip(names, inputs))
        results = self._session.run(inputs)
        return self._outputs(*(results[spec.name] for spec in self.plan.outputs))


@reported
def supports_device(device: str) -> bool:
    """Whether the device, in the form `CPU` or `CPU:0`, is a CPU."""
    return device.split(":")[0].upper() == "CPU"


def is_compatible(model: Source, device: str = "CPU", **kwargs: Any) -> bool:
    """Whether parax compiles the model for the device."""
    try:
        prepare(model, device)
    except ParaxError:
        return False
    return True


@reported
def prepare(model: Source, device: str = "CPU", **kwargs: Any) -> Rep:
    """Compile a model, ready to run.

    Args:
        kwargs: as for `parax.compile`.

    Raises:
        UsageError: the device is not a CPU.
        ParaxError: as `parax.compile`.
    """
    if not supports_device(device):
        raise UsageError("no such device", expected="CPU", found=device)
    return Rep(compile(model, **kwargs))


@reported
def run_model(model: Source, inputs: Feeds, device: str = "CPU", **kwargs: Any) -> tuple[np.ndarray, ...]:
    """Compile and run once."""
    return prepare(model, device, **kwargs).run(inputs)


@reported
def run_node(
    node: Any, inputs: Feeds, device: str = "CPU", outputs_info: object = None, **kwargs: Any
) -> tuple[np.ndarray, ...]:
    """Run one NodeProto on arrays for its inputs, in order.

    Args:
        outputs_info: accepted for the interface's sake; parax infers the types.
        kwargs: `opset_version`: the operator set that the node is written for.
    """
    if isinstance(inputs, np.ndarray):
        inputs = [inputs]
    given = inputs if isinstance(inputs, Mapping) else dict(zip([name for name in node.input if name], inputs))
    arrays = {name: np.asarray(value) for name, value in given.items()}
    opset = {"opset": kwargs["opset_version"]} if "opset_version" in kwargs else {}
    return prepare(model_of_node(node, arrays, **opset), device).run(arrays)
