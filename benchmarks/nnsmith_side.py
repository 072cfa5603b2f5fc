"""Writes NNSmith's models, for `benchmarks.nnsmith`: run by the interpreter of the environment that has NNSmith.

For each number it writes N.onnx, and behind it N.npz, with inputs ("in/NAME"), what PyTorch computes of them
("out/NAME"), and the choices that were made. What it says on stdout is what `fuzz.pool` reads: the number that begins,
and what came of it; where no model did, with the reason. It knows nothing of parax, which that environment does not
have.

Everything is drawn from seed and number; hashes of texts must be fixed by PYTHONHASHSEED, as NNSmith orders sets by
them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import z3
from nnsmith import narrow_spec
from nnsmith.abstract.extension import activate_ext
from nnsmith.graph_gen import model_gen
from nnsmith.materialize import Model
from nnsmith.materialize.torch.input_gen import SamplingSearch
from nnsmith.util import set_seed

OPSETS = (14, 15, 16, 17, 18, 19, 20)
"""NNSmith exports to 14; PyTorch's tracer knows these."""
NODES = (2, 3, 5, 8, 10, 14, 20)
ELEMENTS = (64, 1024, 8192, 65536)
RANKS = (None, (4,), (1, 2), (2, 3), (0, 1, 2), (3, 4, 5))
NUMBERS = (None, ("float32",), ("float32", "float64"), ("int32", "int64"), ("float32", "int64", "bool"),
           ("float16", "float32"), ("uint8", "int8", "int16", "float32"))  # fmt: skip
METHODS = ("symbolic-cinit", "symbolic-sinit", "concolic")
MOST_MILLISECONDS = 10_000
"""For one graph; most need some hundred."""
MEMORY = 8 << 30
"""Bytes that one process may take: some sizes that the solver finds ask PyTorch for more than the machine has, and the
system would end whatever process is the greatest. An error of PyTorch's says so instead, and no model is made."""
SAMPLES = 4
"""Weights and inputs that are tried for results without NaN and Inf; the last stay, whatever comes of them."""


def main() -> None:
    """Entry point: numbers first, first + step, … below count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", required=True)
    parser.add_argument("--numbers", required=True, help="first:count:step")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="where NNSmith keeps which types can be exported")
    args = parser.parse_args()
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    _use_the_tracer()
    operators = _operators(args.cache)
    first, count, step = map(int, args.numbers.split(":"))
    for number in range(first, count, step):
        began, problem = time.perf_counter(), ""
        out.write(json.dumps({"number": number, "phase": "make"}) + "\n")
        try:
            _write(args.seed, number, operators, args.output)
        except Exception as error:  # an unlucky number: NNSmith found no graph, or PyTorch could not export it
            problem = f"{type(error).__name__}: {error}".strip()[:500]
        outcome = {"status": "unsupported" if problem else "pass", "problem": problem}
        out.write(json.dumps({"number": number, "outcome": outcome, "seconds": time.perf_counter() - began}) + "\n")


def _use_the_tracer(opset: int = 14) -> None:
    """Have NNSmith export by PyTorch's tracer, as it was written for, to an operator set of our choice."""
    plain = getattr(torch.onnx, "_parax_plain_export", torch.onnx.export)
    torch.onnx._parax_plain_export = plain

    def export(model: Any, args: Any, f: Any, **options: Any) -> None:
        plain(model, args, f, **{**options, "dynamo": False, "opset_version": opset})

    torch.onnx.export = export


def _operators(cache: Path) -> dict[bool, list[Any]]:
    """NNSmith's operators with the types that can be exported; under True with those of limited domains.

    Which types can be exported is tried once, and then read from the cache.
    """
    narrow_spec.NNSMITH_CACHE_DIR = str(cache)
    kind = Model.init("onnx", backend_target="cpu")
    kind.add_seed_setter()
    found = {wild: list(narrow_spec.auto_opset(kind, None, vulops=wild)) for wild in (False, True)}
    activate_ext(opset=found[True], factory=None)
    return found


def _write(seed: str, number: int, operators: dict[bool, list[Any]], output: Path) -> None:
    """One model and its numbers; the numbers last, so that a model that has them is whole."""
    rng = random.Random(f"{seed}/{number}")
    choices: dict[str, Any] = {
        "wild": rng.random() < 0.3, "method": rng.choice(METHODS), "max_nodes": rng.choice(NODES),
        "max_elem_per_tensor": rng.choice(ELEMENTS), "rank_choices": rng.choice(RANKS),
        "dtype_choices": rng.choice(NUMBERS), "opset": rng.choice(OPSETS), "seed": rng.getrandbits(31),
    }  # fmt: skip
    _use_the_tracer(choices["opset"])
    z3.z3._main_ctx = None  # which sizes the solver finds depends on what else its context has seen
    set_seed(choices["seed"])
    asked = {k: v for k, v in choices.items() if k not in ("wild", "opset")}
    generated = model_gen(operators[choices["wild"]], timeout_ms=MOST_MILLISECONDS, **asked)
    set_seed(choices["seed"])  # how many numbers the search for a graph took may depend on time
    model = Model.init("onnx", backend_target="cpu").from_gir(generated.make_concrete())
    network = model.torch_model
    _, model.sat_inputs = SamplingSearch(network).search(max_sample=SAMPLES)
    said = model.make_oracle()
    proto = model.get_onnx_from_torch()
    buffer = io.BytesIO()
    arrays = {**{f"in/{k}": v for k, v in said.input.items()}, **{f"out/{k}": v for k, v in said.output.items()}}
    np.savez(buffer, choices=np.array(json.dumps(choices)), **arrays)
    onnx.save(proto, output / f"{number}.onnx")
    (output / f"{number}.npz").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    sys.exit(main())
