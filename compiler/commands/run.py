"""`parax run plan.bin --input x=@x.npy --output y=@y.npy`; without a model, the bundled one on its bundled pictures."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AccuracyMismatch, InvalidInput, UsageError
from ...files import check_writable, replacing
from ..options import CompileOptions
from . import arguments, pictures, top
from .console import Console, Table, plain
from .inputs import inputs_of, read_value
from .models import open_plan
from .outcomes import shown_result
from .parser import did_you_mean

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.plan import Plan
    from ...runtime.session import Session
    from ..compare import Difference

NAME = "run"
HELP = "run a plan, or compile an ONNX model and run it; without either, the bundled digit recogniser"
FEW_VALUES, MANY_VALUES = 6, 10_000  # of an output: shown in a table, written in JSON
MOST_CHARACTERS = 100  # of an output that is no tensor, in a table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("plan", type=Path, nargs="?", metavar="plan.bin|MODEL.onnx")
    parser.add_argument("--input", type=arguments.assignment, action="append", default=[], metavar="NAME=@FILE.npy",
                        help="an input: @FILE, which is .npy, .npz, .png or .jpg, a JSON value, or random; repeatable; "
                             "without any, all are random")  # fmt: skip
    parser.add_argument("--random", action="store_true", help="random values for the inputs that are not given")
    parser.add_argument("--cast", action="store_true", help="cast the given arrays to the inputs' element types")
    parser.add_argument("--output", type=arguments.assignment, action="append", default=[], metavar="NAME=@FILE.npy",
                        help="write an output to a file; repeatable")  # fmt: skip
    parser.add_argument("--expect", type=arguments.assignment, action="append", default=[], metavar="NAME=@FILE.npy",
                        help="compare an output with a file, exit code 5 when they differ; repeatable")  # fmt: skip
    parser.add_argument("--rtol", type=float, help="allowed |Δ| per |expected| (default: by type, 1e-3 for f32)")
    parser.add_argument("--atol", type=float,
                        help="allowed |Δ| besides (default: by type, 1e-4 of root mean square for f32)")  # fmt: skip
    parser.add_argument("--dim", type=arguments.dim, action="append", default=[], metavar="SYMBOL=8",
                        help="size of a symbolic dimension of random inputs; repeatable")  # fmt: skip
    parser.add_argument("--seed", type=arguments.natural, default=0, help="of random inputs (default 0)")
    pictures.add_arguments(parser)
    top.add_arguments(parser)
    arguments.add_session(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Run once and show the outputs; the exit code (5 when an expectation fails)."""
    if args.plan is None:
        from . import demo

        return demo.execute(console)
    from ..sizes import naming_sizes

    options = CompileOptions(mode=args.mode or "auto", max_memory=args.max_memory)
    plan = open_plan(args.plan, options, console)
    _check_names(plan, args)
    for name, place in args.output:
        if place == "@-":
            raise UsageError("stdout has the results already", where=f"--output {name}", hint="give a file or a pipe")
        check_writable(_path(place))
    labels = top.read_labels(args)
    inputs, at_random, sizes = inputs_of(plan, args, console)
    with plan.session(**arguments.session_options(args)) as session, naming_sizes(plan.manifest, sizes):
        began = time.perf_counter()
        outputs = _outputs(session, inputs)
        seconds = time.perf_counter() - began
    for name, place in args.output:
        save(outputs[name], place)
    checks = compare(outputs, args)
    for check in checks:
        if check.warning:
            console.note(f"output {check.name}: {check.warning}")
    best = top.rankings(outputs, args.top, labels, args.softmax) if args.top else {}
    show(outputs, checks, seconds, best, at_random, console)
    return 0 if all(check.passed for check in checks) else AccuracyMismatch.exit_code


def _outputs(session: Session, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    try:
        return session.run(inputs)
    except InvalidInput as error:
        if error.message != "wrong element type":
            raise
        raise InvalidInput(error.message, where=error.where, expected=error.expected, found=error.found,
                           hint="--cast casts it") from error  # fmt: skip


def _check_names(plan: Plan, args: argparse.Namespace) -> None:
    for flag, given, specs in (
        ("--input", args.input, plan.inputs),
        ("--output", args.output, plan.outputs),
        ("--expect", args.expect, plan.outputs),
    ):
        known = [spec.name for spec in specs]
        for name, _ in given:
            if name not in known:
                raise UsageError("no such tensor", where=f"{flag} {name}", expected=" or ".join(known),
                                 hint=did_you_mean(name, known) if len(known) > 1 else None)  # fmt: skip


def save(value: Any, place: str) -> None:
    """Write an output to `@FILE.npy`; as JSON what is no tensor.

    Raises:
        UsageError: the file cannot be written, or a .npy file holds no such value.
    """
    import numpy as np

    path = _path(place)
    if not isinstance(value, np.ndarray):
        if path.suffix == ".npy":
            raise UsageError("what is no tensor is written as JSON", where=str(path), hint="name it FILE.json")
        with replacing(path) as file:
            file.write(json.dumps(plain(value), ensure_ascii=False).encode())
        return
    try:
        with replacing(path) as file:
            texts = value.dtype.kind == "O" and all(isinstance(item, str) for item in value.flat)
            np.save(file, value.astype(str) if texts else value, allow_pickle=False)
    except ValueError as error:
        raise UsageError("cannot be written", where=str(path), found=error) from error


def _path(place: str) -> Path:
    return Path(place.removeprefix("@"))


def compare(outputs: dict[str, np.ndarray], args: argparse.Namespace) -> list[Difference]:
    """One difference per --expect."""
    from ..compare import Tolerance
    from ..row_order import differences

    expected = {name: read_value(outputs[name], name, place.removeprefix("@")) for name, place in args.expect}
    return differences(outputs, expected, Tolerance(args.rtol, args.atol))


def show(
    outputs: dict[str, np.ndarray], checks: list[Difference], seconds: float, best: dict[str, top.Ranking],
    at_random: list[str], console: Console,
) -> None:  # fmt: skip
    """The outputs' shapes and values, the best classes, and how the expectations went."""
    document = {
        "seconds": seconds,
        "outputs": {name: _described(array) for name, array in outputs.items()},
        "expectations": [
            {"name": c.name, "max_abs": c.max_abs, "passed": c.passed, "status": c.status, "problem": c.problem,
             "warning": c.warning} for c in checks
        ],
        "random_inputs": at_random,
    }
    if best:
        document["top"] = top.documented(best)
    rows = [[name, *_typed(value), _first_values(value)] for name, value in outputs.items()]
    tables = [Table(f"outputs after {seconds * 1e3:.2f} ms", ("name", "type", "shape", "values"), rows)]
    tables += top.tables(best)
    if checks:
        rows = [[c.name, f"{c.max_abs:.3g}", shown_result(c)] for c in checks]
        tables.append(Table("expectations", ("output", "max |Δ|", "result"), rows))
    console.result(document, *tables)


def _typed(value: Any) -> tuple[object, object]:
    """What an output is, and its size, in a table."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value.dtype, list(value.shape)
    return ("nothing", "") if value is None else (type(value).__name__, len(value))


def _described(array: Any) -> dict[str, Any]:
    import numpy as np

    if not isinstance(array, np.ndarray):
        kind, size = _typed(array)
        shown = {"values": array} if array is None or len(array) <= MANY_VALUES else {}
        return {"type": kind, "length": size or 0, **shown}
    described: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
    if array.size <= MANY_VALUES:
        described["values"] = array
    return described


def _first_values(array: Any) -> str:
    import numpy as np

    if not isinstance(array, np.ndarray):
        text = str(plain(array))
        return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]} …"
    first = array.reshape(-1)[:FEW_VALUES].tolist()
    texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in first]
    return " ".join(texts) + (f" … ({array.size})" if array.size > FEW_VALUES else "")
