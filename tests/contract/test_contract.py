"""Every kernel of the catalogue does the work items [begin, end) and nothing else; all: `benchmarks.contract`."""

from __future__ import annotations

import contextlib
import zlib
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from backend.harness import Program, expand_composites
from backend.kernels.plain_boxes import corners, plain
from backend.kernels.plain_random import plain_words
from backend.ways import EVERY
from catalogue.running import build
from contract import recurrent
from contract.checking import NoVariant, check, lowered
from contract.variants import Variant, cases_of, drawn, dtypes, edge_sizes, has_lowering, targets
from parax.compiler.ir.ops import CATALOGUE
from parax.compiler.ir.ops.base import Operator
from parax.compiler.ir.text import parse_graph
from parax.compiler.targets.target import Target
from sampling import sampled

CASES = cases_of()
WANTED, TRIED = 3, 15
CHAINS = """graph @g(%x: f32[S], %rows: f32[S,21]) {{
        %i = Cast(%x) {{to=i64}} : i64[S]
        %first, %more = parax::RowChains(%i) {{rows=7}} : i32[7,1], i32[S]
        %sums = parax::SumChains(%rows, %more) : f32[S + 1,21]
        %y = parax::RowsAt(%sums, %first) : f32[7,21]
        return {}
        }}"""
COLUMNS = np.arange(-12, 12, dtype=np.int8).reshape(8, 3)
INTERNAL = {
    "RandomBits": """graph @g(%x: f32[S,3]) {
        %n = Shape(%x) : i64[2]
        %k = const i64[] 7
        %bits = parax::RandomBits(%n, %k) : u32[S,3]
        %y = Cast(%bits) {to=f32} : f32[S,3]
        return %y
        }""",
    "RowChains": CHAINS.format("%first"), "SumChains": CHAINS.format("%sums"), "RowsAt": CHAINS.format("%y"),
    "SuppressBoxes": """graph @g(%x: f32[2,S,4], %s: f32[2,3,S]) {
        %k = const i64[] 5
        %o = const f32[] 0.3
        %y, %n = parax::SuppressBoxes(%x, %s, %k, %o) : i32[2,3,5], i64[2,3]
        return %y
        }""",
    "Copy": """graph @g(%x: f32[S,3]) {
        %y = parax::Copy(%x) : f32[S,3]
        return %y
        }""",
    "Relayout": """graph @g(%x: f32[2,3,S,5]) {
        %y = parax::Relayout(%x) : f32[2,3,S,5]{0,2,3,1}
        return %y
        }""",
    "DotProductAttention": """graph @g(%q: f32[2,3,S,16], %kt: f32[2,3,16,17], %v: f32[2,3,17,20]) {
        %y = parax::DotProductAttention(%q, %kt, %v) {scale=0.25} : f32[2,3,S,20]
        return %y
        }""",
    "BatchGradientSums": """graph @g(%x: f32[4,S,3], %dy: f32[4,S,3], %shift: f32[S], %distance: f32[S], %r: f32[S]) {
        %t, %n = parax::BatchGradientSums(%x, %dy, %shift, %distance, %r) : f32[1,S], f32[1,S]
        return %n
        }""",
    "Bf16MatMul": """graph @g(%a: f32[S,33], %b: f32[33,20]) {
        %1 = Cast(%a) {to=bf16} : bf16[S,33]
        %2 = Cast(%b) {to=bf16} : bf16[33,20]
        %y = parax::Bf16MatMul(%1, %2) : f32[S,20]
        return %y
        }""",
    "RoundToBf16": """graph @g(%x: f32[S,33]) {
        %1 = parax::RoundToBf16(%x) {to=bf16} : bf16[S,33]
        %y = Cast(%1) {to=f32} : f32[S,33]
        return %y
        }""",
    "Bf16Attention": """graph @g(%q: f32[2,3,S,16], %kt: f32[2,3,16,17], %v: f32[2,3,17,20]) {
        %1 = Cast(%q) {to=bf16} : bf16[2,3,S,16]
        %2 = Cast(%kt) {to=bf16} : bf16[2,3,16,17]
        %3 = Cast(%v) {to=bf16} : bf16[2,3,17,20]
        %4 = parax::Bf16Attention(%1, %2, %3) {scale=0.25} : bf16[2,3,S,20]
        %y = Cast(%4) {to=f32} : f32[2,3,S,20]
        return %y
        }""",
    "Bf16Conv": """graph @g(%x: f32[S,8,6,7], %w: f32[20,8,3,1]) {
        %1 = Cast(%x) {to=bf16} : bf16[S,8,6,7]
        %2 = Cast(%w) {to=bf16} : bf16[20,8,3,1]
        %y = parax::Bf16Conv(%1, %2) : f32[S,20,4,7]
        return %y
        }""",
    "Bf16ConvTranspose": """graph @g(%x: f32[S,8,3,4], %w: f32[8,20,2,3]) {
        %1 = Cast(%x) {to=bf16} : bf16[S,8,3,4]
        %2 = Cast(%w) {to=bf16} : bf16[8,20,2,3]
        %y = parax::Bf16ConvTranspose(%1, %2) {strides=[2,3]} : f32[S,20,6,12]
        return %y
        }""",
    "ConvWeightGradient": """graph @g(%x: f32[S,5,6,7], %dy: f32[S,20,6,4]) {
        %dw = parax::ConvWeightGradient(%x, %dy) {kernel_shape=[3,2], strides=[1,2], pads=[1,0], dilations=[1,1]} \
            : f32[20,5,3,2]
        return %dw
        }""",
    "ConvWeightGradient of one filter a channel": """graph @g(%x: f32[S,20,6], %dy: f32[S,20,6]) {
        %1 = parax::Relayout(%x) {layout=[0,2,1]} : f32[S,20,6]{0,2,1}
        %2 = parax::Relayout(%dy) {layout=[0,2,1]} : f32[S,20,6]{0,2,1}
        %dw = parax::ConvWeightGradient(%1, %2) {kernel_shape=[3], strides=[1], pads=[1], dilations=[1], group=20} \
            : f32[20,1,3]{2,1,0}
        return %dw
        }""",
    "TrainingMaxPool": """graph @g(%x: f32[S,5,6,7]) {
        %y, %taps = parax::TrainingMaxPool(%x) {kernel_shape=[3,2], strides=[2,2], pads=[1,0,0,1]} \
            : f32[S,5,3,4], u8[S,5,3,4]
        %t = Cast(%taps) {to=f32} : f32[S,5,3,4]
        %z = Add(%y, %t) : f32[S,5,3,4]
        return %z
        }""",
    "MaxPoolGradient": """graph @g(%dy: f32[2,S,2,3], %taps: f32[2,S,2,3]) {
        %1 = Cast(%taps) {to=u8} : u8[2,S,2,3]
        %2 = parax::Relayout(%dy) {layout=[0,2,3,1]} : f32[2,S,2,3]{0,2,3,1}
        %3 = parax::Relayout(%1) {layout=[0,2,3,1]} : u8[2,S,2,3]{0,2,3,1}
        %dx = parax::MaxPoolGradient(%2, %3) {kernel_shape=[2,2], strides=[1,2], pads=[0,1], dilations=[1,1], \
            sizes=[3,5]} : f32[2,S,3,5]{0,2,3,1}
        return %dx
        }""",
    "ByteMatMul": f"""graph @g(%x: f32[S,8]) {{
        %w = const i8[8,3] {COLUMNS.reshape(-1).tolist()}
        %1 = Cast(%x) {{to=u8}} : u8[S,8]
        %y = parax::ByteMatMul(%1, %w) : i32[S,3]
        return %y
        }}""",
    "ByteConv": f"""graph @g(%x: f32[S,8,3]{{0,2,1}}) {{
        %w = const i8[3,8,1] {COLUMNS.T.reshape(-1).tolist()}
        %1 = Cast(%x) {{to=u8}} : u8[S,8,3]{{0,2,1}}
        %y = parax::ByteConv(%1, %w) {{pads=[1,0], margin=2}} : i32[S,3,4]{{0,2,1}}
        return %y
        }}""",
    "ByteTable": """graph @g(%x: f32[S,8,3]) {
        %1 = Cast(%x) {to=u8} : u8[S,8,3]
        %t = const i8[256] "t"
        %y = parax::ByteTable(%1, %t) : i8[S,8,3]
        return %y
        }""".replace('"t"', str([(i * 37 + 11) % 256 - 128 for i in range(256)])),
    **recurrent.TEXTS,
}


def chains(x: np.ndarray) -> list[list[int]]:
    """For each of 7 rows of a table the numbers of the indices, x without its fraction, that name it."""
    return [[n for n, i in enumerate(np.trunc(x)) if i % 7 == row] for row in range(7)]


def first_of_chains(x: np.ndarray, _: np.ndarray) -> np.ndarray:
    return np.array([[chain[0] + 1 if chain else 0] for chain in chains(x)])


def sums_of_chains(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    sums = np.zeros((len(x) + 1, rows.shape[1]))
    for chain in filter(None, chains(x)):
        sums[chain[0] + 1] = rows[chain].sum(0)
    return sums


def table_of_chains(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.stack([rows[chain].sum(0) for chain in chains(x)])


def attention(q: np.ndarray, kt: np.ndarray, v: np.ndarray) -> np.ndarray:
    e = np.exp(q @ kt * 0.25)
    return (e / e.sum(-1, keepdims=True)) @ v


def halves(*arrays: np.ndarray) -> list[np.ndarray]:
    """Rounded to bf16."""
    return [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in arrays]


def product_of_halves(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = halves(a, b)
    return a @ b


def attention_of_halves(q: np.ndarray, kt: np.ndarray, v: np.ndarray) -> np.ndarray:
    return attention(*halves(q, kt, v))


def convolution_of_halves(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    x, w = halves(x, w)
    return sum(np.einsum("nchw,mc->nmhw", x[:, :, i : i + 4], w[:, :, i, 0]) for i in range(3))


def patches_of_halves(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.einsum("nchw,cmij->nmhiwj", *halves(x, w)).reshape(-1, 20, 6, 12)


def by_normal(x: np.ndarray, dy: np.ndarray, shift: np.ndarray, distance: np.ndarray, r: np.ndarray) -> np.ndarray:
    deviation = x - (shift + distance)[:, None]
    return ((dy * deviation).sum((0, 2)) * r)[None]


def weights_of_all(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (1, 1), (0, 1)])
    taps = [[np.einsum("nchw,nmhw->mc", x[:, :, i : i + 6, j : j + 7 : 2], dy) for j in range(2)] for i in range(3)]
    return np.stack([np.stack(line, -1) for line in taps], -2)


def weights_of_each(x: np.ndarray, dy: np.ndarray) -> np.ndarray:
    x = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    return np.stack([np.einsum("ncw,ncw->c", x[:, :, j : j + 6], dy) for j in range(3)], -1)[:, None]


def with_taps(x: np.ndarray) -> np.ndarray:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 0), (0, 1)], constant_values=-np.inf)
    taps = np.stack([padded[:, :, i : i + 5 : 2, j : j + 7 : 2] for i in range(3) for j in range(2)])
    return taps.max(0) + taps.argmax(0)


def to_the_greatest(dy: np.ndarray, taps: np.ndarray) -> np.ndarray:
    dx = np.zeros((*dy.shape[:2], 3, 7))
    for tap in range(4):
        i, j = divmod(tap, 2)
        dx[:, :, i : i + 2, j : j + 5 : 2] += np.where(in_bytes(taps) == tap, dy, 0)
    return dx[:, :, :, 1:6]


def in_bytes(x: np.ndarray) -> np.ndarray:
    return np.clip(np.trunc(x), 0, 255)


def chosen(boxes: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Up to 5 boxes of every class, then -1."""
    rows = [plain(corners(boxes[b], False), scores[b, c], 5, 0.3, None) for b in range(2) for c in range(3)]
    return np.array([[*row, *[-1] * 5][:5] for row in rows]).reshape(2, 3, 5)


INTERNAL_RESULTS: dict[str, Any] = {
    "RandomBits": lambda x: plain_words(x.size, 7).reshape(x.shape).astype(np.float64),
    "ByteMatMul": lambda x: in_bytes(x) @ COLUMNS,
    "ByteConv": lambda x: np.einsum("ncx,cm->nmx", np.pad(in_bytes(x), [(0, 0), (0, 0), (1, 0)], constant_values=2),
                                    COLUMNS),
    "TrainingMaxPool": with_taps, "MaxPoolGradient": to_the_greatest,
    "ByteTable": lambda x: ((in_bytes(x).astype(int) * 37 + 11) % 256 - 128).astype(np.int8),
    "SuppressBoxes": chosen,
    "Copy": lambda x: x, "Relayout": lambda x: x, "DotProductAttention": attention, "BatchGradientSums": by_normal,
    "Bf16MatMul": product_of_halves, "Bf16Conv": convolution_of_halves, "Bf16ConvTranspose": patches_of_halves,
    "Bf16Attention": attention_of_halves, "RoundToBf16": lambda x: halves(x)[0],
    "RowChains": first_of_chains, "SumChains": sums_of_chains, "RowsAt": table_of_chains,
    "ConvWeightGradient": weights_of_all, "ConvWeightGradient of one filter a channel": weights_of_each,
    **recurrent.RESULTS,
}  # fmt: skip

ROUNDED = {"Bf16Attention": 2.0**-4}
"""How far results that are rounded on the way may be off; by how much they are, their own tests say."""


@pytest.mark.parametrize("name", sampled(sorted(CASES), 8))
def test_kernels_keep_the_contract(name: str) -> None:
    random, checked = Random(zlib.crc32(name.encode())), 0
    plain = [Variant(CASES[name][0], random.choice(targets()))]
    for variant in plain + [drawn(CASES[name], random) for _ in range(TRIED)]:
        try:
            check(variant)
        except NoVariant:
            continue
        except AssertionError as error:
            raise AssertionError(f"{variant}\n{error}") from error
        checked += 1
        if checked == WANTED:
            break
    assert checked


def test_no_kernel_refuses_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.harness.load_kernels", lambda functions, target: None)
    target, asked = targets()[0], 0
    for variant in (Variant(case, target, dtype=d) for cases in CASES.values() for case in cases[:2]
                    for d in dtypes(case)):  # fmt: skip
        with contextlib.suppress(NoVariant):
            lowered(variant)
            asked += 1
    assert asked > 1000


@pytest.mark.parametrize("target", targets(), ids=lambda t: f"{t.name} {t.tune}")
@pytest.mark.parametrize("name", INTERNAL)
def test_operators_of_our_own_keep_the_contract(name: str, target: Target) -> None:
    program = Program(parse_graph(INTERNAL[name]), target, ("S",))
    random = np.random.default_rng(0)
    runs = []
    for size in edge_sizes(target):
        shapes = [tuple(size if not isinstance(d, int) else d for d in v.tensor.dims) for v in program.graph.inputs]
        feeds = {v.name: random.standard_normal(s, np.float32) for v, s in zip(program.graph.inputs, shapes)}
        runs.append((feeds, {"S": size}))
    for (feeds, _), (found,) in zip(runs, program.run_all(runs, EVERY)):
        wanted = INTERNAL_RESULTS[name](*(array.astype(np.float64) for array in feeds.values()))
        rtol = ROUNDED.get(name, 1e-4)
        np.testing.assert_allclose(found, wanted, rtol=rtol, atol=rtol / 10 * max(1, np.abs(wanted).max(initial=0)))


def test_no_operator_with_a_kernel_is_forgotten() -> None:
    met: set[type[Operator]] = set()
    for cases in CASES.values():
        for case in cases:
            graph = build(case)[0]
            expand_composites(graph)
            met |= {type(node.op) for node in graph}
    missing = {op.name for op in CATALOGUE.values() if has_lowering(op) and op not in met} - INTERNAL.keys()
    assert not missing, "give it a case: see the top of tests/catalogue/cases.py"
