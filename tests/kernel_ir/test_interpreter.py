"""The interpreter of kernel IR against native code: an operator of each kind, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from backend.harness import Program, default_target
from backend.interpreted import interpreted
from catalogue.cases import Case, Constant, all_cases
from catalogue.running import build
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Host
from parax.compiler.ir.types import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType, TensorType
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.interpreted_lanes import cast
from parax.compiler.kernel_ir.interpreter import Pointer, interpret
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType
from parax.compiler.targets.target import TARGETS
from parax.errors import InternalError
from sampling import sampled

LAST = (0, 2, 3, 1)
LONG = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "GRU", "LSTM", "Attention"}  # their smallest are long


def _size(case: Case) -> int:
    _, feeds, _, contents = build(case)
    return sum(c.size for c in (*contents, *feeds.values()) if c is not None)


def _smallest() -> list[Case]:
    """A case with elements of each operator that has a kernel."""
    found: dict[str, tuple[int, Case]] = {}
    for case in all_cases():
        varies = any(o is not None and not isinstance(o, Constant) for o in case.operands)
        if varies and case.op not in LONG and not issubclass(lookup(case.domain, case.op), Host):
            size = _size(case)
            if size and (case.op not in found or size < found[case.op][0]):
                found[case.op] = size, case
    return [case for _, case in found.values()]


@pytest.mark.parametrize("case", sampled(_smallest(), 3), ids=str)
def test_an_operator_is_what_native_code_makes_of_it(case: Case) -> None:
    graph, feeds, symbols, _ = build(case)
    program = Program(graph, None, tuple(symbols))
    native = program.run(feeds, symbols)
    for found, wanted in zip(interpreted(program, feeds, symbols), native, strict=True):
        assert_near(found, wanted)


def assert_near(found: np.ndarray, wanted: np.ndarray) -> None:
    if wanted.dtype.kind in "biu":
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = 1e-2 if wanted.dtype.itemsize == 2 else 1e-4
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance)


CASES = {
    "product": ("MatMul", [(7, 20), (20, 37)], {}),
    "convolution": ("Conv", [(1, 16, 6, 6), (16, 16, 3, 3)], {"pads": [1] * 4}),
    "depthwise": ("Conv", [(1, 8, 5, 5), (8, 1, 3, 3)], {"group": 8, "pads": [1] * 4}),
    "softmax": ("Softmax", [(3, 21)], {}),
    "lstm": ("LSTM", [(2, 3, 5), (1, 16, 5), (1, 16, 4)], {"hidden_size": 4}),
    "attention": ("parax::DotProductAttention", [(1, 2, 9, 8), (1, 2, 8, 11), (1, 2, 11, 8)], {}),
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_code_for_every_target_means_the_same(name: str, case: str) -> None:
    """Also for those that this machine does not run."""
    op, shapes, attributes = CASES[case]
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)]
    results = []
    for target in (TARGETS[name], default_target()):
        graph, n_given = Graph("case"), 3 if case == "attention" else 1
        layout = LAST if len(shapes[0]) == 4 and n_given == 1 else None
        values = [graph.add_input(f"x{i}", TensorType(F32, shape, layout)) for i, shape in enumerate(shapes[:n_given])]
        values += map(graph.add_constant, arrays[n_given:])
        node = graph.add_node(lookup(*op.rpartition("::")[::2])(**attributes), values)
        node.output.type = node.output.tensor.with_layout(layout)
        graph.set_outputs(node.outputs)
        feeds = {f"x{i}": array for i, array in enumerate(arrays[:n_given])}
        program = Program(graph, target)
        results.append(program.run(feeds, {}) if results else interpreted(program, feeds, {}))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


# -- what it refuses ---------------------------------------------------------------------------------------------------
def _kernel(body: Callable[[Builder, KValue], None], dtype: DType = F32) -> KFunc:
    k = Builder("little", [("p", PtrType(dtype)), ("n", INDEX)])
    body(k, k["p"])
    return k.func


def _memory(n: int, writeable: bool = True) -> Pointer:
    content = np.arange(n, dtype=np.float32).view(np.uint8)
    content.flags.writeable = writeable
    return Pointer(content, 0, "x")


@pytest.mark.parametrize("index", [-1, 1, 100])
def test_reading_beyond_the_memory_is_refused(index: int) -> None:
    func = _kernel(lambda k, p: k.store(p, 0, k.load(p, index, 4)))
    with pytest.raises(InternalError, match=r"kernel little: load of f32 at byte .* of x, of 16"):
        interpret(func, [_memory(4), 0])


def test_writing_beyond_the_memory_is_refused() -> None:
    func = _kernel(lambda k, p: k.store(p, k["n"], k.load(p, 0, 1)))
    interpret(func, [_memory(4), 3])
    with pytest.raises(InternalError, match="store of f32 at byte 16"):
        interpret(func, [_memory(4), 4])


def test_what_may_only_be_read_is_not_written() -> None:
    with pytest.raises(InternalError, match="read-only"):
        interpret(_kernel(lambda k, p: k.store(p, 0, k.load(p, 1, 1))), [_memory(4, writeable=False), 0])


def test_lanes_that_are_off_touch_nothing() -> None:
    memory = _memory(6)

    def body(k: Builder, p: KValue) -> None:
        mask = k.tail_mask(k["n"], 8)
        k.store(p, 4, k.load(p, 4, 8, mask) + 10.0, mask)

    interpret(_kernel(body), [memory, 2])
    assert memory.memory.view(np.float32).tolist() == [0, 1, 2, 3, 14, 15]
    with pytest.raises(InternalError, match="at byte 24"):
        interpret(_kernel(body), [memory, 3])


def test_values_are_returned_and_slots_begin_as_garbage() -> None:
    k = Builder("returns", [("n", INDEX)], returns=KType(F32))
    slot = k.alloca(F32, 2)
    k.store(slot, 0, k.cast(k["n"], F32))
    k.ret(k.load(slot, 0) + k.load(slot, 1))
    (found,) = interpret(k.func, [7])
    assert found == np.float32(7) + np.full(4, 0xA5, np.uint8).view(np.float32)[0]


@pytest.mark.parametrize(("given", "to", "x", "wanted"), [
    (F32, I8, [1.9, -1.9, 300.0, -300.0, np.nan, np.inf], [1, -1, 127, -128, 0, 127]),
    (F64, U8, [-0.5, 255.9, 256.0, np.nan], [0, 255, 255, 0]),
    (F32, BF16, [1.0, 1.00390625, 1.01171875, np.inf], [0x3F80, 0x3F80, 0x3F82, 0x7F80]),
    (F64, BF16, [1 + 2.0**-8 + 2.0**-40], [0x3F81]),
    (F64, F16, [1 + 2.0**-11 + 2.0**-30, 65519.0], [np.float16(1 + 2.0**-10), np.float16(65504)]),
    (BOOL, F32, [True, False], [1.0, 0.0]), (I32, I8, [257, -129], [1, 127]),
])  # fmt: skip
def test_conversions_saturate_round_once_and_wrap(given: DType, to: DType, x: list, wanted: list) -> None:
    with np.errstate(all="ignore"):
        assert cast(np.array(x, given.numpy), given, to).tolist() == wanted
