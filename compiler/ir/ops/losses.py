"""Losses of classifiers: negative log-likelihood, and cross entropy of softmax."""

from __future__ import annotations

from typing import Any as PyAny

import numpy as np

from .base import Attr, Composite, Float, In, Index, InferContext, Opt, OptOut, Out, op

CLASSES = np.array([1], np.int64)  # the axis of the classes
REDUCTIONS = ("mean", "none", "sum")


class Likelihood(Composite):
    """What both losses share: the attributes, and what is done with the logarithms of the classes' probabilities."""

    ignore_index: Attr[int | None] = None
    reduction: Attr[str] = "mean"

    def infer(self, ctx: InferContext) -> PyAny:
        if self.reduction not in REDUCTIONS:
            ctx.fail("unknown reduction", expected=", ".join(REDUCTIONS), found=self.reduction[:60])
        scores, labels = ctx.shape(0), ctx.shape(1)
        if len(scores) < 2 or len(labels) != len(scores) - 1:
            ctx.fail("scores must be [N, C, ...] and labels [N, ...]", found=f"{ctx.types[0]} and {ctx.types[1]}")
        for axis, (a, b) in enumerate(zip((scores[0], *scores[2:]), labels, strict=True)):
            ctx.equal(a, b, f"dimension {axis} of the labels must be that of the scores")
        if ctx.has(2):
            if ctx.rank(2) != 1:
                ctx.fail("weights must be a vector", found=ctx.types[2])
            ctx.equal(scores[1], ctx.shape(2)[0], "a weight is needed for every class")
        return super().infer(ctx)

    def loss(self, g: PyAny, logs: PyAny, labels: PyAny, weight: PyAny) -> PyAny:
        """-weight[label] · logs[label], 0 where the label is ignored; of a mean, the weights' sum is the count.

        A label outside of [0, C) ends the run with an error, as a place that does not exist.
        """
        kept = None
        if self.ignore_index is not None:
            kept = g.Not(g.Equal(labels, self.ignore_index))
            labels = g.Where(kept, labels, 0)
        classes = g.Cast(g.Squeeze(g.Shape(logs, start=1, end=2), np.array([0], np.int64)), to=labels.tensor.dtype)
        places = g.Where(g.Less(labels, 0), classes, labels)  # labels do not count from the end
        losses = g.Neg(g.Squeeze(g.GatherElements(logs, g.Unsqueeze(places, CLASSES), axis=1), CLASSES))
        scale = None if weight is None else g.Gather(weight, places)
        if kept is not None:
            one, zero = (g.const(np.asarray(x), losses.tensor.dtype) for x in (1.0, 0.0))
            losses = g.Where(kept, losses, zero)
            scale = g.Where(kept, one if scale is None else scale, zero)
        if weight is not None:
            losses = g.Mul(losses, scale)
        if self.reduction == "none":
            return losses
        total = g.ReduceSum(losses, keepdims=0)
        if self.reduction == "sum":
            return total
        return g.Div(total, g.ReduceSum(scale, keepdims=0)) if scale is not None else g.ReduceMean(losses, keepdims=0)


@op(since=12)
class NegativeLogLikelihoodLoss(Likelihood):
    """-weight[label] · x[label] of logarithms of probabilities [N, C, ...]: their mean, their sum, or each."""

    x: In[Float]
    target: In[Index]
    weight: Opt[Float]

    def expand(self, g: PyAny, x: PyAny, target: PyAny, weight: PyAny = None) -> PyAny:
        return self.loss(g, x, target, weight)


@op(since=12)
class SoftmaxCrossEntropyLoss(Likelihood):
    """The negative log-likelihood of softmax(scores) over the classes; also log softmax(scores)."""

    scores: In[Float]
    labels: In[Index]
    weights: Opt[Float]
    output: Out
    log_prob: OptOut

    def expand(self, g: PyAny, scores: PyAny, labels: PyAny, weights: PyAny = None) -> PyAny:
        logs = g.LogSoftmax(scores, axis=1)
        return [self.loss(g, logs, labels, weights), logs]
