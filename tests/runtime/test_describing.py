"""How a plan shows itself in a prompt and a notebook; names in it are anybody's."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import onnx
import onnx.parser
import pytest
from onnx import helper

import parax
from parax.runtime.describing import MOST_SHOWN, size

EVIL = '<script>alert("1")</script>&amp;'


class Cells(HTMLParser):
    """Which tags there are, and the texts of the cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def plan_of(text: str) -> parax.Plan:
    return parax.compile(onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> ' + text))


def renamed(name: str, n_inputs: int = 1) -> parax.Plan:
    names = [f"{name}{i}" for i in range(n_inputs)]
    graph = helper.make_graph(
        [helper.make_node("Sum", names, [f"{name} out"])], name,
        [helper.make_tensor_value_info(each, 1, ["N", 3]) for each in names],
        [helper.make_tensor_value_info(f"{name} out", 1, ["N", 3])],
    )  # fmt: skip
    return parax.compile(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]))


def test_one_line_and_a_table_say_the_same(tmp_path: Path) -> None:
    plan = plan_of("g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }")
    target = plan.manifest.targets[0].name
    line = f"<Plan g: x: f32[N,3] -> y: f32[N,3]; batch N; {target}; 0 bytes of weights; 1 native step>"
    assert repr(plan) == line
    cells = Cells(plan._repr_html_())
    assert cells.tags == {"table", "caption", "b", "tbody", "tr", "th", "td"}
    for text in ("g", "x: f32[N,3]", "y: f32[N,3]", "batch N", "1 native step", "0 bytes", "not saved yet"):
        assert text in cells.texts
    assert any(text.startswith(f"{target} ") and text.endswith("KiB") for text in cells.texts)
    plan.save(tmp_path / "plan.bin")
    loaded = parax.load(tmp_path / "plan.bin")
    assert repr(loaded) == line
    assert str(tmp_path / "plan.bin") in "".join(Cells(loaded._repr_html_()).texts)


def test_steps_on_the_host_are_named() -> None:
    plan = plan_of("g (float[N] x) => (int64[1,M] y, int64[1,K] z) { y = NonZero(x) a = Neg(x) b = Relu(a) "
                   "z = NonZero(b) }")  # fmt: skip
    for text in (repr(plan), "".join(Cells(plan._repr_html_()).texts)):
        assert "2 on the host (NonZero ×2)" in text and "no batch" in text


def test_names_are_never_taken_for_html() -> None:
    found = renamed(EVIL)._repr_html_()
    assert "<script" not in found
    cells = Cells(found)
    assert "script" not in cells.tags
    assert f"{EVIL}0: f32[N,3]" in cells.texts and EVIL in cells.texts


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "\u202eback"])
def test_what_does_not_print_is_spelled_out(name: str) -> None:
    plan = renamed(name)
    assert repr(plan).isprintable() and repr(name)[1:-1] in repr(plan)
    assert name not in plan._repr_html_()


def test_long_names_and_lists_are_cut() -> None:
    plan = renamed("n" * 5000, MOST_SHOWN + 3)
    assert "… 3 more" in repr(plan) and len(repr(plan)) < 1500
    assert "… 3 more" in plan._repr_html_() and len(plan._repr_html_()) < 5000


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0 bytes"), (1023, "1023 bytes"), (1536, "1.5 KiB"),
                                               (5 << 20, "5.0 MiB"), (5 << 40, "5120.0 GiB")])  # fmt: skip
def test_sizes(nbytes: int, text: str) -> None:
    assert size(nbytes) == text
