"""Products of narrow types as cases, and what the instructions of their tiles reach on registers alone.

Owns the peaks of bf16 and of bytes: sums of a whole tile by operands that stay where they are. Aim: products reach 90 %
of them, warm.
"""

from __future__ import annotations

import ctypes

import numpy as np

from parax.compiler.backend.host import host_features
from parax.compiler.backend.microkernels.table import features_of, has_instruction, tiles
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import BF16, I8, U8, DType, TensorType
from parax.compiler.kernel_ir.builder import KValue, kernel
from parax.compiler.kernel_ir.loops import PtrType
from parax.compiler.targets.target import Target, extended

from .kernel_cases import bound_case, compile_kernels, node_case
from .warm_cold import Case, aligned

Shapes = list[tuple[int, int, int]]
BUFFER_NBYTES = 4096  # of what a tile holds in registers
STEPS = 50_000  # of a tile: about a millisecond


def gemm_bf16_cases(target: Target, shapes: Shapes) -> list[Case]:
    """Products M × K by K × N of bf16, as `--precision bf16` keeps them, and of f32 that the product rounds itself;
    none where the CPU has no instruction for them."""
    able = _able(target, BF16)
    if able is None:
        return []
    kept = (node_case(f"gemm bf16 {m}x{k}x{n}", able, "parax::Bf16MatMul", [(m, k), (k, n)], {}, (1,), dtype=BF16)
            for m, k, n in shapes)
    rounds = (node_case(f"gemm bf16 {m}x{k}x{n} of f32", able, "MatMul", [(m, k), (k, n)], {}, (1,), matmul_input=BF16)
              for m, k, n in shapes)  # fmt: skip
    return [*_peak(able, BF16), *kept, *rounds]


def gemm_int8_cases(target: Target, shapes: Shapes) -> list[Case]:
    """The same of u8 by i8, summed in i32."""
    able = _able(target, U8)
    return [] if able is None else [*_peak(able, U8), *(_bytes_case(able, *shape) for shape in shapes)]


def _able(target: Target, dtype: DType) -> Target | None:
    """The target with what this CPU has for products of a type; None: it has none."""
    able = extended(target, features_of(dtype) & host_features())
    return able if any(tiles(able, dtype)) and has_instruction(able, dtype) else None


def _peak(target: Target, dtype: DType) -> list[Case]:
    """None for matrix registers: see the group `matrices`."""
    tile = next(tile for tile in tiles(target, dtype) if tile.usual)
    return [] if tile.emitter.matrices else [tile_peak_case(target, dtype)]


def tile_peak_case(target: Target, dtype: DType, steps: int = STEPS) -> Case:
    """A tile's multiply-adds by one row of A and one vector of B: as many independent sums as it has."""
    tile = max((tile for tile in tiles(target, dtype) if tile.usual), key=lambda tile: tile.rows * tile.vectors)
    emitter, lanes, n = tile.emitter, target.f32_lanes, tile.rows * tile.vectors
    multiply_add = emitter.multiply_add
    assert multiply_add is not None
    k = kernel("narrow_peak", [("a", PtrType(emitter.element)), ("b", PtrType(emitter.b_element)),
                               ("y", PtrType(emitter.sums))])  # fmt: skip
    a = emitter.splat(k, k["a"], k.index(0), lanes)
    b = emitter.columns(k, k["b"], k.index(0), lanes, None, None)
    first = [emitter.begin(k, k.load(k["y"], i * lanes, lanes)) for i in range(n)]

    def step(i: KValue, sums: list[KValue]) -> list[KValue]:
        return [multiply_add(k, a, b, c, target.has_fma) for c in sums]

    for i, value in enumerate(k.for_(0, k["end"], 1, first, step)):
        k.store(k["y"], i * lanes, emitter.end(k, value))
    code, dims = compile_kernels([k.func], target), np.zeros(8, np.int64)
    held = [aligned(BUFFER_NBYTES) for _ in range(3)]
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, ctypes.c_int64, ctypes.c_int64)(
        code.address("bench_narrow_peak")
    )
    pointers = [m.ctypes.data for m in (*held, dims, dims)]

    def run(code: object = code) -> None:
        function(*pointers, 0, steps)

    return Case(f"peak of {dtype}", run, 2.0 * steps * n * lanes * emitter.k_step, 0)


def _bytes_case(target: Target, m: int, k: int, n: int) -> Case:
    rng, graph = np.random.default_rng(0), Graph("bench")
    x = graph.add_input("x", TensorType(U8, (m, k)))
    w = graph.add_constant(rng.integers(-127, 128, (k, n)).astype(I8.numpy))
    node = graph.add_node(lookup("parax", "ByteMatMul")(), [x, w])
    graph.set_outputs(node.outputs)
    return bound_case(f"gemm int8 {m}x{k}x{n}", target, node, rng)


__all__ = ["gemm_bf16_cases", "gemm_int8_cases", "tile_peak_case"]
