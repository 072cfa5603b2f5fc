"""CompileOptions: every choice a user has when compiling, with default, doc line and check.

The Python API and the command line are both made from this table. Knows nothing of how an option is honoured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import env
from ..errors import UsageError

HINTS = ("throughput", "latency")
MODES = ("auto", "sequential", "layered", "pipelined")
FULL = "fp32"
HALF, BYTES, AUTO = "bf16", "int8", "auto"
ROUNDED_WEIGHTS = "fp16"
WEIGHTS_ONLY = {ROUNDED_WEIGHTS: 16, "int8-weights": 8, "int4-weights": 4}  # bits of a weight
PRECISIONS = (FULL, HALF, BYTES, *WEIGHTS_ONLY, AUTO)
WEIGHT_BLOCKS = (16, 32, 64, 128, 256)
RANGES = ("minmax", "percentile", "entropy", "best")
MATMUL_INPUTS = ("f32", "bf16")
FP_LEVELS = ("strict", "default", "fast")
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _doc(line: str) -> dict[str, str]:
    return {"doc": line}


def _hidden(line: str) -> dict[str, str]:
    """Of an option that is neither documented nor a flag: what it is for is not whole yet."""
    return {"hidden": line}


@dataclass(frozen=True)
class CompileOptions:
    """The choices of one compilation; immutable, checked when made.

    Raises:
        UsageError: a value is outside what its doc line says.
    """

    opt_level: int = field(
        default=2, metadata=_doc("optimisation level: 0 none, 1 local, 2 everything that pays, 3 also slow searches")
    )
    passes: str | None = field(
        default=None,
        metadata=_doc("passes of the graph, in the place of the optimisation level's: names and options like "
                      "'dead-code,fuse-elementwise{max_nodes=8}'; parax passes lists them"),
    )  # fmt: skip
    print_after: tuple[str, ...] = field(
        default=(), metadata=_doc("print the graph on stderr after each of these passes, or all, where it changed it")
    )
    shapes: Mapping[str, tuple[int | str, ...]] = field(
        default_factory=dict, metadata=_doc("input name → its shape; an entry is a size or the name of a symbol")
    )
    dims: Mapping[str, int | tuple[int, int]] = field(
        default_factory=dict, metadata=_doc("symbol → its size, or (least, greatest) to keep it open within bounds")
    )
    overridable: tuple[str, ...] = field(
        default=(),
        metadata=_doc("initializers that are also inputs of the model and that requests may give; the model's value is "
                      "the default, and nothing is computed from it when compiling"),
    )  # fmt: skip
    state: Mapping[str, str] = field(
        default_factory=dict,
        metadata=_doc("name of an input → of the output that the next call finds there, * for any text in both: the "
                      "plan keeps it in its memory, as a cache of keys and values, and calls run whole on all cores"),
    )  # fmt: skip
    hint: str = field(
        default="throughput",
        metadata=_doc("what to tune for: throughput (one instance a core) or latency (all cores on one)"),
    )
    mode: str = field(
        default="auto",
        metadata=_doc("how the cores of an instance work together: sequential (on one kernel after the other), layered "
                      "(on independent branches), pipelined (on stages of a batch), auto (what seems best)"),
    )  # fmt: skip
    cores: tuple[int, ...] | None = field(
        default=None, metadata=_doc("the cores to plan for; None: all that this process may use")
    )
    instances: int | None = field(
        default=None, metadata=_doc("instances that sessions of the plan start; None: chosen from hint and cores")
    )
    delay_groups: int | None = field(
        default=None,
        metadata=_doc("instances that share a request begin in so many groups, one after the other; 1: all at once; "
                      "None: as the planner measured"),
    )  # fmt: skip
    delay_seconds: float | None = field(
        default=None, metadata=_doc("how much later than the group before each of these begins, in seconds")
    )
    targets: tuple[str, ...] = field(
        default=(env.NATIVE,),
        metadata=_doc("CPUs to make code for: native, x86-64-v2, -v3, -v4 or aarch64; several make one plan for all"),
    )
    precision: str = field(
        default="fp32",
        metadata=_doc("number format of products with constant weights: fp32; bf16: all of them, with calibration data "
                      "if that does not lose too much; int8: all of them in 8 bits, or an error where that loses too "
                      "much; fp16, int8-weights, int4-weights: the weights alone, of MatMul and Gemm; auto: what keeps "
                      "the accuracy, if the plan is faster for it"),
    )  # fmt: skip
    calibration: Path | Mapping[str, Any] | None = field(
        default=None,
        metadata=_doc("data for precisions below fp32: a .npz file with an array for each input, a .npy file for a "
                      "model of one, or a folder of them; half of the samples find ranges, half judge the accuracy"),
    )  # fmt: skip
    max_accuracy_drop: float = field(
        default=0.005, metadata=_doc("how much of the accuracy a lower precision may lose, as a share")
    )
    metric: str = field(
        default="auto",
        metadata=_doc("what accuracy is: top1 (of labels, else of the fp32 model's classes), mse (by the mean square), "
                      "cosine, a script with a function score(outputs, inputs), auto (top1 with labels, else mse)"),
    )  # fmt: skip
    ranges: str = field(
        default="minmax",
        metadata=_doc("how activations' ranges follow from the data: minmax, percentile (of 99.99 % of the numbers), "
                      "entropy (what rounding tells least wrong), best (the one of them that loses least)"),
    )  # fmt: skip
    weight_block: int = field(
        default=32, metadata=_doc("weights that share a scale where weights alone are rounded: 16, 32, 64, 128 or 256")
    )
    matmul_input: str = field(
        default="f32",
        metadata=_hidden("what both operands of products by constant f32 matrices are rounded to, where the target has "
                         "tiles for it: f32 (not at all), bf16; see backend/microkernels/bf16.py for the error"),
    )  # fmt: skip
    rounds_computed: bool = field(
        default=False,
        metadata=_hidden("whether precision bf16 is of products by what is computed, too, as a training step's are: "
                         "see compiler/passes/block/round_products.py"),
    )  # fmt: skip
    strict_fp: bool = field(
        default=False, metadata=_doc("sum only the model's own products: no Winograd, no Strassen; slower")
    )
    fast_fp: bool = field(
        default=False,
        metadata=_doc("also a convolution's small groups as one, with zeros between them: an infinity reaches its "
                      "pixel's other groups"),
    )  # fmt: skip
    dump: Path | None = field(
        default_factory=lambda: env.read("PARAX_DUMP"),
        metadata=_doc("folder for the graph after every pass, the kernels, the LLVM IR and the assembly"),
    )
    jobs: int | None = field(default=None, metadata=_doc("threads that compile kernels; None: one per usable core"))
    cache: bool = field(
        default=True, metadata=_doc("keep and reuse measured machine facts, measured kernels and compiled code")
    )
    cache_dir: Path = field(default_factory=env.cache_dir, metadata=_doc("where they are kept"))
    calibrate: bool = field(
        default_factory=lambda: env.read("PARAX_CALIBRATE"),
        metadata=_doc("measure this machine at its first compilation, in a few seconds; what is measured is "
                      "kept in the cache, and choices rest on it"),
    )  # fmt: skip
    tune_seconds: float = field(
        default=30.0, metadata=_doc("what measuring candidate kernels may take at -O 3, in seconds")
    )
    profile: bool = field(
        default=False,
        metadata=_doc("have kernels record when they ran, for parax profile and Session.profile: each reads the "
                      "processor's cycle counter when it begins and ends"),
    )  # fmt: skip
    check: int = field(default=0, metadata=_doc("after compiling, compare this many random inputs with the reference"))
    max_memory: int | None = field(
        default=None,
        metadata=_doc("the most memory for constants made while compiling, and for weights, arenas and all that one "
                      "request makes when the plan runs, in bytes"),
    )  # fmt: skip

    def __post_init__(self) -> None:
        for name in ("dump", "cache_dir", "calibration"):  # people write paths as text
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, Path(value))
        _check_kinds(self)
        if self.state:  # a call is a whole, however many rows it has
            object.__setattr__(self, "hint", "latency")
        if self.opt_level not in range(4):
            raise UsageError("no such level", where="opt_level", expected="0, 1, 2 or 3", found=self.opt_level)
        _one_of("hint", self.hint, HINTS)
        _one_of("mode", self.mode, MODES)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("ranges", self.ranges, RANGES)
        _check_precision(self)
        _one_of("matmul_input", self.matmul_input, MATMUL_INPUTS)
        if self.strict_fp and self.matmul_input != "f32":
            raise UsageError("rounds the model's own products", where="strict_fp and matmul_input",
                             expected="f32, or not strict", found=self.matmul_input)  # fmt: skip
        if self.strict_fp and self.fast_fp:
            raise UsageError("only one of the two", where="strict_fp and fast_fp", expected="at most one of them true",
                             found="both")  # fmt: skip
        for name in ("instances", "delay_groups", "jobs", "max_memory"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("too small", where=name, expected="at least 1", found=value)
        _check_delay(self.delay_groups, self.delay_seconds)
        if self.state and self.check:
            raise UsageError("compares single calls", where="check and state", expected="at most one of them",
                             hint="check the model without state")  # fmt: skip
        if not self.tune_seconds >= 0:
            raise UsageError("negative", where="tune_seconds", expected="0 or more", found=self.tune_seconds)
        if self.check < 0:
            raise UsageError("negative", where="check", expected="0 or more", found=self.check)
        if not self.targets:
            raise UsageError("empty", where="targets", expected="at least one target, for example native")
        if self.cores is not None and not self.cores:
            raise UsageError("empty", where="cores", expected="at least one core number")
        for name, shape in self.shapes.items():
            for entry in shape:
                _check_entry(f"shape of {name}", entry)
        for symbol, size in self.dims.items():
            _check_dim(symbol, size)

    @property
    def fp(self) -> str:
        """The level of floating-point arithmetic, one of FP_LEVELS."""
        return "strict" if self.strict_fp else "fast" if self.fast_fp else "default"


def _check_precision(options: CompileOptions) -> None:
    drop = options.max_accuracy_drop
    if not isinstance(drop, (int, float)) or not 0 <= drop < float("inf"):
        raise UsageError("not a share", where="max_accuracy_drop", expected="0 or more; 0.005 is half a per cent",
                         found=repr(drop)[:200])  # fmt: skip
    if options.weight_block not in WEIGHT_BLOCKS:
        raise UsageError("no such choice", where="weight_block", expected=" or ".join(map(str, WEIGHT_BLOCKS)),
                         found=options.weight_block)  # fmt: skip
    if not isinstance(options.metric, str):
        raise UsageError("no text", where="metric", found=repr(options.metric)[:200])
    if not isinstance(options.calibration, (Path, Mapping, type(None))):
        raise UsageError("no data", where="calibration", expected="a path, or arrays by name",
                         found=repr(options.calibration)[:200])  # fmt: skip
    if options.precision != FULL and options.check:
        raise UsageError("a lower precision differs from the reference by design", where="check", found=options.check,
                         expected=f"precision {FULL}", hint="its own gate compares it with fp32")  # fmt: skip
    if options.precision == HALF and options.strict_fp:
        raise UsageError("rounds the model's own products", where="precision and strict_fp",
                         expected=f"precision {FULL}, or not strict", found=HALF)  # fmt: skip
    if options.precision not in (FULL, HALF, *WEIGHTS_ONLY) and options.calibration is None:
        raise UsageError("this precision needs calibration data", where="calibration", found="none",
                         expected="data as the model sees it in use", hint="give --calibrate DATA.npz")  # fmt: skip


def documentation() -> dict[str, str]:
    """Option name → its doc line, in the order of the class; without hidden options."""
    return {f.name: f.metadata["doc"] for f in fields(CompileOptions) if "doc" in f.metadata}


def _check_kinds(options: CompileOptions) -> None:
    """Whether the values are of the kinds that the comparisons below take for granted."""
    for name in ("instances", "delay_groups", "jobs", "max_memory", "opt_level", "check"):
        value = getattr(options, name)
        is_default = value is None and name not in ("opt_level", "check")
        if not is_default and (not isinstance(value, int) or isinstance(value, bool)):
            raise UsageError("not a number", where=name, expected="a whole one", found=repr(value)[:200])
    for name in ("tune_seconds", "delay_seconds"):
        if not isinstance(getattr(options, name), (int, float, type(None))):
            raise UsageError("not a duration", where=name, expected="seconds", found=repr(getattr(options, name))[:200])
    if not isinstance(options.passes, (str, type(None))):
        raise UsageError("no text", where="passes", found=repr(options.passes)[:200])
    if not _all_are(options.print_after, str):
        raise UsageError("not passes", where="print_after", expected="a tuple of names",
                         found=repr(options.print_after)[:200])  # fmt: skip
    if not _all_are(options.targets, str):
        raise UsageError("not targets", where="targets", expected="a tuple of names", found=repr(options.targets)[:200])
    if options.cores is not None and not _all_are(options.cores, int):
        raise UsageError("not cores", where="cores", expected="a tuple of numbers", found=repr(options.cores)[:200])
    for name in ("shapes", "dims", "state"):
        given = getattr(options, name)
        if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
            raise UsageError("not a mapping of names", where=name, found=repr(given)[:200])
    for given, kept in options.state.items():
        if not isinstance(kept, str):
            raise UsageError("no name of an output", where=f"state {given}", found=repr(kept)[:200])
    for name, shape in options.shapes.items():
        if not _all_are(shape, object):
            raise UsageError("not a shape", where=f"shape of {name}", expected="a tuple", found=repr(shape)[:200])


def _all_are(values: object, kind: type) -> bool:
    listed = isinstance(values, Sequence) and not isinstance(values, str)
    return listed and all(isinstance(value, kind) for value in values)  # type: ignore[attr-defined]


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError("no such choice", where=name, expected=" or ".join(allowed), found=value)


def _check_delay(groups: int | None, seconds: float | None) -> None:
    if seconds is not None and not 0 <= seconds < float("inf"):
        raise UsageError("not a duration", where="delay_seconds", expected="0 or more", found=seconds)
    if (seconds is None) != (groups in (None, 1)):
        raise UsageError("only together", where="delay_groups and delay_seconds", found=f"{groups} and {seconds}",
                         expected="several groups and how much later each begins, or neither")  # fmt: skip


def _check_entry(where: str, entry: object) -> None:
    is_size = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0
    is_symbol = isinstance(entry, str) and SYMBOL.fullmatch(entry) is not None
    if not is_size and not is_symbol:
        raise UsageError("not a dimension", where=where, expected="sizes ≥ 0 or symbol names", found=repr(entry))


def _check_dim(symbol: str, size: int | tuple[int, int]) -> None:
    is_range = isinstance(size, (tuple, list)) and len(size) == 2 and all(isinstance(n, int) for n in size)
    if not is_range and (not isinstance(size, int) or isinstance(size, bool)):
        expected = "a size, or (least, greatest)"
        raise UsageError("not a size", where=f"dim {symbol}", expected=expected, found=repr(size)[:200])
    if isinstance(size, int):
        if size < 0:
            raise UsageError("negative", where=f"dim {symbol}", expected="0 or more", found=size)
        return
    least, greatest = size
    if not 0 <= least <= greatest or greatest == 0:
        found = f"{least}..{greatest}"
        expected = "0 ≤ least ≤ greatest, and greatest ≥ 1"
        raise UsageError("not a range", where=f"dim {symbol}", expected=expected, found=found)
