"""`parax` and `paraxc`: which verb runs, and what every verb shares: exit codes, error messages, signals.

Owns the way out of the process; knows nothing of what the verbs do (they are in `commands/`).
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn, Protocol

from .. import __version__, env
from ..errors import InternalError, UsageError, as_parax_error
from .commands import (
    arguments,
    bench,
    compare,
    completion,
    doctor,
    inspect,
    man,
    operators,
    passes,
    plan,
    profile,
    reduce,
    run,
    train,
    verify,
)
from .commands import compile as compile_verb
from .commands.console import Console
from .commands.models import without_pipes
from .commands.parser import Parser, did_you_mean

# For how many ticks, 2 to the power of this, a thread of numpy's OpenBLAS looks for work before it sleeps: from numpy's
# import on, on the cores that give the first result meanwhile. OpenBLAS, whose own 28 are 0.1 s, reads it when loaded.
SPIN_VARIABLE, SPIN_EXPONENT = "OPENBLAS_THREAD_TIMEOUT", "4"
# After how many new objects, and collections of younger ones, Python looks for cycles in the process of a command: its
# own 700, 10, 10 take a fifth of a compilation, whose objects live until its end.
COLLECTIONS = 50_000, 20, 100
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143
EXIT_CODES = """exit codes:
  0 ok                              4 invalid, corrupt or incompatible file
  1 internal failure                5 accuracy mismatch
  2 usage                           6 resource limit or timeout
  3 unsupported operator or type    130 interrupted, 143 terminated"""


class Verb(Protocol):
    """What a module of `commands/` offers."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's own options."""
        ...

    def execute(self, args: argparse.Namespace, console: Console) -> int:
        """Do it; the exit code."""
        ...


VERBS: tuple[Verb, ...] = (
    compile_verb, run, train, bench, profile, compare, inspect, operators, passes, plan, verify, reduce, doctor,
    completion, man,
)  # fmt: skip
HELP_VERB = "help"


class Terminated(BaseException):
    """SIGTERM arrived. Not an Exception, like KeyboardInterrupt: clean-up runs and no handler takes it for an error."""


def main(argv: Sequence[str] | None = None) -> int:
    """`parax VERB …`; returns the exit code."""
    return _guarded(_parse_parax, argv)


def paraxc(argv: Sequence[str] | None = None) -> int:
    """`paraxc MODEL.onnx …`, the same as `parax compile …`; returns the exit code."""
    return _guarded(lambda words: paraxc_parser().parse_args(words), argv)


def _parse_parax(words: Sequence[str]) -> argparse.Namespace:
    """`help VERB` is `VERB --help`; a verb that there is not is answered with the verbs that there are."""
    known = [*(verb.NAME for verb in VERBS), HELP_VERB]
    if words[:1] == [HELP_VERB]:
        words = [*words[1:], "--help"]
    first = words[0] if words else "-"
    if first not in known and not first.startswith("-"):
        hint = did_you_mean(first, known)
        if os.path.isfile(first):
            hint = f"did you mean `parax run {first}` or `parax inspect {first}`?"
        raise UsageError(f"no such verb: {first}", where="parax", hint=hint or f"there are {', '.join(known)}")
    return parax_parser().parse_args(words)


def parax_parser() -> Parser:
    """The parser of `parax`, with a parser for each verb."""
    parser = Parser(
        prog="parax",
        description="Compile ONNX models to native code and run them.",
        epilog=f"`parax VERB --help` lists a verb's options.\n\n{EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"parax {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        _fill(verbs.add_parser(verb.NAME, help=verb.HELP, description=verb.HELP), verb, parser)
    of_help = verbs.add_parser(HELP_VERB, help="show the options of a verb")
    of_help.add_argument("of", nargs="?", metavar="VERB", choices=[verb.NAME for verb in VERBS])
    of_help.complete()
    return parser


def paraxc_parser() -> Parser:
    """The parser of `paraxc`."""
    parser = Parser(prog="paraxc", description=compile_verb.HELP, epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"paraxc {__version__}")
    _fill(parser, compile_verb, parser)
    return parser


def _fill(parser: Parser, verb: Verb, root: Parser) -> None:
    verb.add_arguments(parser)
    arguments.add_common(parser)
    parser.set_defaults(verb=verb, root=root)
    parser.complete(aside=() if verb is compile_verb else (arguments.PLANNING, arguments.CODE, arguments.WORK))


def _guarded(parse: Callable[[Sequence[str]], argparse.Namespace], argv: Sequence[str] | None) -> int:
    """Parse and run; whatever happens becomes one message on stderr and the right exit code."""
    verbose, console = 0, Console()
    os.environ.setdefault(SPIN_VARIABLE, SPIN_EXPONENT)
    try:
        with _sigterm_raises(), _seldom_collected():
            args = parse(sys.argv[1:] if argv is None else list(argv))
            verbose = args.verbose
            if args.verb is not doctor:  # which reports them instead
                env.check()
            console = Console(args.format, args.quiet, args.verbose)
            with console.following(), without_pipes(args) as console.names:
                code: int = args.verb.execute(args, console)
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Terminated:
        return TERMINATED
    except BrokenPipeError:
        # Whoever read stdout has left (`parax … | head`); Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except Exception as error:
        message, code = _explain(error)
        print(f"error: {console.named(message)}", file=sys.stderr)
        if verbose:
            traceback.print_exception(error, file=sys.stderr)
        return code


def _explain(error: Exception) -> tuple[str, int]:
    """The one message and the exit code of an error that ended a command."""
    known = as_parax_error(error)
    if isinstance(known, InternalError):
        return f"{known}; please report it with the output of the same command under -v", known.exit_code
    return str(known), known.exit_code


@contextmanager
def _seldom_collected() -> Iterator[None]:
    """Python looks for cycles of objects more seldom while the body runs."""
    before = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """SIGTERM becomes an exception while the body runs, so that temporary files are removed."""

    def handler(signum: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    try:
        previous = signal.signal(signal.SIGTERM, handler)
    except ValueError:  # not the main thread: called as a function, and signals are not ours
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
