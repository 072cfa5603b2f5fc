"""Small valid models to make invalid ones of: most operator families, control flow, functions, constants.

Knows ONNX's text form; nothing of mutations. `operator_models` adds ONNX's own test models, one or more per operator.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache

import numpy as np
import onnx
import onnx.parser
from onnx import ModelProto, numpy_helper

TEXTS = {
    "convolutions": (17, """(float[N,3,8,8] x) => (float[N,4] y) {
        c = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, w1, b1)
        n = BatchNormalization<epsilon=0.001>(c, s, s, s, s)
        r = Relu(n)
        p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
        d = Conv<group=4, kernel_shape=[3,3], auto_pad="SAME_UPPER">(p, w2)
        a = Add(d, p)
        g = GlobalAveragePool(a)
        f = Flatten<axis=1>(g)
        y = Softmax<axis=-1>(f) }""", {"w1": (4, 3, 3, 3), "b1": (4,), "s": (4,), "w2": (4, 1, 3, 3)}),
    "attention": (17, """(float[B,S,8] x, bool[B,S] mask) => (float[B,S,8] y) {
        n = LayerNormalization<axis=-1>(x, g, g)
        q = MatMul(n, wq)  k = MatMul(n, wk)  v = MatMul(n, wv)
        kt = Transpose<perm=[0,2,1]>(k)
        s = MatMul(q, kt)
        axes = Constant<value_ints=[1]>()
        m = Unsqueeze(mask, axes)
        low = Constant<value_float=-1.0e9>()
        masked = Where(m, s, low)
        p = Softmax<axis=-1>(masked)
        o = MatMul(p, v)
        y = Add(o, x) }""", {"g": (8,), "wq": (8, 8), "wk": (8, 8), "wv": (8, 8)}),
    "shapes": (17, """(float[N,C,4] x) => (float[A,B] y, int64[K] z) {
        s = Shape(x)
        zero = Constant<value_ints=[0]>()  one = Constant<value_ints=[1]>()  end = Constant<value_ints=[-1]>()
        n = Gather<axis=0>(s, zero)
        shape = Concat<axis=0>(n, end)
        r = Reshape(x, shape)
        two = Constant<value_ints=[1,2]>()
        t = Tile(r, two)
        e = Slice(t, zero, end, one)
        wide = Expand(one, n)
        z = Mul(wide, n)
        y = Pad<mode="constant">(e, pads) }""", {"pads": [0, 1, 0, 2]}),
    "recurrent": (14, """(float[S,B,3] x) => (float[S,D,B,5] y, float[D,B,5] h) {
        y, h, c = LSTM<hidden_size=5, direction="bidirectional">(x, w, r, b) }""",
        {"w": (2, 20, 3), "r": (2, 20, 5), "b": (2, 40)}),
    "gated": (14, """(float[S,B,3] x) => (float[S,D,B,5] y) {
        y = GRU<hidden_size=5, linear_before_reset=1>(x, w, r) }""", {"w": (1, 15, 3), "r": (1, 15, 5)}),
    "quantised": (13, """(float[N,6] x) => (float[N,4] y) {
        q = QuantizeLinear(x, sx, zx)
        d = DequantizeLinear(q, sx, zx)
        w = DequantizeLinear<axis=1>(wq, sw, zw)
        m = MatMul(d, w)
        dq, ds, dz = DynamicQuantizeLinear(m)
        y = DequantizeLinear(dq, ds, dz) }""",
        {"sx": np.float32(0.1), "zx": np.uint8(7), "wq": np.ones((6, 4), np.int8), "sw": (4,),
         "zw": np.zeros(4, np.int8)}),
    "branches": (17, """(float[N] x, bool c) => (float[M] y) {
        t = If(c) <then_branch = then () => (float[M] a) { a = Exp(x) },
                   else_branch = other () => (float[M] b) { i = NonZero(x) ax = Constant<value_ints=[0]>()
                                                             j = Squeeze(i, ax) g = Gather(x, j) b = Neg(g) }>
        y = Abs(t) }""", {}),
    "loops": (17, """(float[2] x, int64 n, bool c) => (float[2] y, float[K,2] z) {
        y, z = Loop(n, c, x) <body = body (int64 i, bool go, float[2] a) => (bool again, float[2] b, float[2] o) {
            k = Cast<to=1>(i)  b = Add(a, k)  o = Mul(b, x)  again = Identity(go) }> }""", {}),
    "scans": (17, """(float[T,3] x, float[3] h) => (float[3] y, float[T,3] z) {
        y, z = Scan(h, x) <num_scan_inputs=1, body = body (float[3] a, float[3] v) => (float[3] b, float[3] o) {
            b = Add(a, v)  o = Tanh(b) }> }""", {}),
    "picking": (17, """(float[N,5] x, int64[N,1] i) => (float[A,B] y, int64[A,B] k, float[N,5] e, float[C] u) {
        three = Constant<value_ints=[3]>()
        y, k = TopK<axis=1>(x, three)
        g = GatherElements<axis=1>(x, i)
        e = ScatterElements<axis=1, reduction="add">(x, i, g)
        u, a, b, c = Unique<sorted=1>(x) }""", {}),
    "reductions": (18, """(float[N,4,5] x) => (float[P] y, int64[Q] a, float[N,5] z) {
        axes = Constant<value_ints=[0,2]>()
        y = ReduceMean<keepdims=0>(x, axes)
        a = ArgMax<axis=1, keepdims=0, select_last_index=1>(x)
        zero = Constant<value_int=0>()
        s = CumSum<exclusive=1, reverse=1>(x, zero)
        m = ReduceLogSumExp<keepdims=0>(s, one)
        z = HardSigmoid<alpha=0.3>(m) }""", {"one": [1]}),
    "pictures": (18, """(float[1,2,5,6] x, float[1,4,4,2] grid) => (float[1,2,A,B] y, float[1,2,C,D] t) {
        r = Resize<mode="linear", coordinate_transformation_mode="half_pixel">(x, , scales)
        l = Resize<mode="cubic">(x, , , sizes)
        g = GridSample<mode="bilinear", padding_mode="border">(l, grid)
        y = Add(g, g)
        t = ConvTranspose<strides=[2,2], output_padding=[1,1]>(r, w) }""",
        {"scales": np.array([1, 1, 2, 1.5], np.float32), "sizes": [1, 2, 7, 8], "w": (2, 2, 3, 3)}),
    "sums": (13, """(float[2,3,4] a, float[2,4,5] b) => (float[2,3,5] y, float[2,3,2] z, float[2,3,2] v) {
        e = Einsum<equation="bij,bjk->bik">(a, b)
        y = LRN<size=3>(e)
        halves = Constant<value_ints=[2,2]>()
        z, v = Split<axis=2>(a, halves) }""", {}),
    "constants": (16, """(float[2,3] x) => (float[2,3] y, float[K] z) {
        n = Constant<value_ints=[4]>()
        c = ConstantOfShape<value=float[1] {3.0}>(n)
        start = Constant<value_int=0>()  stop = Constant<value_int=4>()  step = Constant<value_int=1>()
        i = Range(start, stop, step)
        f = Cast<to=1>(i)
        p = Pow(f, c)
        z = Clip(p, low, high)
        q = AveragePool<kernel_shape=[2,2], count_include_pad=1>(w)
        o = OneHot<axis=-1>(i, stop, values)
        m = ReduceSum<keepdims=0>(o)
        s = Mul(x, m)
        r = ReduceMax<keepdims=0>(q)
        y = Sub(s, r) }""",
        {"w": (1, 2, 5, 5), "low": np.float32(0), "high": np.float32(9), "values": np.array([0, 1], np.float32)}),
    "kinds": (17, """(int64[N] i, float16[N] h, uint8[N] u) => (int64[N] y, float[N] z, bool[N] b, uint8[N] s) {
        two = Constant<value_int=2>()
        d = Div(i, two)
        y = Mod(d, i)
        z = Cast<to=1>(h)
        c = Cast<to=9>(u)
        b = Xor(c, c)
        s = BitShift<direction="LEFT">(u, u) }""", {}),
    "words": (17, """(string[N] x, int64[K] i) => (string[K] y, string[M] z) {
        y = Gather(x, i)
        two = Constant<value_ints=[2]>()
        z = Tile(y, two) }""", {}),
}  # fmt: skip
FUNCTION = """<ir_version: 8, opset_import: ["": 17, "own": 1]>
    functions (float[N,3] x) => (float[N,3] y) {
        a = own.scaled<by=2.0>(x)  b = own.scaled<by=0.5>(a)  y = own.both(a, b) }
    <domain: "own", opset_import: ["": 17]>
    scaled <by> (a) => (b) { k = Constant<value_float: float = @by>()  b = Mul(a, k) }
    <domain: "own", opset_import: ["": 17, "own": 1]>
    both (a, b) => (c) { d = Add(a, b)  c = own.scaled<by=3.0>(d) }"""


@cache
def text_models() -> dict[str, ModelProto]:
    """The models above by name."""
    made = {"functions": onnx.parser.parse_model(FUNCTION)}
    rng = np.random.default_rng(0)
    for name, (opset, body, weights) in TEXTS.items():
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {name} {body}')
        for weight, content in weights.items():
            shaped = isinstance(content, tuple)
            array = rng.random(content, np.float32) if shaped else np.asarray(content)
            model.graph.initializer.append(numpy_helper.from_array(array, weight))
        made[name] = model
    return made


def operator_models() -> Iterator[tuple[str, ModelProto]]:
    """The models of ONNX's own operator tests, most of them of one node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases  # takes ten seconds: only for long runs

        for case in collect_testcases(None):
            if case.model is not None:
                yield case.name, case.model
