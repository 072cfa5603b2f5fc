"""Cases of the normalisations."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case, const

POSITIVE = np.linspace(0.5, 1.5, 5, dtype=np.float32)


def _batch(shape: str) -> Case:
    return case("BatchNormalization", [shape, "f32[5]", "f32[5]", "f32[5]", POSITIVE], {"epsilon": 1e-3})


def _of_batch(shape: str, dtype: str = "f32", outputs: int = 3, **more: float) -> Case:
    numpy = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[dtype]
    operands = [f"{dtype}[{shape}]", *[f"{dtype}[5]"] * 3, POSITIVE.astype(numpy)]
    return case("BatchNormalization", operands, {"training_mode": 1, "momentum": 0.75}, outputs=outputs, **more)


CASES = [
    _of_batch("4,5"),
    _of_batch("N=6,5,7", outputs=1),
    _of_batch("40,5,9,11"),  # parts of the batch
    _of_batch("N=3,5,9,H=2"),
    _of_batch("1,5,2,3,2"),
    _of_batch("3,5,7", "f64"),
    _of_batch("3,5,7", "f16", rtol=1e-2, atol=1e-2),
    _batch("f32[2,5]"),
    _batch("f32[N=2,5,7]"),
    _batch("f32[2,5,3,4]"),
    _batch("f32[1,5,2,3,2]"),
    case("BatchNormalization", ["f32[7]", *["f32[1]"] * 3, POSITIVE[:1]]),  # one axis: one channel
    case("BatchNormalization", ["f32[N=7]", *["f32[1]"] * 3, POSITIVE[:1]]),
    case("BatchNormalization", ["f32[N=0,5]", "f32[5]", "f32[5]", "f32[5]", POSITIVE]),
    case("BatchNormalization", ["f64[2,5,7]", "f64[5]", "f64[5]", "f64[5]", POSITIVE.astype(np.float64)]),
    case("BatchNormalization", ["f16[2,5,7]", "f16[5]", "f16[5]", "f16[5]", POSITIVE.astype(np.float16)], rtol=1e-2,
         atol=1e-2),
    case("BatchNormalization", ["f32[2,5,7]", const(POSITIVE), const(POSITIVE), const(POSITIVE), const(POSITIVE)]),
    case("InstanceNormalization", ["f32[2,3,8,9]", "f32[3]", "f32[3]"]),
    case("InstanceNormalization", ["f32[N=2,3,300]", "f32[3]", "f32[3]"], {"epsilon": 1e-2}),
    case("InstanceNormalization", ["f32[2,3,H=5,W=7]", "f32[3]", "f32[3]"]),
    case("InstanceNormalization", ["f64[2,3,4,2,3]", "f64[3]", "f64[3]"]),
    case("LayerNormalization", ["f32[3,768]", "f32[768]", "f32[768]"]),
    case("LayerNormalization", ["f32[3,77]", "f32[77]"], {"epsilon": 1e-2}),
    case("LayerNormalization", ["f32[N=2,3,64]", "f32[64]", "f32[64]"], outputs=3),
    case("LayerNormalization", ["f32[2,3,4,5]", "f32[3,4,5]", "f32[3,4,5]"], {"axis": 1}, outputs=3),
    case("LayerNormalization", ["f32[2,3,4,5]", "f32[4,5]", "f32[5]"], {"axis": 2}),
    case("LayerNormalization", ["f32[2,N=33]", "f32[33]", "f32[33]"], oracle="onnxruntime"),
    case("LayerNormalization", ["f32[7]", "f32[7]", "f32[7]"], {"axis": 0}),
    case("LayerNormalization", ["f64[2,19]", "f64[19]", "f64[19]"], rtol=1e-6),
    case("LayerNormalization", ["f16[2,40]", "f16[40]", "f16[40]"], rtol=2e-2, atol=1e-2),
    case("RMSNormalization", ["f32[3,77]", "f32[77]"]),
    case("RMSNormalization", ["f32[N=2,3,4]", "f32[3,4]"], {"axis": 1, "epsilon": 1e-2}),
    case("RMSNormalization", ["f64[2,130]", "f64[130]"]),
    case("GroupNormalization", ["f32[2,6,5,3]", "f32[6]", "f32[6]"], {"num_groups": 2}),
    case("GroupNormalization", ["f32[N=2,4,33]", "f32[4]", "f32[4]"], {"num_groups": 4, "epsilon": 1e-2}),
    case("LpNormalization", ["f32[3,20]"]),
    case("LpNormalization", ["f32[N=3,4,5]"], {"axis": 1, "p": 1}, opset=21, oracle="onnxruntime"),
    case("LpNormalization", [np.zeros((2, 3), np.float32)], {"axis": 1}),
    case("LpNormalization", ["f64[3,4]"], {"axis": 0, "p": 2}, opset=21, oracle="onnxruntime"),
    case("LRN", ["f32[2,5,4,3]"], {"size": 3}, oracle="onnxruntime"),
    case("LRN", ["f32[N=2,7,2,2]"], {"size": 5, "alpha": 0.1, "beta": 0.5, "bias": 2.0}, oracle="onnxruntime"),
    case("LRN", ["f32[1,6,2,2]"], {"size": 3, "alpha": 0.3}, oracle="onnxruntime"),
    case("MeanVarianceNormalization", ["f32[3,4,5,6]"]),
    case("MeanVarianceNormalization", ["f32[N=3,4,5]"], {"axes": [-1]}),
    case("Dropout", ["f32[2,5]"]),
    case("Dropout", ["f32[N=2,5]", const(np.float32(0.3))], outputs=2),
    case("Dropout", ["f16[3,4]", const(np.float32(0.3)), const(np.array(False))], outputs=2),
    case("Dropout", ["f32[2,5,3]", const(np.float32(0.0)), const(np.array(True))], {"seed": 1}, outputs=2),
    *(case("Dropout", ["f32[N=2,5,3]", np.array(ratio, np.float32), np.array(mode)], outputs=2)
      for ratio, mode in ((0.5, False), (0.0, True))),
]
