"""Normalisations by the statistics of lines: Layer, RMS and Instance normalisation in any layout.

Three passes over a line in cache: mean; variance about the mean (Chan, Golub, LeVeque 1983: no cancellation); scaling.
RMS normalisation needs two. Short lines of known length stay in registers.
"""

from __future__ import annotations

from ....ir.graph import Node
from ....ir.ops.normalization import InstanceNormalization, Normalize, RMSNormalization
from ....ir.types import Dim, TensorType
from ....kernel_ir.builder import KValue
from ....kernel_ir.loops import KFunc
from ...fusion import Fusion
from ...lowering import KernelCall, LowerContext, lowers
from ..nest import Lane, broadcast_strides
from .line_tail import LineOperands, accumulator, lanes_for
from .lines import State, Walk, emit_lines, split_lines
from .reduce import count_of

VECTORS = 4  # of neighbouring lines at once


def parameter_strides(op: Normalize, parameter: TensorType, x: TensorType) -> tuple[Dim, ...]:
    """Strides of scale or bias per axis of x: a vector along the channels, or broadcast as numpy does."""
    if isinstance(op, InstanceNormalization):
        return tuple(1 if a == 1 else 0 for a in range(x.rank))
    return broadcast_strides(parameter, x)


@lowers(Normalize, windows="any")
def lower_normalize(ctx: LowerContext, node: Node) -> KernelCall:
    """(x - mean) / sqrt(var + epsilon) * scale + bias; LayerNormalization may ask for the statistics too."""
    fusion = Fusion.of(node)
    op = fusion.root.op
    assert isinstance(op, Normalize)
    given = [(n, v) for n, v in zip(("x", "scale", "bias"), fusion.root_inputs) if v is not None]
    x = given[0][1].tensor
    reads = [(n, v, x.strides if n == "x" else parameter_strides(op, v.tensor, x)) for n, v in given]
    operands = LineOperands(fusion, tuple(reads), tuple(range(x.rank)))
    axes = op.normalized_axes(x.rank)
    dtype = accumulator(x.dtype)
    lanes = lanes_for(ctx, dtype)
    kept, line = [a for a in x.axis_order if a not in axes], [a for a in x.axis_order if a in axes]
    lines = split_lines(kept, line, x.dims, operands.rows(), lanes, ctx.target.n_registers)
    centred = not isinstance(op, RMSNormalization)

    def build(name: str) -> KFunc:
        k = ctx.kernel(name, operands.params())

        def body(walk: Walk) -> None:
            def read(name: str, lane: Lane) -> KValue:
                place = next(i for i, (n, _, _) in enumerate(reads) if n == name)
                return k.cast(walk.load(name, lane, place), dtype)

            def mean_of(element) -> list[KValue]:  # type: ignore[no-untyped-def]
                def step(lane: Lane, state: State, v: int) -> State:
                    return [state[0] + element(lane, v)]

                sums = walk.fold([k.const(0, dtype)], step, lambda a, b: [a[0] + b[0]])
                return [s / count_of(k, lines.length, s) for (s,) in sums]

            def deviation(lane: Lane, v: int) -> KValue:
                value = read("x", lane)
                return value - means[v] if centred else value

            def square(lane: Lane, v: int) -> KValue:
                d = deviation(lane, v)
                return d * d

            means = mean_of(lambda lane, v: read("x", lane)) if centred else []
            inverse = [k.const(1, s) / k.math("sqrt", s + op.epsilon) for s in mean_of(square)]
            for v, lane in enumerate(walk.results()):
                operands.store_statistics(k, lane, [*means[v : v + 1], inverse[v]])

            def scale(lane: Lane, v: int) -> None:
                y = deviation(lane, v) * inverse[v] * read("scale", lane)
                operands.finish(k, lane, y + read("bias", lane) if len(reads) > 2 else y)

            walk.each(scale)

        emit_lines(k, lines, lanes, body, VECTORS)
        return k.func

    return operands.call(ctx, ctx.function("normalize", node, build), lines.work(lanes, VECTORS))
