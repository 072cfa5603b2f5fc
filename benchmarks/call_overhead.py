"""What a call costs beyond its kernel: microseconds per `session.run` on a plan whose kernel adds 1 to 4 floats.

Prints, per way to call, the median, the best and the worst of the repeats. The hand-off rows contain the kernel's and
the system's time to wake threads.
"""

from __future__ import annotations

import asyncio
import platform
import statistics
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from parax.runtime import Plan, submissions
from parax.runtime.handoff import handoff_text
from parax.runtime.interface import interface_digests, interface_text, marked_code
from parax.runtime.session import Session
from parax.runtime.topology import machine

from .command import command_line, finish

KERNEL = """
define i32 @parax_run_0(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync) {
  %x = load ptr, ptr %io
  %y.p = getelementptr ptr, ptr %io, i64 1
  %y = load ptr, ptr %y.p
  %v = load <4 x float>, ptr %x, align 4
  %sum = fadd <4 x float> %v, <float 1.0, float 1.0, float 1.0, float 1.0>
  store <4 x float> %sum, ptr %y, align 4
  ret i32 0
}
"""


def tiny_plan() -> Plan:
    """x: f32[N,4] → y = x + 1; only the first row is computed, so the kernel costs next to nothing."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    arch = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    code = bytes(target.emit_object(llvm.parse_assembly(KERNEL + handoff_text(arch) + interface_text())))
    manifest = {
        "name": "tiny",
        "inputs": [{"name": "x", "dtype": "f32", "shape": ["N", 4]}],
        "outputs": [{"name": "y", "dtype": "f32", "shape": ["N", 4]}],
        "symbols": [{"name": "N", "input": 0, "axis": 0}],
        "targets": [{"name": "base", "arch": arch, "features": []}],
        "steps": [{"kind": "native", "segment": 0, "inputs": ["x"], "outputs": ["y"], "arena": 0}],
        "batch": {"symbol": "N", "axis": {"x": 0, "y": 0}},
    }
    return Plan.build(manifest, {"base": marked_code(code, interface_digests(manifest, "base", 0))}, b"")


def measure(name: str, call: Callable[[], Any], repeat: int, number: int) -> None:
    """Print one row."""
    call()
    times = sorted(t / number * 1e6 for t in timeit.repeat(call, number=number, repeat=repeat))
    print(f"{name:52} {statistics.median(times):8.2f} {times[0]:8.2f} {times[-1]:8.2f}")


async def _many(session: Session, feeds: dict[str, np.ndarray]) -> None:
    for _ in range(100):
        await session.arun(feeds)


@contextmanager
def _handed_over() -> Iterator[None]:
    """Treat short requests as if they took longer than handing them to another thread."""
    before, submissions.INLINE_SECONDS = submissions.INLINE_SECONDS, 0.0
    try:
        yield
    finally:
        submissions.INLINE_SECONDS = before


def main() -> None:
    """Measure every way to call."""
    parser = command_line("call_overhead", __doc__)
    parser.add_argument("--repeat", type=int, default=15, metavar="R", help="times to measure each (default 15)")
    parser.add_argument("--number", type=int, default=2000, metavar="N", help="calls of a time (default 2000)")
    options = parser.parse_args()
    plan = tiny_plan()
    one, two = np.ones((1, 4), np.float32), np.ones((2, 4), np.float32)
    print(f"{'µs per call':52} {'median':>8} {'best':>8} {'worst':>8}")

    def row(name: str, call: Callable[[], Any], slower: int = 1) -> None:
        measure(name, call, options.repeat, max(1, options.number // slower))

    with plan.session(instances=1) as session:
        instance = session.executor.instances[0]
        feeds, out = {"x": one}, {"y": np.empty_like(one)}
        session.run(feeds)
        row("native call alone", lambda: instance.code.team(instance.worker))
        row("numpy: np.add(x, 1)", lambda: np.add(one, 1))
        row("run(inputs), 1 instance × 1 core", lambda: session.run(feeds))
        row("run(names, inputs)", lambda: session.run(["y"], feeds))
        row("run(inputs, out=...)", lambda: session.run(feeds, out=out))
        row("submit(inputs).result()", lambda: session.submit(feeds).result(), 10)
        with _handed_over():
            row("submit(inputs).result(), of what takes longer", lambda: session.submit(feeds).result(), 10)
            row("100 × await arun(inputs), of what takes longer", lambda: asyncio.run(_many(session, feeds)), 500)
        row("100 × await arun(inputs)", lambda: asyncio.run(_many(session, feeds)), 500)
        row("arun(inputs) in a fresh event loop", lambda: asyncio.run(session.arun(feeds)), 50)
    with plan.session(instances=1, micro_batch=1) as session:
        row("run(2 rows) in 2 micro-batches, 1 instance × 1 core", lambda: session.run({"x": two}))
    n_cores = len(machine().default_cores())
    if n_cores > 1:
        with plan.session(instances=1, cores_per_instance=n_cores) as session:
            row(f"run(inputs), 1 instance × {n_cores} cores", lambda: session.run(feeds), 10)
        with plan.session(instances=n_cores) as session:
            row(f"run(1 row), {n_cores} instances × 1 core", lambda: session.run(feeds))
            many = {"x": np.ones((n_cores, 4), np.float32)}
            row(f"run({n_cores} rows), {n_cores} instances × 1 core", lambda: session.run(many), 10)


if __name__ == "__main__":
    finish(main)
