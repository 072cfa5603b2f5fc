"""What ONNX Runtime's dynamic quantiser makes of whole layers: an LSTM of bytes, and BERT's first layer of bytes.

Source: docs/ContribOperators.md of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any as PyAny

from ..types import F32, Type
from .base import Attr, Composite, Float32, Floats, In, InferContext, Opt, OptOut, Out, Strs, op
from .casting import cast_to
from .contrib_normalization import EmbedLayerNormalization, TokenIndex
from .contrib_quantised import check_one, real
from .quantised_products import ByteA, ByteB
from .recurrent import Lengths


def _gate_weights(g: PyAny, q: PyAny, scale: PyAny, zero: PyAny) -> PyAny:
    """Bytes [D, inputs, 4·hidden] as f32 [D, 4·hidden, inputs], by a scale for each direction or each column of one."""
    zero = cast_to(g, zero, F32)
    scale, zero = (g.Unsqueeze(v, [1] if v.tensor.rank == 2 else [1, 2]) for v in (scale, zero))
    return g.Transpose(g.Mul(g.Sub(cast_to(g, q, F32), zero), scale), perm=[0, 2, 1])


@op(domain="com.microsoft")
class DynamicQuantizeLSTM(Composite):
    """LSTM by weights of bytes, W [D, inputs, 4·hidden] and R [D, hidden, 4·hidden]: ONNX's, transposed.

    Scales and zero points are one for each direction, [D], or for each column of one, [D, 4·hidden]. Weights become
    f32, and activations stay so: ONNX Runtime rounds them to 8 bits, by ranges that depend on how its threads share
    the rows, and its results are further from the model that was quantised.
    """

    x: In[Float32]
    w: In[ByteB]
    r: In[ByteB]
    b: Opt[Float32]
    sequence_lens: Opt[Lengths]
    initial_h: Opt[Float32]
    initial_c: Opt[Float32]
    p: Opt[Float32]
    w_scale: In[Float32]
    w_zero_point: In[ByteB]
    r_scale: In[Float32]
    r_zero_point: In[ByteB]
    y: OptOut
    y_h: OptOut
    y_c: OptOut
    activation_alpha: Attr[Floats] = None  # type: ignore[assignment]
    activation_beta: Attr[Floats] = None  # type: ignore[assignment]
    activations: Attr[Strs] = None  # type: ignore[assignment]
    clip: Attr[float] = None  # type: ignore[assignment]
    direction: Attr[str] = "forward"
    hidden_size: Attr[int] = None  # type: ignore[assignment]
    input_forget: Attr[int] = 0

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        for i, name in ((1, "W"), (2, "R")):
            if ctx.rank(i) != 3:
                ctx.fail(f"{name} must be [directions, inputs, 4 hidden]", found=ctx.types[i])
            directions, _, columns = ctx.shape(i)
            for j in (8 + 2 * (i - 1), 9 + 2 * (i - 1)):
                found = ctx.shape(j)
                if len(found) not in (1, 2):
                    ctx.fail(f"a scale or zero point of {name} has the wrong rank",
                             expected="one a direction, or one a column of each", found=ctx.types[j])  # fmt: skip
                for wanted, size in zip((directions, columns), found, strict=False):
                    ctx.equal(wanted, size, f"{name}'s scales and zero points must be one a direction, or one a column")
        return super().infer(ctx)

    def expand(self, g: PyAny, x: PyAny, w: PyAny, r: PyAny, b: PyAny, lengths: PyAny, h: PyAny, c: PyAny, p: PyAny,
               w_scale: PyAny, w_zero: PyAny, r_scale: PyAny, r_zero: PyAny) -> list[PyAny]:
        weights = _gate_weights(g, w, w_scale, w_zero), _gate_weights(g, r, r_scale, r_zero)
        found: list[PyAny] = g.LSTM(x, *weights, b, lengths, h, c, p, n_outputs=3, **self.explicit_attributes())
        return found


@op(domain="com.microsoft")
class QEmbedLayerNormalization(Composite):
    """EmbedLayerNormalization of tables, gamma and beta in bytes, each by one scale and one zero point.

    What segments need (their numbers, their table, its scale and zero point) is given whole, or not at all.
    """

    input_ids: In[TokenIndex]
    segment_ids: Opt[TokenIndex]
    word_embedding: In[ByteA]
    position_embedding: In[ByteA]
    segment_embedding: Opt[ByteA]
    gamma: In[ByteA]
    beta: In[ByteA]
    mask: Opt[TokenIndex]
    word_embedding_scale: In[Float32]
    position_embedding_scale: In[Float32]
    segment_embedding_scale: Opt[Float32]
    gamma_scale: In[Float32]
    beta_scale: In[Float32]
    word_embedding_zero_point: In[ByteA]
    position_embedding_zero_point: In[ByteA]
    segment_embedding_zero_point: Opt[ByteA]
    gamma_zero_point: In[ByteA]
    beta_zero_point: In[ByteA]
    y: Out
    mask_index: Out
    epsilon: Attr[float] = 1e-12

    def infer(self, ctx: InferContext) -> Sequence[Type]:
        check_one(ctx, *range(8, 18))
        given = [ctx.has(i) for i in (1, 4, 10, 15)]
        if len(set(given)) > 1:
            ctx.fail("segments need their numbers, their table, its scale and its zero point",
                     expected="all four, or none", found=f"{sum(given)} of them")  # fmt: skip
        return super().infer(ctx)

    def expand(self, g: PyAny, ids: PyAny, segments: PyAny, words: PyAny, positions: PyAny, kinds: PyAny, gamma: PyAny,
               beta: PyAny, mask: PyAny, *steps: PyAny) -> list[PyAny]:
        quantised = zip((words, positions, kinds, gamma, beta), steps[:5], steps[5:], strict=True)
        words, positions, kinds, gamma, beta = (v if v is None else real(g, v, *step) for v, *step in quantised)
        layer = EmbedLayerNormalization(epsilon=self.epsilon)
        operands = [ids, segments, words, positions, kinds, gamma, beta, mask, None]
        found: list[PyAny] = g.add(layer, operands, n_outputs=2)
        return found
