"""One variant through its kernels in every way of sharing, against another implementation of ONNX."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
import onnx

from backend.guards import in_child
from backend.harness import Program
from backend.ways import EVERY
from catalogue.cases import Case, Constant
from catalogue.running import TOLERANCE, assert_whole, build, expected
from contract.variants import TAILS, Variant, arranged, with_tail
from parax.compiler.backend.lowering import Candidates, LowerContext
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph, Node
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Contraction
from parax.compiler.ir.types import NARROW, DType, evaluate, noting_positive
from parax.compiler.ir.verify import verify
from parax.compiler.passes.block.fuse_elementwise import FuseElementwise
from parax.compiler.passes.rewrite import Rewriter
from parax.errors import ParaxError, UnsupportedOp

Contents = list[np.ndarray | None]
MOST_ELEMENTS = 1 << 18
ORACLE_SECONDS = 60.0
ONNX_NAMES = {"f32": "float", "f64": "double", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8",
              "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64"}
REFUSED = "Refused: "
HALVES = ("f16", "bf16")
REFUSALS = {  # types or layouts in which an operator needs no kernel, and why; any other refusal is a defect
    "Gemm": (("i32", "u32", "i64", "u64"), "alpha and beta on integers"),  # ONNX gives such products no type
    "ScatterND": (("last",), "operands must be in ONNX's order"),  # AssignLayouts keeps it
}


class NoVariant(Exception):
    """The operator does not take it, or nobody can say what is right."""


@dataclass
class Forced:
    """Chooses the candidate of a number, round and round."""

    number: int
    seen: list[str] = field(default_factory=list)

    def choose(self, ctx: LowerContext, node: Node, candidates: Candidates) -> str:
        self.seen += candidates
        return list(candidates)[self.number % len(candidates)]


def check(variant: Variant) -> None:
    """Fail with an AssertionError if a kernel breaks its contract or computes something else.

    Raises:
        NoVariant: there is nothing to check.
    """
    graph, tail, program, positive = lowered(variant)
    tried = []
    for case in variant.cases():
        other, feeds, sizes, contents = _built(case)
        if variant.ties:
            for name, array in feeds.items():
                feeds[name][...] = np.rint(array) if array.dtype.kind not in "biuSUO" else array
        fits = all(evaluate(a, sizes) == evaluate(b, sizes) for a, b in graph.constraints)
        small = all(c is None or c.size <= MOST_ELEMENTS for c in contents)
        if fits and small and all(sizes[s] > 0 for s in positive):
            tried.append((case, other, feeds, sizes, contents))
    answers = _oracle([(case, contents) for case, *_, contents in tried])
    runs, wanted = [], []
    for (_, other, feeds, sizes, _), answer in zip(tried, answers):
        arrays = None if answer is None else _expected(answer, other, sizes)
        if arrays is not None:
            runs.append((feeds, sizes))
            wanted.append(arrays)
    if not runs:
        raise NoVariant("nobody can say what is right")
    try:
        found = program.run_all(runs, EVERY)
    except AssertionError as error:
        if REFUSED in str(error) and (variant.number is not None or variant.ones):
            raise NoVariant("an index has no place in the new shape") from None
        raise
    for (_, sizes), arrays, results in zip(runs, wanted, found):
        for array, result in zip(arrays, results):
            with np.errstate(all="ignore"):
                for name in tail:
                    array = TAILS[name](array)
            try:
                _close(variant.case, result, array)
            except AssertionError as error:
                raise AssertionError(f"{sizes}: {error}") from None


def lowered(variant: Variant) -> tuple[Graph, list[str], Program, set[str]]:
    """Its graph, what follows its operator, its kernels, and the symbols that may not be 0.

    Raises:
        NoVariant: the operator does not take it, or no kernel has to (`REFUSALS`).
    """
    case = variant.cases()[0]
    positive: set[str] = set()
    with noting_positive(positive):
        graph, tail = _graph(case, variant, Random(zlib.crc32(str(variant).encode())))
        symbols = tuple(_built(case)[2])
        fp = Fp.FAST if variant.candidate else Fp.DEFAULT  # every candidate that there may be
        try:
            return graph, tail, Program(graph, variant.target, symbols, fp, Forced(variant.candidate)), positive
        except ParaxError as error:
            what, reason = REFUSALS.get(variant.case.op, ((), ""))
            found = {variant.dtype, variant.layout}
            if isinstance(error, UnsupportedOp) and found.intersection(what) and reason in str(error):
                raise NoVariant(reason) from None
            raise AssertionError(f"not compiled: {error}") from None


def _built(case: Case) -> Any:
    try:
        built = build(case)
        verify(built[0])
    except (ParaxError, AssertionError, ValueError, TypeError, KeyError, IndexError, ZeroDivisionError,
            NotImplementedError, OverflowError) as error:  # fmt: skip
        raise NoVariant(str(error)) from None
    return built


def _is_standard(case: Case, dtype: str) -> bool:
    """Whether ONNX lets operand 0 have this type: of other types no oracle says what is right."""
    if not onnx.defs.has(case.op, domain=case.domain):  # ONNX Runtime's own: what its kernels take
        return dtype in ("f32", "f16")
    schema = onnx.defs.get_schema(case.op, domain=case.domain)
    return f"tensor({ONNX_NAMES.get(dtype, dtype)})" in schema.inputs[0].types


def _oracle(asked: Sequence[tuple[Case, Contents]]) -> list[list[np.ndarray] | None]:
    """The oracle's results, for halves in single precision; None for what it refuses, or dies of (in a child)."""
    try:
        return list(in_child(lambda note: [_answer(case, contents) for case, contents in asked], ORACLE_SECONDS))
    except AssertionError:
        return [None] if len(asked) == 1 else [_oracle([one])[0] for one in asked]


def _answer(case: Case, contents: Contents) -> list[np.ndarray] | None:
    if case.op in ("RNN", "GRU", "LSTM") and case.oracle == "onnxruntime" and not np.size(contents[0]):
        return None  # it leaves the last states of no steps unwritten
    given = [c.astype(np.float32) if _is_half(c) else c for c in contents]  # type: ignore[union-attr]
    operands = tuple(Constant(c) if isinstance(o, Constant) else o for o, c in zip(case.operands, given))
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [np.asarray(a) for a in expected(replace(case, operands=operands), given)]
    except Exception:  # the oracle refuses in many ways what it does not take
        return None


def _expected(arrays: list[np.ndarray], graph: Graph, symbols: dict[str, int]) -> list[np.ndarray] | None:
    """What to compare with; None where the oracle has not our types and shapes."""
    shapes = [tuple(evaluate(d, symbols) for d in v.tensor.dims) for v in graph.outputs]
    types = [v.tensor.dtype for v in graph.outputs]
    if shapes != [a.shape for a in arrays]:
        return None
    if any(a.dtype != t.numpy and not (t.name in HALVES and a.dtype == np.float32) for a, t in zip(arrays, types)):
        return None
    return [a.astype(np.float64) if t.is_float else a for a, t in zip(arrays, types)]


def _is_half(array: np.ndarray | None) -> bool:
    return array is not None and array.dtype.kind not in "USO" and DType.from_numpy(array.dtype).name in HALVES


def _close(case: Case, found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal; floats up to the case's tolerance, and that of the largest number of the result."""
    name = DType.from_numpy(found.dtype).name
    if not DType.from_numpy(found.dtype).is_float:
        assert_whole(case, found, wanted)
        return
    if DType.from_numpy(found.dtype) in NARROW:
        np.testing.assert_array_equal(found.astype(np.float64), wanted.astype(found.dtype).astype(np.float64))
        return
    stash = "stash_type" in lookup(case.domain, case.op).signature.attributes  # 1: the oracle may compute in f32
    rtol, atol = TOLERANCE["f32" if name == "f64" and stash else name]
    rtol, atol = max(rtol, case.rtol or 0), max(atol, case.atol or 0)
    if name in HALVES:  # what is too large for a half is infinite
        with np.errstate(all="ignore"):
            wanted = wanted.astype(found.dtype).astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0)))
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol, atol * scale)


def _graph(case: Case, variant: Variant, random: Random) -> tuple[Graph, list[str]]:
    """The graph whose kernels are run, and what follows the case's operator in it."""
    graph = _built(case)[0]
    if variant.dtype is not None and not _is_standard(case, variant.dtype):
        raise NoVariant("ONNX has no such type there")
    if variant.candidate and not issubclass(lookup(case.domain, case.op), Contraction):
        raise NoVariant("there is one kernel")
    if variant.layout is not None:
        arranged(graph, variant.layout, random)
    if not variant.tail:
        return graph, []
    more: Any = with_tail(graph, random)
    if more is None or not FuseElementwise().run(more[0], Rewriter(more[0])):
        raise NoVariant("no tail")
    return more
