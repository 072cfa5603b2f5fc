"""Cases of the operators of ai.onnx.ml that prepare features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from catalogue.cases import Case, Operand, case, const

NAN = float("nan")


def _reference(op: str, operands: Sequence[Operand], attrs: Mapping[str, Any], **more: Any) -> Case:
    return case(op, operands, attrs, domain="ai.onnx.ml", **more)


_runtime = partial(_reference, oracle="onnxruntime")

HOLES = np.array([[1, NAN, 3], [NAN, 0, -0.0], [2, 5, NAN]], np.float32)
KEYS = [int(k) for k in np.random.default_rng(1).permutation(60)[:37]]
INTS = np.array([[1, 0, -3], [0, 7, 0]])

CASES = [
    # onnx.reference gives X's type, where the specification says f32
    *[_runtime("Scaler", [x], {"offset": [0.5, -1.0, 2.0], "scale": [2.0, 0.25, -3.0]})
      for x in ("f32[N=5,3]", "f64[2,3]", "i64[4,3]", "i32[1,3]", "f32[3]")],
    _runtime("Scaler", ["f32[17,33]"], {"offset": [0.5], "scale": [2.0]}),
    _reference("Scaler", ["f32[0,2]"], {"offset": [0.5, 1.0], "scale": [2.0, 1.0]}),
    # onnx.reference takes the largest magnitude for MAX, and f64 is given back as f64
    *[_runtime("Normalizer", [x], {"norm": norm}) for norm in ("MAX", "L1", "L2")
      for x in ("f32[N=5,7]", "f64[2,3]", "i64[4,3]", "i32[2,17]", "f32[9]",
                np.array([[0, 0, 0], [-1, 0, -2], [3, -4, 0]], np.float32))],
    _reference("Imputer", [HOLES], {"imputed_value_floats": [9.0, 8.0, 7.0], "replaced_value_float": NAN}),
    _reference("Imputer", [HOLES], {"imputed_value_floats": [9.0], "replaced_value_float": 0.0}),
    _reference("Imputer", [HOLES.astype(np.float64)], {"imputed_value_floats": [9.0], "replaced_value_float": NAN}),
    _reference("Imputer", ["f32[N=5,3]"], {"imputed_value_floats": [0.1, 0.2, 0.3], "replaced_value_float": 0.0}),
    _reference("Imputer", [INTS], {"imputed_value_int64s": [9, 8, 7], "replaced_value_int64": 0}),
    _reference("Imputer", [INTS.astype(np.int32)], {"imputed_value_int64s": [-5], "replaced_value_int64": 7}),
    _reference("Imputer", [INTS.astype(np.int32)], {"imputed_value_int64s": [-5], "replaced_value_int64": 1 << 40}),
    *[_reference("Binarizer", [x], {"threshold": t}) for t in (0.0, 0.5, -1.0)
      for x in ("f32[N=5,17]", "f64[2,3]", "i64[4,3]", "i32[9]")],
    _reference("Binarizer", [HOLES], {"threshold": 1.0}),
    _reference("Binarizer", ["i32[9]"], {"threshold": 1e30}),
    _reference("Binarizer", ["i32[9]"], {"threshold": -1e30}),
    *[_reference("ArrayFeatureExtractor", [x, y], {}) for x in ("f32[N=3,5]", "f64[5]", "i64[2,3,5]", "i32[1,5]")
      for y in (const([4, 0, 0]), np.array([[1, 2]]))],
    _reference("FeatureVectorizer", ["f32[N=3,2]", "f32[N=3,3]"], {"inputdimensions": [2, 3]}),
    _runtime("FeatureVectorizer", ["f32[3,2]", "f32[3,3]", "f32[3,1]"], {"inputdimensions": [3, 1, 1]}),
    _runtime("FeatureVectorizer", ["f64[4]", "f64[3]"], {"inputdimensions": [4, 2]}),
    _runtime("FeatureVectorizer", ["i64[3,2]"], {"inputdimensions": [2]}),
    _runtime("FeatureVectorizer", ["i32[3,2]", "i32[3,1]"], {"inputdimensions": [2, 1]}),
    *[_runtime("LabelEncoder", [x], {"keys_int64s": [1, -2, 0], "default_int64": 3, **values}, domain_opset=2)
      for x in ("i64[N=5,7]", INTS) for values in ({"values_int64s": [7, 5, 6]}, {"values_floats": [7.5, 5.0, 6.0]})],
    _runtime("LabelEncoder", [HOLES], {"keys_floats": [1.0, NAN, 0.0], "values_floats": [7.0, 5.0, 6.0]},
             domain_opset=4),
    *[_runtime("LabelEncoder", [x], {"keys_int64s": KEYS, "values_floats": [k / 4 for k in range(len(KEYS))],
                                     "default_float": -2.5}, low=-9, high=70, domain_opset=2)
      for x in ("i64[N=9,17]", "i64[1]", "i64[0,3]")],
    _runtime("LabelEncoder", ["f32[33]"], {"keys_floats": [k / 4 for k in range(-9, 9)],
                                           "values_int64s": list(range(18))}, domain_opset=2),
    _runtime("LabelEncoder", [np.array([1.5, 2.0, 0.1])], {"keys_tensor": np.array([1.5, 0.1]),
              "values_tensor": np.array([7.0, 8.0]), "default_tensor": np.array([-1.0])}, domain_opset=4),
    *[_reference("OneHotEncoder", [x], {"cats_int64s": [1, -2, 0]})
      for x in ("i64[N=5,7]", "i32[3]", INTS, INTS.astype(np.float32), INTS.astype(np.float64))],
    _reference("OneHotEncoder", [INTS], {"cats_int64s": [1, 7, 0, -3, 9], "zeros": 0}),
]
