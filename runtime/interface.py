"""What a plan's code and its manifest must agree on, and the mark in the code by which the runtime finds that they do.

Native code trusts the manifest: how many arrays a step takes and gives and of which shapes, how large weights and arena
are, in which order symbols stand, how long instances wait. So every object carries one digest for each part of the
manifest that it was compiled with, as the read-only symbol `parax_interface`, and an edited manifest is refused before
anything runs. What an edit cannot harm (the hint, texts, why the plan is as it is) has no part. Knows JSON values;
knows no plan, and not how code is loaded.

The compiler links MARK, of the digests' size, into every module and replaces it in the object code, so that object code
that differs in nothing else is compiled once.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import CorruptPlan, InternalError

SYMBOL = "parax_interface"
PARTS = (
    "inputs", "outputs", "symbols", "constraints", "steps", "values", "constants", "batch", "schedule", "weights",
    "targets", "arrangement", "delay", "defaults",
    "states",
)  # fmt: skip
_DIGEST_NBYTES = 32
NBYTES = _DIGEST_NBYTES * len(PARTS)
MARK = b"".join(hashlib.sha256(f"parax interface: {part}".encode()).digest() for part in PARTS)


def interface_text() -> str:
    """The symbol with the mark, as LLVM text."""
    data = "".join(f"\\{byte:02X}" for byte in MARK)
    return f'@{SYMBOL} = constant [{NBYTES} x i8] c"{data}", align 8'


def interface_digests(manifest: Mapping[str, Any], target: str, weights_nbytes: int) -> bytes:
    """A SHA-256 for each of PARTS.

    Args:
        manifest: JSON values, or what becomes JSON values; see `plain`. target: the name of the code's target.

    Raises:
        CorruptPlan: values nested too deeply.
    """
    batch, targets = manifest.get("batch"), manifest.get("targets") or ()
    parts = {part: manifest.get(part) for part in PARTS}
    parts["batch"] = {"symbol": batch["symbol"], "axis": batch["axis"]} if batch else None
    parts["weights"] = weights_nbytes
    parts["targets"] = [target, [(t["name"], t.get("arch"), t.get("features")) for t in targets]]
    return b"".join(_digest(part, value) for part, value in parts.items())


def _digest(part: str, value: Any) -> bytes:
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=plain)
    except RecursionError as error:
        raise CorruptPlan("nested too deeply", where=f"manifest.{part}") from error
    return hashlib.sha256(text.encode()).digest()


def check_interface(found: bytes, expected: bytes, where: str) -> None:
    """Compare what the code says with the digests of the manifest beside it.

    Raises:
        CorruptPlan: they differ.
    """
    if found == expected:
        return
    spans = [slice(i, i + _DIGEST_NBYTES) for i in range(0, NBYTES, _DIGEST_NBYTES)]
    differ = [part for part, span in zip(PARTS, spans, strict=True) if found[span] != expected[span]]
    raise CorruptPlan(
        "the code was not compiled with this manifest", where=where, expected="the manifest that the compiler wrote",
        found=f"another value of {', '.join(differ)}", hint="compile the model again",
    )  # fmt: skip


def check_unlinked(code: bytes, expected: bytes, where: str) -> None:
    """The same for an object file.

    Raises:
        CorruptPlan: they differ.
    """
    starts = range(0, NBYTES, _DIGEST_NBYTES)
    at = max(code.find(expected[i : i + _DIGEST_NBYTES]) - i for i in starts)  # by the parts that are as expected
    check_interface(code[max(at, 0) :][:NBYTES], expected, where)


def marked_code(code: bytes, digests: bytes) -> bytes:
    """Object code with the digests in the place of the mark.

    Raises:
        InternalError: it has not exactly one mark.
    """
    if code.count(MARK) != 1 or len(digests) != NBYTES:
        raise InternalError("object code without its mark", where=SYMBOL, expected=1, found=code.count(MARK))
    return code.replace(MARK, digests)


def plain(value: Any) -> Any:
    """numpy numbers and arrays as JSON values, for json.dumps."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"not a JSON value: {value!r}")
