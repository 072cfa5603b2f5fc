"""Variants of the catalogue's cases: other element types, sizes, layouts, targets, fused tails, every candidate kernel.

Variants are made without knowledge of operators: a number that occurs in a case's shapes becomes another one, or a
symbol, wherever it occurs; an element type becomes another one in all operands that have it. What the operator's own
declaration or inference refuses is no variant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

import numpy as np

from backend.harness import host_targets
from catalogue.cases import Case, Constant, Operand, all_cases
from parax.compiler.backend.host import resolve_target
from parax.compiler.backend.lowering import LOWERINGS
from parax.compiler.ir.graph import Graph, Value
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.ops.base import Control, Elementwise, Host, Movement, Operator
from parax.compiler.ir.types import DType, TensorType
from parax.compiler.targets.target import Target

DTYPES = ("f32", "f64", "f16", "bf16", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool")
LAYOUTS = ("last", "any")
_NUMBER = re.compile(r"\d+")
_SHAPE = re.compile(r"\[(.*)\]")


@dataclass(frozen=True)
class Variant:
    """A case, and what is done with it.

    Attributes:
        dtype: of the operands that have operand 0's. number: the size that is replaced wherever it occurs, by a symbol
            that takes all of `sizes` at run time, or by the only one of them. layout: "last": operand 0 and results of
            its rank channels last; "any": operands and results in random orders. tail: element-wise operators behind
            it, fused. candidate: which of several kernels. ones: sizes that become 1 wherever they occur: loops over
            them are left out, and others take their places. ties: floats are whole numbers, many of them equal.
    """

    case: Case
    target: Target
    dtype: str | None = None
    number: int | None = None
    sizes: tuple[int, ...] = ()
    is_symbol: bool = False
    layout: str | None = None
    tail: bool = False
    candidate: int = 0
    ones: tuple[int, ...] = ()
    ties: bool = False

    def __str__(self) -> str:
        target = f"{self.target.name} {self.target.tune}".strip()
        parts = [str(self.case), target, self.dtype, self.layout, self.tail and "with a tail",
                 self.ties and "with ties",
                 self.number and f"{self.number} → {'S = ' if self.is_symbol else ''}{','.join(map(str, self.sizes))}",
                 self.ones and f"{','.join(map(str, self.ones))} → 1",
                 self.candidate and f"candidate {self.candidate}"]  # fmt: skip
        return " | ".join(p for p in parts if p)

    def cases(self) -> list[Case]:
        """What the oracle is asked, one for each run."""
        case = self.case if self.dtype is None else _retyped(self.case, self.dtype)
        for one in self.ones:
            case = _resized(case, one, 1, False)
        if self.number is None:
            return [case]
        return [_resized(case, self.number, size, self.is_symbol) for size in self.sizes]


def _resized(case: Case, number: int, size: int, is_symbol: bool) -> Case:
    """The case with a size replaced wherever it occurs."""
    new = f"S={size}" if is_symbol else str(size)

    def shape(match: re.Match[str]) -> str:
        dims = match[1].split(",")
        return "[" + ",".join(new if d == str(number) else
                              f"{d.split('=')[0]}={size}" if d.endswith(f"={number}") else d
                              for d in dims) + "]"  # fmt: skip

    return replace(case, operands=tuple(_SHAPE.sub(shape, o) if isinstance(o, str) else o for o in case.operands))


def _retyped(case: Case, dtype: str) -> Case:
    old = _dtype(case.operands[0])
    numpy = DType.from_name(dtype).numpy

    def retyped(o: Operand) -> Operand:
        if isinstance(o, str):
            return dtype + o[o.index("[") :] if o.split("[")[0] == old else o
        if o is None or _dtype(o) != old:
            return o
        return Constant(o.array.astype(numpy)) if isinstance(o, Constant) else o.astype(numpy)

    low = case.low if dtype[0] in "fbi" else max(case.low, 0.0)
    low, high = (low, case.high) if "f" in dtype else (math.ceil(low), math.ceil(case.high))
    return replace(case, operands=tuple(map(retyped, case.operands)), low=low, high=max(high, low + 1))


def _dtype(o: Operand) -> str | None:
    if isinstance(o, str):
        return o.split("[")[0]
    array = o.array if isinstance(o, Constant) else o
    return None if array is None or array.dtype.kind in "USO" else DType.from_numpy(array.dtype).name


def dtypes(case: Case) -> tuple[str, ...]:
    """What operand 0 may become; whole numbers stay so, because many operators take fractions for a mistake."""
    old = _dtype(case.operands[0]) if case.operands else None
    return DTYPES if old is None or "f" in old else DTYPES[4:]


def numbers(case: Case) -> list[int]:
    """The sizes that occur in its shapes, but for 0 and 1."""
    found = {int(n) for o in case.operands if isinstance(o, str) for n in _NUMBER.findall(o[o.index("[") :])}
    return sorted(found - {0, 1})


def targets() -> list[Target]:
    """All that this machine runs, and its own."""
    return [*host_targets(), resolve_target("native")]


def edge_sizes(target: Target) -> tuple[int, ...]:
    """0, 1 and what lies around one and two vectors, of elements of four bytes and of one."""
    sizes = {0, 1}
    for lanes in (target.f32_lanes, target.vector_bits // 8):
        sizes |= {lanes - 1, lanes, lanes + 1, 2 * lanes + 1}
    return tuple(sorted(sizes))


def has_kernel(op: type[Operator]) -> bool:
    """Whether kernels compute it: its own, those of the operators that it is made of, or one for known contents."""
    return not issubclass(op, (Host, Control))


def has_lowering(op: type[Operator]) -> bool:
    """Whether it has a kernel of its own."""
    return any(base in LOWERINGS for base in op.__mro__)


def cases_of() -> dict[str, list[Case]]:
    """The catalogue's cases that kernels compute, by operator."""
    found: dict[str, list[Case]] = {}
    for case in all_cases():
        if has_kernel(lookup(case.domain, case.op)):
            found.setdefault(f"{case.domain}::{case.op}" if case.domain else case.op, []).append(case)
    return found


def drawn(cases: Sequence[Case], random: Random) -> Variant:
    """A random variant; it may be none."""
    case, target = random.choice(cases), random.choice(targets())
    v = Variant(case, target, candidate=random.choice((0, 0, 1, 2, 3)))
    if random.random() < 0.5:
        v = replace(v, dtype=random.choice(dtypes(case)))
    found = numbers(case)
    if found and random.random() < 0.7:
        sizes, symbol = edge_sizes(target), random.random() < 0.6
        sizes = sizes if symbol else (random.choice(sizes),)
        v = replace(v, number=random.choice(found), is_symbol=symbol, sizes=sizes)
    if found and random.random() < 0.3:
        v = replace(v, ones=tuple(random.sample(found, random.randint(1, len(found)))))
    if random.random() < 0.3:
        v = replace(v, layout=random.choice(LAYOUTS))
    return replace(v, tail=random.random() < 0.15, ties=random.random() < 0.2)


def every(cases: Sequence[Case]) -> Iterator[Variant]:
    """Each way to vary each case, on every target, one at a time but for size and type."""
    for case in cases:
        for target in targets():
            plain = Variant(case, target)
            sizes = edge_sizes(target)
            yield plain
            yield from (replace(plain, dtype=d) for d in dtypes(case))
            yield from (replace(plain, layout=layout, tail=tail) for layout in (None, *LAYOUTS)
                        for tail in (False, True) if layout or tail)  # fmt: skip
            yield from (replace(plain, candidate=i) for i in range(1, 6))
            some = numbers(case)
            yield from (replace(plain, ties=True, layout=layout) for layout in (None, "last"))
            sets = [ones for n in range(1, len(some) + 1) for ones in combinations(some, n)]
            yield from (replace(plain, ones=ones, ties=ties) for ones in sets for ties in (False, True))
            for n in some:
                yield from (replace(plain, number=n, sizes=sizes, is_symbol=True, dtype=d) for d in (None, "i8"))
                yield from (replace(plain, number=n, sizes=(size,)) for size in sizes)


def arranged(graph: Graph, layout: str, random: Random) -> None:
    """Store operands and results in other orders, as far as their operators' kernels take any."""
    (node,) = graph
    x = graph.inputs[0].tensor if graph.inputs else None
    if layout == "last":
        last = (0, *range(2, x.rank), 1) if x is not None and x.rank > 2 else None
        for v in (*graph.inputs[:1], *node.outputs):
            if last and v.tensor.rank == len(last):
                v.type = v.tensor.with_layout(last)
    elif isinstance(node.op, (Elementwise, Movement)):
        for v in (*graph.inputs, *node.outputs):
            order = list(range(v.tensor.rank))
            random.shuffle(order)
            v.type = v.tensor.with_layout(tuple(order))


def with_tail(graph: Graph, random: Random) -> tuple[Graph, list[str]] | None:
    """Some element-wise operators behind the only result, None where they cannot follow."""
    (node,) = graph
    y = node.outputs[0]
    if len(graph.outputs) != 1 or not isinstance(y.type, TensorType) or not y.type.dtype.is_float:
        return None
    names = [random.choice(("Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Add")) for _ in range(random.randint(1, 3))]
    layout, value = y.tensor.layout, y
    for name in names:
        operands: list[Value | None] = [value, value] if name == "Add" else [value]
        value = graph.add_node(lookup("", name)(), operands).output
        value.type = value.tensor.with_layout(layout)
    graph.set_outputs([value])
    return graph, names


TAILS = {"Relu": lambda y: np.maximum(y, 0), "Neg": np.negative, "Tanh": np.tanh, "Abs": np.abs,
         "Sigmoid": lambda y: 1 / (1 + np.exp(-y)), "Add": lambda y: y + y}  # fmt: skip
