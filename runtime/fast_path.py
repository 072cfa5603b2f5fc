"""The path of a request whose shapes are known, written for one session's signature.

A request of some microseconds spends more of them in Python than in native code, while it holds the GIL that other
callers wait for. So its path is one function without loops over names, compiled from text: a check per input, an array
per output, and, where the calls of a shape are known to be brief, the native call itself. Owns that text; whatever it
cannot serve goes the longer way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .executor import PATIENCE_SECONDS
from .manifest import TensorSpec
from .memory import ADDRESS_NAMES, address_text
from .router import Router

FastPath = Callable[[Any], "dict[str, np.ndarray] | None"]
_FIT = 0x101  # numpy's flags: C-contiguous, aligned


def fast_path(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], router: Router, serve: Any) -> FastPath:
    """The results of a request, or None where it needs the checked path. Measured by benchmarks/call_overhead.py.

    Args:
        inputs, outputs: the plan's.
        router: knows the shapes. serve: what runs a request of them, as `router.serve`; brief requests pass it by if
            it is that.
    """
    goes_direct = serve == router.serve
    text = _text(inputs, outputs, router if goes_direct else None)
    names: dict[str, Any] = {f"t{i}": spec.numpy for i, spec in enumerate(inputs)}
    names |= {"ready": router.ready, "serve": serve, "ndarray": np.ndarray, "empty": np.empty}
    if goes_direct:
        executor = router.executor
        names |= {**ADDRESS_NAMES, "executor": executor, "popped": executor.popped, "free": executor.free}
    exec(compile(text, f"<requests of {len(inputs)} inputs>", "exec"), names)  # our own text: names stand in it quoted
    made: FastPath = names["run_fast"]
    return made


def stepped_path(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], router: Router, program: Any) -> FastPath:
    """The same for a plan in steps, which run on one of the session's own instances if one is free.

    Args:
        inputs, outputs: the plan's. router: knows the shapes. program: runs requests of them, as `Program`.
    """
    names: dict[str, Any] = {f"t{i}": spec.numpy for i, spec in enumerate(inputs)}
    executor, allowance, results = router.executor, router.allowance, [spec.name for spec in outputs]
    names |= {"ready": router.ready, "ndarray": np.ndarray, "run": program.run_ready, "executor": executor,
              "allowance": allowance, "names": results}  # fmt: skip
    x = [f"x{i}" for i in range(len(inputs))]
    lines = [
        *_checks(inputs),
        " if not (binding.ways is None or binding.ways.stays): return None",
        f" found = run(executor, binding, {_tuple(x)}, allowance())",
        " return None if found is None else dict(zip(names, found))",
    ]
    exec(compile("\n".join(lines) + "\n", f"<steps for {len(inputs)} inputs>", "exec"), names)  # our own text, too
    made: FastPath = names["run_fast"]
    return made


def _text(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], router: Router | None) -> str:
    """The function's text; with a router, brief requests run on its instances directly."""
    x = [f"x{i}" for i in range(len(inputs))]
    y = [f"y{i}" for i in range(len(outputs))]
    results = "{" + ", ".join(f"{spec.name!r}: {a}" for a, spec in zip(y, outputs)) + "}"
    lines = [
        *_checks(inputs),
        f" {_tuple(f'(s{i}, d{i})' for i in range(len(outputs)))} = binding.outputs",
        *(f" {a} = empty(s{i}, d{i})" for i, a in enumerate(y)),
        *(_brief(x, y, results, router) if router is not None else ()),
        f" serve(binding, {_tuple(x)}, {_tuple(y)})",
        f" return {results}",
    ]
    return "\n".join(lines) + "\n"


def _checks(inputs: Sequence[TensorSpec]) -> list[str]:
    """The begin of the function: the inputs' arrays and their binding, or None where they have to be looked at.

    Arrays that were pickled have element types of their own, which are equal to ours.
    """
    x = [f"x{i}" for i in range(len(inputs))]
    checks = [
        f"{a}.__class__ is ndarray and ({a}.dtype is t{i} or {a}.dtype == t{i}) and {a}.flags.num & {_FIT} == {_FIT}"
        for i, a in enumerate(x)
    ]
    return [
        "def run_fast(inputs):",
        " try:",
        *(f"  {a} = inputs[{spec.name!r}]" for a, spec in zip(x, inputs)),
        f"  binding = ready[{_tuple(a + '.shape' for a in x)}]",
        f"  if len(inputs) != {len(inputs)}: return None",
        " except Exception: return None",  # whatever a caller's object raises: the checked path says what is wrong
        *(f" if not ({check}): return None" for check in checks),
    ]


def _brief(x: Sequence[str], y: Sequence[str], results: str, router: Router) -> list[str]:
    """As Router.serve, Executor.run_whole and Executor.run_on, for a shape whose next call need not be timed."""
    executor = router.executor
    stays = "" if router.keeps_brief else " and (binding.ways is None or binding.ways.stays)"
    io = [*(x[i] for i in executor.in_order), *(y[i] for i in executor.out_order)]
    return [
        f" if binding.n_brief > 0{stays}:",
        "  instance = None",
        "  try:",
        "   for instance in popped:",  # a loop calls and assigns at once: no signal comes between
        f"    if instance.binding is not binding: instance.bind(binding, {executor.segment})",
        "    io = instance.io",
        *(f"    io[{slot}] = {address_text(name)}" for slot, name in enumerate(io)),
        "    binding.n_brief -= 1",
        "    status = instance.code.team_held(instance.worker)",
        "    if status: raise executor.failure(status)",
        f"    return {results}",
        "  except BaseException as error:",
        "   if instance is not None:",
        "    instance.clear_failure()",
        "    raise",
        "   if error.__class__ is not IndexError: raise",
        "  finally:",
        "   if instance is not None: free.append(instance)",
        f"   if executor.waiting: executor.hand_over({PATIENCE_SECONDS})",
    ]


def _tuple(items: Iterable[str]) -> str:
    return "(" + "".join(item + ", " for item in items) + ")"
