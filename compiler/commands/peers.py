"""Who takes part in `parax bench`: parax, ONNX Runtime and OpenVINO, each in its latency and its throughput set-up.

Knows how to set each of them up at its best; knows nothing of timing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError
from .contest import Call, Contestant

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan

Inputs = Mapping[str, "np.ndarray"]
PEERS = ("onnxruntime", "openvino")


def parax(
    plan: Plan, inputs: Inputs, rows: int, cores: Sequence[int], setups: Sequence[tuple[int, int]]
) -> list[Contestant]:
    """One contestant per (instances, cores per instance); as many clients as instances."""
    contestants = []
    for instances, width in setups:
        session = plan.session(instances=instances, cores=cores[: instances * width], cores_per_instance=width)
        call = partial(session.run, dict(inputs))
        contestants.append(Contestant("parax", words(instances, width), [call] * instances, rows, session.close))
    return contestants


def onnxruntime(model: Path, inputs: Inputs, rows: int, cores: Sequence[int]) -> list[Contestant]:
    """One session over all cores, and one thread per core on a shared session of one thread.

    Raises:
        UsageError: onnxruntime is not installed.
    """
    try:
        import onnxruntime as ort  # optional: the extra "bench"
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    contestants, feed = [], dict(inputs)
    for threads in dict.fromkeys((len(cores), 1)):
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        clients = len(cores) // threads
        call = partial(session.run, None, feed)
        calls: list[Call] = [call] if clients == 1 else [_pinned(call, core) for core in cores]
        contestants.append(Contestant("onnxruntime", words(clients, threads), calls, rows))
    return contestants


def openvino(model: Path, inputs: Inputs, rows: int, cores: Sequence[int]) -> list[Contestant]:
    """A LATENCY compilation with one request in flight, and a THROUGHPUT one with as many as it asks for; f32 in both.

    Raises:
        UsageError: openvino is not installed.
    """
    try:
        import openvino as ov  # optional: the extra "bench"
    except ImportError as error:
        raise UsageError("openvino is not installed", hint="pip install openvino") from error
    core, contestants, feed = ov.Core(), [], dict(inputs)
    for hint in ("LATENCY", "THROUGHPUT"):
        network = core.read_model(str(model))
        network.reshape({name: list(array.shape) for name, array in inputs.items()})
        settings = {"PERFORMANCE_HINT": hint, "INFERENCE_NUM_THREADS": len(cores), "INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(network, "CPU", settings)
        clients = 1 if hint == "LATENCY" else int(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS"))
        calls: list[Call] = []
        for _ in range(clients):
            request = compiled.create_infer_request()
            calls.append(partial(request.infer, feed))
        contestants.append(Contestant("openvino", f"{hint.lower()}, {clients} in flight", calls, rows))
    return contestants


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
