"""Cases of the linear models of ai.onnx.ml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from catalogue.cases import Case, Operand, case

_RNG = np.random.default_rng(5)
TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")


def _reference(op: str, operands: Sequence[Operand], attrs: Mapping[str, Any], **more: Any) -> Case:
    return case(op, operands, attrs, domain="ai.onnx.ml", **more)


_runtime = partial(_reference, oracle="onnxruntime")


def numbers(*shape: int) -> list[float]:
    """So many random numbers."""
    return list(map(float, _RNG.normal(size=shape).astype(np.float32).ravel()))


TWO = {"coefficients": numbers(7), "intercepts": [0.25]}
FOUR = {"coefficients": numbers(4, 5), "intercepts": numbers(4)}
NEAR_HALF = {"coefficients": [0.1, -0.05, 0.02, 0.05], "intercepts": [0.4, 0.6], "targets": 2}
SUPPORT = {"coefficients": numbers(11), "support_vectors": numbers(11, 3), "n_supports": 11, "rho": [0.3],
           "kernel_params": [0.4, 0.7, 3.0]}  # fmt: skip
STUMP = {"nodes_treeids": [0] * 3, "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
         "nodes_values": [0.25, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_hitrates": [1.0] * 3,
         "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "nodes_missing_value_tracks_true": [0] * 3,
         "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.5],
         "n_targets": 1}  # fmt: skip

def _machine(classes: int, probabilities: bool) -> dict[str, Any]:
    """Support vectors of three features, from one on for each class, and what belongs to them."""
    per_class, pairs = list(range(1, classes + 1)), classes * (classes - 1) // 2
    n = sum(per_class)
    own = {"prob_a": [-1.5 + 0.1 * i for i in range(pairs)], "prob_b": numbers(pairs)} if probabilities else {}
    return {"vectors_per_class": per_class, "support_vectors": numbers(3 * n), "rho": numbers(pairs),
            "coefficients": numbers(n * (classes - 1)), "kernel_params": [0.5, 0.25, 2.0], **own}


CASES = [
    _reference("LinearRegressor", ["f32[N=5,7]"], TWO),
    _reference("LinearRegressor", ["f32[3,7]"], {**TWO, "intercepts": [0.0]}),
    *[_runtime("LinearRegressor", ["f32[N=3,5]"], {**FOUR, "targets": 4, "post_transform": t}) for t in TRANSFORMS],
    # ONNX Runtime computes PROBIT in f32, which cancels at 0.5
    _runtime("LinearRegressor", ["f32[9,2]"], {**NEAR_HALF, "post_transform": "PROBIT"}, rtol=1e-2),
    # onnx.reference gives no label its type, and takes -s for 1 - s; ONNX Runtime leaves out SOFTMAX of one score
    *[_runtime("LinearClassifier", [x], {**TWO, "classlabels_ints": [3, -2], "post_transform": t}, outputs=2)
      for x in ("f32[N=5,7]", "f64[3,7]", "i64[4,7]", "i32[2,7]", "f32[1,7]") for t in ("NONE", "LOGISTIC")],
    *[_reference("LinearClassifier", ["f32[N=5,7]"], {**TWO, "classlabels_ints": [0, 1], "post_transform": t},
                 outputs=2) for t in ("SOFTMAX", "SOFTMAX_ZERO")],
    *[_runtime("LinearClassifier", [x], {**FOUR, "classlabels_ints": [0, 1, 2, 3], "post_transform": t}, outputs=2)
      for x in ("f32[N=5,5]", "i32[2,5]") for t in TRANSFORMS],
    *[_runtime("LinearClassifier", ["f32[N=5,5]"], {**FOUR, "classlabels_ints": [7, 1, -2, 3], "multi_class": 1},
               outputs=2)],
    _runtime("LinearClassifier", ["f32[9,2]"], {"coefficients": [0.1, -0.05, 0.02, 0.05], "intercepts": [0.4, 0.6],
                                                "classlabels_ints": [4, 5], "post_transform": "PROBIT"},
             outputs=2, rtol=1e-2),
    *[_reference("SVMRegressor", [x], {**SUPPORT, "kernel_type": kernel, "one_class": one})
      for x in ("f32[N=7,3]", "f32[1,3]") for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID") for one in (0, 1)],
    _reference("SVMRegressor", ["f32[N=7,5]"], {"coefficients": numbers(5), "rho": [0.5], "kernel_type": "LINEAR"}),
    *[_runtime("SVMClassifier", ["f32[N=9,3]"], {**_machine(len(ints), prob), "classlabels_ints": ints,
                                                 "kernel_type": kernel, "post_transform": transform}, outputs=2)
      for ints, prob, kernel, transform in (([7, -2, 5, 0], True, "RBF", "NONE"),
                                            ([7, -2, 5], False, "POLY", "SOFTMAX"),
                                            ([1, 3], True, "SIGMOID", "LOGISTIC"), ([0, 1], False, "LINEAR", "NONE"),
                                            ([0, 1, 2], False, "RBF", "SOFTMAX_ZERO"))],
    _runtime("SVMClassifier", ["f64[3]"], {**_machine(3, True), "classlabels_ints": [3, 1, 2]}, outputs=2),
    _runtime("SVMClassifier", ["f32[N=6,4]"], {"coefficients": numbers(12), "rho": [0.25], "kernel_params": [0.0] * 3,
                                               "post_transform": "LOGISTIC", "classlabels_ints": [4, 2, 3]},
             outputs=2),
    # forests: backend/kernels/test_trees.py
    _runtime("TreeEnsembleRegressor", ["f32[N=5,2]"], STUMP, domain_opset=3),
]
