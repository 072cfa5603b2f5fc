"""Costs of nodes, by hand."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parax.compiler.backend.costs import KINDS, NATIVE, costs_at, node_cost, rounded_products
from parax.compiler.costs.cost import Cost
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.ops import lookup, work_rules
from parax.compiler.ir.ops.base import CATALOGUE
from parax.compiler.ir.text import parse_graph
from parax.compiler.ir.types import BF16, F32, I64, TensorType, symbol
from parax.compiler.targets.machine import load_machine
from parax.compiler.targets.target import TARGETS, named_target


def conv(batch: int, ci: int, co: int, size: int, kernel: int, group: int = 1) -> Node:
    graph = Graph()
    x = graph.add_input("x", TensorType(F32, (symbol("N"), ci, size, size)))
    w = graph.add_constant(np.zeros((co, ci // group, kernel, kernel), np.float32))
    pad = kernel // 2
    return graph.add_node(lookup("", "Conv")(pads=(pad,) * 4, group=group), [x, w])


def text_node(text: str) -> Node:
    graph = parse_graph(text)
    return next(iter(graph))


@pytest.mark.parametrize(("batch", "ci", "co", "size", "kernel"), [(1, 64, 64, 56, 3), (16, 256, 64, 28, 1)])
def test_a_convolution_has_the_papers_intensity(batch: int, ci: int, co: int, size: int, kernel: int) -> None:
    cost = node_cost(conv(batch, ci, co, size, kernel), {"N": batch})
    assert cost.flops == 2 * batch * ci * co * kernel**2 * size**2
    assert cost.weight_nbytes == 4 * ci * co * kernel**2
    assert cost.intensity == pytest.approx(1 / (co * kernel**2) + 1 / (ci * kernel**2) + 1 / (batch * size**2))


def test_the_intensity_of_element_wise_operators_does_not_depend_on_their_size() -> None:
    """O(1), as the paper says: neither rows nor channels nor pixels make arithmetic of what is moved."""
    for op in ("Relu(%x)", "Tanh(%x)", "Add(%x, %x)"):
        texts = (f"graph @g(%x: f32[{shape}]) {{\n  %y = {op}\n  return %y\n}}" for shape in ("1,8", "64,64,56,56"))
        small, large = (node_cost(text_node(text), {}).intensity for text in texts)
        assert small == large >= 2 / 12


@pytest.mark.parametrize(
    ("ci", "co", "kernel", "group", "kind"),
    [(64, 64, 3, 1, "winograd"), (60, 64, 3, 1, "conv"), (64, 60, 5, 1, "conv"), (64, 64, 5, 1, "winograd"),
     (64, 32, 1, 1, "conv1x1"),
     (3, 64, 7, 1, "few-channels"), (64, 64, 3, 64, "depthwise"), (64, 64, 3, 32, "grouped")],
)  # fmt: skip
def test_kinds_of_convolutions(ci: int, co: int, kernel: int, group: int, kind: str) -> None:
    assert node_cost(conv(1, ci, co, 14, kernel, group), {"N": 1}).kind == kind


def test_small_groups_multiply_no_zeros_where_registers_hold_several() -> None:
    side_by_side, merged = (node_cost(conv(1, ci, ci, 14, 3, 32), {"N": 1}) for ci in (128, 192))
    assert side_by_side.arithmetic == side_by_side.flops
    assert side_by_side.parallel_items == 14  # output rows
    assert merged.arithmetic > 2 * merged.flops


@pytest.mark.parametrize(("columns", "lanes"), [(1, 16), (10, 16), (16, 16), (20, 32)])
def test_products_multiply_whole_vectors_of_columns(columns: int, lanes: int) -> None:
    product = text_node(f"""graph @g(%x: f32[N,8], %w: f32[8,{columns}]) {{
  %y = MatMul(%x, %w) : f32[N,{columns}]
  return %y
}}""")
    cost = node_cost(product, {"N": 4})
    assert cost.flops == 2 * 4 * 8 * columns
    assert cost.arithmetic == 2 * 4 * 8 * lanes


def test_winograd_multiplies_the_tiles_that_there_are() -> None:
    layer = node_cost(conv(1, 64, 64, 28, 3), {"N": 1})  # 49 tiles of 36 points, where a register tile has 6 rows
    assert layer.kind == "winograd"
    whole_tiles = 2 * 36 * 49 * (1.13 * 64 * 64 + 8 * 128)
    assert whole_tiles <= layer.arithmetic <= 1.04 * whole_tiles


@pytest.mark.parametrize(
    ("ci", "kernel", "stride", "speed", "kind"),
    [(64, 3, 1, 2.0, "bf16-winograd"), (60, 3, 1, 2.0, "bf16-conv"), (64, 5, 1, 2.0, "bf16-conv"),
     (64, 3, 2, 2.0, "bf16-conv"), (64, 1, 1, 2.0, "bf16-conv"), (256, 3, 1, 6.0, "bf16-conv")],
)  # fmt: skip
def test_winograd_of_bf16_multiplies_at_their_pace(ci: int, kernel: int, stride: int, speed: float, kind: str) -> None:
    """Of matrix registers, which do more than twice as many as f32's vectors, there is none."""
    graph = Graph()
    x = graph.add_input("x", TensorType(BF16, (1, ci, 28, 28)))
    w = graph.add_constant(np.zeros((64, ci, kernel, kernel), BF16.numpy))
    op = lookup("parax", "Bf16Conv")(pads=(kernel // 2,) * 4, strides=(stride, stride))
    node = graph.add_node(op, [x, w])
    machine = load_machine("laptop-8")
    shares = {"conv": 0.9, "bf16-conv": 0.9 * speed, "bf16-winograd": 1.0}
    paced = replace(machine, efficiency={**machine.efficiency, **shares})
    cost = costs_at(Fp.DEFAULT, paced)(node, {})
    assert cost.kind == kind
    assert costs_at(Fp.STRICT, paced)(node, {}).kind == "bf16-conv"
    if kind == "bf16-winograd":
        tiles = 2 * 16 * 14 * 14 * (1.13 * 64 * 64 / speed + 8 * 128)
        assert tiles <= cost.arithmetic <= 1.04 * tiles
        assert cost.streamed_nbytes == pytest.approx(2 * 16 * 64 * 64)


def test_a_fused_nodes_constant_filters_are_known_to_be_constant() -> None:
    text = """graph @g(%x: bf16[1,64,28,28]) {
  %w = const bf16[64,64,3,3] "w"
  %y = fused<Bf16Conv>(%x, %w) : f32[1,64,28,28]
    body(%x: bf16[1,64,28,28], %w: bf16[64,64,3,3]) {
      %p = parax::Bf16Conv(%x, %w) {pads=[1,1,1,1]} : f32[1,64,28,28]
      %y = Relu(%p) : f32[1,64,28,28]
      return %y
    }
  return %y
}"""
    (node,) = parse_graph(text, {"w": np.zeros((64, 64, 3, 3), BF16.numpy)}).nodes_in_order()
    assert node_cost(node, {}).kind == "bf16-winograd"
    computed = parse_graph(text.replace('  %w = const bf16[64,64,3,3] "w"\n', "").replace(
        "28]) {\n  %y = f", "28], %w: bf16[64,64,3,3]) {\n  %y = f"))  # fmt: skip
    (node,) = computed.nodes_in_order()
    assert node_cost(node, {}).kind == "bf16-conv"


def test_large_products_of_long_items_are_made_of_seven_unless_sums_are_strict() -> None:
    text = """graph @g(%x: f32[N,512,512]) {
  %w = const f32[512,512] "w"
  %y = MatMul(%x, %w) : f32[N,512,512]
  return %y
}"""
    for n in (1, 8):
        direct, usual, fast = (costs_at(fp)(text_node(text), {"N": n}) for fp in (Fp.STRICT, Fp.DEFAULT, Fp.FAST))
        assert (direct.arithmetic, direct.streamed_nbytes) == (direct.flops, direct.weight_nbytes)
        assert usual == fast and 7 / 8 * usual.flops < usual.arithmetic < usual.flops
        assert usual.streamed_nbytes == usual.weight_nbytes
    short = costs_at(Fp.DEFAULT)(text_node(text.replace("N,512,512", "N,64,512")), {"N": 8})
    assert short.arithmetic == short.flops


def test_rounded_products_take_what_the_cpu_is_described_with() -> None:
    """VDPBF16PS adds two products; a Zen 4 starts it as often as multiply-adds of f32, an Emerald Rapids a quarter."""
    text = """graph @g(%x: f32[64,512]) {
  %w = const f32[512,512] "w"
  %y = MatMul(%x, %w) : f32[64,512]
  return %y
}"""
    with_bf16 = named_target("x86-64-v4+avx512bf16")
    for tune, speed in (("znver4", 2.0), ("emeraldrapids", 0.5), ("", 1.0)):
        rounded = rounded_products(replace(with_bf16, tune=tune), BF16)
        assert rounded is not None and rounded.speed == speed
        cost = costs_at(Fp.DEFAULT, rounded=rounded)(text_node(text), {})
        assert (cost.arithmetic, cost.streamed_nbytes) == (cost.flops / speed, cost.weight_nbytes / 2)
        whole = re.sub(r"\bf32\b", "i32", text)
        found = [costs_at(Fp.DEFAULT, rounded=each)(text_node(whole), {}) for each in (rounded, None)]
        assert found[0] == found[1]
    assert rounded_products(TARGETS["x86-64-v4"], BF16) is None and rounded_products(with_bf16, F32) is None


def test_strict_floating_point_sums_convolutions_directly() -> None:
    layer = costs_at(Fp.STRICT)(conv(1, 64, 64, 8, 3), {"N": 1})
    assert (layer.kind, layer.arithmetic, layer.streamed_nbytes) == ("conv", layer.flops, layer.weight_nbytes)


@pytest.mark.parametrize("sizes", [(64, 256, 56), (512, 2048, 7), (255, 1024, 14), (256, 16, 14)])
def test_others_are_not(sizes: tuple[int, int, int]) -> None:
    ci, co, size = sizes
    layer = costs_at(Fp.FAST)(conv(1, ci, co, size, 1), {"N": 1})
    assert layer.arithmetic == layer.flops
    assert layer.streamed_nbytes == layer.weight_nbytes


def test_products_of_activations_are_summed_directly() -> None:
    text = "graph @g(%x: f32[512,512], %w: f32[512,512]) {\n  %y = MatMul(%x, %w) : f32[512,512]\n  return %y\n}"
    cost = costs_at(Fp.FAST)(text_node(text), {})
    assert cost.arithmetic == cost.flops


def test_a_fused_block_is_its_root_and_its_tail() -> None:
    block = text_node("""graph @g(%x: f32[N,8], %w: f32[8,16], %r: f32[N,16]) {
  %y = fused<MatMul>(%x, %w, %r) : f32[N,16]
    body(%x: f32[N,8], %w: f32[8,16], %r: f32[N,16]) {
      %p = MatMul(%x, %w) : f32[N,16]
      %s = Add(%p, %r) : f32[N,16]
      %t = Tanh(%s) : f32[N,16]
      return %t
    }
  return %y
}""")
    cost = node_cost(block, {"N": 4})
    assert cost.flops == 2 * 4 * 8 * 16 + (1 + 12) * 4 * 16
    assert cost.read_nbytes == 4 * (4 * 8 + 8 * 16 + 4 * 16)
    assert cost.written_nbytes == 4 * 4 * 16
    assert cost.kind == "matmul"


def test_views_and_shapes_cost_nothing() -> None:
    view = text_node("graph @g(%x: f32[2,3]) {\n  %y = Transpose(%x) : f32[3,2]{1,0}\n  return %y\n}")
    assert (node_cost(view, {}).nbytes, node_cost(view, {}).kind) == (0, "view")
    copy = text_node("graph @g(%x: f32[2,3]) {\n  %y = Transpose(%x) : f32[3,2]\n  return %y\n}")
    assert node_cost(copy, {}).nbytes == 2 * 24


def test_a_look_up_reads_only_its_rows() -> None:
    graph = Graph()
    table = graph.add_constant(np.zeros((10_000, 64), np.float32))
    rows = graph.add_input("rows", TensorType(I64, (symbol("N"),)))
    cost = node_cost(graph.add_node(lookup("", "Gather")(), [table, rows]), {"N": 3})
    assert cost.weight_nbytes == 3 * 64 * 4
    assert (cost.read_nbytes, cost.written_nbytes, cost.flops) == (3 * 8, 3 * 64 * 4, 0)
    assert cost.intensity == math.inf


def test_a_recurrent_layer_reads_its_recurrent_weights_at_every_step() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType(F32, (35, symbol("N"), 20)))
    w = graph.add_constant(np.zeros((1, 40, 20), np.float32))
    r = graph.add_constant(np.zeros((1, 40, 10), np.float32))
    cost = node_cost(graph.add_node(lookup("", "LSTM")(hidden_size=10), [x, w, r]), {"N": 2})
    assert cost.flops == 2 * 35 * 2 * 40 * 30
    assert cost.weight_nbytes == 4 * 40 * (20 + 35 * 10)
    assert cost.parallel_items == 1


def test_bounds() -> None:
    machine = load_machine("xeon-8280-2s")
    assert node_cost(conv(32, 256, 256, 14, 3), {"N": 32}).bound(machine) == "compute"
    assert node_cost(conv(1, 8, 8, 7, 3), {"N": 1}).bound(machine) == "call"
    relu = text_node("graph @g(%x: f32[64,64,56,56]) {\n  %y = Relu(%x) : f32[64,64,56,56]\n  return %y\n}")
    assert node_cost(relu, {}).bound(machine) == "memory"


def test_sizes_known_only_at_run_time_are_typical() -> None:
    relu = text_node("graph @g(%x: f32[K,8]) {\n  %y = Relu(%x) : f32[K,8]\n  return %y\n}")
    assert node_cost(relu, {}).flops == 32 * 8


def test_there_is_a_rule_of_items_for_every_kind_of_work() -> None:
    """What is only moved is known by its rule; whatever computes must say so itself."""
    moving = {cls.name for cls in CATALOGUE.values() if cls.work in (work_rules.moves, work_rules.none)}
    assert moving == MOVES_DATA
    folder = Path(work_rules.__file__).parent
    said = re.findall(r'(?:Work|per_element)\("([^"]+)"', "".join(path.read_text() for path in folder.glob("*.py")))
    assert set(said) == NATIVE.keys() <= set(KINDS)


MOVES_DATA = {
    "BitCast", "ByteTable", "CoupleProbabilities",
    "Col2Im", "ConstantOfShape", "DepthToSpace", "EyeLike", "Fused", "GridSample", "OneHot", "Pad", "Part", "Range",
    "Relayout", "Resize", "Result", "ReverseSequence", "SpaceToDepth", "Split", "SuppressBoxes", "TopK",
    "Trilu",
}  # fmt: skip


def test_kinds_are_listed() -> None:
    assert len(set(KINDS)) == len(KINDS)


def test_results_cross_to_memory_twice() -> None:
    """Once to be fetched, once to be written back."""
    assert Cost(1, 2, 3, 4, 1, "conv").far_nbytes == 2 + 2 * 3 + 4
    assert Cost(1, 2, 3, 4, 1, "conv", near_nbytes=5, near_weight_nbytes=4).far_nbytes == 0


def test_two_convolutions_in_one_kernel_both_count() -> None:
    graph = Graph("g")
    x = graph.add_input("x", TensorType(F32, (1, 32, 14, 14)))
    d = graph.add_constant(np.zeros((32, 1, 3, 3), np.float32))
    w = graph.add_constant(np.zeros((64, 32, 1, 1), np.float32))
    inner = Graph("body")
    a, b, c = (inner.add_input(n, v.type) for n, v in (("a", x), ("b", d), ("c", w)))
    first = inner.add_node(lookup("", "Conv")(pads=(1, 1, 1, 1), group=32), [a, b]).output
    inner.set_outputs([inner.add_node(lookup("", "Conv")(), [first, c]).output])
    both = node_cost(graph.add_node(lookup("parax", "Fused")(kind="Conv"), [x, d, w], bodies={"body": inner}), {})
    assert both.flops == 2 * 14 * 14 * (32 * 9 + 32 * 64)
    assert both.kind == "conv1x1"
