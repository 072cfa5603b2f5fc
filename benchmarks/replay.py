"""`python -m benchmarks.replay`: does a refactor change the generated code? Compares every kernel's LLVM IR.

Compiles the model list up to LLVM assembly (no machine code, so it takes seconds a model) and compares it, kernel by
kernel, with an earlier run's file or with another commit's compiler. Kernels are matched by content, so that a new
order or number is no change.

    python -m benchmarks.replay --against HEAD              the working tree against the last commit
    python -m benchmarks.replay --save before.json          then later: --against before.json

Exit code 1 where a kernel changed.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

from examples.models import MODELS, build
from parax.compiler.compilation import Compilation
from parax.compiler.driver import import_graph, lower, optimise
from parax.compiler.options import CompileOptions
from parax.errors import ParaxError, UsageError
from parax.files import write_whole

from .cases import ROOT
from .command import command_line, finish, new_file

TARGETS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
Kernels: TypeAlias = "list[tuple[str, str]]"
"""(name without its running number, LLVM assembly) of every function of a module."""
Replay: TypeAlias = "dict[str, dict[str, Kernels]]"
"""Model → target → kernels."""

_FUNCTION = re.compile(r"^define [^@\n]*@([\w.]+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_NUMBERED = re.compile(r"@([A-Za-z_]\w*?)_\d+\b")


def kernels_of(module: str) -> Kernels:
    """The functions of a module in LLVM assembly; running numbers at the end of names are taken off everywhere."""
    found = []
    for match in _FUNCTION.finditer(module):
        text = _NUMBERED.sub(r"@\1", match[0])
        found.append((re.sub(r"_\d+$", "", match[1]), text))
    return found


def replay(names: Sequence[str], targets: Sequence[str], small: bool) -> Replay:
    """Kernels of models of the list for each target. A model that does not compile has one "kernel": its error."""
    result: Replay = {}
    for name in names:
        model = build(name, small=small)
        result[name] = {}
        for target in targets:
            options = CompileOptions(targets=(target,), cache=False)
            run = Compilation(options, lambda phase, fraction: None)
            try:
                graph = import_graph(model, options)
                optimise(graph, run)
                module, _ = lower(graph, run).modules[target]
            except ParaxError as error:
                result[name][target] = [("error", str(error))]
            else:
                result[name][target] = kernels_of(module)
        print(f"{name}: {sum(map(len, result[name].values()))} functions", file=sys.stderr, flush=True)
    return result


def changes(before: Replay, after: Replay) -> Iterator[tuple[str, Kernels, Kernels]]:
    """(model and target, kernels that are gone, kernels that are new) where there are any; by content, with counts."""
    for name, target in _places(before, after):
        old, new = (each.get(name, {}).get(target, []) for each in (before, after))
        gone, fresh = _beyond(old, new), _beyond(new, old)
        if gone or fresh:
            yield f"{name} {target}", gone, fresh


def report(place: str, gone: Kernels, fresh: Kernels, total: int) -> str:
    """One line: how many kernels of each name went and came."""
    lost, won = (Counter(name for name, _ in kernels) for kernels in (gone, fresh))
    parts = [f"{name} −{lost[name]} +{won[name]}" for name in sorted({*lost, *won})]
    return f"{place}: of {total} functions {len(gone)} gone, {len(fresh)} new: {', '.join(parts)}"


def differences(gone: Kernels, fresh: Kernels, most: int) -> Iterator[str]:
    """Unified diffs of at most so many pairs of kernels of the same name."""
    waiting = list(fresh)
    for name, old in gone:
        pair = next((each for each in waiting if each[0] == name), None)
        if pair is None or not most:
            continue
        waiting.remove(pair)
        most -= 1
        yield "\n".join(difflib.unified_diff(old.splitlines(), pair[1].splitlines(), name, name, lineterm="", n=2))


def of_commit(revision: str, args: argparse.Namespace) -> Replay:
    """The replay by the compiler of another commit, with the models and this tool as they are now.

    Raises:
        UsageError: git does not know it, or its compiler is too old for this tool.
    """
    with tempfile.TemporaryDirectory(prefix="parax-replay-") as folder:
        site, out = Path(folder) / "site", Path(folder) / "replay.json"
        archive = subprocess.run(
            ["git", "archive", revision, "parax", "compiler", "runtime"], cwd=ROOT, capture_output=True, check=False
        )
        if archive.returncode:
            raise UsageError("git has no such commit", where=f"--against {revision}", found=archive.stderr.decode())
        with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
            tar.extractall(site, filter="data")
        for room in ("compiler", "runtime"):  # the layout of an installed parax, so that this one shadows ours
            (site / room).rename(site / "parax" / room)
        for package in ("benchmarks", "examples"):
            (site / package).symlink_to(ROOT / package)
        command = [sys.executable, "-m", "benchmarks.replay", "--save", str(out), "--texts"]
        command += ["--models", *args.models, "--targets", *args.targets, *(["--small"] if args.small else [])]
        done = subprocess.run(command, cwd=site, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise UsageError("that commit's compiler does not run", where=f"--against {revision}",
                             found=done.stderr.strip()[-600:])  # fmt: skip
        return _read(out)


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit code."""
    args = _arguments(argv)
    before: Replay | None = None
    if args.against:
        path = Path(args.against)
        before = _read(path) if path.is_file() else of_commit(args.against, args)
        before = {name: {target: before[name][target] for target in args.targets if target in before[name]}
                  for name in args.models if name in before}  # fmt: skip
    after = replay(args.models, args.targets, args.small)
    if args.save:
        write_whole(args.save, json.dumps(after if args.texts else _hashed(after), indent=1))
    if before is None:
        return 0
    # a file may hold hashes only: then both sides are compared by hash and no diff can be shown
    has_texts = any(len(text) != _HASH_LENGTH for kernels in _lists(before) for _, text in kernels)
    changed = list(changes(before, after if has_texts else _hashed(after)))
    for place, gone, fresh in changed:
        name, target = place.split()
        print(report(place, gone, fresh, len(after[name][target])))
        for text in differences(gone, fresh, args.show if has_texts else 0):
            print(text)
    n = sum(map(len, _lists(after)))
    print(f"{n} functions of {len(after)} models, {len(changed)} of {len(args.targets) * len(after)} modules changed")
    return 1 if changed else 0


_HASH_LENGTH = hashlib.sha256().digest_size * 2


def _hashed(kernels: Replay) -> Replay:
    return {
        name: {t: [(k, hashlib.sha256(text.encode()).hexdigest()) for k, text in each] for t, each in modules.items()}
        for name, modules in kernels.items()
    }


def _lists(kernels: Replay) -> Iterator[Kernels]:
    for modules in kernels.values():
        yield from modules.values()


def _read(path: Path) -> Replay:
    raw: Mapping[str, Mapping[str, list[list[str]]]] = json.loads(path.read_text())
    return {
        name: {target: [(kernel, text) for kernel, text in each] for target, each in modules.items()}
        for name, modules in raw.items()
    }


def _places(before: Replay, after: Replay) -> Iterator[tuple[str, str]]:
    yield from dict.fromkeys((name, target) for each in (before, after) for name in each for target in each[name])


def _beyond(kernels: Kernels, others: Kernels) -> Kernels:
    """Those of `kernels` that `others` does not have as often."""
    spare = Counter(others)
    beyond = []
    for each in kernels:
        if spare[each]:
            spare[each] -= 1
        else:
            beyond.append(each)
    return beyond


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = command_line("replay", __doc__)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS), metavar="NAME",
                        help="of the model list (default: all)")
    parser.add_argument("--targets", nargs="+", default=list(TARGETS[:2]), choices=TARGETS, metavar="TARGET",
                        help=f"of {', '.join(TARGETS)} (default: the first two)")
    parser.add_argument("--small", action="store_true", help="small editions of the models: faster")
    parser.add_argument("--against", metavar="FILE|COMMIT", help="what to compare with")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="write every kernel's hash there")
    parser.add_argument("--texts", action="store_true", help="with --save: whole kernels instead of hashes")
    parser.add_argument("--show", type=int, default=1, metavar="N", help="diffs to print per module (default 1)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    finish(main)
