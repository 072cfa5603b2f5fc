"""`python -m benchmarks.training_curves`: whether a training by parax learns what PyTorch's does, seed by seed.

Trains a small ResNet, MobileNet, U-Net, LSTM and Transformer on both sides from the same weights and by the same
batches. Each row says how accurate both are on what was kept apart, in the mean of the seeds and of each; how far these
means are from each other; and by how much PyTorch's own seeds differ, greatest less least: that is the noise within
which the sides must agree, or one label where no seed differs. Behind it, how far the losses of the sides are from each
other, relative to PyTorch's: of the first ten steps the greatest, and of all steps the median. Owns the procedure.

    python -m benchmarks.training_curves --seeds 3 --steps 200
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from parax.errors import UsageError
from parax.files import write_whole
from parax.runtime.cpu import cpu_name

from .command import command_line, finish, new_file

MODELS = ("resnet", "mobilenet", "unet", "lstm", "transformer")
EARLY = 10  # steps in which rounding has not grown yet


def main(argv: list[str] | None = None) -> int:
    """Entry point. Exit code 0: both sides learn the same within noise, 1: one does not."""
    args = _arguments(argv)
    found = [compared(name, args.seeds, args.steps) for name in args.models]
    _show(found)
    print(f"{cpu_name()}; seeds {', '.join(map(str, range(args.seeds)))}; {args.steps} steps each; accuracies in %")
    if args.json:
        write_whole(args.json, json.dumps({"cpu": cpu_name(), "models": found}, indent=1))
    return 0 if all(one["agrees"] for one in found) else 1


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("training_curves", __doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME",
                        help=f"which: {', '.join(MODELS)} (default all)")  # fmt: skip
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each model (default 3)")
    parser.add_argument("--steps", type=int, default=200, metavar="N", help="of each training (default 200)")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the figures and all losses there")
    args = parser.parse_args(argv)
    if args.seeds < 1 or args.steps < 1:
        raise UsageError("nothing to train", where="--seeds and --steps", expected="1 or more")
    return args


def compared(name: str, n_seeds: int, steps: int) -> dict[str, Any]:
    """The trainings of one model, and whether the sides agree within noise.

    Returns:
        model, runs (as `training_curves_sides.trained` gives them), difference, noise, agrees.

    Raises:
        UsageError: PyTorch is not installed.
    """
    try:
        import torch as _  # noqa: F401
    except ImportError as error:
        raise UsageError("PyTorch is not installed", hint="pip install '.[bench-training]'") from error
    from .training_curves_sides import all_seeds

    runs, n_labels = all_seeds(name, n_seeds, steps)
    own, other = ([run["accuracy"][side] for run in runs] for side in ("parax", "torch"))
    return {"model": name, "runs": runs, **verdict(own, other, n_labels)}


def verdict(own: Sequence[float], other: Sequence[float], n_labels: int) -> dict[str, Any]:
    """Whether the mean over seeds of one side is that of the other within what the seeds of the other differ by.

    Args:
        own, other: accuracies, a seed each. n_labels: that they are shares of.
    """
    difference, noise = float(abs(np.mean(own) - np.mean(other))), max(float(np.ptp(other)), 1 / n_labels)
    return {"difference": difference, "noise": noise, "agrees": difference <= noise}


def apart(run: dict[str, Any]) -> np.ndarray:
    """|loss - PyTorch's loss| / PyTorch's loss of each step."""
    own, other = (np.array(run["losses"][side]) for side in ("parax", "torch"))
    found: np.ndarray = np.abs(own - other) / other
    return found


def _show(found: list[dict[str, Any]]) -> None:
    table = Table("model", "parax", "PyTorch", "differ by", "noise", "agree", "losses apart: first", "all")
    for one in found:
        accuracies = [[100 * run["accuracy"][side] for run in one["runs"]] for side in ("parax", "torch")]
        losses = np.array([apart(run) for run in one["runs"]])
        table.add_row(
            one["model"],
            *(f"{np.mean(side):.2f} ({', '.join(f'{each:.2f}' for each in side)})" for side in accuracies),
            f"{100 * one['difference']:.2f}", f"{100 * one['noise']:.2f}", "yes" if one["agrees"] else "no",
            f"{losses[:, :EARLY].max():.0e}", f"{np.median(losses):.0e}",
        )  # fmt: skip
    Console(width=None if sys.stdout.isatty() else 150).print(table)


if __name__ == "__main__":
    finish(main)
