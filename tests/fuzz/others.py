"""Other implementations of ONNX, asked for the right answer, as long as they take no longer than they may."""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import onnx

from backend.guards import in_child
from parax.compiler.frontend.oracle import oracle

from . import exact
from .contents import BF16
from .generate import Feeds
from .known import distrusted_model
from .nodewise import Change, run_nodes
from .widening import SECONDS


class NoOracle(Exception):
    """Another implementation cannot run the model; the message is its own."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Other implementations may be slow in Python: give up after so long."""

    def stop(*_: object) -> None:
        raise NoOracle(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_other(model: onnx.ModelProto, kind: str, feeds: Feeds, change: Change | None = None) -> Feeds:
    """The outputs of "onnxruntime", of the same "optimised", of "reference", or of either one "nodes" after the other,
    with changed operands. Raises NoOracle."""
    if kind != "nodes" and (reason := distrusted_model(model, kind)):
        raise NoOracle(reason)
    if kind in ("onnxruntime", "optimised") and any(a.dtype == BF16 for a in feeds.values()):
        raise NoOracle("its Python face takes no bfloat16")
    with limited(SECONDS), warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            if kind == "nodes":
                return run_nodes(model, feeds, change)
            if kind == "optimised":  # on some models its optimiser faults
                return in_child(lambda note: _run_optimised(model, feeds), SECONDS)
            run = partial(exact.run, model) if kind == "reference" else oracle(model, kind)
            return {k: np.asarray(v) for k, v in run({k: v.copy() for k, v in feeds.items()}).items()}
        except NoOracle:
            raise
        except Exception as error:  # whatever it raises, also that its process ended, it cannot run this model
            raise NoOracle(f"{type(error).__name__}: {error}"[:300]) from error


def _run_optimised(model: onnx.ModelProto, feeds: Feeds) -> Feeds:
    run = oracle(model, "onnxruntime", optimised=True)
    return {k: np.asarray(v) for k, v in run(feeds).items()}
