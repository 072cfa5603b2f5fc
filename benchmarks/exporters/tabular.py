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


def _targets(kind: str) -> np.ndarray:
    """What is fitted: numbers, two classes or three."""
    _, y, classes = _table()
    return {"regressor": y, "binary": (y > 0).astype(np.int64), "classifier": classes}[kind]


def _boosted(package: str, kind: str) -> Callable[[], Written]:
    """Trees of LightGBM or XGBoost."""

    def build() -> Written:
        import onnxmltools
        from onnxmltools.convert.common.data_types import FloatTensorType

        fitted = _unfitted(package, kind).fit(_table()[0], _targets(kind))
        convert = getattr(onnxmltools, f"convert_{package}")
        made = convert(fitted, initial_types=[("X", FloatTensorType([None, COLUMNS]))])
        return _written(made, f"onnxmltools {version('onnxmltools')}, {package} {version(package)}", "X")

    return build


def _unfitted(package: str, kind: str) -> Any:
    role = "Regressor" if kind == "regressor" else "Classifier"
    if package == "lightgbm":
        import lightgbm

        return getattr(lightgbm, f"LGBM{role}")(n_estimators=50, random_state=0, verbose=-1, n_jobs=1)
    import xgboost

    return getattr(xgboost, f"XGB{role}")(n_estimators=50, random_state=0, n_jobs=1)


MODELS = {
    "sklearn-forest": _sklearn(_forest), "sklearn-classifier": _sklearn(_classifier, zipmap=False),
    "sklearn-zipmap": _sklearn(_classifier), "lightgbm": _boosted("lightgbm", "regressor"),
    **{f"{package}-{kind}": _boosted(package, kind) for package, kind in (
        ("lightgbm", "binary"), ("lightgbm", "classifier"), ("xgboost", "regressor"), ("xgboost", "binary"),
        ("xgboost", "classifier"))},
}  # fmt: skip
