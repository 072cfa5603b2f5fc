"""Text for language models: a vocabulary of words or bytes made from files, and streams of tokens.

Words are what white space separates; the end of a line is a token, as in Word-LM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ....errors import InvalidData, UsageError
from .dataset import Batch, Specs
from .files import content, existing

UNKNOWN, END_OF_LINE = "<unk>", "<eos>"


@dataclass(frozen=True)
class Words:
    """A vocabulary of words: 0 stands for all that are not in it, 1 for the end of a line."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, paths: Iterable[Path | str], most: int = 10_000) -> Words:
        """The most frequent words of files, at most `most` tokens; of equally frequent ones the first by letters.

        Raises:
            UsageError: fewer than the two tokens of every vocabulary. InvalidData: a file that is not UTF-8, no word.
        """
        if most < 3:
            raise UsageError("a vocabulary without a word", expected="3 or more", found=most)
        counts = Counter(word for path in paths for line in _lines(path) for word in line)
        for special in (UNKNOWN, END_OF_LINE):
            counts.pop(special, None)
        if not counts:
            raise InvalidData("text without a word", expected="a word or more", found="none")
        best = sorted(counts, key=lambda word: (-counts[word], word))[: most - 2]
        return cls((UNKNOWN, END_OF_LINE, *best))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, path: Path | str) -> np.ndarray:
        """The tokens of a file, i64[tokens]. Raises InvalidData where it is not UTF-8."""
        number = {word: i for i, word in enumerate(self.words)}
        end = number[END_OF_LINE]
        return np.array([t for line in _lines(path) for t in (*(number.get(w, 0) for w in line), end)], np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """Words with spaces between them, lines with their ends."""
        words = ["\n" if token == 1 else self.words[token] for token in tokens]
        return " ".join(words).replace(" \n ", "\n").replace(" \n", "\n")


@dataclass(frozen=True)
class Bytes:
    """The vocabulary of all bytes."""

    def __len__(self) -> int:
        return 256

    def encode(self, path: Path | str) -> np.ndarray:
        """The bytes of a file, i64[bytes]."""
        return np.frombuffer(content(existing(path, "text")), np.uint8).astype(np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """As UTF-8, what is none of it replaced."""
        return bytes(tokens).decode("utf-8", "replace")


def _lines(path: Path | str) -> list[list[str]]:
    """The words of each line of a file."""
    path = existing(path, "text")
    try:
        return [line.split() for line in content(path).decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise InvalidData("no UTF-8 text", where=f"{path}, at byte {error.start}", found=error.reason,
                          hint="use the vocabulary of bytes") from error  # fmt: skip


class TokenStreams:
    """Text as `streams` rows that go on from batch to batch: input i64[length] and label i64[length], the next tokens.

    The tokens are cut into so many contiguous streams; sample k·streams + s is the k-th piece of stream s, so that
    batches of `streams` samples, unshuffled, continue each other row by row, as recurrent states need.

    Raises:
        UsageError: no stream or no length. InvalidData: too few tokens for one piece in each stream.
    """

    def __init__(self, tokens: np.ndarray, streams: int, length: int) -> None:
        if streams < 1 or length < 1:
            raise UsageError("no streams of tokens", expected="1 or more", found=f"{streams} of length {length}")
        own = len(tokens) // streams
        self.n_pieces = max(own - 1, 0) // length
        if not self.n_pieces:
            raise InvalidData("too little text", expected=f"{streams * (length + 1)} tokens or more", found=len(tokens),
                              hint="fewer streams, or shorter pieces")  # fmt: skip
        self.streams, self.length = streams, length
        self._tokens = np.ascontiguousarray(tokens[: own * streams], np.int64).reshape(streams, own)

    @property
    def specs(self) -> Specs:
        return dict.fromkeys(("input", "label"), ((self.length,), np.dtype(np.int64)))

    def __len__(self) -> int:
        return self.n_pieces * self.streams

    def take(self, indices: np.ndarray) -> Batch:
        rows = (indices % self.streams)[:, None]
        at = (indices // self.streams * self.length)[:, None] + np.arange(self.length)
        return {"input": self._tokens[rows, at], "label": self._tokens[rows, at + 1]}


def text_dataset(
    paths: Sequence[Path | str], vocabulary: Words | Bytes, streams: int, length: int
) -> TokenStreams:
    """Files one behind the other. Raises as `TokenStreams` does, UsageError without a file."""
    if not paths:
        raise UsageError("no text", expected="a file or more", found="none")
    return TokenStreams(np.concatenate([vocabulary.encode(path) for path in paths]), streams, length)
