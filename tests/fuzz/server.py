"""A process that tries the cases whose files it is told on stdin, and answers each with its outcome as JSON.

It reads pickles that the process which started it has written, nobody else's.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

import numpy as np
import onnx

from .configurations import configuration
from .generate import Case
from .trial import try_case


def main() -> int:
    """Entry point: one path a line, until stdin ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    np.seterr(all="ignore")
    for line in sys.stdin:
        model, feeds, chosen = pickle.loads(Path(line.strip()).read_bytes())
        case = Case("reduced", onnx.ModelProto.FromString(model), list(feeds))
        outcome = try_case(case, [configuration(c) for c in chosen])
        out.write(json.dumps(outcome.as_json()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
