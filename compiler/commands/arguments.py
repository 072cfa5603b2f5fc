"""Argument types and the flags that every verb has. Owns the command line's spelling; knows nothing of the work."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from ... import env
from ...errors import UsageError
from ..options import FP_LEVELS, HINTS, MODES, PRECISIONS, RANGES, WEIGHT_BLOCKS, CompileOptions, documentation

_UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40,
}  # fmt: skip

PLANNING, CODE, PRECISION, WORK = "the plan", "the code", "precision", "the compilation's own work"
"""Groups of `add_compile_options`."""
OUTPUT = "output"  # the group of `add_common`


def _wrong(expected: str, found: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(f"expected {expected}, found {found!r}")


def shape(text: str) -> tuple[str, tuple[int | str, ...]]:
    """`x:1x3x224x224` or `x:N,3,224,224`, `x:` for a scalar. The name ends at the last colon, for `input:0:1x3`."""
    name, colon, sizes = text.rpartition(":")
    entries = sizes.split("," if "," in sizes else "x") if sizes else []
    if not colon or not name or not all(re.fullmatch(r"\d+|[A-Za-z_]\w*", entry) for entry in entries):
        raise _wrong("NAME:1x3x224x224 or NAME:N,3,224,224", text)
    return name, tuple(int(entry) if entry.isdigit() else entry for entry in entries)


def dim(text: str) -> tuple[str, int | tuple[int, int]]:
    """`N=8` or `N=1..64`."""
    symbol, _, size = text.rpartition("=")
    match = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", size)
    if not symbol or not match:
        raise _wrong("SYMBOL=8 or SYMBOL=1..64", text)
    least, greatest = match.groups()
    return symbol, int(least) if greatest is None else (int(least), int(greatest))


def assignment(text: str) -> tuple[str, str]:
    """`x=@x.npy`: a tensor's name and where its value is or goes."""
    name, equals, value = text.partition("=")
    if "=@" in text:
        name, equals, value = text.partition("=@")
        value = "@" + value
    if not name or not equals or not value:
        raise _wrong("NAME=@FILE.npy", text)
    return name, value


def state(text: str) -> tuple[str, str]:
    """`past=present`: an input, and the output that the next call finds there."""
    given, equals, kept = text.partition("=")
    if not (given and equals and kept):
        raise _wrong("past=present, or past.*=present.*", text)
    return given, kept


def nbytes(text: str) -> int:
    """`8GiB`, `500MB`, `1024`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if not match or match[2].upper() not in _UNITS:
        raise _wrong("a size like 8GiB", text)
    return int(float(match[1]) * _UNITS[match[2].upper()])


def cores(text: str) -> tuple[int, ...]:
    """`0-31` or `0,2,4-7`."""
    try:
        return env.parse_cores(text)
    except ValueError as error:
        raise _wrong(str(error), text) from error


def positive(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise _wrong("a whole number, at least 1", text)
    return int(text)


def natural(text: str) -> int:
    """A whole number, at least 0."""
    if not text.isdigit():
        raise _wrong("a whole number, at least 0", text)
    return int(text)


def share(text: str) -> float:
    """`0.5%` or `0.005`: a share of at least zero."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise _wrong("a share like 0.5% or 0.005", text)
    return value


def seconds(text: str) -> float:
    """A duration above zero, in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise _wrong("seconds, above 0", text)
    return value


def add_common(parser: argparse.ArgumentParser) -> None:
    """The flags of every verb: --format, -v, -q."""
    group = parser.add_argument_group(OUTPUT)
    group.add_argument("--format", choices=("table", "json"), default="table", help="how results go to stdout")
    loudness = group.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="count", default=0, help="tell more on stderr; tracebacks")
    loudness.add_argument("-q", "--quiet", action="store_true", help="only errors on stderr")


def milliseconds(text: str) -> float:
    """A duration of at least zero, in milliseconds; the value is in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise _wrong("milliseconds, 0 or more", text)
    return value / 1e3


def _helps() -> dict[str, str]:
    """The options' doc lines as flags say them: None is a flag left out."""
    return {name: line.replace("None: ", "default: ") for name, line in documentation().items()}


def add_delay(parser: argparse._ActionsContainer) -> None:
    """--delay-groups and --delay-ms: when the instances that share a request begin."""
    doc = _helps()
    parser.add_argument("--delay-groups", type=positive, metavar="N", help=doc["delay_groups"])
    parser.add_argument("--delay-ms", type=milliseconds, metavar="T", help="how much later than the group before each "
                        "of these begins, in milliseconds")  # fmt: skip


def session_delay(args: argparse.Namespace) -> tuple[int, float] | None:
    """The flags of `add_delay` for `plan.session`; None: as the plan says.

    Raises:
        UsageError: one of them without the other.
    """
    groups, late = args.delay_groups, args.delay_ms
    if (late is None) != (groups in (None, 1)):
        raise UsageError("only together", where="--delay-groups, --delay-ms", found=f"{groups}, {late}")
    return None if groups is None else (groups, late or 0.0)


def add_sizes(parser: argparse._ActionsContainer) -> None:
    """--shape and --dim, for verbs that need a model's sizes."""
    parser.add_argument("--shape", type=shape, action="append", default=[], metavar="NAME:1x3x224x224",
                        help="an input's shape; repeatable")  # fmt: skip
    parser.add_argument("--dim", type=dim, action="append", default=[], metavar="SYMBOL=8|1..64",
                        help="a symbolic dimension's size, or its bounds; repeatable")  # fmt: skip


def add_fp(parser: argparse._ActionsContainer) -> None:
    """--fp: what kernels may do to sums of products."""
    doc = _helps()
    parser.add_argument(
        "--fp", choices=FP_LEVELS, default="default",
        help="how sums of products may be computed: default: every row of a product, and every tile of a convolution, "
             f"keeps an error bound of its own; strict: {doc['strict_fp']}; fast: {doc['fast_fp']}")  # fmt: skip


def add_compile_options(parser: argparse.ArgumentParser) -> None:
    """What CompileOptions holds, as flags (compile, and every verb that compiles a model on the way)."""
    sizes = parser.add_argument_group("sizes")
    add_sizes(sizes)
    sizes.add_argument("--state", type=state, action="append", default=[], metavar="PAST=PRESENT",
                       help=_helps()["state"])  # fmt: skip
    sizes.add_argument("--override", action="append", default=[], metavar="NAME", help=_helps()["overridable"])
    _add_planning(parser.add_argument_group(PLANNING))
    _add_code(parser.add_argument_group(CODE))
    _add_precision(parser.add_argument_group(PRECISION))
    _add_work(parser.add_argument_group(WORK))


def _add_planning(group: argparse._ArgumentGroup) -> None:
    doc, default = _helps(), CompileOptions()
    group.add_argument("--hint", choices=HINTS, default=default.hint, help=f"{doc['hint']} (default {default.hint})")
    group.add_argument("--mode", choices=MODES, default=default.mode, help=f"{doc['mode']} (default {default.mode})")
    group.add_argument("--cores", type=cores, metavar="0-31", help=doc["cores"])
    group.add_argument("--instances", type=positive, metavar="N", help=doc["instances"])
    add_delay(group)
    group.add_argument("--no-calibrate", action="store_true", help="do not measure this machine where nobody did: plan "
                       "by a guess")  # fmt: skip


def _add_code(group: argparse._ArgumentGroup) -> None:
    doc, default = _helps(), CompileOptions()
    group.add_argument(
        "-O",
        dest="opt_level",
        type=int,
        choices=range(4),
        default=default.opt_level,
        help=f"{doc['opt_level']} (default {default.opt_level})",
    )
    group.add_argument("--passes", metavar="NAME{OPTION=VALUE},…", help=doc["passes"].replace("default: ", ""))
    group.add_argument("--print-after", action="append", metavar="NAME|all", help=f"{doc['print_after']}; repeatable")
    group.add_argument(
        "--target", action="append", metavar="NAME", help=f"{doc['targets']} (default {default.targets[0]}); repeatable"
    )
    add_fp(group)
    group.add_argument("--tune-seconds", type=seconds, metavar="S",
                       help=f"{doc['tune_seconds']} (default {default.tune_seconds:g})")  # fmt: skip


def _add_precision(group: argparse._ArgumentGroup) -> None:
    doc, default = _helps(), CompileOptions()
    group.add_argument("--precision", choices=PRECISIONS, default=default.precision,
                       help=f"{doc['precision']} (default {default.precision})")  # fmt: skip
    group.add_argument("--calibrate", type=Path, metavar="DATA", help=doc["calibration"])
    group.add_argument("--max-accuracy-drop", type=share, default=default.max_accuracy_drop, metavar="0.5%",
                       help=f"{doc['max_accuracy_drop'].removesuffix(', as a share')} (default "
                            f"{100 * default.max_accuracy_drop:g}%%)")  # fmt: skip
    group.add_argument("--metric", default=default.metric, metavar="NAME|SCRIPT.py",
                       help=f"{doc['metric']} (default {default.metric})")  # fmt: skip
    group.add_argument("--ranges", choices=RANGES, default=default.ranges,
                       help=f"{doc['ranges'].replace('%', '%%')} (default {default.ranges})")  # fmt: skip
    group.add_argument("--weight-block", type=int, choices=WEIGHT_BLOCKS, default=default.weight_block, metavar="N",
                       help=f"{doc['weight_block']} (default {default.weight_block})")  # fmt: skip


def _add_work(group: argparse._ArgumentGroup) -> None:
    doc, default = _helps(), CompileOptions()
    group.add_argument("--jobs", type=positive, metavar="N", help=doc["jobs"])
    group.add_argument("--max-memory", type=nbytes, metavar="8GiB", help=doc["max_memory"].removesuffix(", in bytes"))
    cache = group.add_mutually_exclusive_group()
    cache.add_argument("--cache-dir", type=Path, metavar="DIR",
                       help=f"where measured times and compiled code are kept (default {default.cache_dir})")
    cache.add_argument("--no-cache", action="store_true", help=f"do not {doc['cache']}")
    group.add_argument("--profile", action="store_true", help=doc["profile"])
    group.add_argument("--dump", type=Path, metavar="DIR", help=doc["dump"])


def compile_options(args: argparse.Namespace) -> CompileOptions:
    """CompileOptions from the flags of `add_compile_options` (flags left out keep the default or the environment's)."""
    given = {
        "cores": args.cores, "instances": args.instances, "targets": tuple(args.target) if args.target else None,
        "passes": args.passes, "print_after": tuple(args.print_after) if args.print_after else None,
        "dump": args.dump, "jobs": args.jobs, "cache_dir": args.cache_dir, "max_memory": args.max_memory,
        "calibrate": False if args.no_calibrate else None,
        "tune_seconds": args.tune_seconds, "delay_groups": args.delay_groups, "delay_seconds": args.delay_ms,
    }  # fmt: skip
    return CompileOptions(
        opt_level=args.opt_level, shapes=dict(args.shape), dims=dict(args.dim), overridable=tuple(args.override),
        state=dict(args.state),
        hint=args.hint, mode=args.mode, precision=args.precision, calibration=args.calibrate,
        max_accuracy_drop=args.max_accuracy_drop, metric=args.metric, ranges=args.ranges,
        weight_block=args.weight_block, strict_fp=args.fp == "strict",
        fast_fp=args.fp == "fast", cache=not args.no_cache, profile=args.profile,
        **{name: value for name, value in given.items() if value is not None},
    )  # fmt: skip


def add_batch_window(parser: argparse._ActionsContainer) -> None:
    """--batch-window: how long a request may wait for others."""
    parser.add_argument("--batch-window", type=milliseconds, metavar="MS",
                        help="batch requests that find no instance free, which may wait so many milliseconds for "
                             "others; 0: only those that wait already (default: each runs alone)")  # fmt: skip


def add_session(parser: argparse.ArgumentParser) -> None:
    """How a plan's session is set up: its instances and cores, --mode, when instances begin, and limits."""
    group = parser.add_argument_group("session")
    group.add_argument("--instances", type=positive, metavar="N", help="instances (default: as the plan hints)")
    group.add_argument("--cores-per-instance", type=positive, metavar="X", help="cores of one instance")
    group.add_argument("--cores", type=cores, metavar="0-31", help="the cores to use (default: all that are allowed)")
    group.add_argument("--mode", choices=MODES[1:], help="how the cores of an instance work together, where the "
                       "plan has a program for it (default: as it was compiled)")  # fmt: skip
    add_delay(group)
    add_batch_window(group)
    group.add_argument("--max-memory", type=nbytes, metavar="8GiB", help="the most memory for weights, arenas and all "
                       "that a request makes (default: the plan's, else what the machine leaves)")  # fmt: skip
    group.add_argument("--max-seconds", type=seconds, metavar="S",
                       help="the time after which a request's loops give up (default: never)")  # fmt: skip


def session_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of `plan.session` from the flags of `add_session`; what was not given is left out."""
    names = ("instances", "cores_per_instance", "cores", "mode", "max_memory", "max_seconds", "batch_window")
    given = {name: getattr(args, name) for name in names}
    return {name: value for name, value in (given | {"delay": session_delay(args)}).items() if value is not None}


def fixed_dims(dims: list[tuple[str, int | tuple[int, int]]]) -> dict[str, int]:
    """--dim values where a range makes no sense.

    Raises:
        UsageError: one is a range.
    """
    for symbol, size in dims:
        if not isinstance(size, int):
            raise UsageError("one size is needed here", where=f"--dim {symbol}", found=f"{size[0]}..{size[1]}")
    return {symbol: size for symbol, size in dims if isinstance(size, int)}
