"""Whatever is handed to a session ends in a ParaxError or in results of the right shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import parax

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies

TEXT = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N,3] x, int64[M] i, string[K] s) => (float[N,3] y, float[M,3] z, string[L] t) {
        y = Relu(x)  z = Gather(x, i)  t = Concat<axis=0>(s, s) }"""
SHAPES = [(2, 3), (0, 3), (3,), (), (2, 3, 1), (5, 0), (1 << 20, 3)]
DTYPES = ["f4", ">f4", "f8", "f2", "i8", ">i8", "i4", "u1", "?", "O", "U3", "S3", "c8", "M8[s]", "m8[D]", "V4",
          [("a", "f4")]]  # fmt: skip


class Hostile:
    """An object whose every attribute and item raises."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, name: str) -> Any:
        raise self._error

    def __getitem__(self, key: object) -> Any:
        raise self._error

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise self._error

    def __len__(self) -> int:
        raise self._error


class Lying(dict):  # type: ignore[type-arg]
    """A mapping that says it has what it has not."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: object) -> Any:
        raise ZeroDivisionError("a caller's own")


@st.composite
def arrays(draw: Any) -> Any:
    array = np.zeros(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES)))
    way = draw(st.integers(0, 7))
    if way == 0 and array.ndim:
        return array[::-1]
    if way == 1 and array.ndim:
        return array[..., ::2]
    if way == 2:
        return np.asfortranarray(array)
    if way == 3:
        return np.broadcast_to(array, (1 << 20, *array.shape))
    if way == 4 and array.size and array.dtype.itemsize == 4 and array.dtype.kind == "f":
        return np.frombuffer(bytes(array.nbytes + 1), np.uint8)[1:].view(array.dtype)  # not aligned
    if way == 5:
        return np.ma.masked_array(array)
    if way == 6:
        array.flags.writeable = False
    return array


ERRORS = st.sampled_from([ValueError("v"), KeyError("k"), ZeroDivisionError(), AttributeError("a"), OverflowError(),
                          RecursionError(), MemoryError(), StopIteration(), UnicodeError(), OSError()])  # fmt: skip
VALUES = st.one_of(
    arrays(), st.builds(Hostile, ERRORS), st.none(), st.integers(), st.floats(), st.text(max_size=3),
    st.binary(max_size=9),
    st.recursive(st.floats() | st.text(max_size=2) | st.none(), lambda s: st.lists(s, max_size=3), max_leaves=6),
    st.sampled_from([object(), {}, set(), memoryview(b"abcd"), range(3), np.float32(1), np.int64(1), 1j, 10**40,
                     [[1.0, 2.0, 3.0]], [[1, 2], [3]], ["a", None], np.array(["a", 5, None], object), float, ...]),
)  # fmt: skip
NAMES = st.sampled_from(["x", "i", "s", "x", "i", "s", "y", "", "z", 5, None, ("x",), "t"])
GOOD = {"x": np.ones((2, 3), np.float32), "i": np.array([1, 0]), "s": np.array(["a"], object)}
FEEDS = st.one_of(
    st.dictionaries(NAMES, VALUES, max_size=4),
    st.dictionaries(NAMES, VALUES, min_size=1, max_size=2).map(lambda d: GOOD | d),
    st.dictionaries(NAMES, VALUES, max_size=2).map(lambda d: Lying(GOOD | d)),
    st.dictionaries(NAMES, VALUES, max_size=1).map(Lying),
    VALUES,
)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    with parax.compile(onnx.parser.parse_model(TEXT)).session(instances=1, max_memory=1 << 28) as made:
        yield made


def survives(call: Any) -> None:
    try:
        found = call()
    except parax.ParaxError as error:
        assert not isinstance(error, parax.InternalError), error.__cause__
        assert str(error)
    else:
        assert isinstance(found, dict)


@hypothesis.settings(max_examples=400)
@hypothesis.given(FEEDS)
def test_wild_feeds(session: Any, feeds: Any) -> None:
    survives(lambda: session.run(feeds))


@pytest.mark.slow
@hypothesis.settings(max_examples=100)
@hypothesis.given(VALUES, FEEDS)
def test_wild_names_of_outputs(session: Any, wanted: Any, feeds: Any) -> None:
    survives(lambda: session.run(wanted, feeds))


@hypothesis.settings(max_examples=200)
@hypothesis.given(st.one_of(VALUES, st.dictionaries(st.sampled_from(["y", "z", "t", 5, "q"]), VALUES, max_size=3)))
def test_wild_out(session: Any, out: Any) -> None:
    survives(lambda: session.run(GOOD, out=out))


@hypothesis.settings(max_examples=60)
@hypothesis.given(FEEDS, VALUES)
def test_wild_submissions(session: Any, feeds: Any, out: Any) -> None:
    survives(lambda: session.submit(feeds, out=out).result())


def test_the_session_still_works(session: Any) -> None:
    found = session.run(GOOD)
    assert found["z"].shape == (2, 3) and found["t"].tolist() == ["a", "a"]


@hypothesis.settings(max_examples=100)
@hypothesis.given(
    st.dictionaries(st.sampled_from(["instances", "cores", "cores_per_instance", "micro_batch", "mode", "delay",
                                     "max_memory", "max_seconds"]), VALUES, min_size=1, max_size=2))  # fmt: skip
def test_wild_arguments_of_sessions(session: Any, given: dict[str, Any]) -> None:
    try:
        session.plan.session(**given).close()
    except parax.ParaxError as error:
        assert not isinstance(error, parax.InternalError), error.__cause__
