"""What every `python -m benchmarks.NAME` shares: how its help looks, files that it will write, an error in one line."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from parax.compiler.cli import TERMINATED
from parax.errors import ParaxError, UsageError
from parax.files import check_writable, write_whole

from .children import Record


def command_line(name: str, description: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.NAME`; the description keeps its lines."""
    layout = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m benchmarks.{name}", description=description, formatter_class=layout)


def repeating(name: str, args: argparse.Namespace, defaults: argparse.Namespace, options: Sequence[str]) -> str:
    """The command that repeats a measurement: those of the options that are not as by default."""
    words = ["python", "-m", f"benchmarks.{name}"]
    for option in options:
        value = getattr(args, option)
        if value != getattr(defaults, option):
            words.append("-O" if option == "opt_level" else f"--{option}")
            words += [] if value is True else map(str, value) if isinstance(value, list) else [str(value)]
    return shlex.join(words)


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """The options of whatever compiles models of the list and measures them in processes of their own."""
    parser.add_argument("--small", action="store_true", help="small editions: a test of the tool, no measurement")
    parser.add_argument("--flags", nargs="*", default=[], metavar="FLAG", help="for paraxc (default: none)")
    parser.add_argument("--timeout", type=float, default=900.0, metavar="S", help="of each process (default 900)")
    parser.add_argument("--json", type=new_file, metavar="OUT", help="write every figure there")


def measure_each(args: argparse.Namespace, document: Record, measure: Callable[[str, Path], Record]) -> None:
    """Every model of the list that is asked for, in a folder of its own, into document["models"]; --json is written
    after each, so that what was measured is kept whatever comes."""
    for name in args.models:
        with tempfile.TemporaryDirectory(prefix=f"parax-{name}-") as folder:
            document["models"][name] = measure(name, Path(folder))
        print(f"{name}: {document['models'][name].get('problem') or 'measured'}", file=sys.stderr, flush=True)
        if args.json:
            write_whole(args.json, json.dumps(document, indent=1))


def new_file(text: str) -> Path:
    """An argument's type: a file to write, refused before the work where it cannot be written."""
    path = Path(text)
    try:
        check_writable(path)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def finish(main: Callable[[], int | None]) -> NoReturn:
    """Run the entry point and leave with its exit code, or with an error's one message and code.

    SIGTERM ends it as an exception does, so that what it has made outside of its own process is removed.
    """
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        sys.exit(main())
    except ParaxError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    finally:
        signal.signal(signal.SIGTERM, before)
