"""Movements of axes that turn out to be empty: Slice, Pad and Reshape as ONNX defines them; strings as outputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, parser

import parax
from parax import CompileOptions
from parax.compiler.frontend.oracle import oracle

HEADER = '<ir_version: 10, opset_import: ["" : 21]>\n'
LEVELS = (0, 2)


def model(text: str) -> ModelProto:
    return parser.parse_model(HEADER + text)


def run(proto: ModelProto, feeds: dict[str, np.ndarray], opt_level: int) -> dict[str, np.ndarray]:
    with parax.compile(proto, options=CompileOptions(opt_level=opt_level)).session(instances=1) as s:
        return s.run(feeds)


def rows(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


BOUNDS = [(1, 2**62, 1), (1, -1, 1), (-2, 2**62, 1), (0, -1, 1), (-1, 5, 1), (1, 2**62, 2), (-1, -(2**62), -1),
          (3, 0, -2), (-2, -(2**62), -1)]  # fmt: skip


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize(("start", "end", "step"), BOUNDS)
def test_slice_of_any_size(start: int, end: int, step: int, opt_level: int) -> None:
    """Constant bounds on a symbolic axis: every size is served, 0 too."""
    proto = model(f"""g (float[N,3] x) => (float[a,3] y)
        <int64[1] s={{{start}}}, int64[1] e={{{end}}}, int64[1] t={{{step}}}, int64[1] z={{0}}>
        {{ c = Slice(x, s, e, z, t) y = Relu(c) }}""")
    with parax.compile(proto, options=CompileOptions(opt_level=opt_level)).session(instances=1) as s:
        for n in (0, 1, 2, 3, 7):
            wanted = oracle(proto, "onnxruntime")({"x": rows(n, 3)})["y"]
            np.testing.assert_array_equal(s.run({"x": rows(n, 3)})["y"], wanted, err_msg=f"{n} rows")


@pytest.mark.parametrize("opt_level", LEVELS)
def test_a_loop_slices_beyond_empty(opt_level: int) -> None:
    proto = model("""g (float[N,2] x, int64 trips) => (float[a,2] y)
        <int64[1] one={1}, int64[1] far={9223372036854775807}, int64[1] zero={0}, bool on={1}>
        { y = Loop (trips, on, x) <body: graph = b (int64 i, bool c, float[M,2] v) => (bool d, float[R,2] w)
          { d = Identity(c) w = Slice(v, one, far, zero) }> }""")
    for trips in (0, 1, 3, 6):
        feeds = {"x": rows(4, 2), "trips": np.array(trips, np.int64)}
        np.testing.assert_array_equal(run(proto, feeds, opt_level)["y"], rows(4, 2)[trips:])


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_an_empty_axis_has_nothing_to_repeat(mode: str, opt_level: int) -> None:
    """The kernel read what lies beside the buffer, of a symbol of 0 and of a polynomial that becomes 0."""
    plain = model(f'g (float[N,3] x) => (float[a,b] y) <int64[4] p={{1,0,1,0}}> {{ y = Pad<mode="{mode}">(x, p) }}')
    sliced = model(f"""g (float[N,3] x) => (float[a,b] y)
        <int64[4] p={{1,0,1,0}}, int64[1] two={{2}}, int64[1] far={{99}}>
        {{ c = Slice(x, two, far) y = Pad<mode="{mode}">(c, p) }}""")
    cropped = model(f'g (float[N,3] x) => (float[a,b] y) <int64[4] p={{-2,0,1,0}}> {{ y = Pad<mode="{mode}">(x, p) }}')
    for proto, n in ((plain, 0), (sliced, 2), (cropped, 2)):
        assert run(proto, {"x": rows(n + 2, 3)}, opt_level)["y"].shape[1] == 3
        with pytest.raises(parax.InvalidInput):
            run(proto, {"x": rows(n, 3)}, opt_level)
    other = model(f'g (float[N,3] x) => (float[a,b] y) <int64[4] p={{0,1,0,1}}> {{ y = Pad<mode="{mode}">(x, p) }}')
    assert run(other, {"x": rows(0, 3)}, opt_level)["y"].shape == (0, 5)
    computed = model(f'g (float[N,3] x, int64[4] p) => (float[a,b] y) {{ y = Pad<mode="{mode}">(x, p) }}')
    with pytest.raises(parax.InvalidInput, match="nothing to repeat"):
        run(computed, {"x": rows(0, 3), "p": np.array([1, 0, 1, 0])}, opt_level)


TURNED = """g (float[A,B,C] x) => (float[a,b,c] y) {
    a = Shape<start=0,end=1>(x) b = Shape<start=1,end=2>(x) c = Shape<start=2,end=3>(x)
    s = Concat<axis=0>(b, a, c) y = Reshape(x, s) }"""
JOINED = """g (float[N,3,A,B] x) => (float[n,3,c] y) <int64[1] m={3}> {
    n = Shape<start=0,end=1>(x) a = Shape<start=2,end=3>(x) b = Shape<start=3,end=4>(x) c = Mul(a, b)
    s = Concat<axis=0>(n, m, c) y = Reshape(x, s) }"""
LEFT = """g (float[1,K,8] x) => (float[a,b] y) <int64[1] m={-1}> {
    k = Shape<start=1,end=2>(x) s = Concat<axis=0>(k, m) y = Reshape(x, s) }"""


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize(
    ("text", "served", "refused"),
    [(TURNED, [(2, 3, 4), (2, 3, 0), (0, 0, 5)], (2, 0, 0)), (JOINED, [(2, 3, 2, 2), (0, 3, 2, 2)], (0, 3, 2, 0)),
     (LEFT, [(1, 3, 8)], (1, 0, 8))],
)  # fmt: skip
def test_a_shape_with_a_0_that_copies_another_dimension(
    text: str, served: list[tuple[int, ...]], refused: tuple[int, ...], opt_level: int
) -> None:
    """ONNX copies the input's dimension there: a result of the 0 would be of another shape."""
    proto = model(text)
    with parax.compile(proto, options=CompileOptions(opt_level=opt_level)).session(instances=1) as s:
        for shape in served:
            wanted = oracle(proto, "onnxruntime")({"x": rows(*shape)})["y"]
            found = s.run({"x": rows(*shape)})["y"]
            assert found.shape == wanted.shape, shape
            np.testing.assert_array_equal(found, wanted)
        with pytest.raises(parax.InvalidInput, match="copies a dimension"):
            s.run({"x": rows(*refused)})


def test_what_matters_for_no_rows_only_leaves_rows_independent() -> None:
    batch = parax.compile(model(JOINED)).manifest.batch
    assert batch is not None
    assert batch.symbol == "N"


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize("text", [
    "g (string[K] s) => (string[L] t) { t = Identity(s) }",
    "g (string[K] s) => (string[K] s) <float[1] c={1}> { d = Relu(c) }",
    'g (string[K] s) => (string[2] t, string[2] u) <string[2] c={"x","yz"}> { t = Identity(c) u = Identity(c) }',
])  # fmt: skip
def test_strings_are_handed_out(text: str, opt_level: int) -> None:
    proto = model(text)
    given = np.array(["a", "bc", ""], object)
    found = run(proto, {"s": given}, opt_level)
    for name, wanted in oracle(proto, "onnxruntime")({"s": given}).items():
        assert found[name].tolist() == wanted.tolist()
        assert found[name] is not given


@pytest.mark.parametrize("opt_level", LEVELS)
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_does_not_crop(auto_pad: str, opt_level: int) -> None:
    """Strides beyond the window: ONNX Runtime and onnx.reference's AveragePool and Conv begin at the first element."""
    proto = model(f"""g (float[1,1,5] x) => (float[a,b,c] y, float[a,b,c] z) {{
        y = MaxPool<auto_pad="{auto_pad}", kernel_shape=[1], strides=[3]>(x)
        z = AveragePool<auto_pad="{auto_pad}", kernel_shape=[1], strides=[3]>(x) }}""")
    found = run(proto, {"x": rows(1, 1, 5)}, opt_level)
    assert found["y"].ravel().tolist() == found["z"].ravel().tolist() == [0, 3]
