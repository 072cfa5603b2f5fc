"""Cases of the losses."""

from __future__ import annotations

import numpy as np

from catalogue.cases import Case, case

LABELS, MAP = np.array([4, 0, 2]), np.array([[[0, 4, 1]], [[2, 3, 4]]])


def _loss(op: str) -> list[Case]:
    cases = [case(op, ["f32[N=3,5]", LABELS], {"reduction": r}) for r in ("mean", "sum", "none")]
    cases += [case(op, ["f32[3,5]", LABELS, "f32[5]"], {"reduction": r}, low=0.1) for r in ("mean", "sum", "none")]
    cases += [case(op, ["f32[3,5]", LABELS, "f32[5]"], {"reduction": r, "ignore_index": 0}, low=0.1)
              for r in ("mean", "sum", "none")]  # fmt: skip
    return [*cases, case(op, ["f32[2,5,1,3]", MAP], {"ignore_index": 4}),
            case(op, ["f32[2,5,1,3]", MAP.astype(np.int32)], {"ignore_index": -100}),
            case(op, ["f64[3,5]", LABELS, "f64[5]"], low=0.1), case(op, ["f16[3,5]", LABELS], rtol=1e-2)]


CASES = [*_loss("NegativeLogLikelihoodLoss"), *_loss("SoftmaxCrossEntropyLoss"),
         case("SoftmaxCrossEntropyLoss", ["f32[N=3,5]", LABELS], outputs=2),
         case("SoftmaxCrossEntropyLoss", ["f32[3,5]", LABELS], low=-90, high=90)]  # fmt: skip
