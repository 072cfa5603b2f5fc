"""Trains a word language model on text that every Python brings: the topics of its own `help()`.

    python -m examples.train_words                    # minutes; the perplexity of the text kept apart, epoch by epoch
    python -m examples.train_words --epochs 6 -o words.onnx

The model is `word-lm` of the model list in a smaller size: an embedding, LSTM layers, and the embedding again as the
output layer. Perplexity is e to the mean loss of a word; a guess by how frequent words are is the one to beat.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np

import parax
from examples.models import build
from parax.compiler.training.losses import SoftmaxCrossEntropy
from parax.files import write_whole
from parax.runtime.train.data.text import TokenStreams, Words

KEPT = 10  # of so many topics one is kept apart
STREAMS = 32


@dataclass(frozen=True)
class Text:
    """What is trained and tested on, and the vocabulary, which is of the first."""

    words: Words
    train: TokenStreams
    test: TokenStreams

    def guessed(self) -> float:
        """The perplexity of guessing words of the test by how frequent they are in training."""
        counts = np.bincount(_tokens(self.train), minlength=len(self.words)) + 1.0
        return float(np.exp(-np.log(counts / counts.sum())[_tokens(self.test)].mean()))


def text(vocabulary: int, length: int) -> Text:
    """Pieces of `length` words of Python's topics, in the order of their names; `vocabulary`: tokens at most."""
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "train.txt", Path(folder) / "test.txt"
        listed = [topics[name] for name in sorted(topics)]
        for path, apart in zip(paths, (False, True), strict=True):
            path.write_text("\n".join(t for i, t in enumerate(listed) if (i % KEPT == 0) == apart), encoding="utf-8")
        words = Words.of([paths[0]], vocabulary)
        parts = [TokenStreams(words.encode(path), STREAMS, length) for path in paths]
    return Text(words, *parts)


def _tokens(streams: TokenStreams) -> np.ndarray:
    """Every label: each word that is to be foretold."""
    found: np.ndarray = streams.take(np.arange(len(streams)))["label"].reshape(-1)
    return found


def write_model(path: Path, words: int, hidden: int, layers: int, length: int) -> None:
    """The untrained model: input_ids i64[N,length] → logits f32[N,length,words]."""
    options = {"vocabulary": words, "hidden": hidden, "layers": layers, "length": length}
    write_whole(path, build("word-lm", options=options).SerializeToString())


def trained(model: Path, data: Text, epochs: int, rate: float, output: Path | None = None) -> list[float]:
    """Perplexities of the test after each epoch of Adam; the trained model is written."""
    found: list[float] = []

    def log(record: dict[str, Any]) -> None:
        if "evaluation" in record:
            found.append(math.exp(record["evaluation"]["loss"]))
            print(f"epoch {len(found)}: perplexity {found[-1]:.1f}", flush=True)

    with parax.Trainer(model, SoftmaxCrossEntropy(axis=-1), parax.Adam(lr=rate), batch=STREAMS) as trainer:
        trainer.fit(data.train, epochs, test=data.test, log=log)
        if output is not None:
            trainer.export(output)
    return found


def main(argv: list[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser("python -m examples.train_words", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--epochs", type=int, default=3, help="passes over the text (default 3)")
    parser.add_argument("--words", type=int, default=4000, help="of the vocabulary (default 4000)")
    parser.add_argument("--hidden", type=int, default=128, help="units of a layer (default 128)")
    parser.add_argument("--length", type=int, default=20, help="words of a piece (default 20)")
    parser.add_argument("-o", "--output", type=Path, help="write the trained model there")
    args = parser.parse_args(argv)
    data = text(args.words, args.length)
    print(f"{len(data.words)} words; guessed by frequency: perplexity {data.guessed():.1f}")
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model.onnx"
        write_model(model, len(data.words), args.hidden, 2, args.length)
        trained(model, data, args.epochs, 3e-3, args.output)


if __name__ == "__main__":
    main()
