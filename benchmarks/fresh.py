"""What a fresh process costs: compiling a plan, or loading a model and giving a first result, then a second instance.

Run as a script, one piece of work per process: `fresh.py JSON`. Owns the work and the memory figures; the parent
(`peers_fresh`) owns the clock. It imports nothing but what the work needs, so that start-up time is the runtime's own.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[[], object]


def kibibytes(field: str) -> int:
    """A line of this process's own /proc status: VmRSS now, VmHWM at its highest."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"no {field} in /proc/self/status")


def say(**figures: Any) -> None:
    """One line to the parent, at once."""
    print(json.dumps(figures), flush=True)


def parax_instances(task: dict[str, Any], feed: dict[str, Any]) -> Callable[[list[int]], Run]:
    """A maker of instances on given cores, all of one plan."""
    plan = importlib.import_module("parax").load(task["model"])

    def instance(cores: list[int]) -> Run:
        session = plan.session(instances=1, cores=cores, cores_per_instance=len(cores))
        return lambda: session.run(feed)

    return instance


def onnxruntime_instances(task: dict[str, Any], feed: dict[str, Any]) -> Callable[[list[int]], Run]:
    """A maker of sessions with as many threads as cores."""
    ort = importlib.import_module("onnxruntime")

    def instance(cores: list[int]) -> Run:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = len(cores), 1
        options.log_severity_level = 3
        session = ort.InferenceSession(task["model"], options, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, feed)

    return instance


def openvino_instances(task: dict[str, Any], feed: dict[str, Any]) -> Callable[[list[int]], Run]:
    """A maker of compilations for latency, from the model cache in task["cache"]."""
    core = importlib.import_module("openvino").Core()
    core.set_property({"CACHE_DIR": task["cache"]})

    def instance(cores: list[int]) -> Run:
        settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": len(cores)}
        settings["INFERENCE_PRECISION_HINT"] = "f32"
        request = core.compile_model(task["model"], "CPU", settings).create_infer_request()
        return lambda: request.infer(feed, share_inputs=True)

    return instance


MAKERS = {"parax": parax_instances, "onnxruntime": onnxruntime_instances, "openvino": openvino_instances}


def first_result(task: dict[str, Any]) -> None:
    """Load, run once, say so; with `second`, start another instance on the next cores and run it too.

    The task names side, model, inputs (input name → .npy file), cores per instance, and second.
    """
    np = importlib.import_module("numpy")
    feed = {name: np.load(file) for name, file in task["inputs"].items()}
    instance = MAKERS[task["side"]](task, feed)
    cores, width = task["cores"], task["width"]
    first = instance(cores[:width])
    first()
    say(event="first", peak=kibibytes("VmHWM") * 1024, resident=kibibytes("VmRSS") * 1024)
    if task.get("second"):
        first()  # what is allocated on later runs belongs to the first instance
        before = kibibytes("VmRSS")
        second = instance((cores[width : 2 * width] + cores)[:width])
        second()
        second()
        say(event="second", growth=(kibibytes("VmRSS") - before) * 1024)


def compile_plan(task: dict[str, Any]) -> None:
    """`paraxc` with the task's arguments, exactly as the command does it."""
    code = importlib.import_module("parax.compiler.cli").paraxc(task["arguments"])
    say(event="compiled", peak=kibibytes("VmHWM") * 1024, code=code)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    compile_plan(given) if given["side"] == "paraxc" else first_result(given)
