"""Models with control flow and with sizes that data decide, in ONNX's text."""

from __future__ import annotations

IF = """
if_model (float[N,4] x, bool c) => (float[N,4] y, float[n,4] z) <float[4] w = {1, 2, 3, 4}> {
    y, z = If (c) <then_branch = then () => (float[N,4] a, float[N,4] b) { a = Add(x, w)  b = Identity(x) },
                   else_branch = other () => (float[N,4] d, float[m,4] e) { d = Mul(x, w)  e = Concat<axis = 0>(x, d) }>
}
"""
GROWING = """
growing (float[N] x, int64 trips, bool go) => (float[M] y, float[K,N] rows) {
    y, rows = Loop (trips, go, x) <body = body (int64 i, bool c, float[P] s) => (bool k, float[Q] t, float[N] row) {
        ten = Constant<value = int64 {10}>()
        k = Less(i, ten)
        t = Concat<axis = 0>(s, x)
        f = Cast<to = 1>(i)
        row = Add(x, f)
    }>
}
"""
SCAN = """
scan (float[T,3] xs, float[3] start) => (float[3] last, float[3,T] sums) {
    last, sums = Scan <num_scan_inputs = 1, scan_input_directions = [1], scan_output_axes = [1],
        body = body (float[3] s, float[3] x) => (float[3] t, float[3] out) { t = Add(s, x)  out = Mul(t, t) }
    >(start, xs)
}
"""
NESTED = """
nested (float[N] x, int64 trips) => (float[N] y) {
    go = Constant<value = bool {1}>()
    y = Loop (trips, go, x) <body = body (int64 i, bool c, float[N] s) => (bool k, float[N] t) {
        k = Identity(c)
        one = Constant<value = int64 {1}>()
        two = Constant<value = int64 {2}>()
        odd = Mod(i, two)
        is_odd = Equal(odd, one)
        t = If (is_odd) <then_branch = add () => (float[N] a) { a = Add(s, x) },
                         else_branch = neg () => (float[N] b) { b = Neg(s) }>
    }>
}
"""
NON_ZERO = """
nonzero (float[N,4] x) => (float[K] y, float[K] z, int64[2] n) {
    where = NonZero(x)
    at = Transpose(where)
    y = GatherND(x, at)
    z = Mul(y, y)
    n = Shape(where)
}
"""
SWAPPING = """
swapping (float[N] x, float[N] y, int64 trips) => (float[N] p, float[N] q, float[K,N] ps, int64[K] numbers) {
    go = Constant<value = bool {1}>()
    p, q, ps, numbers = Loop (trips, go, x, y) <body = body (int64 i, bool c, float[N] a, float[N] b)
            => (bool k, float[N] d, float[N] e, float[N] row, int64 number) {
        k = Identity(c)
        d = Identity(b)
        e = Add(a, x)
        row = Identity(a)
        number = Identity(i)
    }>
}
"""
TWICE = """
twice (float[N] x, int64 trips, int64 inner, bool go) => (float[M] y, float[K,L] rows) {
    y, rows = Loop (trips, go, x) <body = body (int64 i, bool c, float[P] s) => (bool k, float[Q] t, float[R] row) {
        zero = Constant<value = float {0}>()
        total = ReduceSum<keepdims = 0>(s)
        k = GreaterOrEqual(total, zero)
        row, part = Loop (inner, c, x) <body = within (int64 j, bool d, float[N] u)
            => (bool l, float[N] v, float[N] w) {
            l = Identity(d)
            f = Cast<to = 1>(i)
            v = Add(u, f)
            w = Mul(v, x)
        }>
        t = If (c) <then_branch = yes () => (float[A] g) { g = Concat<axis = 0>(s, row) },
                    else_branch = no () => (float[B] h) { h = Identity(s) }>
    }>
}
"""
RAGGED = """
ragged (float[N] x, int64 trips) => (float[M] y, float[K,L] rows) {
    go = Constant<value = bool {1}>()
    y, rows = Loop (trips, go, x) <body = body (int64 i, bool c, float[P] s) => (bool k, float[Q] t, float[R] row) {
        k = Identity(c)
        t = Concat<axis = 0>(s, x)
        row = Identity(t)
    }>
}
"""
