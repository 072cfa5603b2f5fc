"""`python -m examples.models NAME -o FILE`: writes models of the list. Owns the command line only."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from parax.files import write_whole

from . import DEFAULT_LENGTH, MODELS, build, options_of
from .count import count


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code (2: usage)."""
    parser = argparse.ArgumentParser(prog="python -m examples.models", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(MODELS), metavar="NAME", help="a model of --list")
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: NAME.onnx)")
    parser.add_argument("--list", action="store_true", help="list the models with parameters, flops and options")
    parser.add_argument("--all", type=Path, metavar="DIR", help="write every model to DIR/NAME.onnx")
    parser.add_argument("--batch", type=_int_or_symbol, default="N", help="batch size (default: the symbol N)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default: 0)")
    parser.add_argument("--small", action="store_true", help="the small edition: same operators, fewer of them")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", type=_option, help="change an option, e.g. size=299"
    )
    args = parser.parse_args(argv)
    if args.list:
        return _list(args.small)
    if args.all:
        args.all.mkdir(parents=True, exist_ok=True)
        for name in MODELS:
            _write(name, args.all / f"{name}.onnx", args)
        return 0
    if not args.name:
        parser.error("a NAME, --all or --list is required")
    try:
        _write(args.name, args.output or Path(f"{args.name}.onnx"), args)
    except KeyError as error:
        parser.error(str(error.args[0]))
    return 0


def _write(name: str, path: Path, args: argparse.Namespace) -> None:
    start = time.perf_counter()
    model = build(name, batch=args.batch, seed=args.seed, small=args.small, options=dict(args.set))
    write_whole(path, model.SerializeToString(deterministic=True))
    megabytes = path.stat().st_size / 1e6
    print(f"{path}  {megabytes:.1f} MB  {time.perf_counter() - start:.1f} s", file=sys.stderr)


def _list(small: bool) -> int:
    print(f"{'name':<16}{'parameters':>12}{'flop/item':>12}  about; options")
    for name, row in MODELS.items():
        values = options_of(name, small=small)
        sizes = {size for spec in row.inputs for size in spec.shape}
        static = {key: DEFAULT_LENGTH for key, value in values.items() if key in sizes and isinstance(value, str)}
        parameters, flops = count(build(name, batch=1, small=small, options=static))
        options = " ".join(f"{key}={value}" for key, value in values.items())
        print(f"{name:<16}{parameters / 1e6:>10.2f} M{flops / 1e9:>10.3f} G  {row.about}; {options}")
    return 0


def _int_or_symbol(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _option(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return key, {"true": True, "false": False}.get(value.lower(), _int_or_symbol(value))


if __name__ == "__main__":
    sys.exit(main())
