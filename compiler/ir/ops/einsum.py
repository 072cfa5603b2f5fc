"""Einsum: sums of products named by an equation, expanded pair by pair into transposes, matrix products and sums."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as PyAny

from ....errors import UnsupportedOp
from ..types import Dim, SymDim, prod
from .base import Attr, Composite, InferContext, Numeric, Variadic, op

Labels = tuple[str, ...]
_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*\Z")


@dataclass
class Term:
    """A value and a label for each of its axes."""

    value: PyAny
    labels: Labels


def parse_equation(equation: str) -> tuple[list[str], str | None]:
    """The inputs' terms and the output's (None: implied). Raises ValueError that says what is wrong."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    for term in [*terms, right]:
        if not _TERM.match(term):
            raise ValueError(f"malformed term {term!r}")
    return terms, right if arrow else None


def label_axes(term: str, rank: int, ellipsis: int | None) -> Labels:
    """A label for each axis; the axes of "..." are called ...0, ...1, counted from the last one.

    Args:
        ellipsis: how many axes "..." stands for, None = what is left of `rank`.
    """
    before, dots, after = term.partition("...")
    count = rank - len(before) - len(after) if ellipsis is None else ellipsis
    if count < 0 or (count and not dots):
        raise ValueError(f"term {term!r} does not fit rank {rank}")
    return (*before, *(f"...{i}" for i in reversed(range(count if dots else 0))), *after)


@op(since=12)
class Einsum(Composite):
    """y[output labels] = Σ over all other labels of the inputs' products, as numpy.einsum."""

    inputs: Variadic[Numeric]
    equation: Attr[str]

    def labels(self, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
        """Labels of the inputs' axes and of the output's. Raises ValueError for a malformed equation."""
        terms, output = parse_equation(self.equation)
        if len(terms) != len(ranks):
            raise ValueError(f"{len(terms)} terms for {len(ranks)} inputs")
        inputs = [label_axes(term, rank, None) for term, rank in zip(terms, ranks, strict=True)]
        dots = max((sum(name.startswith(".") for name in labels) for labels in inputs), default=0)
        if output is None:
            flat = [name for labels in inputs for name in labels]
            once = sorted(name for name in set(flat) if flat.count(name) == 1 and not name.startswith("."))
            return inputs, (*(f"...{i}" for i in reversed(range(dots))), *once)
        result = label_axes(output, 0, dots)
        if len(set(result)) != len(result):
            raise ValueError("a label twice in the output")
        missing = set(result) - {name for labels in inputs for name in labels}
        if missing:
            raise ValueError(f"output label {min(missing)!r} is in no input")
        return inputs, result

    def infer(self, ctx: InferContext) -> Sequence[PyAny]:
        try:
            inputs, _ = self.labels([ctx.rank(i) for i in range(ctx.n_inputs)])
        except ValueError as error:
            ctx.fail(f"equation {self.equation!r}: {error}", found=ctx.types)
        sizes: dict[str, Dim] = {}
        for i, labels in enumerate(inputs):
            own: dict[str, Dim] = {}
            for name, dim in zip(labels, ctx.shape(i), strict=True):
                if name in own:  # a diagonal, which nothing broadcasts
                    dim = ctx.equal(own[name], dim, f"sizes of label {name} in one term must agree")
                own[name] = dim
            for name, dim in own.items():
                have = sizes.get(name, 1)
                if dim != 1 and have != 1:
                    ctx.equal(have, dim, f"sizes of label {name} must agree, or be 1")
                sizes[name] = dim if have == 1 else have
        return super().infer(ctx)

    def expand(self, g: PyAny, *inputs: PyAny) -> PyAny:
        labels, output = self.labels([v.tensor.rank for v in inputs])
        terms = _without_broadcasts(g, [_diagonal(g, Term(v, n)) for v, n in zip(inputs, labels, strict=True)])
        while len(terms) > 1:
            first, second, *rest = terms
            needed = {*output, *(name for t in rest for name in t.labels)}
            terms = [_contract(g, _sum_out(g, first, needed | {*second.labels}),
                               _sum_out(g, second, needed | {*first.labels}), needed), *rest]
        last = _sum_out(g, terms[0], {*output})
        return _transpose(g, last, output).value


def _transpose(g: PyAny, t: Term, order: Labels) -> Term:
    if t.labels == order:
        return Term(g.Identity(t.value) if t.value.producer is None else t.value, order)
    return Term(g.Transpose(t.value, perm=[t.labels.index(name) for name in order]), order)


def _diagonal(g: PyAny, t: Term) -> Term:
    """Equal labels of one operand made one: of n × n elements those n + 1 apart."""
    for name in dict.fromkeys(t.labels):
        while t.labels.count(name) > 1:
            rest = [i for i, other in enumerate(t.labels) if other != name]
            twice = [i for i, other in enumerate(t.labels) if other == name]
            moved = g.Transpose(t.value, perm=[*rest, *twice])
            labels = (*(t.labels[i] for i in rest), *[name] * len(twice))
            axes = [[i] for i in range(len(rest) + len(twice) - 2)] + [[len(labels) - 2, len(labels) - 1]]
            flat = g.Reshape(moved, shape_of(g, [[(moved, a) for a in group] for group in axes]), allowzero=1)
            size = moved.tensor.dims[-1]
            if isinstance(size, SymDim):
                raise UnsupportedOp("the diagonal of a symbolic dimension", found=moved.type)
            flat = g.Slice(flat, [0], [2**63 - 1], [len(axes) - 1], [size + 1])
            t = Term(flat, labels[:-1])
    return t


def _without_broadcasts(g: PyAny, terms: Sequence[Term]) -> list[Term]:
    """The terms without axes of size 1 whose label has another size in another term: those broadcast."""
    wide = {name for t in terms for name, dim in zip(t.labels, t.value.tensor.dims, strict=True) if dim != 1}
    kept = []
    for t in terms:
        pairs = enumerate(zip(t.labels, t.value.tensor.dims, strict=True))
        axes = [i for i, (name, dim) in pairs if dim == 1 and name in wide]
        labels = tuple(name for i, name in enumerate(t.labels) if i not in axes)
        kept.append(Term(g.Squeeze(t.value, axes), labels) if axes else t)
    return kept


def _sum_out(g: PyAny, t: Term, needed: set[str]) -> Term:
    axes = [i for i, name in enumerate(t.labels) if name not in needed]
    if not axes:
        return t
    return Term(g.ReduceSum(t.value, axes, keepdims=0), tuple(name for name in t.labels if name in needed))


def _contract(g: PyAny, a: Term, b: Term, needed: set[str]) -> Term:
    """The product of two operands, summed over the labels that nothing else needs."""
    shared = [name for name in a.labels if name in b.labels]
    batch = tuple(name for name in shared if name in needed)
    summed = tuple(name for name in shared if name not in needed)
    free_a = tuple(name for name in a.labels if name not in shared)
    free_b = tuple(name for name in b.labels if name not in shared)
    if not summed:
        left = _transpose(g, a, (*batch, *free_a)).value
        right = _transpose(g, b, (*batch, *free_b)).value
        if free_a and free_b:
            left = g.Unsqueeze(left, [len(batch) + len(free_a) + i for i in range(len(free_b))])
            right = g.Unsqueeze(right, [len(batch) + i for i in range(len(free_a))])
        elif free_a:
            right = g.Unsqueeze(right, [len(batch) + i for i in range(len(free_a))])
        elif free_b:
            left = g.Unsqueeze(left, [len(batch) + i for i in range(len(free_b))])
        return Term(g.Mul(left, right), (*batch, *free_a, *free_b))
    left = _transpose(g, a, (*batch, *free_a, *summed)).value
    right = _transpose(g, b, (*batch, *summed, *free_b)).value
    n = len(batch)
    product = g.MatMul(_matrix(g, left, n, len(free_a), len(summed)), _matrix(g, right, n, len(summed), len(free_b)))
    sources = [[(product, i)] for i in range(n)]
    sources += [[(left, n + i)] for i in range(len(free_a))]
    sources += [[(right, n + len(summed) + i)] for i in range(len(free_b))]
    if len(free_a) != 1 or len(free_b) != 1:
        product = g.Reshape(product, shape_of(g, sources), allowzero=1)
    return Term(product, (*batch, *free_a, *free_b))


def _matrix(g: PyAny, v: PyAny, batch: int, rows: int, columns: int) -> PyAny:
    """v[batch..., rows..., columns...] with its rows and columns flattened to one axis each."""
    if rows == columns == 1:
        return v
    groups = [[(v, i)] for i in range(batch)]
    groups.append([(v, batch + i) for i in range(rows)])
    groups.append([(v, batch + rows + i) for i in range(columns)])
    return g.Reshape(v, shape_of(g, groups), allowzero=1)


def shape_of(g: PyAny, groups: Sequence[Sequence[tuple[PyAny, int]]]) -> PyAny:
    """An i64 vector for Reshape; each entry is the product of the dimensions (value, axis) in its group."""
    sizes = [prod(v.tensor.dims[axis] for v, axis in group) for group in groups]
    if all(isinstance(s, int) for s in sizes):
        return sizes
    parts = []
    for group, size in zip(groups, sizes, strict=True):
        if isinstance(size, int):
            parts.append(g.const([size]))
            continue
        part = None
        for v, axis in group:
            dim = g.Shape(v, start=axis, end=axis + 1)
            part = dim if part is None else g.Mul(part, dim)
        parts.append(part)
    return g.Concat(*parts, axis=0)
