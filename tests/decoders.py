"""Small decoders with a past, as exporters write them: keys of the past and the present joined, a mask over both."""

from __future__ import annotations

import numpy as np
import onnx.parser
from onnx import ModelProto, numpy_helper

WORDS, PLACES, WIDTH = 50, 90, 4
_MASKED = {
    # the mask meets the scores, so its length must be theirs
    "added": """
      m = Cast<to=1>(mask)  one_row = Constant<value_ints=[1]>()  rows = Unsqueeze(m, one_row)
      hidden = Sub(one, rows)  bias = Mul(hidden, far)  masked = Add(scores, bias)""",
    # rows of the mask are looked up by number, so it must be long enough
    "looked up": """
      flags = Cast<to=9>(mask)
      keys = Shape<start=1, end=2>(present)  n = Squeeze(keys)  numbers = Range(zero, n, step)
      seen = Gather<axis=1>(flags, numbers)  one_row = Constant<value_ints=[1]>()  rows = Unsqueeze(seen, one_row)
      masked = Where(rows, scores, far)""",
}


def decoder(mask: str = "added", positions: str = "given") -> ModelProto:
    """y f32[B,S,4] of ids i64[B,S], mask i64[B,T] and past f32[B,P,4], where T must fit P + S.

    Args:
        mask: "added" to the scores, or "looked up" by key number.
        positions: "given" as an input i64[B,S]; "counted" from P on.
    """
    given = ", int64[B,S] positions" if positions == "given" else ""
    counted = """
      from = Shape<start=1, end=2>(past)  first = Squeeze(from)  of = Shape<start=1, end=2>(ids)  s = Squeeze(of)
      last = Add(first, s)  positions = Range(first, last, step)""" if positions == "counted" else ""
    model = onnx.parser.parse_model(f"""
    <ir_version: 8, opset_import: ["": 17]>
    decoder (int64[B,S] ids, int64[B,T] mask, float[B,P,{WIDTH}] past{given})
        => (float[B,S,{WIDTH}] y, float[B,K,{WIDTH}] present) {{
      one = Constant<value_float=1.0>()  far = Constant<value_float=-10000.0>()
      zero = Constant<value_int=0>()  step = Constant<value_int=1>() {counted}
      word = Gather(words, ids)  place = Gather(places, positions)  x = Add(word, place)
      present = Concat<axis=1>(past, x)  across = Transpose<perm=[0,2,1]>(present)  scores = MatMul(x, across)
      {_MASKED[mask]}
      shares = Softmax<axis=-1>(masked)  y = MatMul(shares, present)
    }}""")
    rng = np.random.default_rng(0)
    for name, rows in (("words", WORDS), ("places", PLACES)):
        table = rng.standard_normal((rows, WIDTH)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(table, name))
    return model
