"""Optimisers against the same formulas in NumPy, over odd lengths and numbers of shards; clipping and the norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields

import numpy as np
import pytest

import parax
from parax.compiler.driver import compile_graph
from parax.compiler.passes.block.fuse_results import FuseResults
from parax.compiler.passes.rewrite import Rewriter
from parax.compiler.training.optimizers.base import Optimizer
from parax.compiler.training.update_graph import Clip, Group, update_graph

State = dict[str, np.ndarray]
RATE = 0.05


def sgd(o: parax.SGD, p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    d = g + o.weight_decay * p
    if o.momentum:
        s["momentum"] = o.momentum * s["momentum"] + d * (1 - o.dampening if t > 1 else 1)
        d = d + o.momentum * s["momentum"] if o.nesterov else s["momentum"]
    return p - RATE * d


def adam(o: parax.Adam, p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    if isinstance(o, parax.AdamW):
        p = p * (1 - RATE * o.weight_decay)
    else:
        g = g + o.weight_decay * p
    s["mean"] = o.beta1 * s["mean"] + (1 - o.beta1) * g
    s["square"] = o.beta2 * s["square"] + (1 - o.beta2) * g * g
    mean, square = s["mean"] / (1 - o.beta1**t), s["square"] / (1 - o.beta2**t)
    return p - RATE * mean / (np.sqrt(square) + o.eps)


def rmsprop(o: parax.RMSprop, p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    g = g + o.weight_decay * p
    s["square"] = spread = o.alpha * s["square"] + (1 - o.alpha) * g * g
    if o.centered:
        s["mean"] = o.alpha * s["mean"] + (1 - o.alpha) * g
        spread = spread - s["mean"] ** 2
    d = g / (np.sqrt(spread) + o.eps)
    if o.momentum:
        s["momentum"] = d = o.momentum * s["momentum"] + d
    return p - RATE * d


def adagrad(o: parax.Adagrad, p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
    g = g + o.weight_decay * p
    s["square"] = s["square"] + g * g
    return p - RATE / (1 + (t - 1) * o.lr_decay) * g / (np.sqrt(s["square"]) + o.eps)


def lamb_of(sizes: Sequence[int]) -> Callable:
    def lamb(o: parax.LAMB, p: np.ndarray, g: np.ndarray, s: State, t: int) -> np.ndarray:
        s["mean"] = o.beta1 * s["mean"] + (1 - o.beta1) * g
        s["square"] = o.beta2 * s["square"] + (1 - o.beta2) * g * g
        mean, square = s["mean"] / (1 - o.beta1**t), s["square"] / (1 - o.beta2**t)
        u, new, end = mean / (np.sqrt(square) + o.eps) + o.weight_decay * p, p.copy(), 0
        for size in sizes:
            own, end = slice(end, end + size), end + size
            above, below = np.sqrt((p[own] ** 2).sum()), np.sqrt((u[own] ** 2).sum())
            new[own] -= RATE * (above / below if above > 0 and below > 0 else 1) * u[own]
        return new

    return lamb


CASES: list[tuple[Optimizer, Callable]] = [
    (parax.SGD(lr=RATE), sgd),
    (parax.SGD(lr=RATE, momentum=0.9, weight_decay=0.1), sgd),
    (parax.SGD(lr=RATE, momentum=0.8, nesterov=True), sgd),
    (parax.SGD(lr=RATE, momentum=0.8, dampening=0.3), sgd),
    (parax.RMSprop(lr=RATE, alpha=0.9, weight_decay=0.1), rmsprop),
    (parax.RMSprop(lr=RATE, alpha=0.8, momentum=0.5, centered=True, eps=1e-2), rmsprop),
    (parax.Adagrad(lr=RATE, lr_decay=0.1, weight_decay=0.1), adagrad),
    (parax.Adam(lr=RATE, weight_decay=0.2), adam),
    (parax.AdamW(lr=RATE, weight_decay=0.3, eps=1e-6), adam),
]


def follow(
    optimizer: Optimizer, twin: Callable, sizes: Sequence[int], n_shards: int, zeros: Sequence[slice] = ()
) -> None:
    """Eight steps beside the twin's; `zeros`: parameters and gradients that are 0."""
    length = sum(sizes)
    rng = np.random.default_rng(length)
    session = compile_graph(update_graph(optimizer, [Group("all", tuple(sizes))], n_shards, Clip()),
                            parax.CompileOptions(hint="latency")).session()  # fmt: skip
    p = rng.standard_normal(length)
    for part in zeros:
        p[part] = 0
    slots = {name: np.zeros(length) for name in optimizer.kept()}
    own = {f"all.{name}": array.astype(np.float32) for name, array in {"weights": p, **slots}.items()}
    for t in range(1, 9):
        shards = [rng.standard_normal(length).astype(np.float32) for _ in range(n_shards)]
        for part in zeros:
            for shard in shards:
                shard[part] = 0
        gradient = sum(s.astype(np.float64) for s in shards) / n_shards
        numbers = {"rate": RATE, "step": t, "scale": 1 / n_shards}
        feeds = {**own, **{f"all.gradient.{i}": s for i, s in enumerate(shards)}}
        feeds.update({name: np.array(value, np.float32) for name, value in numbers.items()})
        found = session.run({spec.name: feeds[spec.name] for spec in session.inputs})
        p = twin(optimizer, p, gradient, slots, t)
        assert float(found["norm"]) == pytest.approx(np.sqrt((gradient**2).sum()), rel=1e-5)
        for name, expected in {"weights": p, **slots}.items():
            own[f"all.{name}"] = found[f"all.{name}.new"]
            np.testing.assert_allclose(own[f"all.{name}"], expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("sizes, n_shards", [((1,), 1), ((17, 3), 2), ((16, 48, 32, 16), 3), ((4096 * 33, 16), 1)])
def test_lamb_is_by_tensors(sizes: tuple[int, ...], n_shards: int) -> None:
    follow(parax.LAMB(lr=RATE), lamb_of(sizes), sizes, n_shards)
    follow(parax.LAMB(lr=RATE, weight_decay=0.0, beta1=0.8, eps=1e-3), lamb_of(sizes), sizes, n_shards,
           [slice(0, sizes[0])])  # fmt: skip


@pytest.mark.parametrize("length, n_shards", [(1, 1), (15, 2), (16, 3), (1000, 4)])
@pytest.mark.parametrize("optimizer, twin", CASES, ids=lambda x: repr(x) if isinstance(x, Optimizer) else "")
def test_steps(optimizer: Optimizer, twin: Callable, length: int, n_shards: int) -> None:
    follow(optimizer, twin, (length,), n_shards)


def test_clipping() -> None:
    gradient = np.array([3.0, -4.0, 0.5], np.float32)
    for clip, expected in ((Clip(norm=1.0), gradient / np.sqrt(25.25)), (Clip(norm=9.0), gradient),
                           (Clip(value=2.0), np.clip(gradient, -2, 2))):  # fmt: skip
        session = compile_graph(update_graph(parax.SGD(lr=1.0), [Group("all", (3,))], 1, clip),
                                parax.CompileOptions()).session()  # fmt: skip
        one, zero = np.array(1, np.float32), np.zeros(3, np.float32)
        feeds = {"all.weights": zero, "all.gradient.0": gradient, "rate": one, "step": one, "scale": one}
        found = session.run({spec.name: feeds[spec.name] for spec in session.inputs})
        np.testing.assert_allclose(-found["all.weights.new"], expected, rtol=1e-5)


@pytest.mark.parametrize("settings", [{"lr": -1.0}, {"lr": 0.1, "momentum": 1.0}, {"lr": 0.1, "nesterov": True},
                                      {"lr": 0.1, "momentum": 0.9, "nesterov": True, "dampening": 0.1},
                                      {"lr": float("nan")}, {"lr": "0.1"}])  # fmt: skip
def test_settings_out_of_range(settings: dict) -> None:
    with pytest.raises(parax.UsageError):
        parax.SGD(**settings)


def test_an_update_is_one_kernel_and_a_norm() -> None:
    """Weights, state and the only shard's gradient are read once, and the gradient once more for its norm."""
    length = 1 << 16
    graph = update_graph(parax.AdamW(lr=1.0), [Group("all", (length,))], 1, Clip())
    assert FuseResults().run(graph, Rewriter(graph))
    whole = [n for n in graph if any(v.tensor.numel == length for v in n.operands)]
    assert sorted((n.op.name, len(n.outputs)) for n in whole) == [("Fused", 3), ("ReduceSumSquare", 1), ("Reshape", 1)]


@pytest.mark.parametrize("length", [0, 1, 17, 4097, 16 * 4099, 1_000_003])
def test_norm_of_any_length(length: int) -> None:
    session = compile_graph(update_graph(parax.SGD(lr=1.0), [Group("all", (length,))], 1, Clip()),
                            parax.CompileOptions(hint="latency")).session()  # fmt: skip
    gradient = np.random.default_rng(0).random(length, np.float32)
    one = np.array(1, np.float32)
    feeds = {"all.weights": gradient, "all.gradient.0": gradient, "rate": one, "step": one, "scale": one * -2}
    found = session.run({spec.name: feeds[spec.name] for spec in session.inputs})
    expected = 2 * np.sqrt((gradient.astype(np.float64) ** 2).sum())
    assert float(found["norm"]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("optimizer, settings", [
    (parax.SGD(lr=RATE, momentum=0.8, dampening=0.3, weight_decay=0.1), {}),
    (parax.SGD(lr=RATE, momentum=0.8, nesterov=True), {}),
    (parax.Adam(lr=RATE, beta1=0.8), {"betas": (0.8, 0.999)}),
    (parax.AdamW(lr=RATE), {"betas": (0.9, 0.999)}),
    (parax.RMSprop(lr=RATE, momentum=0.5), {}),
    (parax.RMSprop(lr=RATE, centered=True, eps=1e-3), {}),
    (parax.Adagrad(lr=RATE, lr_decay=0.1), {}),
], ids=repr)  # fmt: skip
def test_twenty_steps_of_torch(optimizer: Optimizer, settings: dict) -> None:
    torch = pytest.importorskip("torch")
    own = {f.name: getattr(optimizer, f.name) for f in fields(optimizer) if not f.name.startswith("beta")}
    rng = np.random.default_rng(0)
    start = rng.standard_normal(33).astype(np.float32)
    parameter = torch.nn.Parameter(torch.tensor(start))
    other = getattr(torch.optim, type(optimizer).__name__)([parameter], **own, **settings)
    session = compile_graph(update_graph(optimizer, [Group("all", (33,))], 1, Clip()), parax.CompileOptions()).session()
    state = {"all.weights": start, **{f"all.{slot}": np.zeros(33, np.float32) for slot in optimizer.kept()}}
    for t in range(1, 21):
        gradient = rng.standard_normal(33).astype(np.float32)
        numbers = {"rate": np.float32(RATE), "step": np.float32(t), "scale": np.float32(1)}
        feeds = {**state, "all.gradient.0": gradient, **{name: np.array(value) for name, value in numbers.items()}}
        found = session.run({spec.name: feeds[spec.name] for spec in session.inputs})
        state = {name: found[f"{name}.new"] for name in state}
        parameter.grad = torch.tensor(gradient)
        other.step()
        np.testing.assert_allclose(state["all.weights"], parameter.detach().numpy(), rtol=1e-4, atol=2e-6)
