"""Cases of products by weights of 4 and 8 bits with a scale a block."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, Operand, case, const

RNG = np.random.default_rng(11)


def _case(
    a: str,
    n: int,
    bits: int,
    size: int,
    zeros: str = "",
    *,
    constant: bool = True,
    bias: bool = False,
    dtype: str = "f32",
    columns: bool = True,
    level: int = 0,
) -> Case:
    """By N columns; `zeros`: packed, or one float each; `columns`: scales have an axis of them; `level`: accuracy."""
    depth = int(a.split(",")[-1].rstrip("]"))
    blocks = -(-depth // size)
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    q = RNG.integers(0, 256, (n, blocks, size * bits // 8)).astype(np.uint8)
    scales = RNG.uniform(0.01, 0.1, (n, blocks)).astype(kind)
    operands: list[np.ndarray | None] = [q, scales if columns else scales.reshape(-1)]
    if zeros == "packed":
        operands.append(RNG.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8))
    elif zeros:
        operands.append(RNG.uniform(0, 1 << bits, n * blocks).astype(kind))
    if bias:
        operands += [None] * (4 - len(operands)) + [RNG.uniform(-1, 1, n).astype(kind)]
    given: list[Operand] = [a, *(o if o is None or not constant else const(o) for o in operands)]
    attrs = {"K": depth, "N": n, "bits": bits, "block_size": size, "accuracy_level": level}
    return case("MatMulNBits", given, attrs, domain="com.microsoft", oracle="onnxruntime",
                atol=0.1 if level == 4 else None)  # fmt: skip


CASES = [
    _case("f32[3,70]", 37, 4, 32),
    _case("f32[1,64]", 16, 4, 16, columns=False),
    _case("f32[N=5,2,96]", 33, 4, 32, "packed"),
    _case("f32[17,300]", 1, 4, 128, "packed", bias=True),
    _case("f32[2,40]", 19, 4, 16, "floats"),
    _case("f32[3,70]", 37, 8, 32),
    _case("f32[1,520]", 40, 8, 256, "packed", bias=True),
    _case("f32[3,70]", 37, 4, 32, level=4),
    _case("f32[N=7,100]", 37, 4, 64, "packed", level=4),
    _case("f32[33,70]", 35, 8, 16, "packed"),
    _case("f32[2,40]", 19, 4, 16, "packed", constant=False),
    _case("f32[2,40]", 19, 8, 32, constant=False, bias=True),
]
