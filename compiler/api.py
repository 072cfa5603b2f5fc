"""`parax.compile`: the Python way in. Owns how arguments become CompileOptions; the work is the driver's."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, reported
from . import check, driver
from .frontend.parse import settled
from .options import FULL, HALF, CompileOptions
from .precision.gates import decided

if TYPE_CHECKING:
    from ..runtime.plan import Plan
    from .frontend.parse import Source


@reported
def compile(
    model: Source,
    *,
    shapes: Mapping[str, Sequence[int | str]] | None = None,
    dims: Mapping[str, int | tuple[int, int]] | None = None,
    overridable: Sequence[str] = (),
    state: Mapping[str, str] | None = None,
    hint: str | None = None,
    target: str | Sequence[str] | None = None,
    options: CompileOptions | None = None,
    progress: Callable[[str, float], None] | None = None,
    base_dir: str | os.PathLike[str] | None = None,
) -> Plan:
    """Compile an ONNX model into a plan.

    Args:
        model: a file's path, its bytes, a binary file that is open (read from where it stands), or a ModelProto.
        shapes: input name → shape; an entry is a size or the name of a symbol.
        dims: symbol → size, or (least, greatest).
        overridable: initializers that are also inputs of the model and that requests may give.
        state: input name → output name: what a call leaves for the next one, in the plan's memory; a * in both stands
            for the same text. See `Session.sequence`.
        hint: "throughput" or "latency".
        target: "native", or one or several of x86-64-v2, x86-64-v3, x86-64-v4, aarch64.
        options: everything else; the arguments above win over it.
        progress: called with (phase, fraction of the whole work done).
        base_dir: the folder of the model's external data, which must lie inside; default that of the model's path.

    Raises:
        UnsupportedOp, InvalidModel, ResourceLimit, UsageError (a TypeError, too, where `model` is none of these);
        AccuracyMismatch with `options.check`; InternalError for a mistake in parax, with the graph as a note.
    """
    given: dict[str, Any] = {}
    for name, value, expected in (("shapes", shapes, "input name → shape"), ("dims", dims, "symbol → size"),
                                  ("state", state, "input name → output name")):
        if value is not None and not isinstance(value, Mapping):
            raise UsageError("not a mapping", where=name, expected=expected, found=repr(value)[:200])
    if shapes is not None:
        given["shapes"] = dict(shapes)
    if state is not None:
        given["state"] = dict(state)
    if dims is not None:
        given["dims"] = dict(dims)
    if not isinstance(options, (CompileOptions, type(None))):
        raise UsageError("no CompileOptions", where="options", found=repr(options)[:200])
    if overridable:
        given["overridable"] = tuple(overridable)
    if hint is not None:
        given["hint"] = hint
    if target is not None:
        given["targets"] = (target,) if isinstance(target, str) else target
    chosen = replace(options or CompileOptions(), **given)
    model = settled(model, base_dir)
    if chosen.precision == FULL or (chosen.precision == HALF and chosen.calibration is None):
        plan = driver.compile_model(model, chosen, progress)
    else:
        plan = decided(model, chosen, progress).plan
    if chosen.check:
        check.check(plan, model, times=chosen.check)
    return plan
