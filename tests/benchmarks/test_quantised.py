"""`benchmarks.quantised`: which records are faults, what the table says of them, samples, and one model end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import quantised
from benchmarks.cases import Run
from benchmarks.peers_table import markdown
from benchmarks.quantised_data import variations, varied
from parax.errors import UsageError

GAIN = {"middle": 1.4, "least": 1.2, "greatest": 1.6, "quickest": 1.3}
LOWER = {"bf16": {"weights": 0.5, "drop": 1e-5, "gain": {**GAIN, "middle": 0.8}}, "int8": {"problem": "none"},
         "int4-weights": {"weights": 0.16, "drop": None, "gain": None}}  # fmt: skip


def record(**more: Any) -> dict[str, Any]:
    return {"status": "ok", "taken": "int8", "n_quantized": 3, "n_layers": 4, "lost": 0.002, "budget": 0.005,
            "agreement": 0.99, "measured": GAIN, "predicted": 1.25, "nbytes": 2048, "is_f32": False, "lower": LOWER,
            **more}  # fmt: skip


@pytest.mark.parametrize(("made", "says"), [
    (record(), []),
    (record(lost=0.006), ["loses 0.6 % of 0.5 %"]),
    (record(measured={**GAIN, "middle": 0.7, "quickest": 0.9}), ["slower than f32: 0.70 ×"]),
    (record(measured={**GAIN, "middle": 0.7, "quickest": 1.1}), []),
    (record(taken="fp32", is_f32=True, measured=None), []),
    (record(taken="fp32"), ["another plan than f32's"]),
    ({"status": "crash", "problem": "SIGSEGV"}, ["SIGSEGV"]),
    ({"status": "refused", "problem": "nothing to quantise"}, []),
])  # fmt: skip
def test_faults(made: dict[str, Any], says: list[str]) -> None:
    assert quantised.faults(made) == says


def test_the_table_and_the_summary() -> None:
    document = {"models": {"a/b": record(), "c/d": record(taken="fp32", is_f32=True, measured=None, agreement=None),
                           "e/f": {"status": "timeout", "problem": "more than 9 s"}}}  # fmt: skip
    first, second, third = markdown(quantised.table(document)).splitlines()[-3:]
    cells = ["a/b", "int8 (3 of 4)", "0.2 %", "99.0", "1.40 (1.20–1.60)", "1.25", "2", "0.50, 0.001 %, 0.80 ×", "–",
             "0.16"]  # fmt: skip
    assert first == "| " + " | ".join(cells) + " |"
    assert "the same plan" in second and third.startswith("| e/f | timeout | –")
    assert quantised.summary(document) == ["3 models, taken: fp32 1, int8 1; 1 faults", "e/f: more than 9 s"]


def test_samples_are_the_references_and_variations_of_them() -> None:
    x, ids = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(40)
    runs = [Run("0", {"x": x, "ids": ids, "rate": np.array(16000)}, None),
            Run("1", {"x": -x, "ids": ids, "rate": np.array(16000)}, None),
            Run("2", {"x": x[:2], "ids": ids, "rate": np.array(16000)}, None)]  # fmt: skip
    made = variations(runs, 9)
    np.testing.assert_array_equal(made["x"][:2], [x, -x])
    assert made["x"].shape == (9, 3, 4) and made["x"].dtype == np.float32 and len(np.unique(made["x"][:, 1, 1])) == 9
    assert set(made["rate"]) == {16000} and set(made["ids"].flat) <= set(ids)
    changed = np.mean(made["ids"][2:] != ids)
    assert 0 < changed < 0.3
    np.testing.assert_array_equal(variations(runs, 9)["x"], made["x"])
    assert np.abs(varied(np.zeros(50, np.float32), np.random.default_rng(0))).max() > 0


def test_bad_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(quantised, "models_folder", lambda: None)
    with pytest.raises(UsageError, match="no trained models"):
        quantised.main([])
    (tmp_path / "index.json").write_text("{}")
    monkeypatch.setattr(quantised, "models_folder", lambda: tmp_path)
    with pytest.raises(UsageError, match="no such trained model"):
        quantised.main(["a/b"])


@pytest.mark.models
def test_a_model(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantised, "models_folder", lambda: models)
    code = quantised.main(["burn/sine", "--samples", "16", "--json", str(tmp_path / "found.json")])
    found = json.loads((tmp_path / "found.json").read_text())["models"]["burn/sine"]
    assert found["status"] == "ok" and found["n_layers"] == 3 and 0 < found["lower"]["int8"]["weights"] < 1
    assert code == (5 if quantised.faults(found) else 0)
