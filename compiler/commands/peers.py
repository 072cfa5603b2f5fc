"""Who takes part in `parax bench`: parax and its peers, each in its latency and its throughput set-ups.

Knows how to set each of them up at its best; knows nothing of timing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ...runtime.modes import wanted_program
from ..contest import Call, Contestant
from ..frontend.other_side import other_side

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan

Inputs = Mapping[str, "np.ndarray"]
CROWD = 8
"""Callers for each core where requests shall be batched: more than any set-up has instances."""


def parax(
    plan: Plan, inputs: Inputs, rows: int, cores: Sequence[int], setups: Sequence[tuple[int, int]],
    callers: int | None = None, *, mode: str | None = None, window: float | None = None,
) -> list[Contestant]:  # fmt: skip
    """One contestant per (instances, cores per instance) and mode; as many clients as instances, or `callers`.

    With fewer callers than instances, each request is split over the free instances along the batch.

    Args:
        mode: only set-ups in this mode; None: in each that the plan has a program for.
        window: seconds that requests may wait to be batched; None: they are not.

    Raises:
        UsageError: the plan has no program of that mode for any set-up, or its requests cannot be batched.
    """
    program, contestants = wanted_program(plan.manifest, mode), []
    for instances, width in setups:
        fits = [program.mode] if program is not None and program.n_cores == width else []
        for each in dict.fromkeys((*(["sequential"] if mode in (None, "sequential") else []), *fits)):
            session = plan.session(
                instances=instances, cores=cores[: instances * width], cores_per_instance=width, mode=each,
                batch_window=window,
            )  # fmt: skip
            call, clients = partial(session.run, dict(inputs)), callers or instances
            setup = words(instances, width) + ("" if each == "sequential" else f", {each}")
            setup += ", one caller" if clients == 1 < instances else ""
            setup += f", {clients} callers" if clients > instances else ""
            setup += "" if window is None else ", batched"
            contestants.append(Contestant("parax", setup, [call] * clients, rows, session.close))
    if not contestants and program is not None:
        raise UsageError("no set-up suits the mode", where=f"--mode {mode}",
                         expected=f"{program.n_cores} cores an instance", found=list(setups))  # fmt: skip
    return contestants


def onnxruntime(
    model: Path, inputs: Inputs, rows: int, cores: Sequence[int], *, alone: bool = False
) -> list[Contestant]:
    """One session over all cores, a session of one thread per core, and a caller per core on one shared session.

    Args:
        alone: one request at a time only: one session, over all cores and on a single one.

    Raises:
        UsageError: onnxruntime is not installed.
    """
    try:
        import onnxruntime as ort  # optional: the extra "bench"
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    feed, n = dict(inputs), len(cores)

    def session(threads: int) -> Call:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        return partial(ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run, None, feed)

    def contestant(setup: str, calls: Sequence[Call]) -> Contestant:
        pinned = calls if len(calls) == 1 else [_pinned(call, core) for call, core in zip(calls, cores, strict=True)]
        return Contestant("onnxruntime", setup, pinned, rows, blame=partial(other_side, "onnxruntime"))

    with other_side("onnxruntime"):
        contestants = [contestant(words(1, n), [session(n)])]
        if n > 1 and alone:
            contestants.append(contestant(words(1, 1), [session(1)]))
        elif n > 1:
            sessions = [session(1) for _ in cores]
            contestants.append(contestant(words(n, 1), sessions))
            contestants.append(contestant(f"1 session, {n} callers", sessions[:1] * n))
        return contestants


def openvino(
    model: Path, inputs: Inputs, rows: int, cores: Sequence[int], *, alone: bool = False, precision: str = "f32"
) -> list[Contestant]:
    """Compilations for LATENCY with one request in flight, for THROUGHPUT with as many as it asks for, and with a
    stream per core where that is another number.

    Args:
        alone: one request at a time only: LATENCY over all cores and on a single one.
        precision: f32 or bf16, of what the model does not quantise.

    Raises:
        UsageError: openvino is not installed.
    """
    try:
        import openvino as ov  # optional: the extra "bench"
    except ImportError as error:
        raise UsageError("openvino is not installed", hint="pip install openvino") from error
    core, feed, n = ov.Core(), dict(inputs), len(cores)

    def compiled(**settings: Any) -> Any:
        network = core.read_model(str(model))
        network.reshape({name: list(array.shape) for name, array in inputs.items()})
        settings = {"INFERENCE_NUM_THREADS": n, "INFERENCE_PRECISION_HINT": precision, **settings}
        return core.compile_model(network, "CPU", settings)

    def contestant(setup: str, network: Any, clients: int) -> Contestant:
        calls = [partial(network.create_infer_request().infer, feed, share_inputs=True) for _ in range(clients)]
        setup, blame = f"{setup}, {clients} in flight", partial(other_side, "openvino")
        return Contestant("openvino", setup, calls, rows, blame=blame)

    with other_side("openvino"):
        contestants = [contestant("latency", compiled(PERFORMANCE_HINT="LATENCY"), 1)]
        if n > 1 and alone:
            single = compiled(PERFORMANCE_HINT="LATENCY", INFERENCE_NUM_THREADS=1)
            contestants.append(contestant("latency, 1 thread", single, 1))
        elif not alone:
            many = compiled(PERFORMANCE_HINT="THROUGHPUT")
            wanted = int(many.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
            contestants.append(contestant("throughput", many, wanted))
            if int(many.get_property("NUM_STREAMS")) != n or wanted != n:
                contestants.append(contestant(f"{n} streams", compiled(NUM_STREAMS=n), n))
        return contestants


def outputs(contestant: Contestant) -> list[np.ndarray]:
    """What one call of a contestant gives, in the order of the model's outputs."""
    with ThreadPoolExecutor(1) as pool:  # a caller may bind its thread to a core
        found: Any = pool.submit(contestant.calls[0]).result()
    return list(found.values() if isinstance(found, Mapping) else found)


def words(instances: int, width: int) -> str:
    """`2 × 1 core`."""
    return f"{instances} × {width} core{'s' if width > 1 else ''}"


def _pinned(call: Call, core: int) -> Call:
    """The call, its thread bound to the core the first time."""
    bound = threading.local()

    def pinned() -> object:
        if not getattr(bound, "core", None):
            os.sched_setaffinity(0, {core})
            bound.core = True
        return call()

    return pinned
