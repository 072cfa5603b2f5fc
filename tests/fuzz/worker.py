"""A process that runs cases one after the other and says on stdout, a JSON object a line, what it does.

It is started and watched by `pool`: a crash or a hang of the code under test costs this process only.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from parax.compiler.shrinking.graphs import operators

from . import configurations
from .models import Source
from .trial import Outcome, try_case

MEMORY = 6 << 30


def run_number(source: Source, number: int, say: Any) -> Outcome:
    """One case in the configurations that its number draws."""
    drawn = configurations.draw(random.Random(f"{source.seed}/{number}/configurations"))
    case = source.case(number)
    ops = Counter(operators(case.model.graph))
    say({"number": number, "phase": "made", "ops": ops, "configurations": [c.as_json() for c in drawn]})
    return try_case(case, drawn, lambda phase: say({"number": number, "phase": phase}))


def _quiet_stdout() -> TextIO:
    """The real stdout for our lines; whatever else prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return out


def main(argv: list[str] | None = None) -> int:
    """Entry point: numbers first, first + step, … below count."""
    parser = argparse.ArgumentParser("fuzz.worker")
    parser.add_argument("--seed", required=True)
    parser.add_argument("--numbers", required=True, help="first:count:step")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--recorded", type=Path)
    args = parser.parse_args(argv)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    np.seterr(all="ignore")
    out = _quiet_stdout()

    def say(record: dict[str, Any]) -> None:
        out.write(json.dumps(record) + "\n")

    source = Source(args.seed, args.models, args.recorded)
    first, count, step = map(int, args.numbers.split(":"))
    for number in filter(source.has, range(first, count, step)):
        began = time.perf_counter()
        say({"number": number, "phase": "make"})
        outcome = run_number(source, number, say)
        say({"number": number, "outcome": outcome.as_json(), "seconds": time.perf_counter() - began})
    return 0


if __name__ == "__main__":
    sys.exit(main())
