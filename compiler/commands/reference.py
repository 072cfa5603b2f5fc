"""Every verb and option as a page of Markdown, made from the parser: `parax man --markdown`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ... import env
from .arguments import OUTPUT
from .parser import Parser

_CACHE = "~/.cache/parax"  # in place of this machine's


def page(root: Parser) -> str:
    """The page."""
    verbs = root.verbs()
    lines = ["# All options", "", "Made from the program by `parax man --markdown`. `paraxc` is `parax compile`.", ""]
    lines += ["| verb | |", "|---|---|"]
    lines += [f"| [`{name}`](#parax-{name}) | {_cell(root.summary(name))} |" for name in verbs]
    lines += ["", "Every verb takes these:", "", *_table(_of_every_verb(next(iter(verbs.values()))))]
    for name, verb in verbs.items():
        lines += ["", f"## parax {name}", "", f"`{verb.usage}`"]
        for title, actions in verb.groups():
            own = [action for action in actions if action.dest not in ("help", "help_all") and verb.told(action)]
            if own and title != OUTPUT:
                lines += [] if title == "options" else ["", f"**{title}**"]
                lines += ["", *_table((action, verb.told(action)) for action in own)]
    return "\n".join(lines) + "\n"


def _of_every_verb(verb: Parser) -> Iterator[tuple[argparse.Action, str]]:
    return ((action, told) for title, actions in verb.groups() for action in actions
            if title == OUTPUT and (told := verb.told(action)))  # fmt: skip


def _table(rows: Iterator[tuple[argparse.Action, str]]) -> list[str]:
    return ["| option | |", "|---|---|", *(f"| {_flags(action)} | {_cell(told)} |" for action, told in rows)]


def _flags(action: argparse.Action) -> str:
    takes = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices or ()))
        takes = f" {action.metavar or choices or action.dest.upper()}"
    return ", ".join(f"`{flag}{takes}`".replace("|", "\\|") for flag in action.option_strings)


def _cell(text: str) -> str:
    return text.replace(str(env.cache_dir()), _CACHE).replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")
