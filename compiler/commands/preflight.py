"""What `parax inspect MODEL.onnx` shows: what is in a model, and whether parax compiles it, by asking the compiler."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...errors import ParaxError, UnsupportedOp, UnsupportedUse, operator_name
from .console import Console, Table, size
from .partition import compile_options

if TYPE_CHECKING:
    from ..frontend.survey import Survey
    from ..host_work import HostWork

MOST_SHOWN = 50  # nodes in the table; a document has all
SIGNATURE = ("", "name", "type", "shape")


@dataclass(frozen=True)
class Verdict:
    """What compiling would come to: the error that would end it, or what would run outside of native code."""

    error: ParaxError | None
    host: HostWork | None

    @property
    def unsupported(self) -> tuple[UnsupportedUse, ...]:
        """The nodes that cannot be compiled."""
        return self.error.uses if isinstance(self.error, UnsupportedOp) else ()

    def runs(self, domain: str, name: str, uses: int) -> str:
        """Where the uses of an operator run: "native", "host", or how many of them cannot be compiled."""
        lost = sum(use.operator == operator_name(domain, name) for use in self.unsupported)
        if lost:
            return "no" if lost >= uses else f"{lost} of them not"
        return "host" if self.host is not None and name in self.host.operators else "native"


def show(args: argparse.Namespace, console: Console) -> int:
    """Operators, signature, parameters, and whether it compiles; the exit code is what compiling would end with."""
    from ..frontend.survey import survey

    found = survey(args.file)
    if args.version_only:
        table = Table("", ("ir version", "operator sets"), [[found.ir_version, _opsets(found.opsets)]])
        console.result({"ir_version": found.ir_version, "opsets": found.opsets}, table)
        return 0
    verdict = judge(args)
    document = {
        **vars(found), "operators": {operator_name(*key): n for key, n in found.operators.items()}, **_judged(verdict),
    }  # fmt: skip
    console.result(document, *_tables(str(args.file), found, verdict))
    return verdict.error.exit_code if verdict.error is not None else 0


def judge(args: argparse.Namespace) -> Verdict:
    """Have the compiler do all but make code."""
    from .. import driver

    try:
        return Verdict(None, driver.preflight(args.file, compile_options(args)))
    except ParaxError as error:
        return Verdict(error, None)


def shape_text(shape: Iterable[int | str] | None) -> str:
    """A shape for people: 1×3×H×W."""
    return "any" if shape is None else "×".join(map(str, shape)) or "scalar"


def _judged(verdict: Verdict) -> dict[str, Any]:
    """The verdict as fields of a document."""
    error = verdict.error
    return {
        "compiles": error is None,
        "problem": None if error is None else {"kind": type(error).__name__, "message": str(error)},
        "unsupported": [asdict(use) for use in verdict.unsupported],
        "host": verdict.host.to_json() if verdict.host is not None else None,
    }


def _tables(title: str, found: Survey, verdict: Verdict) -> list[Table]:
    uses = verdict.unsupported
    facts: list[list[object]] = [
        ["model", found.name], ["producer", found.producer], ["ir version", found.ir_version],
        ["operator sets", _opsets(found.opsets)], ["operators", sum(found.operators.values())],
        ["parameters", f"{found.n_parameters:,} ({size(found.parameter_nbytes)})"],
        ["compiles", "yes" if verdict.error is None else f"no: {_short(verdict.error, bool(uses))}"],
    ]  # fmt: skip
    if verdict.host is not None:
        facts.append(["outside native code", str(verdict.host) if verdict.host.operators else "nothing"])
    signature = [
        [side, name, dtype, shape_text(shape)]
        for side, values in (("input", found.inputs), ("output", found.outputs))
        for name, dtype, shape in values
    ]
    rows = [[operator_name(*key), n, verdict.runs(*key, n)] for key, n in found.operators.items()]
    tables = [Table(title, ("", ""), facts), Table("signature", SIGNATURE, signature),
              Table("operators", ("operator", "uses", "runs"), rows)]  # fmt: skip
    if uses:
        listed: list[list[object]] = [[u.operator, u.version, u.node, u.reason or "no such operator in parax"]
                                      for u in uses[:MOST_SHOWN]]  # fmt: skip
        if len(uses) > MOST_SHOWN:
            listed.append([f"and {len(uses) - MOST_SHOWN} more", None, None, None])
        tables.append(Table("unsupported", ("operator", "version", "node", "reason"), listed))
    return tables


def _short(error: ParaxError, listed: bool) -> str:
    """The problem on the line of a table, where another one may list the nodes."""
    return "see unsupported below" if listed else str(error)


def _opsets(opsets: dict[str, int]) -> str:
    return ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in opsets.items())
