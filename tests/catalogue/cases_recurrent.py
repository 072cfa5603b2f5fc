"""Cases of RNN, GRU and LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np

from catalogue.cases import Case, Operand, case, const

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
RNG = np.random.default_rng(11)


def sequence(op: str, steps: Any = 5, batch: Any = 3, inputs: int = 7, hidden: int = 20, *, given: str = "b",
             fixed: bool = True, dtype: Any = np.float32, outputs: int | None = None, **attrs: Any) -> Case:
    """A case; `given` names the optional operands: b, l (lengths), h, c, p; `fixed`: constant weights."""
    d, g = 2 if attrs.get("direction") == "bidirectional" else 1, GATES[op]
    b = int(str(batch).split("=")[-1])

    def array(*shape: int) -> Any:
        limit = min(0.7, 1.5 / hidden**0.5)  # larger weights make long sequences chaotic
        content = RNG.uniform(-limit, limit, shape).astype(dtype)
        return const(content) if fixed else content

    state = (b, d, hidden) if attrs.get("layout") else (d, b, hidden)
    t = str(steps).split("=")[-1]
    lengths = np.clip(np.arange(b) * 2 + 1, 1, int(t)).astype(np.int32)
    axes = [batch, steps] if attrs.get("layout") else [steps, batch]
    name = {np.float32: "f32", np.float16: "f16"}[dtype]
    operands: list[Operand] = [f"{name}[{axes[0]},{axes[1]},{inputs}]", array(d, g * hidden, inputs),
                               array(d, g * hidden, hidden)]
    optional: list[tuple[str, Any]] = [
        ("b", array(d, 2 * g * hidden)), ("l", lengths), ("h", RNG.uniform(-1, 1, state).astype(dtype)),
        ("c", RNG.uniform(-1, 1, state).astype(dtype)), ("p", array(d, 3 * hidden))]
    operands += [v if n in given else None for n, v in optional[: 5 if op == "LSTM" else 3]]
    while operands[-1] is None:
        operands.pop()
    return case(op, operands, {"hidden_size": hidden, **attrs}, outputs=outputs or (3 if op == "LSTM" else 2),
                oracle="onnxruntime", opset=14, rtol=1e-3, atol=1e-5)


def _common(op: str) -> list[Case]:
    return [
        sequence(op),
        sequence(op, given=""),
        sequence(op, given="bh"),
        sequence(op, given="blh"),
        sequence(op, steps="T=6", batch="N=5"),
        sequence(op, batch="N=31", given="bl"),
        sequence(op, steps=40, batch=4, hidden=64, inputs=16),
        sequence(op, hidden=1, inputs=1, steps=1, batch=1),
        sequence(op, batch=9, hidden=33, fixed=False),
        sequence(op, direction="reverse"),
        sequence(op, direction="reverse", given="bl"),
        sequence(op, direction="bidirectional", given="blh"),
        sequence(op, direction="bidirectional", fixed=False, outputs=1),
        sequence(op, clip=0.3),
    ]


CASES = [
    *(c for op in GATES for c in _common(op)),
    sequence("GRU", linear_before_reset=1),
    sequence("GRU", linear_before_reset=1, direction="bidirectional", given="bh", batch="N=3"),
    sequence("GRU", linear_before_reset=1, fixed=False, given="b"),
    sequence("GRU", linear_before_reset=1, given=""),
    sequence("LSTM", given="blhcp"),
    sequence("LSTM", given="bhcp", direction="bidirectional"),
    sequence("LSTM", given="bc", input_forget=1),
    sequence("LSTM", activations=["HardSigmoid", "Softsign", "Relu"]),
    sequence("LSTM", activations=["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Elu", "LeakyRelu"],
             activation_alpha=[0.3, 0.7, 0.05], activation_beta=[0.4], direction="bidirectional"),
    sequence("RNN", activations=["Relu"]),
    sequence("RNN", activations=["Affine"], activation_alpha=[0.5], activation_beta=[0.1]),
    sequence("RNN", activations=["ScaledTanh"], activation_alpha=[0.5], activation_beta=[1.5]),
    sequence("RNN", activations=["ThresholdedRelu"], activation_alpha=[0.2]),
    sequence("RNN", activations=["Softplus"]),
    sequence("GRU", activations=["HardSigmoid", "Softsign"]),
    case("LSTM", ["f32[4,2,3]", "f32[1,20,3]", "f32[1,20,5]"], {"hidden_size": 5}, outputs=3),
    case("LSTM", ["f32[2,4,3]", "f32[1,20,3]", "f32[1,20,5]"], {"hidden_size": 5, "layout": 1}, outputs=3),
    case("GRU", ["f32[2,4,3]", "f32[1,15,3]", "f32[1,15,5]"], {"hidden_size": 5, "layout": 1}, outputs=2),
    case("RNN", ["f32[2,4,3]", "f32[1,5,3]", "f32[1,5,5]"], {"hidden_size": 5, "layout": 1}, outputs=2),
    case("LSTM", ["f16[4,2,3]", "f16[1,20,3]", "f16[1,20,5]", "f16[1,40]"], {"hidden_size": 5}, outputs=3, rtol=2e-2,
         atol=4e-3),
]
