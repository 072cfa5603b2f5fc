"""`parax man`: the manual page, made from the parser: every verb, every option, exit codes and environment variables.

Source: man(7), groff_man(7) and groff_char(7) for the text's form.
"""

from __future__ import annotations

import argparse
import re

from ... import __version__, env
from . import reference
from .arguments import OUTPUT
from .console import Console
from .parser import Parser

_LITERALS = {"\\": r"\e", "-": r"\-", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}  # backslashes first
NAME = "man"
HELP = "print the manual page: parax man | man -l -"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the verb."""
    parser.add_argument("--markdown", action="store_true", help="as a page of Markdown, of the verbs and options alone")


def execute(args: argparse.Namespace, console: Console) -> int:
    """Print it; the exit code."""
    text = reference.page(args.root) if args.markdown else page(args.root)
    console.result({"page": text}) if console.form == "json" else print(text, end="")
    return 0


def page(root: Parser) -> str:
    """The page parax(1), in UTF-8."""
    verbs = root.verbs()
    lines = [
        f'.TH PARAX 1 "" "parax {__version__}" "User Commands"',
        ".SH NAME", r"parax, paraxc \- compile ONNX models to native code and run them",
        ".SH SYNOPSIS", ".B parax", r"\fIVERB\fR [\fIoptions\fR]", ".br",
        ".B paraxc", r"[\fIoptions\fR] \fIMODEL.onnx\fR",
        ".SH DESCRIPTION", _text(root.description or ""),
        "Results go to stdout; messages, progress and errors to stderr.",
        ".B paraxc", "is the same as", '.BR "parax compile" .',
        ".SH VERBS",
    ]  # fmt: skip
    for name in verbs:
        lines += [".TP", f".B {_text(name)}", _text(root.summary(name))]
    lines += ['.SH "OPTIONS OF EVERY VERB"', *_of_every_verb(verbs[NAME])]
    for name, verb in verbs.items():
        lines += _of_verb(name, verb)
    lines += [".SH EXIT STATUS", ".nf", *(_text(line) for line in _exit_codes(root)), ".fi", ".SH ENVIRONMENT"]
    for variable in env.VARIABLES.values():
        lines += [".TP", f".B {_text(variable.name)}", _text(variable.doc)]
    lines += [".SS The ladder of PARAX_DEBUG"]
    lines += [line for level, text in env.DEBUG_LADDER.items() for line in (".TP", f".B {level}", _text(text))]
    return "\n".join(lines) + "\n"


def _of_every_verb(verb: Parser) -> list[str]:
    """Those that all have."""
    groups = verb.groups()
    actions = [a for title, actions in groups for a in actions if title == OUTPUT or a.dest == "help"]
    return [line for action in actions for line in _entry(action, verb)]


def _of_verb(name: str, verb: Parser) -> list[str]:
    lines = [f'.SH "OPTIONS OF {_text(name.upper())}"', f".B {_text(verb.usage or '')}"]
    for title, actions in verb.groups():
        own = [line for action in actions if action.dest != "help" for line in _entry(action, verb)]
        if own and title != OUTPUT:
            lines += own if title == "options" else [f'.SS "{_text(title)}"', *own]
    return lines


def _entry(action: argparse.Action, verb: Parser) -> list[str]:
    told = verb.told(action)
    return [".TP", _flags(action), _text(told)] if told else []


def _flags(action: argparse.Action) -> str:
    """`-o FILE, --output FILE`, flags bold and what they take in italics."""
    takes = ""
    if action.nargs != 0:
        choices = "|".join(map(str, action.choices or ()))
        takes = rf" \fI{_text(str(action.metavar or choices or action.dest.upper()))}\fR"
    return ", ".join(rf"\fB{_text(flag)}\fR{takes}" for flag in action.option_strings)


def _exit_codes(root: Parser) -> list[str]:
    """The lines of the parser's epilog behind `exit codes:`."""
    return (root.epilog or "").partition("exit codes:\n")[2].splitlines()


def _text(text: str) -> str:
    """The text with what roff would read otherwise made literal."""
    for letter, name in _LITERALS.items():
        text = text.replace(letter, name)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)
