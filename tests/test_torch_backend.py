"""`torch.compile(model, backend="parax")`: torch's results by plans, and torch itself where a plan cannot be."""

from __future__ import annotations

import logging
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import parax

torch = pytest.importorskip("torch", reason="torch is an extra: pip install 'parax[torch]'")
pytest.importorskip("onnxscript", reason="onnxscript is an extra: pip install 'parax[torch]'")
torch_backend = pytest.importorskip("parax.torch_backend")
nn, functional = torch.nn, torch.nn.functional


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    torch.manual_seed(0)
    with torch.inference_mode(False), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*runs in eager mode.*")  # no test may pass by torch's own results
        yield


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[torch_backend.Captured]:
    """Every graph that is captured in the test."""
    found: list[torch_backend.Captured] = []
    init = torch_backend.Captured.__init__

    def noted(self: torch_backend.Captured, *args: Any) -> None:
        init(self, *args)
        found.append(self)

    monkeypatch.setattr(torch_backend.Captured, "__init__", noted)
    return found


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[torch_backend.Engine]:
    """The engine of every graph that ran as a plan."""
    found: list[torch_backend.Engine] = []
    run = torch_backend.Engine.run

    def noted(self: torch_backend.Engine, args: Any) -> Any:
        results = run(self, args)
        found.append(self)
        return results

    monkeypatch.setattr(torch_backend.Engine, "run", noted)
    return found


def same(found: Any, expected: Any) -> None:
    """Raises an error where results are not torch's, to rounding."""
    if isinstance(expected, (tuple, list)):
        assert type(found) is type(expected) and len(found) == len(expected)
        for one, other in zip(found, expected):
            same(one, other)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
    else:
        assert found == expected


def compiled(model: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    found: Callable[..., Any] = torch.compile(model, backend="parax", options=options or None)
    return found


class Block(nn.Module):
    """Of ResNet18: two convolutions and a way round them."""

    def __init__(self, n: int, m: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.Conv2d(m, m, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(m), nn.BatchNorm2d(m)
        self.round = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if n != m else None

    def forward(self, x: Any) -> Any:
        y = self.norm_two(self.two(functional.relu(self.norm_one(self.one(x)))))
        return functional.relu(y + (x if self.round is None else self.round(x)))


def resnet() -> Any:
    found = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(8, 8, 1),
        Block(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    for module in found.modules():  # as after training, so that their place among the constants matters
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return found.eval()


def test_a_residual_network(runs: list[torch_backend.Engine]) -> None:
    model, x = resnet(), torch.randn(2, 3, 32, 32)
    fast = compiled(model)
    for _ in range(3):
        same(fast(x), model(x))
    assert len(runs) == 4, "once more when compiled, to compare it with torch's"
    with torch.inference_mode():
        same(fast(torch.randn(2, 3, 32, 32) * 0 + x), model(x))


def test_bert(runs: list[torch_backend.Engine]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is an extra: pip install 'parax[export]'")
    config = transformers.BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
                                     vocab_size=100, max_position_embeddings=64)  # fmt: skip
    model = transformers.BertModel(config).eval()
    fast = compiled(model)
    ids, mask = torch.randint(0, 100, (2, 12)), torch.ones(2, 12, dtype=torch.int64)
    mask[1, 7:] = 0
    for _ in range(2):
        found, expected = fast(ids, attention_mask=mask), model(ids, attention_mask=mask)
        same(found.last_hidden_state, expected.last_hidden_state)
        same(found.pooler_output, expected.pooler_output)
    assert runs


def test_a_graph_break(captured: list[torch_backend.Captured], runs: list[torch_backend.Engine]) -> None:
    before, after, other = nn.Linear(4, 4), nn.Linear(4, 3), nn.Linear(4, 2)

    def model(x: Any) -> Any:
        y = torch.relu(before(x))
        if y.sum() > 1e9:  # what only the data tell
            return other(y)
        print("between two graphs")
        return after(y * 2)

    fast, x = compiled(model), torch.randn(5, 4)
    for _ in range(2):
        same(fast(x), model(x))
    assert len(captured) >= 2 and {engine for engine in runs} == {e for c in captured for e in c._engines}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
def test_element_types(dtype: str, runs: list[torch_backend.Engine]) -> None:
    x = torch.arange(12).reshape(3, 4).to(getattr(torch, dtype))

    def model(x: Any) -> Any:
        y = x if x.dtype == torch.bool else x + x
        return y.transpose(0, 1).reshape(2, 6), x.ne(3), y.to(torch.int64).sum(1)

    same(compiled(model)(x), model(x))
    assert runs


def test_results_of_other_types_and_orders(runs: list[torch_backend.Engine]) -> None:
    def model(x: Any) -> Any:
        top = (x * 2).topk(2, dim=1)
        image = functional.relu(x.reshape(1, 2, 3, 2)).to(memory_format=torch.channels_last)
        return top.values, top.indices, x.argmax(1), (x * 3).t(), image, x.sum()

    x = torch.randn(3, 4)
    found, expected = compiled(model)(x), model(x)
    same(found, expected)
    assert [t.dtype for t in found] == [t.dtype for t in expected]
    assert [t.stride() for t in found] == [t.stride() for t in expected]
    assert runs


def test_arguments_as_they_lie_in_memory(runs: list[torch_backend.Engine]) -> None:
    fast = compiled(model := nn.Linear(4, 3))
    x = torch.randn(4, 5)
    for given in (x.t(), torch.randn(5, 8)[:, ::2], torch.zeros(0, 4), torch.randn(4)):
        same(fast(given), model(given))
    assert runs


def test_open_sizes_need_one_plan(captured: list[torch_backend.Captured]) -> None:
    def model(x: Any) -> Any:
        return torch.softmax(x.view(x.shape[0], -1) * x.shape[0], 1)

    fast = compiled(model)
    for rows in (3, 4, 5, 9):
        x = torch.randn(rows, 2, 5)
        same(fast(x), model(x))
    assert [len(c._engines) for c in captured] == [1, 1], "one for the first size, one for all others"


def test_marked_sizes(captured: list[torch_backend.Captured]) -> None:
    fast, x = compiled(model := nn.Linear(4, 3)), torch.randn(5, 4)
    torch._dynamo.mark_dynamic(x, 0)
    for given in (x, torch.randn(7, 4), torch.randn(2, 4)):
        same(fast(given), model(given))
    assert [len(c._engines) for c in captured] == [1]


def test_numbers_among_the_results(captured: list[torch_backend.Captured]) -> None:
    def model(x: Any) -> Any:
        y = torch.tanh(x)
        n = x.shape[0] * 2
        torch._dynamo.graph_break()
        return y + n

    fast = torch.compile(model, backend="parax", dynamic=True)
    for rows in (3, 4, 3):
        x = torch.randn(rows, 4)
        same(fast(x), model(x))
    kept = sorted(len(c._engines) for c in captured)
    assert kept[-1] == 2, "a number follows from the size: a plan for each"


class Scaled(nn.Linear):
    """A layer with a parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: Any) -> Any:
        return super().forward(x) * self.scale


def by_optimizer(layer: Any) -> None:
    layer.weight.grad = torch.ones_like(layer.weight)
    torch.optim.SGD(layer.parameters(), lr=0.5).step()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda layer: layer.weight.add_(1.0),
    "by an optimizer": by_optimizer,
    "loaded": lambda layer: layer.load_state_dict({name: value + 2 for name, value in layer.state_dict().items()}),
    "other data": lambda layer: setattr(layer.weight, "data", layer.weight.data + 3),
    "another parameter": lambda layer: setattr(layer, "weight", nn.Parameter(layer.weight + 4)),
    "a buffer": lambda layer: layer.scale.mul_(5),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change_are_seen(change: str, runs: list[torch_backend.Engine]) -> None:
    model, x = Scaled(), torch.randn(2, 4)
    fast = compiled(model)
    before = fast(x)
    same(before, model(x))
    CHANGES[change](model)
    assert not torch.allclose(model(x), before)
    for _ in range(2):
        same(fast(x), model(x))
    assert len(runs) == 5, "two plans, each run once more when compiled"


def test_weights_that_always_change_are_not_compiled_for(captured: list[torch_backend.Captured]) -> None:
    fast, x = compiled(model := Scaled()), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="plans were compiled for one graph"):
        for _ in range(torch_backend.MOST_PLANS + 2):
            model.weight.add_(1)
            same(fast(x), model(x))
    assert captured[0]._engines == []


def test_weights_without_versions_are_given_with_each_call(runs: list[torch_backend.Engine]) -> None:
    with torch.inference_mode():
        model, x = Scaled(), torch.randn(2, 4)
        fast = compiled(model)
        for _ in range(3):
            same(fast(x), model(x))
            model.weight.add_(1)
    assert len(set(runs)) == 1


def test_gradients_are_torch_s() -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    fast = compiled(model)
    with torch.enable_grad():
        with pytest.warns(UserWarning, match="gradients are wanted.*inference_mode"):
            fast(x).sum().backward()
        expected = x.sum(0).expand(3, 4)
        same(model.weight.grad, expected)
        fast(x).sum().backward()  # said once
    same(model.weight.grad, 2 * expected)


def test_arguments_that_want_gradients() -> None:
    x = torch.randn(3, requires_grad=True)
    with torch.enable_grad(), pytest.warns(UserWarning, match="gradients are wanted"):
        compiled(lambda x: (x * x).sum())(x).backward()
    same(x.grad, 2 * x.detach())


def test_training_of_batch_norm_moves_its_means_once() -> None:
    model, other, x = nn.BatchNorm1d(3).train(), nn.BatchNorm1d(3).train(), torch.randn(8, 3)
    with pytest.warns(UserWarning, match="it writes to 3 of its arguments"):
        same(compiled(model)(x), other(x))
    same(model.running_mean, other.running_mean)
    assert model.num_batches_tracked == 1


def test_arguments_that_are_written_to() -> None:
    def model(x: Any) -> Any:
        x.add_(1)
        return x * 2

    x = torch.zeros(3)
    with pytest.warns(UserWarning, match="it writes to"):
        same(compiled(model)(x), torch.full((3,), 2.0))
    same(x, torch.ones(3))


def test_random_numbers_are_torch_s() -> None:
    def model(x: Any) -> Any:
        return functional.dropout(x, 0.5, True) + torch.rand(4)

    x = torch.ones(4)
    torch.manual_seed(7)
    expected = model(x)
    torch.manual_seed(7)
    with pytest.warns(UserWarning, match="random numbers"):
        same(compiled(model)(x), expected)


def test_views_stay_views() -> None:
    x = torch.zeros(2, 3)
    with pytest.warns(UserWarning, match="a view of an argument"):
        found = compiled(lambda x: (x.view(3, 2), x + 1))(x)
    found[0].add_(1)
    same(x, torch.ones(2, 3))


@pytest.mark.parametrize(
    ("model", "x", "says"),
    [(lambda x: torch.linalg.eigvalsh(x @ x.t()), torch.eye(3), "No ONNX function found for <OpOverload"),
     (lambda x: x.real * 2, torch.ones(3, dtype=torch.complex64), "not a tensor for a CPU"),
     (lambda x: x * 2, torch.ones(3, device="meta"), "meta")],
    ids=["operator", "complex", "device"],
)  # fmt: skip
def test_what_cannot_be_taken_runs_in_torch(model: Callable[[Any], Any], x: Any, says: str) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fast = compiled(model)
        found = [fast(x), fast(x)]
    same(found, [model(x), model(x)])
    reasons = [str(w.message) for w in told if "runs in eager mode" in str(w.message)]
    assert len(reasons) == 1 and says in reasons[0] and reasons[0].isprintable()


def test_it_is_said_once_by_log_and_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="parax")
    fast = compiled(lambda x: torch.linalg.eigvalsh(x))
    with pytest.warns(UserWarning, match="eager mode") as told:
        for _ in range(3):
            fast(torch.eye(3))
    assert len([w for w in told if "eager mode" in str(w.message)]) == 1
    assert len([r for r in caplog.records if "eager mode" in r.getMessage()]) == 1


def test_an_index_out_of_range_is_torch_s_error() -> None:
    model = nn.Embedding(5, 3)
    fast = compiled(model)
    same(fast(torch.tensor([1, 4])), model(torch.tensor([1, 4])))
    with pytest.warns(UserWarning, match="eager mode"), pytest.raises(IndexError, match="out of range"):
        fast(torch.tensor([1, 7]))
    same(fast(torch.tensor([0, 2])), model(torch.tensor([0, 2])))


def test_wrong_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "_tensor", lambda array, dtype: torch.from_numpy(array) + 1)
    fast, x = compiled(model := nn.Linear(4, 3)), torch.randn(2, 4)
    with pytest.warns(UserWarning, match="the plan's result is not torch's"):
        same(fast(x), model(x))


def test_options(runs: list[torch_backend.Engine]) -> None:
    model, x = nn.Linear(4, 3), torch.randn(2, 4)
    fast = compiled(model, hint="latency", instances=1, options=parax.CompileOptions(opt_level=1))
    same(fast(x), model(x))
    assert runs[0].session.instances == 1
    assert runs[0].session.plan.manifest.hint == "latency"
    with pytest.raises(Exception, match=r"no such option; expected cores, .* found speed"):
        compiled(model, speed=5)(x)


def test_without_onnxscript_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "find_spec", lambda name: None)
    with pytest.raises(parax.UsageError, match=r"parax\[torch\]"):
        torch_backend.backend(torch.fx.symbolic_trace(nn.ReLU()), [])


@pytest.mark.parametrize("first", ["", "import parax.torch_backend\n", "import torch\nimport parax.torch_backend\n",
                                   "from parax import torch_backend\n"])  # fmt: skip
def test_the_name_is_known_however_it_is_found(first: str) -> None:
    script = first + (
        "import torch, torch._dynamo\n"
        "with torch.inference_mode():\n"
        "    print(torch.compile(torch.nn.ReLU(), backend='parax')(torch.tensor([-1.0, 2.0])).tolist())\n"
    )
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", script], capture_output=True, text=True,
                          check=False, cwd="/")  # fmt: skip
    assert done.stdout == "[0.0, 2.0]\n", done.stderr
