"""`python -m benchmarks.prediction`: how well the cost model foretells layers and models on the running machine.

    python -m benchmarks.prediction [resnet50 bert-base …] [--batch 1 8] [--json prediction.json] [--layers]

For each model, batch and set-up (1 instance × 1 core, 1 × 2 cores, 2 × 1 core) the layers' times are recorded while the
model runs (layer_times), the set-ups taking turns, and set beside what works and machine predict. Nothing is fitted
here: the machine is the one that `backend.calibration` measured with kernels of its own. Errors are
|predicted − measured| / measured. A list can be measured in pieces: --known takes in what earlier runs wrote.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.models import MODELS, feeds
from parax import env
from parax.compiler.backend.calibration import running_machine
from parax.compiler.backend.costs import costs_at
from parax.compiler.ir.fp import Fp
from parax.compiler.planner.partition.simulate import Instances, Sequential, Timeline, graph_works, simulate
from parax.compiler.targets.machine import Machine
from parax.files import write_whole
from parax.runtime.topology import choose_cores

from .cases import model_file
from .command import command_line, finish, new_file
from .layer_times import LayerTimes, Traced, compile_traced, measure_layers

LEAST_SECONDS = 2e-6  # layers below that are left out of the layers' errors: the clock's stamps weigh too much
PER_LAYER, PER_MODEL = 0.15, 0.10  # what is aimed at, medians
SECONDS = 0.5  # of measuring, per set-up


@dataclass(frozen=True)
class Layer:
    """One node's prediction."""

    name: str
    kind: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured


@dataclass(frozen=True)
class Prediction:
    """One model in one set-up: `instances` × `cores`, each with `batch` rows. Seconds of one native call."""

    model: str
    batch: int
    instances: int
    cores: int
    predicted: float
    measured: float
    layers: tuple[Layer, ...]

    @property
    def error(self) -> float:
        return abs(self.predicted - self.measured) / self.measured


def predict(traced: Traced, machine: Machine, batch: int, instances: int, cores: int) -> Timeline:
    """What the model of the machine says about the set-up."""
    symbols = {s.name: batch for s in traced.plan.manifest.symbols}
    works = graph_works(traced.graph, symbols, costs_at(Fp.DEFAULT, machine), machine.caches(instances, cores))
    policy = Instances(instances, cores, batch) if instances > 1 else Sequential(cores)
    return simulate(works, machine, policy)


def compare(traced: Traced, machine: Machine, times: LayerTimes, batch: int, instances: int, cores: int) -> Prediction:
    """Predicted beside measured, for each layer and for the whole call."""
    timeline = predict(traced, machine, batch, instances, cores)
    seconds: dict[int, float] = defaultdict(float)
    for span in timeline.spans:
        seconds[span.work] += (span.end - span.start) / instances
    works = graph_works(traced.graph, {s.name: batch for s in traced.plan.manifest.symbols},
                        costs_at(Fp.DEFAULT, machine))  # fmt: skip
    layers = tuple(
        Layer(works[i].name, works[i].cost.kind, seconds.get(i, 0.0), measured)
        for i, measured in times.nodes.items() if measured >= LEAST_SECONDS
    )  # fmt: skip
    return Prediction(traced.name, batch, instances, cores, sum(seconds.values()), times.total, layers)


def measure(traced: Traced, batch: int, setups: Sequence[tuple[int, int]], seconds: float) -> list[LayerTimes]:
    """Run the model in every set-up (instances, cores of each), in turns, and record its layers."""
    with ExitStack() as stack:
        sessions = []
        for instances, cores in setups:
            session = stack.enter_context(traced.plan.session(
                instances=instances, cores_per_instance=cores, micro_batch=batch, mode="sequential"
            ))  # fmt: skip
            sessions.append((session, feeds(traced.name, batch * instances), instances))
        return measure_layers(traced, sessions, seconds)


def report(console: Console, predictions: Sequence[Prediction], every_layer: bool) -> None:
    """Tables: models, then kinds of layers, then what is aimed at."""
    table = Table("model", "rows", "instances × cores", "predicted ms", "measured ms", "error %", "layers, median %")
    for p in predictions:
        table.add_row(
            p.model, str(p.batch), f"{p.instances} × {p.cores}", f"{p.predicted * 1e3:.3f}", f"{p.measured * 1e3:.3f}",
            f"{100 * p.error:.1f}", f"{100 * median(layer.error for layer in p.layers):.1f}" if p.layers else "–",
        )  # fmt: skip
    console.print(table)
    kinds = Table("kind", "layers", "share of time %", "median error %", "90th percentile %")
    layers = [layer for p in predictions for layer in p.layers]
    total = sum(layer.measured for layer in layers)
    for kind in sorted({layer.kind for layer in layers}):
        own = [layer for layer in layers if layer.kind == kind]
        errors = sorted(layer.error for layer in own)
        kinds.add_row(kind, str(len(own)), f"{100 * sum(layer.measured for layer in own) / total:.1f}",
                      f"{100 * median(errors):.1f}", f"{100 * errors[int(0.9 * (len(errors) - 1))]:.1f}")  # fmt: skip
    console.print(kinds)
    if every_layer:
        for p in predictions:
            for layer in p.layers:
                where = f"{p.model} {p.batch} {p.instances}×{p.cores} {layer.kind} {layer.name}"
                console.print(f"{where}: {layer.predicted * 1e6:.1f} of {layer.measured * 1e6:.1f} µs", highlight=False)
    for setup, own in by_setup(predictions):
        of_layers, of_models = median(x.error for p in own for x in p.layers), median(p.error for p in own)
        console.print(f"{setup}: median error {100 * of_layers:.1f} % per layer (aim {100 * PER_LAYER:.0f}), "
                      f"{100 * of_models:.1f} % per model (aim {100 * PER_MODEL:.0f})", highlight=False)  # fmt: skip


def by_setup(predictions: Sequence[Prediction]) -> list[tuple[str, list[Prediction]]]:
    """The predictions of each set-up, then all."""
    found: dict[str, list[Prediction]] = defaultdict(list)
    for p in predictions:
        found[f"{p.instances} × {p.cores}"].append(p)
    return [*found.items(), ("all", list(predictions))]


def median(values: Iterable[float]) -> float:
    """The median; NaN of nothing."""
    listed = list(values)
    return statistics.median(listed) if listed else float("nan")


def main() -> None:
    """Measure, predict, print."""
    parser = command_line("prediction", __doc__)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL",
                        help="of the model list (default: all)")  # fmt: skip
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], metavar="B",
                        help="rows of a request (default: 1 8)")  # fmt: skip
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where NAME.onnx are, or are built")
    parser.add_argument("--layers", action="store_true", help="print every layer")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S",
                        help=f"of measuring a set-up (default {SECONDS:g})")  # fmt: skip
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write every layer and model there")
    parser.add_argument("--known", type=Path, nargs="+", default=[], metavar="FILE",
                        help="--json files of earlier runs, reported too")  # fmt: skip
    options = parser.parse_args()
    cores = choose_cores(None)
    machine = running_machine(env.cache_dir(), cores)
    assert machine is not None
    console = Console()
    peak, memory = machine.flops_per_core / 1e9, machine.bandwidth_per_core / 1e9
    together = machine.bandwidth / 1e9
    console.print(f"{machine.name}: {peak:.0f} GFLOP/s and {memory:.0f} GB/s a core, {together:.0f} GB/s in all")
    setups = [(1, 1), (1, len(cores)), (len(cores), 1)] if len(cores) > 1 else [(1, 1)]
    predictions = [p for path in options.known for p in read_predictions(path)]
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models:
            traced = compile_traced(name, model_file(name, options.folder or Path(folder)))
            for batch in options.batch:
                for (instances, each), times in zip(setups, measure(traced, batch, setups, options.seconds)):
                    predictions.append(compare(traced, machine, times, batch, instances, each))
    report(console, predictions, options.layers)
    if options.json is not None:
        document = {"machine": asdict(machine), "predictions": [asdict(p) for p in predictions]}
        write_whole(options.json, json.dumps(document, indent=1, default=_plain))


def read_predictions(path: Path) -> list[Prediction]:
    """What an earlier run has written."""
    rows = json.loads(path.read_text())["predictions"]
    return [Prediction(**{**row, "layers": tuple(Layer(**layer) for layer in row["layers"])}) for row in rows]


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else str(value)


if __name__ == "__main__":
    finish(main)
