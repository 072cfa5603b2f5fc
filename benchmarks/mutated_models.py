"""Spoilt models, compiled and run: whatever they are, only ParaxErrors may come out, and soon.

    python -m benchmarks.mutated_models --seconds 600 --seed 1 --operators --save DIR

Seed s makes the same model, options and inputs every time. A process of its own works them off one after the other, so
that a crash or a hang costs one of them; it is then started anew behind it. Outcomes: ok, error (a ParaxError),
internal (an InternalError), builtin (any other exception), crash (a signal), hang (more CPU seconds than --limit).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import parax
from parax.compiler.samples import random_inputs

from .command import command_line, finish
from .mutation_models import operator_models, text_models
from .mutations import mutant

Record = dict[str, Any]
FAILURES = ("internal", "builtin", "crash", "hang")
ROOT = Path(__file__).parent.parent
MEMORY_NBYTES, LOOP_SECONDS = 1 << 30, 2.0
CHILD_NBYTES = 8 << 30
START_SECONDS, PATIENCE = 300.0, 12  # until a child is ready; wall seconds for a CPU second on a busy machine
TICKS = os.sysconf("SC_CLK_TCK")


def model_of(seed: int, corpus: list[tuple[str, onnx.ModelProto]]) -> tuple[str, bytes, np.random.Generator]:
    """The spoilt model of a seed, what it was made of, and the generator for what follows."""
    rng = np.random.default_rng(seed)
    name, model = corpus[int(rng.integers(len(corpus)))]
    return name, mutant(model, rng), rng


def attempt(data: bytes, rng: np.random.Generator) -> Record:
    """Compile and run; what came of it."""
    options = parax.CompileOptions(
        opt_level=int(rng.integers(3)), hint=str(rng.choice(["throughput", "latency"])), max_memory=MEMORY_NBYTES,
        cache=False, jobs=1,
    )  # fmt: skip
    try:
        plan = parax.compile(data, options=options)
        with plan.session(instances=1, cores_per_instance=1, max_seconds=LOOP_SECONDS) as session:
            for size in (int(rng.integers(1, 6)), 0):
                session.run(_feeds(plan, rng, size))
    except parax.InternalError as error:
        return _failed("internal", error)
    except parax.ParaxError as error:
        return {"outcome": "error", "kind": type(error).__name__}
    except Exception as error:
        return _failed("builtin", error)
    return {"outcome": "ok"}


def _feeds(plan: parax.Plan, rng: np.random.Generator, size: int) -> dict[str, np.ndarray]:
    """Inputs that fit; those of unknown rank or without bounds that suit are the plan's to refuse."""
    sizes = {s.name: min(max(size, s.min), 64 if s.max is None else s.max) for s in plan.manifest.symbols}
    known = [spec for spec in plan.inputs if spec.dims is not None]
    feeds = random_inputs(known, sizes, rng)
    return feeds | {spec.name: np.zeros((size, 2), spec.numpy) for spec in plan.inputs if spec.dims is None}


def _failed(outcome: str, error: Exception) -> Record:
    cause = error.__cause__ or error
    frames = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in traceback.extract_tb(cause.__traceback__)]
    return {"outcome": outcome, "problem": f"{type(cause).__name__}: {cause}"[:500], "at": frames[-4:]}


def child(corpus_file: str, first: int, count: int) -> None:
    """Work off seeds; a line before each and after."""
    resource.setrlimit(resource.RLIMIT_AS, (CHILD_NBYTES, CHILD_NBYTES))
    corpus = read_corpus(Path(corpus_file))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever libraries print

    def say(record: Record) -> None:
        out.write(json.dumps(record) + "\n")
        out.flush()

    say({"ready": True})
    for seed in range(first, first + count):
        say({"seed": seed})
        name, data, rng = model_of(seed, corpus)
        say({"seed": seed, "model": name, **attempt(data, rng)})


def results(corpus_file: Path, first: int, count: int, limit: float, seconds: float) -> Iterator[Record]:
    """A record per seed, until `count` are done or the time is over."""
    ends, seed, last = time.monotonic() + seconds, first, first + count
    while seed < last and time.monotonic() < ends:
        for record in _of_one_child(corpus_file, seed, last - seed, limit, ends):
            seed = record["seed"] + 1
            yield record


def _of_one_child(corpus_file: Path, first: int, count: int, limit: float, ends: float) -> Iterator[Record]:
    command = [sys.executable, "-m", "benchmarks.mutated_models", "--child", str(corpus_file), str(first), str(count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield from _watched(process, limit, ends)
        finally:
            process.kill()


def _watched(process: subprocess.Popen[bytes], limit: float, ends: float) -> Iterator[Record]:
    assert process.stdout is not None
    at, used, since, buffer = None, 0.0, time.monotonic(), b""
    while True:
        readable, _, _ = select.select([process.stdout], [], [], 0.5)
        if readable:
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            buffer += chunk
            *lines, buffer = buffer.split(b"\n")
            for record in map(json.loads, lines):
                if "outcome" in record:
                    at = None
                    yield record
                    if time.monotonic() > ends:
                        return
                else:
                    at, used, since = record.get("seed"), _cpu_seconds(process.pid), time.monotonic()
            continue
        spent = time.monotonic() - since
        if at is None and spent > START_SECONDS:
            raise TimeoutError("the child does not start")
        if at is not None and (_cpu_seconds(process.pid) - used > limit or spent > PATIENCE * limit):
            yield {"seed": at, "outcome": "hang", "problem": f"more than {limit} s"}
            return
        if at is None and time.monotonic() > ends:
            return
    code = process.wait()
    if at is not None:
        problem = signal.Signals(-code).name if code < 0 else f"exit {code}"
        yield {"seed": at, "outcome": "crash", "problem": problem}


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def write_corpus(path: Path, operators: bool) -> None:
    """All models in one file, so that children need not make them."""
    models = {**text_models(), **(dict(operator_models()) if operators else {})}
    content = {name: np.frombuffer(model.SerializeToString(), np.uint8) for name, model in models.items()}
    with open(path, "wb") as file:
        np.savez(file, **content)  # type: ignore[arg-type]


def read_corpus(path: Path) -> list[tuple[str, onnx.ModelProto]]:
    """The models in a fixed order."""
    with np.load(path) as content:
        return [(name, onnx.ModelProto.FromString(content[name].tobytes())) for name in sorted(content.files)]


def main() -> int:
    """The command line; exit code 1 if anything failed."""
    parser = command_line("mutated_models", __doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for how long (default 600)")
    parser.add_argument("--count", type=int, default=1 << 40, help="models at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first model; the others follow (default 0)")
    parser.add_argument("--limit", type=float, default=10.0, help="CPU seconds that one may take (default 10)")
    parser.add_argument("--operators", action="store_true", help="also spoil the models of ONNX's operator tests")
    parser.add_argument("--save", type=Path, metavar="DIR", help="write the models that fail there")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child[0], int(args.child[1]), int(args.child[2]))
        return 0
    with tempfile.TemporaryDirectory(prefix="parax-") as folder:
        corpus_file = Path(folder) / "corpus.npz"
        write_corpus(corpus_file, args.operators)
        outcomes: Counter[str] = Counter()
        for record in results(corpus_file, args.seed, args.count, args.limit, args.seconds):
            outcomes[record["outcome"]] += 1
            if record["outcome"] in FAILURES:
                print(json.dumps(record), flush=True)
                if args.save is not None:
                    args.save.mkdir(parents=True, exist_ok=True)
                    _, data, _ = model_of(record["seed"], read_corpus(corpus_file))
                    (args.save / f"{record['seed']}.onnx").write_bytes(data)
    print(json.dumps({"total": sum(outcomes.values()), **outcomes}))
    return 1 if any(outcomes[kind] for kind in FAILURES) else 0


if __name__ == "__main__":
    finish(main)
