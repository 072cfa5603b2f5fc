"""Times of tree ensembles: every side answers, and the table has a row for each size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import trees, trees_side
from parax.errors import UsageError


@pytest.mark.parametrize("model", trees.MODELS)
def test_the_command_measures_every_side(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module in (*trees.NEEDED, *trees.NEEDED_OF.get(model, ()), "onnxruntime"):
        pytest.importorskip(module, reason="the models and the other side of the comparison come from there")
    small = ["--trees", "5", "--trained", "300", "--rows", "1", "40", "--rounds", "1", "--seconds", "0.01"]
    trees.main(["--models", model, *small])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith(f"{model} of 5 trees")
    assert [row.split()[0] for row in rows] == ["1", "40"] and all("onnxruntime" in row for row in rows)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trees, "NEEDED", {"no_such_module": "such-a-package"})
    with pytest.raises(UsageError, match="such-a-package is needed"):
        trees.main([])


def test_other_results_are_no_measurement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    np.save(tmp_path / "features.npy", np.zeros((9, 2), np.float32))
    np.save(tmp_path / "expected.npy", np.zeros(9))
    monkeypatch.setitem(trees_side.SIDES, "wrong", lambda folder: lambda rows: np.ones(len(rows)))
    with pytest.raises(SystemExit, match="9 of 9 rows"):
        trees_side.main(["wrong", str(tmp_path)])


@pytest.mark.parametrize("text", ["lleaves", "lleaves=", "nobody=python"])
def test_an_interpreter_is_of_a_side(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        trees.main(["--python", text])
    assert "expected SIDE=FILE" in capsys.readouterr().err


def test_a_table_says_medians_leasts_and_ratios() -> None:
    times = {"parax": [0.001, 0.002, 0.003], "onnxruntime": [0.002, 0.006, 0.009]}
    row = trees.table("forest", [{"rows": 8, "times": times}]).splitlines()[1]
    assert row.split() == ["8", "rows", "parax", "2.000", "(1.000)", "onnxruntime", "6.000", "(2.000)", "×", "3.00",
                           "(2.00)"]  # fmt: skip
