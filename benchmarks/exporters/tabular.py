"""Models of tables, as skl2onnx and onnxmltools write them by default."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from .sources import Written, float_feed

COLUMNS = 12


def _table(rows: int = 600) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (rows, COLUMNS), a number and a class of 3 that depend on them."""
    rng = np.random.default_rng(0)
    x = float_feed(rng, rows, COLUMNS)
    y = x[:, 0] * x[:, 1] + np.sin(x[:, 2]) + 0.1 * float_feed(rng, rows)
    return x, y, np.digitize(y, (-0.5, 0.5))


def _written(model: Any, exporter: str, name: str) -> Written:
    path = Path(tempfile.mkdtemp(prefix="parax-tabular-")) / "model.onnx"
    path.write_bytes(model.SerializeToString())
    rng = np.random.default_rng(1)
    return Written(path, exporter, [{name: float_feed(rng, rows, COLUMNS)} for rows in (1, 64)])


def _sklearn(fit: Callable[[], Any], **options: Any) -> Callable[[], Written]:
    def build() -> Written:
        from skl2onnx import to_onnx

        fitted = fit()
        made = to_onnx(fitted, _table(2)[0], options={id(fitted): options} if options else None)
        return _written(made, f"skl2onnx {version('skl2onnx')}", "X")

    return build


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    x, y, _ = _table()
    return RandomForestRegressor(n_estimators=50, random_state=0).fit(x, y)


def _classifier() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x, _, classes = _table()
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(x, classes)


def _lightgbm() -> Written:
    from lightgbm import LGBMRegressor
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y, _ = _table()
    fitted = LGBMRegressor(n_estimators=50, random_state=0, verbose=-1, n_jobs=1).fit(x, y)
    made = convert_lightgbm(fitted, initial_types=[("X", FloatTensorType([None, COLUMNS]))])
    return _written(made, f"onnxmltools {version('onnxmltools')}, lightgbm {version('lightgbm')}", "X")


MODELS = {
    "sklearn-forest": _sklearn(_forest), "sklearn-classifier": _sklearn(_classifier, zipmap=False),
    "sklearn-zipmap": _sklearn(_classifier), "lightgbm": _lightgbm,
}  # fmt: skip
