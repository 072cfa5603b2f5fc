"""One model by one exporter: built, exported, compiled, compared, timed; a child of `benchmarks.exporters`.

`python -m benchmarks.exporters.side NAME EXPORTER [--speed | --timed] [--keep FOLDER]` prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import onnxruntime

import parax
from parax.compiler.compare import Tolerance
from parax.compiler.frontend.precision import precision
from parax.compiler.row_order import differences
from parax.errors import ParaxError

from ..children import Record
from .kept import MODEL, PLAN, keep_record, keep_written, kept_record, kept_written
from .listed import build
from .sources import Traced, Written
from .torch_export import export

MOST_PROBLEM = 300
"""Characters of an error that are kept."""
UNSTABLE = "ONNX Runtime differs from itself, too, once its optimisations are off"
ROUNDS, SECONDS, SETTLING = 7, 0.15, 0.1


def record_of(name: str, exporter: str, speed: bool, folder: Path) -> Record:
    """What became of the model: its `status` (not installed, not exported, not valid, refused, failed, differs,
    unstable or agrees), and as much of the rest as there is.

    Args:
        folder: where the model and its plan are put; a model that it has is not exported again.
    """
    try:
        written = kept_written(folder) or keep_written(_written(name, exporter, folder / MODEL), folder)
    except ImportError as error:
        return {"status": "not installed", "problem": _short(error)}
    except Exception as error:  # whatever an exporter raises says that it cannot
        return {"status": "not exported", "exporter": exporter, "problem": _short(error)}
    record: Record = {"exporter": written.exporter, **_contents(written.path)}
    try:
        began = time.perf_counter()
        plan = parax.compile(written.path)
        record["seconds"] = time.perf_counter() - began
        plan.save(folder / PLAN)
        problem = _compared(plan, written)
        record |= {"status": "differs" if problem else "agrees", "problem": problem}
        if problem and _disagrees_with_itself(written):
            record |= {"status": "unstable", "problem": UNSTABLE}
        if speed and not problem:
            record["ratio"] = _ratio(plan, written)
    except ParaxError as error:
        status = "refused" if isinstance(error, parax.UnsupportedOp) else "failed"
        record |= {"status": status if _is_loaded_by_theirs(written.path) else "not valid", "problem": _short(error)}
    return record


def _timed_again(folder: Path) -> Record:
    """The record that is kept there, its plan timed now."""
    record, written = kept_record(folder), kept_written(folder)
    if record is None:
        return {"status": "not kept"}
    if record["status"] == "agrees" and written is not None:
        record["ratio"] = _ratio(parax.load(folder / PLAN), written)
    return record


def _written(name: str, exporter: str, path: Path) -> Written:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = build(name)
    return export(source, exporter, path) if isinstance(source, Traced) else source


def _short(error: Exception) -> str:
    """One line, without a terminal's colours: the cause's, where an exporter wraps it in advice."""
    told: BaseException = error
    while type(told).__name__ == "TorchExportError" and told.__cause__ is not None:
        told = told.__cause__
    return " ".join(f"{type(told).__name__}: {told}".split())[:MOST_PROBLEM]


def _contents(path: Path) -> Record:
    model = onnx.load(path, load_external_data=False)
    operators: Counter[str] = Counter()
    graphs = [model.graph, *(f for f in model.functions)]
    while graphs:
        graph = graphs.pop()
        operators.update(node.op_type for node in graph.node)
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    opset = max((i.version for i in model.opset_import if i.domain in ("", "ai.onnx")), default=0)  # of ml alone
    return {"opset": opset, "nodes": operators.total(), "operators": len(operators)}


def _theirs(path: Path, optimised: bool = True) -> onnxruntime.InferenceSession:
    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _is_loaded_by_theirs(path: Path) -> bool:
    """Whether ONNX Runtime takes the file: not what an exporter has made wrong."""
    try:
        _theirs(path)
    except Exception:  # its own kinds, which it does not name
        return False
    return True


def _compared(plan: parax.Plan, written: Written) -> str:
    """How results differ from ONNX Runtime's, "" where they agree; by the rule of `parax verify`."""
    with plan.session() as session:
        return _differences(session.run, written)


def _disagrees_with_itself(written: Written) -> bool:
    """Whether rounding alone changes what ONNX Runtime gives: scores so close that their order is an accident."""
    plain = _theirs(written.path, optimised=False)
    names = [output.name for output in plain.get_outputs()]
    return bool(_differences(lambda feed: dict(zip(names, plain.run(None, feed), strict=True)), written))


def _differences(run: Callable[[dict[str, np.ndarray]], Mapping[str, Any]], written: Written) -> str:
    """How what `run` gives differs from ONNX Runtime's results."""
    theirs, of_model = _theirs(written.path), precision(written.path)
    names = [output.name for output in theirs.get_outputs()]
    taken = {value.name for value in theirs.get_inputs()}
    problems = []
    for number, feed in enumerate(written.feeds):
        feed = {name: value for name, value in feed.items() if name in taken}
        expected = dict(zip(names, theirs.run(None, feed), strict=True))
        for each in differences(run(feed), expected, Tolerance(None, None, of_model.coarsest), of_model.rounded):
            problems += [] if each.passed else [f"input {number}: output {each.name}: {each.problem}"]
    return "; ".join(problems)[:MOST_PROBLEM]


def _ratio(plan: parax.Plan, written: Written) -> float:
    """ONNX Runtime's time by parax's, on the first inputs: the median of rounds, each side for some time in each."""
    theirs = _theirs(written.path)
    taken = {value.name for value in theirs.get_inputs()}
    feed = {name: value for name, value in written.feeds[0].items() if name in taken}
    with plan.session() as session:
        sides = (lambda: session.run(feed), lambda: theirs.run(None, feed))
        for side in sides:
            _seconds_a_call(side)
        found = [[_seconds_a_call(side) for side in sides] for _ in range(ROUNDS)]
    return median(b / a for a, b in found)


def _seconds_a_call(call: Callable[[], object]) -> float:
    """The mean of a turn, of what follows the first calls: the other side's threads still look for work then."""
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < SETTLING:
        call()
    began = time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        call()
        calls += 1
    return (time.perf_counter() - began) / calls


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("exporter")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--timed", action="store_true")
    parser.add_argument("--keep", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="parax-exporters-") as apart:
        folder = args.keep or Path(apart)
        record = _timed_again(folder) if args.timed else record_of(args.name, args.exporter, args.speed, folder)
        if args.keep and record["status"] != "not kept":
            keep_record(record, folder)
        print("\n" + json.dumps(record))


if __name__ == "__main__":
    main()
