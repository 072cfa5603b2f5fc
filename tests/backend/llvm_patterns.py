"""Small kernels of every pattern of instructions that kernels consist of, each under every kind of mask.

A pattern is a computation on lanes with its sources' and its result's element types. It becomes a function of several
pieces: each loads, computes and stores once, under a mask of its own: constants (LLVM folds them into other
instructions) and run-time ones. What there is of patterns is in `pattern_families`, how they are run in `pattern_runs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from parax.compiler.ir.types import BOOL, I64, DType
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.loops import INDEX, KFunc, PtrType
from parax.compiler.kernel_ir.verifier import verify_function

_NUMBERS = count()


@dataclass(frozen=True)
class Pattern:
    """A computation on `lanes` lanes.

    Attributes:
        compute: (e, *vectors) → vector, where e is a Builder or NumpyLanes.
        access: "block" loads and stores; "indexed" gathers and scatters; "blend" stores all lanes, those that are off
            as they were.
    """

    name: str
    lanes: int
    sources: tuple[DType, ...]
    result: DType
    compute: Callable[..., Any]
    access: str = "block"


@dataclass(frozen=True)
class Mask:
    """Which lanes are on: `kind` is "all", "tail" (the first `value`), "bits" (of `value`), "count" or "given" (those
    at run time). `loads`: whether the sources are loaded under it too."""

    kind: str
    value: int = 0
    loads: bool = True

    def build(self, k: Builder, lanes: int) -> KValue | None:
        if self.kind == "tail":
            return k.tail_mask(k.index(self.value), lanes)
        if self.kind == "bits":
            value = self.value - (self.value >> 63 << 64)
            bits = k.binary("shr", k.splat(k.const(value, I64), lanes), k.ramp(lanes))
            return k.compare("ne", k.binary("and", bits, 1), 0)
        if self.kind == "count":
            return k.tail_mask(k["n"], lanes)
        return k.load(k["given"], 0, lanes) if self.kind == "given" else None

    def on(self, lanes: int, n: int, given: np.ndarray) -> np.ndarray:
        if self.kind == "bits":
            return np.array([bool(self.value >> i & 1) for i in range(lanes)])
        if self.kind == "given":
            return given
        return np.arange(lanes) < {"all": lanes, "tail": self.value, "count": n}[self.kind]


def masks(lanes: int, turn: int) -> list[Mask]:
    """The masks of a pattern: of a constant single lane always; of the other kinds, and of lanes, some in turn."""
    if lanes == 1:
        return [Mask("all"), Mask("tail", 1), Mask("count"), Mask("given", loads=False)]
    some = int.from_bytes(np.random.default_rng(turn).bytes(8), "little") & (1 << lanes) - 1
    constant = (Mask("all"), Mask("tail", lanes - 1, turn % 2 == 0), Mask("bits", some, turn % 2 == 0))
    return [
        Mask("tail", 1, turn % 2 == 0), Mask("bits", 1 << turn // 2 % lanes, turn % 4 < 2),
        Mask("tail", 1 + turn // 3 % (lanes - 1), turn % 2 == 1), constant[turn % 3],
        Mask("count", loads=turn % 3 > 0) if turn % 2 else Mask("given", loads=turn % 3 > 0),
    ]  # fmt: skip


# -- as kernels -------------------------------------------------------------------------------------------------------
def build(pattern: Pattern, pieces: Sequence[Mask]) -> KFunc:
    """The function: n, the run-time mask, then of each piece its sources, its indices and its result."""
    params: list[tuple[str, Any]] = [("n", INDEX), ("given", PtrType(BOOL))]
    for i in range(len(pieces)):
        params += [(f"s{i}_{j}", PtrType(d)) for j, d in enumerate(pattern.sources)]
        params += [(f"i{i}", PtrType(I64)), (f"r{i}", PtrType(pattern.result))]
    k = Builder(f"pattern_{next(_NUMBERS)}", params)
    k.func.exact = True
    for i, mask in enumerate(pieces):
        _build_piece(k, pattern, i, mask)
    verify_function(k.func)
    return k.func


def _build_piece(k: Builder, p: Pattern, i: int, mask: Mask) -> None:
    on = mask.build(k, p.lanes)
    under = on if mask.loads else None
    result = k[f"r{i}"]
    sources = [k[f"s{i}_{j}"] for j in range(len(p.sources))]
    if p.access == "indexed":
        where = k.load(k[f"i{i}"], 0, p.lanes)
        k.scatter(result, where, p.compute(k, *(k.gather(s, where, mask=under) for s in sources)), mask=on)
        return
    value = p.compute(k, *(k.load(s, 0, p.lanes, mask=under) for s in sources))
    if p.access == "blend" and on is not None:
        value, on = k.select(on, value, k.load(result, 0, p.lanes)), None
    k.store(result, 0, value, mask=on)
