"""Metrics against numpy, and scripts that fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parax.compiler.precision.metrics import Cosine, MeanSquare, Metric, metric_named
from parax.compiler.precision.samples import Request
from parax.errors import InvalidData, UsageError

RNG = np.random.default_rng(0)
EXACT = [{"y": RNG.standard_normal((4, 5)).astype(np.float32)} for _ in range(3)]
NEAR = [{"y": o["y"] + RNG.standard_normal((4, 5)).astype(np.float32) / 10} for o in EXACT]
A, B = (np.concatenate([o["y"] for o in each]).astype(np.float64) for each in (EXACT, NEAR))


def requests(labels: np.ndarray | None = None) -> list[Request]:
    others = [{}] * 3 if labels is None else [{"labels": part} for part in labels.reshape(3, 4)]
    return [Request({}, other, 4) for other in others]


def drop(name: str, found: list[dict[str, np.ndarray]] = NEAR, labels: np.ndarray | None = None) -> float:
    return metric_named(name, has_labels=labels is not None).drop(EXACT, found, requests(labels))


def test_numbers() -> None:
    assert drop("mse") == pytest.approx(((A - B) ** 2).sum() / (A**2).sum(), rel=1e-6)
    assert drop("cosine") == pytest.approx(1 - (A * B).sum() / np.sqrt((A**2).sum() * (B**2).sum()))
    assert drop("top1") == pytest.approx((A.argmax(1) != B.argmax(1)).mean())
    labels = B.argmax(1)  # the lower precision is the better one
    assert drop("top1", labels=labels) == pytest.approx((A.argmax(1) == labels).mean() - 1)
    assert drop("auto") == drop("mse") and drop("auto", labels=labels) == drop("top1", labels=labels)
    assert drop("mse", EXACT) == drop("top1", EXACT) == 0 and drop("cosine", EXACT) < 1e-15


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_results_that_are_not_finite(bad: float) -> None:
    broken = [{"y": o["y"].copy()} for o in EXACT]
    broken[1]["y"][2, 3] = bad
    assert drop("mse", broken) == drop("cosine", broken) == np.inf
    with pytest.raises(InvalidData, match="not finite"):
        metric_named("mse", has_labels=False).drop(broken, EXACT, requests())


def test_outputs_that_a_metric_does_not_take() -> None:
    numbers = [{"y": np.arange(4)}]
    for name in ("top1", "mse", "cosine"):
        with pytest.raises(UsageError, match="no output of"):
            metric_named(name, has_labels=False).drop(numbers, numbers, [Request({}, {}, 4)])
    with pytest.raises(UsageError, match="other labels than results"):
        metric_named("top1", has_labels=True).drop(EXACT, NEAR, [Request({}, {"labels": np.zeros(3)}, 4)] * 3)


def script(folder: Path, text: str) -> str:
    path = folder / "metric.py"
    path.write_text(text)
    return str(path)


def test_a_script(tmp_path: Path) -> None:
    text = "import numpy as np\ndef score(outputs, inputs):\n    assert len(outputs) == len(inputs) == 3\n" \
           "    return -float(np.mean([abs(o['y']).mean() for o in outputs]))\n"
    assert drop(script(tmp_path, text)) == pytest.approx(np.abs(B).mean() - np.abs(A).mean(), rel=1e-3)


@pytest.mark.parametrize(("text", "says"), [
    ("def score(outputs, inputs):\n    return 1 / 0\n", "metric script failed.*ZeroDivisionError"),
    ("def score(outputs):\n    return 1\n", "metric script failed.*TypeError"),
    ("def score(outputs, inputs):\n    return 'good'\n", "metric script failed.*ValueError"),
    ("def score(outputs, inputs):\n    return float('nan')\n", "score is not finite"),
    ("1 +\n", "metric script failed.*SyntaxError"),
    ("x = 1\n", "no such function"),
])  # fmt: skip
def test_scripts_that_fail(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        drop(script(tmp_path, text))
    assert "metric.py" in str(caught.value)


def test_the_line_that_failed_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"metric\.py, line 2"):
        drop(script(tmp_path, "def score(outputs, inputs):\n    return 1 / 0\n"))


def test_no_such_metric() -> None:
    for name in ("best", "absent.py"):
        with pytest.raises(UsageError, match="no such metric"):
            metric_named(name, has_labels=False)


@pytest.mark.parametrize("metric", [MeanSquare(), Cosine()], ids=["mse", "cosine"])
@pytest.mark.parametrize(("n", "least"), [(4, 0.88), (24, 0.92)])
def test_at_most_is_above_what_other_data_loses_as_often_as_it_says(metric: Metric, n: int, least: float) -> None:
    """Of many draws of a few requests; what a draw itself loses is above that in about half of them."""
    rng = np.random.default_rng(n)

    def draw(requests: int) -> tuple[list[dict[str, np.ndarray]], list[dict[str, np.ndarray]]]:
        a = rng.standard_normal((requests, 10))
        b = a + rng.standard_normal((requests, 10)) * rng.uniform(0.02, 0.1, (requests, 1))
        return [{"y": row} for row in a], [{"y": row} for row in b]

    true = metric.drop(*draw(40000), [])
    draws = [draw(n) for _ in range(400)]
    above = [np.mean([judge(*each, []) >= true for each in draws]) for judge in (metric.at_most, metric.drop)]
    assert least <= above[0] <= 0.995 and above[1] < 0.6


def test_at_most_of_one_request_and_of_what_is_not_finite() -> None:
    one, off = [{"y": np.ones(3)}], [{"y": np.full(3, 1.1)}]
    assert MeanSquare().at_most(one, off, []) == MeanSquare().drop(one, off, []) == pytest.approx(0.01)
    assert MeanSquare().at_most(one * 2, [*one, {"y": np.array([1, np.nan, 1])}], []) == float("inf")
    assert Cosine().at_most(one * 2, [*one, {"y": np.ones(4)}], []) == float("inf")
    assert MeanSquare().at_most([*one, {"y": np.zeros(3)}], [*one, {"y": np.ones(3)}], []) == float("inf")
