"""The best classes: order, labels, probabilities, and which outputs hold scores."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

from parax.compiler.commands import top
from parax.compiler.commands.top import Ranked
from parax.errors import UsageError


def test_the_best_of_every_row_come_first() -> None:
    y = np.array([[0.5, 3, -1, 2], [9, 9, 7, 8]], np.float32)
    assert top.rankings({"y": y}, 2, None, False) == {
        "y": [[Ranked(1, None, 3), Ranked(3, None, 2)], [Ranked(0, None, 9), Ranked(1, None, 9)]]
    }
    assert [r.number for r in top.rankings({"y": y[0]}, 9, None, False)["y"][0]] == [1, 3, 0, 2]


def test_softmax_only_where_it_is_asked_for() -> None:
    y = np.log(np.array([[1, 2, 5]], np.float64)) + 1000
    found = top.rankings({"y": y}, 3, ["a", "b", "c"], True)["y"][0]
    assert [r.label for r in found] == ["c", "b", "a"]
    assert [r.score for r in found] == pytest.approx([5 / 8, 2 / 8, 1 / 8])
    assert top.rankings({"y": y}, 1, None, False)["y"][0][0].score == y[0, 2]


def test_infinities_and_nan_have_a_place() -> None:
    y = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert [r.number for r in top.rankings({"y": y}, 4, None, False)["y"][0]] == [2, 0, 3, 1]


@pytest.mark.parametrize(("shape", "rows"), [((4,), 1), ((3, 4), 3), ((3, 4, 1, 1), 3), ((0, 4), 0)])
def test_what_holds_scores(shape: tuple[int, ...], rows: int) -> None:
    found = top.scores(np.zeros(shape, np.int8))
    assert found is not None and found.shape == (rows, 4)


@pytest.mark.parametrize("array", [np.zeros(()), np.zeros((3, 1)), np.zeros((2, 3, 4)), np.zeros((1, 4), bool),
                                   np.array(["a", "b"], object), np.zeros((1, 4), np.complex64)])  # fmt: skip
def test_what_does_not(array: np.ndarray) -> None:
    assert top.scores(array) is None
    with pytest.raises(UsageError, match=r"no output with scores of classes; expected \[rows, classes\]"):
        top.rankings({"y": array}, 1, None, False)


def test_labels_choose_the_output_of_as_many_classes() -> None:
    outputs = {"a": np.zeros((1, 3)), "b": np.zeros((1, 2))}
    assert list(top.rankings(outputs, 1, None, False)) == ["a", "b"]
    assert list(top.rankings(outputs, 1, ["x", "y"], False)) == ["b"]
    with pytest.raises(UsageError, match=r"expected \[rows, 4\], a class for each label; found a: float64\[1, 3\], b"):
        top.rankings(outputs, 1, ["x"] * 4, False)


def flags(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    top.add_arguments(parser)
    return parser.parse_args(list(map(str, words)))


def test_labels_are_lines(tmp_path: Path) -> None:
    with (tmp_path / "l.txt").open("wb") as file:
        file.write("\ufeffcat\r\nbig dog \n\nMöwe\n\n".encode())
    assert top.read_labels(flags("--top", 5, "--labels", tmp_path / "l.txt")) == ["cat", "big dog", "", "Möwe"]
    assert top.read_labels(flags("--top", 5)) is None
    with (tmp_path / "l.txt").open("wb") as file:
        file.write(b"\xff\xfe")
    for wrong, said in ((tmp_path / "l.txt", "no labels"), (tmp_path / "absent", "No such file")):
        with pytest.raises(UsageError, match=said):
            top.read_labels(flags("--top", 5, "--labels", wrong))
    for alone in (["--labels", "l.txt"], ["--softmax"]):
        with pytest.raises(UsageError, match="only with --top"):
            top.read_labels(flags(*alone))
