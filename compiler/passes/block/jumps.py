"""Where a rounding error may become a whole number's difference: behind which results somebody rounds or compares.

Arithmetic that rounds otherwise than the model's own (x · 1/c for x / c) is off by the last bit. An operator that jumps
(Floor, QuantizeLinear, a comparison) makes another integer of it, and exact quotients, ties and zeros are what models
are built on. Sums of many products have an order that nobody says, so whatever follows them is open anyway.
"""

from __future__ import annotations

from ...ir.graph import Node, Value
from ...ir.open_sums import is_open_sum
from ...ir.ops.activation import Shrink, ThresholdedRelu
from ...ir.ops.arithmetic import Ceil, Floor, Mod, Round, Sign
from ...ir.ops.base import Elementwise, Movement, Operator, Reduce, Relayout, Window
from ...ir.ops.filling import Trilu
from ...ir.ops.gathering import Gather, GatherElements, GatherND, ReverseSequence, Scatter
from ...ir.ops.quantization import RoundTo
from ...ir.ops.rearrange import DepthToSpace, SpaceToDepth
from ...ir.ops.reduce import Cumulative
from ...ir.ops.resize import Resize
from ...ir.ops.shape import Shape
from ...ir.ops.slicing import Pad, Split
from ...ir.types import DType, TensorType

MOST_READERS = 32
MODERATE = 24  # binary digits by which a factor that moves elsewhere may change what is computed on the way
_JUMPS = (Round, Floor, Ceil, Mod, RoundTo, Sign, ThresholdedRelu, Shrink)
_FOLLOWED: tuple[type[Operator], ...] = (Elementwise, Movement, Reduce, Window, Relayout)
_PASSED_ON = (Split, Pad, Gather, GatherElements, GatherND, Scatter, Trilu, DepthToSpace, SpaceToDepth, Resize,
              ReverseSequence, Cumulative)  # fmt: skip


def may_jump(node: Node) -> bool:
    """Whether a rounding error in a node's result may become more than one, as far as its readers are followed.

    What a graph returns, to its caller or out of a branch or loop, may be anything's operand.
    """
    seen, pending = {node}, [node]
    while pending:
        for v in pending.pop().outputs:
            if v.output_uses:
                return True
            for reader in v.users:
                if is_open_sum(reader) or isinstance(reader.op, Shape) or reader in seen:
                    continue
                if len(seen) >= MOST_READERS or _jumps(reader, v):
                    return True
                seen.add(reader)
                pending.append(reader)
    return False


def _jumps(reader: Node, v: Value) -> bool:
    passed_on = isinstance(reader.op, _PASSED_ON) and reader.operands[0] is v
    if isinstance(reader.op, _JUMPS) or not (passed_on or isinstance(reader.op, _FOLLOWED)):
        return True
    return not all(isinstance(y.type, TensorType) and _is_as_fine(y.type.dtype, v.tensor.dtype) for y in reader.outputs)


def _is_as_fine(result: DType, given: DType) -> bool:
    """Whether results are rounded no more coarsely: neither whole numbers, truth values nor shorter floats."""
    return result.is_float and result.bits >= given.bits
