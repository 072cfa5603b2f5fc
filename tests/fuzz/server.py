"""A process that tries the cases whose files it is told on stdin, and answers each with its outcome as JSON.

It reads pickles that the process which started it has written, nobody else's.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import onnx

from parax.compiler.shrinking.child import serve

from .configurations import configuration
from .generate import Case
from .trial import try_case


def answer(question: bytes) -> dict[str, Any]:
    """The outcome of a case."""
    model, feeds, chosen = pickle.loads(question)
    case = Case("reduced", onnx.ModelProto.FromString(model), list(feeds))
    return try_case(case, [configuration(c) for c in chosen]).as_json()


if __name__ == "__main__":
    np.seterr(all="ignore")
    serve(answer)
