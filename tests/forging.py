"""Forged plans: fields of real manifests replaced, digests worked out anew, each run in a process of its own.

`python tests/forging.py --n 3600 --seed 0` runs so many and prints what became of them; `runtime/test_forged_plans.py`
runs some of them. A forged plan must be refused with one of parax's errors or give exactly the right result.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

import parax
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.compilation import Compilation
from parax.errors import ParaxError
from parax.runtime import Plan
from parax.runtime.container import Container
from parax.runtime.container_writer import write_container
from schedules import random_schedule

TIMEOUT_SECONDS = 20.0
MANIFEST = "manifest.json"
HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
MODELS = {
    "static": "g (float[8,16] x) => (float[8,16] y, float[16,8] z) { a = Relu(x) y = Softmax(a) z = Transpose(a) }",
    "symbolic": """g (float[N,4] x, float[M,4] u) => (float[N,3] y, float[K,4] z)
        <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3}> { a = MatMul(x, w) y = Tanh(a) z = Concat<axis = 0>(x, u) }""",
    "rows": "g (float[N,2,6] x) => (float[N,6,2] y) { a = Softmax(x) y = Transpose<perm = [0, 2, 1]>(a) }",
    "host": """g (float[N,4] x) => (float[K] y, int64[2] n) {
        w = NonZero(x) t = Transpose(w) a = GatherND(x, t) y = Mul(a, a) n = Shape(w) }""",
    "segments": """g (float[N,4] x) => (float[R,4] y, int64[r] i) {
        a = Exp(x) u, i = Unique<axis = 0>(a) b = Neg(u) n = NonZero(b) c = Cast<to = 1>(n) y = Relu(b) }""",
    "branches": """g (float[N,4] x, bool c) => (float[N,4] y, float[n,4] z) <float[4] w = {1, 2, 3, 4}> {
        y, z = If (c) <then_branch = then () => (float[N,4] a, float[N,4] b) { a = Add(x, w)  b = Identity(x) },
            else_branch = other () => (float[N,4] d, float[m,4] e) { d = Mul(x, w)  e = Concat<axis = 0>(x, d) }> }""",
    "loop": """g (float[N] x, int64 trips) => (float[N] y, float[K,N] rows) {
        go = Constant<value = bool {1}>()
        y, rows = Loop (trips, go, x) <body = body (int64 i, bool c, float[N] s) => (bool k, float[N] t, float[N] row) {
            k = Identity(c) t = Add(s, x) f = Cast<to = 1>(i) row = Mul(x, f) }> }""",
    "strings": "g (string[N] x) => (string[M] y, int64[K] i) { y, i = Unique<axis = 0>(x) }",
}  # fmt: skip
DEEP = """g (float[N,8,6,6] x) => (float[N,8,6,6] y) {
    a = Relu(x) b = Sigmoid(x) c = Softmax<axis = 1>(a) d = Softmax<axis = 2>(b) e = Add(c, d)
    y = Softmax<axis = 3>(e) }"""
OPTIONS: dict[str, dict[str, Any]] = {
    "static": {"targets": ("x86-64-v2", "x86-64-v3")},
    "symbolic": {"dims": {"N": (1, 64)}},
    "rows": {"delay_groups": 2, "delay_seconds": 0.001},
}


class Original(NamedTuple):
    """A real plan, a request and its answer."""

    name: str
    path: Path
    feeds: dict[str, np.ndarray]
    answer: dict[str, np.ndarray]


class Forgery(NamedTuple):
    """A plan with another value at a place of its manifest."""

    original: Original
    place: tuple[Any, ...]
    manifest: dict[str, Any]

    def __str__(self) -> str:
        value: Any = self.manifest
        try:
            for key in self.place:
                value = value[key]
        except (KeyError, IndexError):
            value = "deleted"
        return f"{self.original.name}: {'.'.join(map(str, self.place))} = {str(value)[:80]}"


def originals(folder: Path) -> list[Original]:
    """Compile the plans."""
    plans = {name: parax.compile(_model(text), options=_options(name)) for name, text in MODELS.items()}
    if len(os.sched_getaffinity(0)) > 1:
        plans |= {mode: _scheduled(n_stages) for mode, n_stages in (("layered", 0), ("pipelined", 2))}
    rng = np.random.default_rng(0)
    return [_original(name, plan, folder, rng) for name, plan in plans.items()]


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEAD + text)


def _options(name: str) -> CompileOptions:
    return CompileOptions(**OPTIONS.get(name, {}))


def _scheduled(n_stages: int) -> Plan:
    """A plan with a scheduled program for two cores; a scheduler of our own, so that no machine is calibrated."""
    scheduler = partial(random_schedule, random=random.Random(3), n_cores=2, n_stages=n_stages, micro_batches=2)
    run = Compilation(CompileOptions(hint="latency"), lambda phase, done: None, scheduler=scheduler)
    graph = driver.import_graph(_model(DEEP), run.options)
    driver.optimise(graph, run)
    return driver.build_plan(graph, run)


def _original(name: str, plan: Plan, folder: Path, rng: np.random.Generator) -> Original:
    path = folder / f"{name}.bin"
    plan.save(path)
    sizes = {"N": 5, "M": 3}
    feeds: dict[str, np.ndarray] = {}
    for spec in plan.inputs:
        shape = [sizes[d] if isinstance(d, str) else d for d in spec.shape or ()]
        if spec.dtype == "str":
            feeds[spec.name] = np.array(list("babac"), object)
        elif spec.dtype == "f32":
            feeds[spec.name] = np.where(rng.random(shape) < 0.2, 0, rng.standard_normal(shape)).astype(np.float32)
        else:
            feeds[spec.name] = np.full(shape, 3 if spec.dtype == "i64" else True, spec.numpy)
    with plan.session() as session:
        return Original(name, path, feeds, session.run(feeds))


def forge(original: Original, rng: random.Random) -> Forgery:
    """Another value somewhere in the manifest."""
    manifest = json.loads(bytes(Container(original.path).members[MANIFEST]))
    places = [p for p in _places(manifest) if p[0] not in ("choice", "provenance") or rng.random() < 0.1]
    while True:
        place = rng.choice(places)
        holder = manifest
        for key in place[:-1]:
            holder = holder[key]
        before = holder[place[-1]]
        after = rng.choice(_others(before, manifest, rng))()
        if after is _DELETED:
            del holder[place[-1]]
        elif type(after) is type(before) and after == before:
            continue
        else:
            holder[place[-1]] = after
        return Forgery(original, place, manifest)


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every field in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*at, key)
        yield from _places(inner, (*at, key))


_DELETED = object()
_FOREIGN: list[Any] = [None, -1, 0, 1, 2, 3.5, True, "", "zzz", "N", [], [[]], {}, {"a": 1}, ["+", 1, 1], ["//", 1, 0],
                       10**30, 1 << 40, ["*", "N", "N"]]  # fmt: skip


def _others(value: Any, manifest: Any, rng: random.Random) -> list[Callable[[], Any]]:
    """What may stand in the place of a value: what looks like it, more often than what does not."""
    same = [v for v in _values(manifest) if type(v) is type(value)]
    found: list[Callable[[], Any]] = [
        lambda: _DELETED, lambda: deepcopy(rng.choice(_FOREIGN)), lambda: deepcopy(rng.choice(same)),
    ]  # fmt: skip
    if isinstance(value, bool):
        found += [lambda: not value] * 3
    elif isinstance(value, int):
        found += [lambda: value + 1, lambda: value - 1, lambda: value * 2, lambda: value // 2, lambda: value + 64,
                  lambda: rng.choice([1 << 20, 1 << 31, 1 << 45, 1 << 62])]  # fmt: skip
    elif isinstance(value, list):
        found += [partial(rng.sample, value, len(value)), lambda: value[1:], lambda: value[:-1],
                  lambda: [*value, *value[-1:]], lambda: value * 2]  # fmt: skip
    elif isinstance(value, str):
        found += [lambda: value + "x", lambda: value[:-1], lambda: rng.choice(["f64", "f16", "i8", "str", "bool"])]
    return found


def _values(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _values(inner)


def write_forgery(forgery: Forgery, path: Path) -> None:
    """The plan with the forged manifest and its right digest."""
    data = json.dumps(forgery.manifest).encode()
    members = [(name, bytes(view)) for name, view in Container(forgery.original.path).members.items()]
    members = [(name, data if name == MANIFEST else content) for name, content in members]
    comment = b"parax plan; manifest sha256 " + hashlib.sha256(data).hexdigest().encode()
    write_container(path, members, comment)


def outcome(forgery: Forgery, path: Path) -> str:
    """What became of it: `right`, `refused: …`, or what must not be: `wrong: …`, `builtin: …`, `signal: …`, `hang`."""
    write_forgery(forgery, path)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _become_child(forgery, path, writer)
    os.close(writer)
    try:
        ready, _, _ = select.select([reader], [], [], TIMEOUT_SECONDS)
        answer = os.read(reader, 4096).decode() if ready else ""
    finally:
        os.close(reader)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not ready:
        return "hang"
    return f"signal: {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else answer or "signal: died"


def _become_child(forgery: Forgery, path: Path, writer: int) -> None:
    """Load and run, say how it went, and end."""
    try:
        answer = _tried(forgery.original, path)
    except BaseException as error:
        answer = f"builtin: {type(error).__name__}: {error}"
    os.write(writer, answer.encode()[:4096])
    os._exit(0)


def _tried(original: Original, path: Path) -> str:
    try:
        plan = parax.load(path)
        _ = repr(plan), plan.graph
        with plan.session() as session:
            found = session.run(original.feeds)
            again = session.run(original.feeds)
    except ParaxError as error:
        return f"refused: {type(error).__name__}: {error}"
    expected = {**original.answer}
    for results in (found, again):
        if list(results) != list(expected):
            return f"wrong: outputs {list(results)}"
        for name, value in expected.items():
            if value.dtype != results[name].dtype or value.shape != results[name].shape:
                return f"wrong: {name} is {results[name].dtype} {results[name].shape}"
            if value.tolist() != results[name].tolist():
                return f"wrong: {name}"
    return "right"


def is_fine(said: str) -> bool:
    """Whether an outcome is one of those that are allowed."""
    return said.startswith(("right", "refused"))


def forgeries(plans: Sequence[Original], n: int, seed: int) -> Iterator[Forgery]:
    """`n` of them, as many of every plan."""
    rng = random.Random(seed)
    for i in range(n):
        yield forge(plans[i % len(plans)], rng)


def main() -> int:
    """Run many, print the counts and every bad one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        plans = originals(Path(folder))
        for forgery in forgeries(plans, options.n, options.seed):
            said = outcome(forgery, Path(folder) / "forged.bin")
            counts[":".join(said.split(":")[:2])[:40]] += 1
            if not is_fine(said):
                print(f"{forgery} -> {said}", flush=True)
    for kind, count in counts.most_common():
        print(f"{count:6} {kind}")
    print(f"{options.n} forged plans in {time.monotonic() - began:.0f} s")
    return int(not all(map(is_fine, counts)))


if __name__ == "__main__":
    sys.exit(main())
