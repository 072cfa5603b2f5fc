"""Tokens of the decoders with their cache in the plan: as computed anew from all tokens, and as ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import onnx
import pytest

import parax
from examples import generate
from examples.generate import Sampling
from examples.models.language import DECODERS, Sizes
from parax.errors import InvalidData, InvalidInput, UsageError

LONGEST = 40
SIZES = {
    "gpt": Sizes(layers=2, hidden=48, heads=3, inner=96, vocabulary=131, positions=LONGEST),
    "llama": Sizes(layers=2, hidden=64, heads=4, key_heads=2, inner=96, vocabulary=131, positions=LONGEST),
}
PROMPT, COUNT = [5, 17, 3, 99, 0], 20


def model(name: str) -> onnx.ModelProto:
    return DECODERS[name](SIZES[name], seed=3)


class Anew:
    """A decoder that keeps nothing: every call computes all tokens."""

    def __init__(self, name: str, run: Any) -> None:
        z = SIZES[name]
        empty = np.zeros((1, z.heads if name == "gpt" else z.key_heads, 0, z.depth), np.float32)
        self.past = {f"past.{i}.{part}": empty for i in range(z.layers) for part in ("key", "value")}
        self.run_all, self.ids = run, np.zeros((1, 0), np.int64)

    def reset(self) -> None:
        self.ids = self.ids[:, :0]

    def run(self, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        self.ids = np.concatenate([self.ids, inputs["input_ids"]], 1)
        n = inputs["input_ids"].shape[1]
        return {"logits": self.run_all(["logits"], {"input_ids": self.ids, **self.past})["logits"][:, -n:]}


def of_onnxruntime(proto: onnx.ModelProto) -> Any:
    """A session's `run` whose results have names."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is the other side of the comparison")
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    return lambda names, feeds: dict(zip(names, session.run(names, feeds)))


def drawn(calls: Any, prompt: Sequence[int] = PROMPT, count: int = COUNT, **how: Any) -> list[int]:
    seed = how.pop("seed", 0)
    return list(islice(generate.generate(calls, prompt, Sampling(**how), seed), count))


@pytest.mark.parametrize("name", DECODERS)
def test_models_are_valid(name: str) -> None:
    onnx.checker.check_model(model(name), full_check=True)


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("name", DECODERS)
def test_tokens_are_those_computed_anew(name: str, instances: int) -> None:
    plan = generate.compiled(model(name), LONGEST)
    if instances > len(plan.session().core_groups[0]):
        pytest.skip("needs two cores")
    with plan.session(instances=instances) as session, parax.compile(model(name)).session() as apart:
        anew, ort = Anew(name, apart.run), Anew(name, of_onnxruntime(model(name)))
        for how in ({}, {"temperature": 0.7, "top_k": 9, "top_p": 0.8, "seed": 5}):
            found = drawn(session.sequence(), **how)
            assert found == drawn(anew, **how) == drawn(ort, **how)
            assert len(set(found)) > 3  # else any cache would do


@pytest.mark.parametrize("precision", ["int4-weights", "int8-weights"])
@pytest.mark.parametrize("name", DECODERS)
def test_logits_of_rounded_weights_are_those_computed_anew(name: str, precision: str) -> None:
    plan = generate.compiled(model(name), LONGEST, precision)
    options = parax.CompileOptions(precision=precision)
    ids = np.random.default_rng(0).integers(0, 131, (1, 20))
    with plan.session() as session, parax.compile(model(name), options=options).session() as apart:
        wanted = Anew(name, apart.run).run({"input_ids": ids})["logits"]
        pieces = np.split(ids, [7, 8, 9, 17], 1)
        parts = [session.run({"input_ids": piece})["logits"] for piece in pieces]
        np.testing.assert_allclose(np.concatenate(parts, 1), wanted, rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("name", DECODERS)
def test_prompts_of_a_batch_run_together(name: str) -> None:
    ids = np.random.default_rng(1).integers(0, 131, (3, 9))
    with generate.compiled(model(name), LONGEST).session() as session:
        together = np.concatenate([session.run({"input_ids": ids[:, a:b]})["logits"] for a, b in ((0, 5), (5, 9))], 1)
        for row, tokens in enumerate(ids):
            session.reset()
            alone = session.run({"input_ids": tokens[None]})["logits"]
            np.testing.assert_allclose(together[row], alone[0], rtol=1e-4, atol=1e-4)


def test_what_is_too_long_is_refused() -> None:
    with generate.compiled(model("llama"), LONGEST).session() as session:
        tokens = generate.generate(session, PROMPT)
        assert len(list(islice(tokens, LONGEST - len(PROMPT) + 1))) == 36  # the last one is not fed back
        with pytest.raises(InvalidInput, match=r"too long.*P of at most 40.*41"):
            next(tokens)
        with pytest.raises(UsageError, match="nothing to begin with"):
            next(generate.generate(session, []))


def test_a_draw_follows_the_probabilities() -> None:
    scores, rng = np.log(np.array([0.1, 0.4, 0.2, 0.3])).astype(np.float32), np.random.default_rng(0)

    def shares(**how: Any) -> np.ndarray:
        sampling = Sampling(**how)
        return np.bincount([sampling.draw(scores, rng) for _ in range(4000)], minlength=4) / 4000

    np.testing.assert_allclose(shares(temperature=1), [0.1, 0.4, 0.2, 0.3], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1, top_k=2), [0, 4 / 7, 0, 3 / 7], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1, top_p=0.7), [0, 4 / 7, 0, 3 / 7], atol=0.03)
    np.testing.assert_allclose(shares(temperature=1, top_p=0.75), [0, 4 / 9, 2 / 9, 3 / 9], atol=0.03)
    np.testing.assert_allclose(shares(temperature=0.5), np.array([1, 16, 4, 9]) / 30, atol=0.03)
    for certain in ({}, {"temperature": 1, "top_k": 1}, {"temperature": 1, "top_p": 0.1}, {"temperature": 1e-300}):
        assert shares(**certain).tolist() == [0, 1, 0, 0]


def test_scores_that_are_no_numbers_are_told() -> None:
    rng = np.random.default_rng(0)
    for bad in ([0, np.nan], [0, np.inf]):
        with pytest.raises(InvalidData, match="no numbers"):
            Sampling().draw(np.array(bad), rng)
    with pytest.raises(InvalidData, match="no token"):
        Sampling().draw(np.full(3, -np.inf), rng)
    assert {Sampling(1.0).draw(np.array([0, -np.inf, 0]), rng) for _ in range(99)} == {0, 2}
    for wrong in ({"temperature": -1.0}, {"temperature": np.nan}, {"top_k": -1}, {"top_p": 0.0}, {"top_p": 1.5}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Sampling(**wrong)


def test_the_command_prints_tokens_and_their_rate(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = [f"--set={name}={n}" for name, n in (("layers", 1), ("hidden", 32), ("inner", 32), ("vocabulary", 50))]
    assert generate.main(["gpt", "--tokens", "5", "--prompt", "1,2", "--precision", "int8-weights", *sizes]) == 0
    tokens, rate = capsys.readouterr().out.splitlines()
    assert len(tokens.split()) == 5 and all(0 <= int(t) < 50 for t in tokens.split())
    assert "first token after" in rate and "tokens/s" in rate
