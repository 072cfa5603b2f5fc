"""A model that others trained on MNIST learns whether scikit-learn's digits are odd, by a new last layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import parax

pytestmark = [pytest.mark.models, pytest.mark.slow]


def digits() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """8 × 8 as large as MNIST's, on its empty border; rows to train on and to test."""
    sklearn = pytest.importorskip("sklearn.datasets", reason="scikit-learn is an extra: pip install 'parax[data]'")
    images, labels = sklearn.load_digits(return_X_y=True)
    large = np.kron(images.reshape(-1, 8, 8) / 16, np.ones((1, 3, 3))).astype(np.float32)
    x = np.pad(large, ((0, 0), (2, 2), (2, 2)))[:, None]
    order = np.random.default_rng(0).permutation(len(x))
    whole = {"x": x[order], "labels": (labels % 2).astype(np.int64)[order]}
    return {n: a[:1400] for n, a in whole.items()}, {n: a[1400:] for n, a in whole.items()}


def test_a_trained_model_learns_another_task(tmp_path: Path, models: Path) -> None:
    path = models / "marabou" / "mnist5x20_leaky" / "model.onnx"
    train, test = digits()
    found = {}
    for alone in (True, False):
        with parax.Trainer(path, optimizer=parax.Adam(lr=3e-3), batch=50, shards=2,
                           head=parax.Head(2, seed=1, alone=alone)) as trainer:  # fmt: skip
            name = trainer.program.data[0]
            data, held = ({name: part["x"], "labels": part["labels"]} for part in (train, test))
            trainer.fit(data, 12)
            found[alone] = trainer.evaluate([held])["accuracy"]
            trainer.export(tmp_path / f"{alone}.onnx")
    from onnxruntime import InferenceSession

    session = InferenceSession(tmp_path / "False.onnx")
    (y,) = session.run(None, {session.get_inputs()[0].name: test["x"]})
    assert y.shape == (len(test["x"]), 2)
    assert (y.argmax(1) == test["labels"]).mean() == pytest.approx(found[False], abs=1e-6)
    print(found, flush=True)
    assert found[False] > 0.95 and found[True] > 0.7  # 20 numbers that tell digits apart
