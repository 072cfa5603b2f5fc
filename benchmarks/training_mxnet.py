"""MXNet 1.9.1's side of `python -m benchmarks.training`, run by an interpreter that has it, with numpy 1.23.5.

`PYTHON -m benchmarks.training_mxnet JSON` reads what training_portable wrote, binds forward and backward as one
symbolic graph, updates weights some at a time as its Trainer does, and answers as `training_protocol` says.
Owns the step; must import nothing of parax or onnx.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before mxnet: its idle threads must not take our cores

import mxnet as mx
import numpy as np

from .training_mxnet_models import MODELS, Arrays, pictures
from .training_protocol import Step, serve

_AT_ONCE = 45
"""Weights of one call of its update, which takes at most 60."""


def main() -> None:
    """Entry point."""
    task = json.loads(sys.argv[1])
    mx.nd.ones(1).wait_to_read()  # its engine, which is no memory of the model's
    serve(lambda: step_of(task["training"], task["name"]), task["cores"])


def step_of(path: str, name: str) -> Step:
    """The step of the training in a file."""
    with np.load(path) as filed:
        about = json.loads(str(filed["about"]))
        weights, data = ({key.split(":", 1)[1]: filed[key] for key in filed.files if key.startswith(kind)}
                         for kind in ("weight:", "data:"))  # fmt: skip
    data = {key: _wide_enough(value) for key, value in data.items()}
    result, weights = MODELS.get(name, pictures)(about, weights, {key: value.shape for key, value in data.items()})
    executor = _bound(_loss(about, result), weights, data)
    trained = [key for key in executor.arg_dict if key not in data]
    groups = [trained[i : i + _AT_ONCE] for i in range(0, len(trained), _AT_ONCE)]
    momenta = {key: mx.nd.zeros(executor.arg_dict[key].shape) for key in trained}

    def step() -> float:
        (loss,) = executor.forward(is_train=True)
        executor.backward()
        for group in groups:
            own = [executor.arg_dict[key] for key in group]
            each = [a for key, w in zip(group, own) for a in (w, executor.grad_dict[key], momenta[key])]
            mx.nd.multi_sgd_mom_update(*each, out=own, num_weights=len(own), lrs=[about["rate"]] * len(own),
                                       wds=[0.0] * len(own), momentum=about["momentum"])  # fmt: skip
        mx.nd.waitall()
        return float(loss.asscalar())

    return step


def _loss(about: dict[str, Any], result: Any) -> Any:
    labels = mx.sym.Variable("labels")
    if about["loss"] == "scores":  # the stable form of the loss of scores
        each = mx.sym.relu(result) - result * labels + mx.sym.Activation(-mx.sym.abs(result), act_type="softrelu")
    else:
        each = -mx.sym.pick(mx.sym.log_softmax(result, axis=about["axis"]), labels, axis=about["axis"])
    return mx.sym.make_loss(mx.sym.mean(each))


def _bound(loss: Any, weights: Arrays, data: Arrays) -> Any:
    """Its executor with the weights in place, all of which have gradients; statistics keep theirs."""
    gradients = {key: "null" if key in data else "write" for key in loss.list_arguments()}
    shapes = {key: value.shape for key, value in data.items()}
    executor = loss.simple_bind(mx.cpu(), grad_req=gradients, **shapes)
    for key, target in {**executor.arg_dict, **executor.aux_dict}.items():
        target[:] = data[key] if key in data else weights[key]
    missing = {key for key in gradients if key not in executor.arg_dict}
    assert not missing, missing
    return executor


def _wide_enough(value: np.ndarray) -> np.ndarray:
    """f32, in which it takes ids and labels too; exact up to 2²⁴."""
    return value.astype(np.float32)


if __name__ == "__main__":
    main()
