"""The word language model of the examples beside PyTorch's: the same start, the same pieces, the same perplexity."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from examples import train_words
from parax.runtime.train.data.loader import Loader

WORDS, HIDDEN, LAYERS, LENGTH, RATE, EPOCHS = 600, 40, 1, 8, 5e-3, 2


def test_the_text_is_there_and_kept_apart() -> None:
    data = train_words.text(WORDS, LENGTH)
    assert len(data.words) == WORDS and len(data.train) > 5 * len(data.test) > 500
    assert 1 < data.guessed() < WORDS
    piece = data.test.take(np.array([0]))
    np.testing.assert_array_equal(piece["input"][0, 1:], piece["label"][0, :-1])


@pytest.mark.slow
def test_perplexity_is_pytorchs(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the other side of the comparison")
    from benchmarks.training_torch import module_of

    data, model = train_words.text(WORDS, LENGTH), tmp_path / "model.onnx"
    options = {"vocabulary": len(data.words), "hidden": HIDDEN, "layers": LAYERS, "length": LENGTH}
    train_words.write_model(model, len(data.words), HIDDEN, LAYERS, LENGTH)
    module, loss_of = module_of(model, "word-lm", options)
    optimizer = torch.optim.Adam(module.parameters(), RATE)
    batches = Loader(data.train, train_words.STREAMS, seed=0, shuffle=True)
    test = {name: torch.from_numpy(array) for name, array in data.test.take(np.arange(len(data.test))).items()}
    expected = []
    for _ in range(EPOCHS):
        for batch in batches:
            optimizer.zero_grad()
            loss_of(module(torch.from_numpy(batch["input"])), torch.from_numpy(batch["label"])).backward()
            optimizer.step()
        with torch.no_grad():
            expected.append(math.exp(loss_of(module(test["input"]), test["label"]).item()))
    output = tmp_path / "trained.onnx"
    found = train_words.trained(model, data, EPOCHS, RATE, output)
    assert found == pytest.approx(expected, rel=5e-3)
    assert found[1] < found[0] < data.guessed()
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime reads the trained model")
    (logits,) = onnxruntime.InferenceSession(output).run(None, {"input_ids": test["input"].numpy()})
    loss = loss_of(torch.from_numpy(logits), test["label"]).item()
    assert math.exp(loss) == pytest.approx(found[-1], rel=1e-4)
