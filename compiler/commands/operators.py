"""`parax operators`: what parax supports, by operator, version and element type."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UnsupportedOp, UsageError
from ...files import check_writable, write_whole
from .console import Console, Table
from .parser import did_you_mean

if TYPE_CHECKING:
    from ..supported import Supported

NAME = "operators"
HELP = "list the operators that parax supports, with versions and element types"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("names", nargs="*", metavar="OPERATOR", help="only these, like Conv or com.microsoft.FusedConv")
    parser.add_argument("--domain", metavar="D", help="only of this domain; ai.onnx is ONNX's own")
    parser.add_argument("--unsupported", action="store_true", help="only what is missing")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.md", help="write the whole list as a page instead")


def execute(args: argparse.Namespace, console: Console) -> int:
    """List them; the exit code: 3 where one that was asked for is not supported."""
    from .. import supported

    if args.output is not None:
        if args.names or args.domain or args.unsupported:
            raise UsageError("a page has all operators", where="--output", hint="leave out the other options")
        check_writable(args.output)
        write_whole(args.output, supported.page())
        console.note(f"wrote {args.output}")
        return 0
    listed = _chosen(supported.supported(args.domain), args)
    document = {"operators": [{**asdict(e), "types": dict(e.types)} for e in listed]}
    rows = [[e.full_name, " ".join(map(str, e.versions)), e.runs, e.types_text] for e in listed]
    n_have = sum(e.runs != supported.NONE for e in listed)
    title = f"{n_have} of {len(listed)} supported"
    console.result(document, Table(title, ("operator", "versions", "runs", "types"), rows))
    return UnsupportedOp.exit_code if args.names and n_have < len(listed) else 0


def _chosen(listed: list[Supported], args: argparse.Namespace) -> list[Supported]:
    """Those that were asked for.

    Raises:
        UsageError: no such domain or operator.
    """
    from ..supported import NONE

    if not listed:
        raise UsageError("no such domain", where="--domain", found=args.domain, expected="ai.onnx, ai.onnx.ml, …")
    by_name = {entry.full_name.removeprefix("ai.onnx."): entry for entry in listed if entry.domain == ""}
    by_name |= {entry.full_name: entry for entry in listed}
    names = [name.removeprefix("ai.onnx.") if name.removeprefix("ai.onnx.") in by_name else name for name in args.names]
    for name in names:
        if name not in by_name:
            hint = did_you_mean(name, by_name)
            raise UsageError("neither ONNX nor parax has this operator", where=name, hint=hint)
    chosen = [by_name[name] for name in dict.fromkeys(names)] if names else listed
    return [entry for entry in chosen if not args.unsupported or entry.runs == NONE]
