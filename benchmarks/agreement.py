"""Whether `parax inspect` and compiling agree on every model there is: `python -m benchmarks.agreement`.

Compares, model by model, what the pre-flight check says with what parax.compile says, and what each leaves to the host:
ONNX's own backend suite, which comes with the package, and the real models and fragments of PARAX_MODELS. Prints every
disagreement and what was refused for which operators; exit code 5 if there is any disagreement.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx

from parax import env
from parax.compiler import api, driver
from parax.compiler.host_work import OUTSIDE
from parax.compiler.options import CompileOptions
from parax.errors import AccuracyMismatch, ParaxError, UnsupportedOp

Source = Path | onnx.ModelProto
OPTIONS = CompileOptions(calibrate=False, cache=False)


def sources() -> Iterator[tuple[str, Source]]:
    """Every model with its name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes its references on the way
        from onnx.backend.test.loader import load_model_tests

        cases = load_model_tests(kind="node")
    yield from ((case.name, case.model) for case in cases if case.model is not None)
    package = Path(onnx.__file__).parent / "backend" / "test" / "data"
    models: Path | None = env.read("PARAX_MODELS")
    folders = [package, *([models, models.parent / "fragments"] if models is not None else [])]
    for folder in folders:
        yield from ((str(path.relative_to(folder)), path) for path in sorted(folder.rglob("*.onnx")))


def said(work: Callable[[], str | None]) -> tuple[str, ParaxError | None]:
    """What is left to the host, or why not."""
    try:
        return work() or "", None
    except ParaxError as error:
        return f"{type(error).__name__}: {error}", error


def main() -> int:
    """Compare all; the exit code."""
    refused: Counter[str] = Counter()
    n_models = n_compiled = n_different = 0
    for name, source in sources():
        checked, error = said(lambda: _host(driver.preflight(source, OPTIONS)))  # noqa: B023 - called at once
        compiled, _ = said(lambda: api.compile(source, options=OPTIONS).manifest.provenance.get(OUTSIDE))  # noqa: B023
        n_models += 1
        n_compiled += error is None
        if checked != compiled:
            n_different += 1
            print(f"{name}: inspect says {checked!r}, compile says {compiled!r}")
        if isinstance(error, UnsupportedOp):
            refused.update({use.operator for use in error.uses})
    print(f"{n_models} models, {n_compiled} compile, {n_different} disagreements")
    print("refused for:", ", ".join(f"{name} × {n}" for name, n in refused.most_common()))
    return AccuracyMismatch.exit_code if n_different else 0


def _host(work: object) -> str:
    return str(work) if getattr(work, "operators", None) else ""


if __name__ == "__main__":
    sys.exit(main())
