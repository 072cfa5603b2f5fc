"""`python -m benchmarks.staleness`: what stale gradients do to a training, beside one that has none.

Trains a small network on scikit-learn's digits from one start and in one order of the data: by small batches one after
the other, and by the asynchronous server, whose instances work off as small shards at the same time, for several bounds
of staleness. Every one makes as many updates of as many rows. Each row says how stale a gradient came to be, the loss
on what it was not trained on behind each epoch, the accuracy at the end, and how far the weights are from those of the
first row: |w − first| / |first − start|. Two trainings one after the other are the same to the last bit; two
asynchronous ones are not, so each is done `--repeats` times. Owns the procedure.

    python -m benchmarks.staleness --lr 0.1
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import parax
from parax.compiler.trainer import Trainer
from parax.files import write_whole
from parax.runtime.train.data.open import digits

from .command import command_line, finish, new_file
from .small_networks import convolutions

TRAINED, CLASSES = 1472, 10  # of 1,797 pictures: whole batches of most sizes


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: measured; a training that leaves all numbers is a row, too."""
    parser = command_line("staleness", __doc__)
    parser.add_argument("--staleness", nargs="+", type=int, default=[0, 1, 3, 7], metavar="N",
                        help="bounds of the asynchronous server (default 0 1 3 7)")
    parser.add_argument("--instances", type=int, default=8, metavar="N",
                        help="of the asynchronous server; more than cores take turns (default 8)")
    parser.add_argument("--rows", type=int, default=8, metavar="N", help="of a shard and an update (default 8)")
    parser.add_argument("--epochs", type=int, default=4, metavar="N", help="(default 4)")
    parser.add_argument("--lr", type=float, default=0.03, metavar="RATE", help="of SGD (default 0.03)")
    parser.add_argument("--momentum", type=float, default=0.9, metavar="M", help="of SGD (default 0.9)")
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="of each training (default 2)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures there")
    args = parser.parse_args(argv)
    settings: list[int | None] = [None, *args.staleness]
    runs = [trained(bound, args) for bound in settings for _ in range(args.repeats)]
    _, start, first = runs[0]
    rows = [{**found, "distance": float(np.linalg.norm(end - first) / np.linalg.norm(first - start))}
            for found, _, end in runs]  # fmt: skip
    _show(rows)
    print(f"SGD of {args.lr}, momentum {args.momentum}; {args.rows} rows an update, {TRAINED // args.rows} updates an "
          f"epoch; {args.instances} instances")  # fmt: skip
    if args.json:
        write_whole(args.json, json.dumps(rows, indent=1))
    return 0


def trained(bound: int | None, args: argparse.Namespace) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """One training: its figures, and all weights before and behind it. bound: of the staleness; None: no instances."""
    whole = dict(zip(("x", "labels"), digits().arrays.values(), strict=True))
    order = np.random.default_rng(0).permutation(len(whole["x"]))
    data, test = ({name: array[part] for name, array in whole.items()} for part in (order[:TRAINED], order[TRAINED:]))
    instances = 1 if bound is None else args.instances
    exchange = "fixed" if bound is None else parax.Exchange("asynchronous", staleness=bound, oversubscribe=True)
    evaluations: list[dict[str, float]] = []

    def note(record: dict[str, Any]) -> None:
        if "evaluation" in record:
            evaluations.append(record["evaluation"])

    with Trainer(convolutions(1, (16, 32), 8, CLASSES), optimizer=parax.SGD(lr=args.lr, momentum=args.momentum),
                 batch=args.rows * instances, shards=instances, instances=instances,
                 exchange=exchange) as trainer:  # fmt: skip
        start, has_diverged = _flat(trainer), False
        try:
            trainer.fit(data, args.epochs, test=test, log=note)
        except parax.Diverged:
            has_diverged = True
        found = {"bound": bound, "staleness": trainer.counters().staleness, "diverged": has_diverged,
                 "losses": [one["loss"] for one in evaluations],
                 "accuracy": evaluations[-1]["accuracy"] if evaluations else None}  # fmt: skip
        return found, start, _flat(trainer)


def _flat(trainer: Trainer) -> np.ndarray:
    """All weights as one vector, f64."""
    found = trainer.parameters
    return np.concatenate([found[name].ravel() for name in sorted(found)]).astype(np.float64)


def _show(rows: list[dict[str, Any]]) -> None:
    table = Table("bound", "stale", "loss behind each epoch", "accuracy", "distance")
    for row in rows:
        losses = " ".join(f"{loss:.4f}" for loss in row["losses"])
        table.add_row(
            "one by one" if row["bound"] is None else str(row["bound"]), str(row["staleness"]),
            f"{losses} diverged" if row["diverged"] else losses,
            "" if row["accuracy"] is None else f"{row['accuracy']:.2%}", f"{row['distance']:.4f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    finish(main)
