"""`parax passes`: the passes that --passes and --print-after name, with their options, and what each -O level runs."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING

from .console import Console, Table

if TYPE_CHECKING:
    from ..passes.base import Pass

NAME = "passes"
HELP = "list the passes that compile --passes takes, with their options, or those of an optimisation level"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("names", nargs="*", metavar="PASS", help="explain these: before, after, and options")
    parser.add_argument("-O", dest="opt_level", type=int, choices=range(4), metavar="LEVEL",
                        help="print what this level runs, as --passes takes it")  # fmt: skip


def execute(args: argparse.Namespace, console: Console) -> int:
    """List or explain them; the exit code."""
    from ..passes.pipelines import known_passes, pipeline
    from ..passes.surroundings import Surroundings
    from ..passes.text import check_name, print_passes

    known = known_passes()
    for name in args.names:
        check_name(name, known)
    if args.opt_level is not None:
        level = pipeline(args.opt_level, Surroundings())
        text = print_passes(level.passes, level.step_passes)
        console.result({"opt_level": args.opt_level, "passes": text}) if console.form == "json" else print(text)
        return 0
    chosen = [known[name] for name in args.names] or list(known.values())
    document = {"passes": [{"name": p.pass_name(), "looks_at": _room(p), "does": _explained(p), "options": _options(p)}
                           for p in chosen]}  # fmt: skip
    if args.names:
        lines = [[line] for p in chosen for line in (f"{p.pass_name()}  {_options_text(p)}", _explained(p), "")]
        console.result(document, Table("", ("",), lines[:-1]))
        return 0
    rows = [[p.pass_name(), _room(p), _explained(p).partition("\n")[0], _options_text(p)] for p in chosen]
    console.result(document, Table("passes", ("pass", "looks at", "what it does", "options"), rows))
    return 0


def _room(kind: type[Pass]) -> str:
    """How far a pass looks, by the folder that it lies in: node, block or dataflow."""
    return kind.__module__.rsplit(".", 2)[-2]


def _explained(kind: type[Pass]) -> str:
    """A pass's docstring without its indentation."""
    import inspect

    return inspect.cleandoc(kind.__doc__ or "")


def _options(kind: type[Pass]) -> dict[str, object]:
    """Option → its default, of those that a text can give."""
    from ..passes.text import option_kinds

    known = option_kinds(kind)
    return {f.name: f.default for f in fields(kind) if f.name in known}


def _options_text(kind: type[Pass]) -> str:
    return ",".join(f"{name}={str(default).lower()}" for name, default in _options(kind).items())
