"""`parax compare A B`: two plans, models or profiles side by side: where one is quicker, and by how much."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import IncompatiblePlan, UsageError
from . import arguments
from .console import Console, Progress, Table, size
from .made_up import random_arrays, sizes_of, still_open
from .models import is_plan, open_plan
from .profile import add_measuring, profiled_plan, session_wanted, warm_up

if TYPE_CHECKING:
    from ...runtime.plan import Plan
    from ...runtime.session import Session
    from ..contest import Contestant

NAME = "compare"
HELP = "compare two plans, models or profiles: latency, operator by operator where they are profiled, kernels chosen"
ROUNDS, MOST_SHOWN = 7, 20
OPERATOR_COLUMNS = ("operator", "name in the model", "A ms", "B ms", "B − A", "B ÷ A")
FACTS = ("mode", "cpu", "target")


class Side(NamedTuple):
    """One of the two.

    Attributes:
        name: as the user gave it. plan: None of a profile. document: its profile; None where none can be made.
        latency: seconds of a request, the median.
    """

    name: str
    plan: Plan | None
    document: dict[str, Any] | None
    latency: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    text = "a plan.bin, a MODEL.onnx, or a profile that parax profile wrote as .json"
    parser.add_argument("plan", type=Path, metavar="A", help=text)
    parser.add_argument("model", type=Path, metavar="B", help="likewise")
    add_measuring(parser)
    parser.add_argument("--top", type=arguments.positive, default=MOST_SHOWN, metavar="N",
                        help=f"operators to show, those that differ most (default {MOST_SHOWN})")  # fmt: skip
    arguments.add_compile_options(parser)


def execute(args: argparse.Namespace, console: Console) -> int:
    """Measure what is not measured yet, and show; the exit code."""
    paths = (args.plan, args.model)
    profiles = [_profile(path) for path in paths]
    plans = [None if profile is not None else _plan(path, args, console) for path, profile in zip(paths, profiles)]
    known = next((_sizes_of(profile) for profile in profiles if profile is not None), {})
    measured = iter(_measure([plan for plan in plans if plan is not None], known, args, console))
    sides = []
    for path, plan, document in zip(paths, plans, profiles):
        found, latency = (document, document["latency"]["p50"]) if document is not None else next(measured)
        sides.append(Side(str(path), plan, found, latency))
    a, b = sides
    console.result(_described(a, b), *_tables(a, b, args.top))
    shown = [_sizes_of(side.document) for side in sides if side.document is not None]
    if len(shown) == 2 and shown[0] != shown[1]:
        console.note(f"the requests differ: {shown[0]} and {shown[1]}")
    for side in sides:
        if side.document is None:
            console.note(f"{side.name}: no operators, it was not compiled with --profile")
    return 0


def _profile(path: Path) -> dict[str, Any] | None:
    """The document of a profile; None of anything else that can be read."""
    from ...file_kinds import kind_of
    from ...runtime.profiling.profile import Profile

    try:
        begins = path.open("rb").read(1) if path.is_file() else b""
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), found=error.strerror) from error
    if path.suffix == ".json" or (begins == b"{" and kind_of(path) is None):
        return Profile.load(path).document
    return None


def _plan(path: Path, args: argparse.Namespace, console: Console) -> Plan:
    """The plan at a path as it is, or of the model there, profiled."""
    return open_plan(path, None, console) if is_plan(path) else profiled_plan(path, args, console)


def _sizes_of(document: dict[str, Any]) -> dict[str, int]:
    """The open dimensions of most requests of a profile."""
    most = max(document.get("sizes") or [{}], key=lambda own: own.get("requests", 0))
    return {name: value for name, value in most.items() if name != "requests"}


def _measure(
    plans: list[Plan], known: Mapping[str, int], args: argparse.Namespace, console: Console
) -> list[tuple[dict[str, Any] | None, float]]:  # fmt: skip
    """Of each plan its profile, where it was compiled for that, and seconds of a request, in interleaved rounds.

    Args:
        known: sizes of open dimensions, where the command line says nothing of them.
    """
    from contextlib import ExitStack

    from ..contest import Contestant

    found: list[tuple[list[dict[str, Any]], list[float]]] = [([], []) for _ in plans]
    with ExitStack() as stack, console.progress("compare") as progress:
        runners: list[tuple[Session, Contestant]] = []
        for plan in plans:
            given = {**_open_in(plan, {} if args.batch else known), **still_open(plan, args.dim)}
            sizes = sizes_of(plan, given, args.batch or 1, console)
            inputs = random_arrays(plan, sizes, args.seed)
            session = stack.enter_context(plan.session(**session_wanted(args)))
            runners.append((session, Contestant("parax", "", [partial(session.run, inputs)] * args.callers, 1)))
        for session, runner in runners:
            warm_up(session, runner, args.seconds, progress)
        for number in range(ROUNDS):
            progress("rounds", 0.2 + 0.8 * number / ROUNDS)
            for (session, runner), (documents, times) in zip(runners, found):
                _round(session, runner, args.seconds / ROUNDS, documents, times, progress)
    from ...runtime.profiling.comparing import of_rounds

    return [(of_rounds(documents) if documents else None, median(times)) for documents, times in found]


def _open_in(plan: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    """Those of the sizes that the plan's inputs tell."""
    told = {symbol.name for symbol in plan.manifest.symbols if symbol.input is not None}
    return {name: size for name, size in sizes.items() if name in told}


def _round(
    session: Session, runner: Contestant, seconds: float, documents: list[dict[str, Any]], times: list[float],
    progress: Progress,
) -> None:  # fmt: skip
    try:
        with session.profile() as profile:
            times.append(median(runner.run_for(seconds)[1]))
        documents.append(profile.document)
    except IncompatiblePlan:
        times.append(median(runner.run_for(seconds)[1]))


def _described(a: Side, b: Side) -> dict[str, Any]:
    """Everything, as data."""
    from ...runtime.profiling.comparing import pairs

    both = a.document is not None and b.document is not None
    listed = pairs(a.document, b.document) if a.document is not None and b.document is not None else []
    sides = {key: {"name": side.name, "latency": side.latency, **_facts(side)} for key, side in (("a", a), ("b", b))}
    return {
        **sides,
        "ratio": b.latency / a.latency if a.latency else None, "profiled": both,
        "operators": [{"title": p.title, "a": p.first, "b": p.second, "op_a": p.ops[0], "op_b": p.ops[1]}
                      for p in listed],
        "choices": _choices(a.plan, b.plan),
    }  # fmt: skip


def _facts(side: Side) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    if side.document is not None:
        facts |= {key: side.document[key] for key in FACTS}
        facts["sizes"] = side.document["sizes"]
    if side.plan is not None:
        manifest = side.plan.manifest
        facts |= {"hint": manifest.hint, "weights_nbytes": len(side.plan.weights), "opt_level":
                  manifest.provenance.get("opt_level"), "fp": manifest.provenance.get("fp"),
                  "mode": manifest.scheduled.mode if manifest.scheduled else "sequential"}  # fmt: skip
    return facts


def _choices(a: Plan | None, b: Plan | None) -> list[dict[str, Any]]:
    """Nodes for which the two plans have other kernels."""
    if a is None or b is None:
        return []
    first, second = (_chosen(plan) for plan in (a, b))
    return [{"node": node, "a": first.get(node), "b": second.get(node)}
            for node in dict.fromkeys((*first, *second)) if first.get(node) != second.get(node)]  # fmt: skip


def _chosen(plan: Plan) -> dict[str, str]:
    choices = plan.manifest.provenance.get("choices", [])
    return {str(own.get("node")): str(own.get("kernel")) for own in choices if isinstance(own, dict)}


def _tables(a: Side, b: Side, most: int) -> list[Table]:
    document = _described(a, b)
    facts = {key: (_facts(a).get(key), _facts(b).get(key)) for key in dict.fromkeys((*_facts(a), *_facts(b)))}
    rows: list[list[object]] = [["a request, p50", _ms(a.latency), _ms(b.latency), _ratio(a.latency, b.latency)]]
    for key, (first, second) in facts.items():
        if first != second and key != "sizes":
            shown = [size(v) if key == "weights_nbytes" and v is not None else v for v in (first, second)]
            rows.append([key.removesuffix("_nbytes"), *shown, ""])
    tables = [Table("", ("", a.name, b.name, "B ÷ A"), rows)]
    if document["profiled"]:
        listed = document["operators"]
        lines = [_operator_line(own) for own in listed[:most]]
        rest = listed[most:]
        if rest:
            lines.append(_line("", f"{len(rest)} more", sum(o["a"] for o in rest), sum(o["b"] for o in rest)))
        assert a.document is not None and b.document is not None
        for key, text in (("outside", "outside kernels"), ("seconds_per_request", "together")):
            lines.append(_line("", text, a.document[key], b.document[key]))
        tables.append(Table("operators that differ most", OPERATOR_COLUMNS, lines))
    if document["choices"]:
        rows = [[own["node"], own["a"], own["b"]] for own in document["choices"][:most]]
        tables.append(Table(f"kernels chosen otherwise: {len(document['choices'])}", ("node", "A", "B"), rows))
    return tables


def _operator_line(own: dict[str, Any]) -> list[object]:
    ops = own["op_a"] if own["op_a"] == own["op_b"] else f"{own['op_a'] or '–'} / {own['op_b'] or '–'}"
    return _line(ops, own["title"], own["a"], own["b"])


def _line(ops: str, title: str, a: float, b: float) -> list[object]:
    return [ops, title, _ms(a), _ms(b), f"{(b - a) * 1e3:+.3f}", _ratio(a, b)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _ratio(a: float, b: float) -> str:
    return f"{b / a:.3f}" if a > 0 else ""
