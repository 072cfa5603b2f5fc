"""Generates tokens with a language model whose keys and values stay in the plan from token to token.

    python -m examples.generate llama --tokens 64                        # the likeliest token each time
    python -m examples.generate gpt --temperature 0.8 --top-k 40 --top-p 0.95 --seed 7
    python -m examples.generate llama --precision int4-weights --set hidden=1024 --set layers=8

Weights are random, so tokens are numbers and mean nothing; a model file of the same inputs and outputs
(`examples/models/language.py`) is taken as well. What a plan with state is: docs/language-models.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import onnx

import parax
from examples.models.language import DECODERS, PAST, PRESENT, Sizes
from parax.errors import InvalidData, UsageError


class Calls(Protocol):
    """A session, or a sequence of one: what runs calls that remember those before."""

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]: ...

    def reset(self) -> None: ...


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the scores of all.

    Attributes:
        temperature: scores are divided by it; 0: the likeliest token is taken.
        top_k: of so many of the likeliest; 0: of all. top_p: of the fewest whose probabilities sum up to that.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise UsageError("not a temperature", where="temperature", expected="0 or more", found=self.temperature)
        if self.top_k < 0:
            raise UsageError("not a number of tokens", where="top_k", expected="0 or more", found=self.top_k)
        if not 0 < self.top_p <= 1:
            raise UsageError("not a probability", where="top_p", expected="above 0, 1 at most", found=self.top_p)

    def draw(self, scores: np.ndarray, rng: np.random.Generator) -> int:
        """A token by its scores [vocabulary]; -inf is never drawn.

        Raises:
            InvalidData: NaN or infinity among the scores, or nothing to draw.
        """
        if np.isnan(scores).any() or scores.max() == np.inf:
            raise InvalidData("scores that are no numbers", where="logits", found="NaN or infinity",
                              hint="reset the state: it may hold them, too")  # fmt: skip
        if scores.max() == -np.inf:
            raise InvalidData("no token may come next", where="logits", found="-inf everywhere")
        if not self.temperature:
            return int(scores.argmax())
        order = np.argsort(-scores, kind="stable")[: self.top_k or None]
        with np.errstate(over="ignore"):  # of a temperature near 0: as 0
            weights = np.exp((scores[order].astype(np.float64) - scores[order[0]]) / self.temperature)
        sums = np.cumsum(weights / weights.sum())
        n = int(np.searchsorted(sums, self.top_p * (1 - 1e-12))) + 1
        return int(order[np.searchsorted(sums[:n] / sums[n - 1], rng.random(), side="right").clip(max=n - 1)])


def generate(calls: Calls, prompt: Sequence[int], sampling: Sampling | None = None, seed: int = 0) -> Iterator[int]:
    """Tokens without end, from the beginning of a sequence: the prompt in one call, then one token in each.

    Raises:
        UsageError: an empty prompt. InvalidInput: the plan allows no longer sequence. InvalidData: see `draw`.
    """
    if not len(prompt):
        raise UsageError("nothing to begin with", where="prompt", expected="a token at least")
    calls.reset()
    rng, ids = np.random.default_rng(seed), np.array([prompt], np.int64)
    while True:
        logits = calls.run({"input_ids": ids})["logits"]
        token = (sampling or Sampling()).draw(logits[0, -1], rng)
        yield token
        ids = np.array([[token]], np.int64)


def compiled(model: onnx.ModelProto | Path, longest: int, precision: str = "fp32") -> parax.Plan:
    """The plan of a decoder that keeps its keys and values, for sequences of so many tokens."""
    options = parax.CompileOptions(precision=precision)
    return parax.compile(model, state={PAST: PRESENT}, dims={"P": (0, longest)}, options=options)


@dataclass(frozen=True)
class Measured:
    """Tokens, and how long they took: seconds to the first, and of all that followed."""

    tokens: list[int]
    first_seconds: float
    other_seconds: float

    def __str__(self) -> str:
        rest = len(self.tokens) - 1
        rate = f", then {rest / self.other_seconds:.1f} tokens/s" if rest else ""
        return f"first token after {self.first_seconds * 1e3:.1f} ms{rate}"


def measured(calls: Calls, prompt: Sequence[int], count: int, sampling: Sampling, seed: int) -> Measured:
    """So many tokens, timed."""
    began = time.perf_counter()
    tokens = generate(calls, prompt, sampling, seed)
    found = [next(tokens)]
    first = time.perf_counter()
    found += [next(tokens) for _ in range(count - 1)]
    return Measured(found, first - began, time.perf_counter() - first)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m examples.generate", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("model", help=f"{' or '.join(DECODERS)}, with random weights, or a file")
    parser.add_argument("--prompt", type=_tokens, default=[1, 2, 3, 4], help="tokens like 5,17,3 (default 1,2,3,4)")
    parser.add_argument("--tokens", type=int, default=64, help="how many (default 64)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: the likeliest token (default)")
    parser.add_argument("--top-k", type=int, default=0, help="draw from so many of the likeliest; 0: all (default)")
    parser.add_argument("--top-p", type=float, default=1.0, help="draw from the fewest that have this probability")
    parser.add_argument("--seed", type=int, default=0, help="of what is drawn, and of random weights (default 0)")
    parser.add_argument("--precision", default="fp32", help="fp32 (default), bf16, int8-weights or int4-weights")
    parser.add_argument("--set", type=_size, action="append", default=[], metavar="NAME=N",
                        help=f"a size of random weights: {', '.join(f.name for f in fields(Sizes))}")  # fmt: skip
    return parser


def _tokens(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _size(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if name not in {f.name for f in fields(Sizes)}:
        raise argparse.ArgumentTypeError(f"no size is named {name}")
    return name, int(value)


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    args = _parser().parse_args(argv)
    sampling = Sampling(args.temperature, args.top_k, args.top_p)
    if args.tokens < 1:
        raise UsageError("too few", where="--tokens", expected="1 at least", found=args.tokens)
    longest = len(args.prompt) + args.tokens
    sizes = replace(Sizes(positions=longest), **dict(args.set))
    made = args.model in DECODERS
    plan = compiled(DECODERS[args.model](sizes, args.seed) if made else Path(args.model), longest, args.precision)
    with plan.session() as session:
        found = measured(session, args.prompt, args.tokens, sampling, args.seed)
    print(*found.tokens)
    print(found)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())


__all__ = ["Measured", "Sampling", "compiled", "generate", "main", "measured"]
