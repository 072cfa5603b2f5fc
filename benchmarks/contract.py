"""Holds every kernel of the catalogue to its contract: `python -m benchmarks.contract [--all] [--seconds S]`.

Random variants of the catalogue's cases (tests/contract), or with --all every one: element types, sizes around
vectors, layouts, targets, fused tails, candidate kernels. Each is run in all ways in which cores may share it, between
pages that may not be touched, and compared with another implementation of ONNX. Prints what fails; the exit status is
1 then.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

sys.path.append(str(Path(__file__).parent.parent / "tests"))

from contract.checking import NoVariant, check
from contract.variants import Variant, cases_of, drawn, every


def variants(args: argparse.Namespace) -> Iterator[Variant]:
    """What is asked for, in a random order."""
    random, cases = Random(args.seed), cases_of()
    names = [n for n in cases if not args.operator or n in args.operator]
    if args.all:
        found = [v for name in names for v in every(cases[name])]
        random.shuffle(found)
        first, of = args.part
        yield from found[first::of]
        return
    while True:
        yield drawn(cases[random.choice(names)], random)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="every variant, not random ones")
    parser.add_argument("--operator", nargs="*", help="of these operators only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=300.0, help="when to stop (default 300)")
    parser.add_argument("--part", type=lambda t: tuple(map(int, t.split("/"))), default=(0, 1), metavar="I/N",
                        help="every N-th variant from I on, of --all")  # fmt: skip
    args = parser.parse_args(argv)
    end, checked, none, failed = time.monotonic() + args.seconds, 0, 0, 0
    for variant in variants(args):
        if time.monotonic() > end:
            break
        try:
            check(variant)
            checked += 1
        except NoVariant:
            none += 1
        except Exception as error:
            failed += 1
            print(f"FAILED {variant}\n  {type(error).__name__}: {error}\n", flush=True)
    print(f"{checked} variants keep the contract, {failed} do not; {none} are none")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
