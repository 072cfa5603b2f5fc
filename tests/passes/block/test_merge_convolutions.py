"""MergeConvolutions: siblings of equal kernels, 1×1 filled up to 3×3, results that a Concat joins, and what stays."""

from __future__ import annotations

import numpy as np
import pytest

from parax.compiler.passes.block.merge_convolutions import MergeConvolutions
from passes.check import check_pass

RNG = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


DATA = {"a": weights(4, 8, 3, 3), "b": weights(6, 8, 3, 3), "c": weights(5, 8, 1, 1), "p": weights(4), "q": weights(6)}
HEAD = """graph @g(%x: f32[N,8,5,5]) {
  %a = const f32[4,8,3,3] "a"
  %b = const f32[6,8,3,3] "b"
  %c = const f32[5,8,1,1] "c"
  %p = const f32[4] "p"
  %q = const f32[6] "q"
"""
TWO = HEAD + """  %1 = Conv(%x, %a, %p) {pads=[1,1,1,1]} : f32[N,4,5,5]
  %2 = Conv(%x, %b, %q) {pads=[1,1,1,1]} : f32[N,6,5,5]
  %3 = Relu(%1) : f32[N,4,5,5]
  return %3, %2
}"""


def test_siblings_become_one_convolution_and_a_split() -> None:
    check_pass(MergeConvolutions(), data=DATA, before=TWO, after="""graph @g(%x: f32[N,8,5,5]) {
      %w = const f32[10,8,3,3] "w"
      %b = const f32[10] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
      %sizes = const i64[2] [4, 6]
      %1 = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,10,5,5]
      %2, %3 = Split(%1, %sizes) {axis=1} : f32[N,4,5,5], f32[N,6,5,5]
      %4 = Relu(%2) : f32[N,4,5,5]
      return %4 as "3", %3 as "2"
    }""")  # fmt: skip


def test_thin_kernels_are_filled_up_with_zeros() -> None:
    graph = check_pass(MergeConvolutions(), data=DATA, before=HEAD + """  %1 = Conv(%x, %c) : f32[N,5,5,5]
  %2 = Conv(%x, %a) {pads=[1,1,1,1]} : f32[N,4,5,5]
  return %1, %2
}""", after="""graph @g(%x: f32[N,8,5,5]) {
      %w = const f32[9,8,3,3] "w"
      %sizes = const i64[2] [4, 5]
      %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,9,5,5]
      %2, %3 = Split(%1, %sizes) {axis=1} : f32[N,4,5,5], f32[N,5,5,5]
      return %3 as "1", %2
    }""")  # fmt: skip
    (w,) = [v.data for v in graph.constants if v.data is not None and v.data.ndim == 4 and v.is_used]
    np.testing.assert_array_equal(w[4:, :, 1, 1], DATA["c"][:, :, 0, 0])
    assert not w[4:, :, 0].any() and not w[4:, :, :, 2].any()


def test_what_a_concat_joins_is_not_taken_apart() -> None:
    check_pass(MergeConvolutions(), data=DATA, before=HEAD + """  %1 = Conv(%x, %c) : f32[N,5,5,5]
  %2 = Conv(%x, %a) {pads=[1,1,1,1]} : f32[N,4,5,5]
  %3 = Concat(%x, %1, %2) {axis=1} : f32[N,17,5,5]
  return %3
}""", after="""graph @g(%x: f32[N,8,5,5]) {
      %w = const f32[9,8,3,3] "w"
      %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,9,5,5]
      %2 = Concat(%x, %1) {axis=1} : f32[N,17,5,5]
      return %2 as "3"
    }""")  # fmt: skip


def test_a_concat_of_nothing_else_goes() -> None:
    check_pass(MergeConvolutions(), data=DATA, before=HEAD + """  %1 = Conv(%x, %b) {pads=[1,1,1,1]} : f32[N,6,5,5]
  %2 = Conv(%x, %a) {pads=[1,1,1,1]} : f32[N,4,5,5]
  %3 = Concat(%2, %1) {axis=1} : f32[N,10,5,5]
  return %3
}""", after="""graph @g(%x: f32[N,8,5,5]) {
      %w = const f32[10,8,3,3] "w"
      %1 = Conv(%x, %w) {pads=[1,1,1,1]} : f32[N,10,5,5]
      return %1 as "3"
    }""")  # fmt: skip


FUSED = """graph @g(%x: f32[N,8,5,5]{0,2,3,1}) {
  %a = const f32[4,8,3,3] "a"
  %b = const f32[6,8,3,3] "b"
  %p = const f32[4] "p"
  %q = const f32[6] "q"
  %1 = fused<Conv>(%x, %a, %p) : f32[N,4,5,5]{0,2,3,1}
    body(%x: f32[N,8,5,5]{0,2,3,1}, %w: f32[4,8,3,3], %b: f32[4]) {
      %1 = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,4,5,5]{0,2,3,1}
      %2 = Relu(%1) : f32[N,4,5,5]{0,2,3,1}
      return %2
    }
  %2 = fused<Conv>(%x, %b, %q) : f32[N,6,5,5]{0,2,3,1}
    body(%x: f32[N,8,5,5]{0,2,3,1}, %w: f32[6,8,3,3], %b: f32[6]) {
      %1 = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,6,5,5]{0,2,3,1}
      %2 = Relu(%1) : f32[N,6,5,5]{0,2,3,1}
      return %2
    }
  return %1, %2
}"""


def test_what_is_fused_behind_them_stays_behind_the_merged_one() -> None:
    check_pass(MergeConvolutions(), data=DATA, before=FUSED, after="""graph @g(%x: f32[N,8,5,5]{0,2,3,1}) {
      %w = const f32[10,8,3,3] "w"
      %b = const f32[10] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
      %sizes = const i64[2] [4, 6]
      %1 = fused<Conv>(%x, %w, %b) : f32[N,10,5,5]{0,2,3,1}
        body(%x: f32[N,8,5,5]{0,2,3,1}, %w: f32[10,8,3,3], %b: f32[10]) {
          %1 = Conv(%x, %w, %b) {pads=[1,1,1,1]} : f32[N,10,5,5]{0,2,3,1}
          %2 = Relu(%1) : f32[N,10,5,5]{0,2,3,1}
          return %2
        }
      %2, %3 = Split(%1, %sizes) {axis=1} : f32[N,4,5,5]{0,2,3,1}, f32[N,6,5,5]{0,2,3,1}
      return %2 as "1", %3 as "2"
    }""")  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("%2 = Conv(%x, %b, %q) {pads=[1,1,1,1]}", "%2 = Conv(%y, %b, %q) {pads=[1,1,1,1]}", None),
        ("%2 = Conv(%x, %b, %q) {pads=[1,1,1,1]} : f32[N,6,5,5]", "%2 = Conv(%x, %b, %q) : f32[N,6,3,3]", None),
        ("%2 = Conv(%x, %b, %q) {pads=[1,1,1,1]} : f32[N,6,5,5]",
         "%2 = Conv(%x, %b, %q) {pads=[1,1,1,1], strides=[2,2]} : f32[N,6,3,3]", None),
        ("%2 = Conv(%x, %b, %q) {pads=[1,1,1,1]} : f32[N,6,5,5]",
         "%2 = Conv(%x, %b, %q) {pads=[1,1,2,2]} : f32[N,6,6,6]", None),
        ("%2 = Conv(%x, %b, %q)", "%2 = Conv(%x, %b)", None),
        ("%2 = Conv(%x, %b, %q)", "%2 = Conv(%x, %v, %q)", "not constant"),
        ("%2 = Conv(%x, %b, %q) {pads=[1,1,1,1]}", '%2 = Conv(%x, %b, %q) {auto_pad="SAME_UPPER"}', "automatic pads"),
    ],
)
def test_what_is_not_merged(old: str, new: str, reason: str | None) -> None:
    text = TWO.replace("(%x: f32[N,8,5,5])", "(%x: f32[N,8,5,5], %y: f32[N,8,5,5], %v: f32[6,8,3,3])")
    assert old in text
    check_pass(MergeConvolutions(), data=DATA, before=text.replace(old, new), after=None, refuses=reason)


def test_a_residual_behind_a_convolution_keeps_it_alone() -> None:
    text = FUSED.replace("%2 = Relu(%1) : f32[N,4,5,5]{0,2,3,1}", "%2 = Add(%1, %1) : f32[N,4,5,5]{0,2,3,1}")
    check_pass(MergeConvolutions(), data=DATA, before=text, after=None, refuses="a second operand behind it")


def test_a_merge_that_costs_more_is_undone() -> None:
    check_pass(MergeConvolutions(pays=lambda before, after: False), data=DATA, before=TWO, after=None,
               refuses="costs more")  # fmt: skip
    asked = []
    check_pass(MergeConvolutions(pays=lambda b, a: not asked.append(([n.op.name for n in b], [n.op.name for n in a])) and False),
               data=DATA, before=TWO, after=None)  # fmt: skip
    assert asked[0] == (["Conv", "Conv"], ["Conv", "Split"])
