"""What callers hand in as tensors, as numpy arrays fit for native code. Owns the messages about names and types."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InvalidInput, ParaxError, UsageError
from .dtypes import EXTENDED
from .host_values import arrays_in, host_type, taken
from .limits import current
from .manifest import TensorSpec
from .memory import address_of

APART = "give the output memory of its own"
_FIT = 0x101  # numpy's flag bits for C-contiguous and aligned


def is_fit(array: np.ndarray) -> bool:
    """Whether native code may read the array as it lies: C-contiguous, aligned elements."""
    return array.flags.num & _FIT == _FIT


@contextmanager
def reading(where: str, problem: str = "cannot be read") -> Iterator[None]:
    """Turn what a caller's own object raises, which may be anything, into InvalidInput."""
    try:
        yield
    except (ParaxError, MemoryError):
        raise
    except Exception as error:
        found = f"{type(error).__name__}: {error}"[:200]
        raise InvalidInput(problem, where=where, expected="an array or a mapping of them", found=found) from error


def plain(given: Any, where: str) -> dict[Any, Any]:
    """A caller's mapping as a dict, whatever it does when it is read.

    Raises:
        InvalidInput: no mapping, or one that cannot be read.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"{where} must be given by name", expected="a dict of arrays", found=type(given).__name__)
    with reading(where):
        return {name: given[name] for name in given}


def as_array(value: Any, where: str) -> np.ndarray:
    """A tensor from numpy, `__dlpack__`, `__array_interface__`, buffers or nested numbers; copied only if need be.

    Raises:
        InvalidInput: none of these.
    """
    if isinstance(value, np.ndarray):
        return value
    with reading(where, "not a tensor"):
        if not hasattr(value, "__array_interface__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)


def input_array(value: Any, spec: TensorSpec) -> np.ndarray:
    """The array of an input: of the spec's type, C-contiguous and aligned, copied only if it is not.

    Of an input that is no tensor, what host_values.py makes of it.

    Raises:
        InvalidInput: wrong element type or rank. ResourceLimit: no memory for a copy.
    """
    where = f"input {spec.name!r}"
    if not spec.is_tensor:
        found: np.ndarray = taken(value, host_type(spec.dtype), where)
        return found
    array = as_array(value, where)
    dtype = spec.numpy
    if array.dtype != dtype:
        current().take(array.size * dtype.itemsize, f"a copy of {where}")
        with reading(where, "not a tensor"):
            array = _converted(array, dtype, isinstance(value, np.ndarray) or hasattr(value, "dtype"), spec)
    if spec.dims is not None and array.ndim != len(spec.dims):
        raise InvalidInput("wrong shape", where=where, expected=str(spec), found=list(array.shape))
    if array.__class__ is not np.ndarray:
        array = array.view(np.ndarray)
    if is_fit(array):
        return array
    current().take(array.nbytes, f"a copy of {where}")
    return np.require(array, requirements=["C", "A"])


def _converted(array: np.ndarray, dtype: np.dtype, typed: bool, spec: TensorSpec) -> np.ndarray:
    """Other byte orders, strings, storage types and untyped numbers converted; the rest is the caller's error."""
    is_string = dtype.kind == "O"
    if array.dtype.newbyteorder("=") == dtype or (is_string and array.dtype.kind in "UST") or not (typed or array.size):
        return array.astype(dtype)
    if spec.dtype in EXTENDED and array.dtype in (f"u{dtype.itemsize}", f"V{dtype.itemsize}"):
        return array.view(dtype)
    is_untyped = not typed and not is_string  # lists and scalars carry no type of their own
    if is_untyped and np.can_cast(array.dtype, dtype, "same_kind"):
        return _numbers(array, dtype, spec)
    raise InvalidInput("wrong element type", where=f"input {spec.name!r}", expected=dtype, found=array.dtype)


def _numbers(array: np.ndarray, dtype: np.dtype, spec: TensorSpec) -> np.ndarray:
    """Untyped numbers as elements of a type that can hold them, floats rounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(dtype)
        whole = spec.dtype[0] in "iu"
        fits = converted.astype(np.int64) == array if whole else np.isfinite(converted) | ~np.isfinite(array)
    if not fits.all():
        raise InvalidInput("a number is out of range", where=f"input {spec.name!r}", expected=dtype,
                           found=array[~fits][0])  # fmt: skip
    return converted


def ordered_inputs(
    feeds: Any, specs: Sequence[TensorSpec], defaults: Mapping[str, np.ndarray] | None = None, fixed: Sequence[str] = ()
) -> list[np.ndarray]:
    """The inputs in the manifest's order, fit for native code.

    Args:
        defaults: for inputs that the caller leaves out. fixed: what the model calls inputs, but are constants here.

    Raises:
        InvalidInput: a name missing or unknown, or a tensor of another type.
    """
    feeds, defaults = plain(feeds, "inputs"), defaults or {}
    names = [spec.name for spec in specs]
    missing = [name for name in names if name not in feeds and name not in defaults]
    unknown = [name for name in feeds if name not in names]
    constant = [name for name in unknown if name in fixed]
    if constant:
        raise InvalidInput("this input has been compiled as a constant", where=f"input {constant[0]!r}",
                           hint=f"compile with --override {constant[0]} (parax.compile: overridable=) to give it")
    if missing or unknown:
        problem = f"missing input {missing[0]!r}" if missing else f"no input is named {unknown[0]!r:.200}"
        found = ", ".join(map(repr, feeds))[:500]
        raise InvalidInput(problem, expected=", ".join(map(str, specs)) or "no input", found=found)
    return [input_array(feeds[spec.name] if spec.name in feeds else defaults[spec.name], spec) for spec in specs]


def caller_output(value: Any, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The caller's memory for an output.

    Raises:
        InvalidInput: not a writable C-contiguous array of that shape and type.
    """
    where = f"out {name!r}"
    if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != shape:
        found = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
        raise InvalidInput("wrong output array", where=where, expected=f"{dtype} {list(shape)}", found=found)
    if not is_fit(value) or not value.flags.writeable:
        raise InvalidInput("wrong output array", where=where, expected="writable, C-contiguous, aligned memory")
    return value


def caller_outputs(
    out: Any, specs: Sequence[TensorSpec], expected: Sequence[tuple[tuple[int, ...], np.dtype]] | None,
    inputs: Sequence[np.ndarray], donated: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, np.ndarray]:  # fmt: skip
    """The caller's memory for outputs, by name.

    Args:
        out: what the caller gave; None: nothing. specs: the plan's outputs. expected: (shape, type) of each; None where
            only the run can tell.
        inputs: which they must not overlap. donated: an output → the number of the input that it may be instead.

    Raises:
        InvalidInput: see `caller_output`, no output has that name, or one overlaps an input. UsageError: shapes
            unknown, or shared memory.
    """
    if out is None:
        return {}
    out = plain(out, "out")
    output_names(list(out), specs)
    if expected is None:
        raise UsageError("out= needs outputs whose shapes follow from the inputs' shapes", where="out")
    places = {spec.name: i for i, spec in enumerate(specs)}
    own = {name: caller_output(value, name, *expected[places[name]]) for name, value in out.items()}
    _require_apart(own, inputs, donated)
    return own


class Apart:
    """The caller's memory for outputs, and that an input is none of it."""

    def __init__(self, own: Mapping[str, np.ndarray]) -> None:
        """Outputs that lie apart from each other. All are C-contiguous."""
        spans = sorted((address_of(a), address_of(a) + a.nbytes, name) for name, a in own.items() if a.nbytes)
        self._begins = array("Q", [begin for begin, _, _ in spans])  # no object per number
        self._ends = array("Q", [end for _, end, _ in spans])
        self._names = [name for _, _, name in spans]

    def require(self, other: np.ndarray) -> None:
        """Raises InvalidInput: an output overlaps the array."""
        begin = address_of(other)
        i = bisect_left(self._begins, begin + other.nbytes) - 1  # the last output that begins before it ends
        if i >= 0 and self._ends[i] > begin and other.nbytes:
            raise InvalidInput("an output overlaps an input", where=f"out {self._names[i]!r}", hint=APART)


def _require_apart(
    own: Mapping[str, np.ndarray], inputs: Sequence[np.ndarray], donated: Mapping[str, int]
) -> None:  # fmt: skip
    """Refuse outputs that overlap an input or each other, in the order of their memory. All are C-contiguous.

    Raises:
        InvalidInput, UsageError: see `caller_outputs`.
    """
    overwritten = {i for name, i in donated.items() if name in own and _is_same(own[name], inputs[i])}
    given = [(address_of(a), a.nbytes, "") for i, value in enumerate(inputs) if i not in overwritten
             for a in arrays_in(value) if a.nbytes]  # fmt: skip
    spans = given + [(address_of(a), a.nbytes, name) for name, a in own.items() if a.nbytes]
    read, written = 0, 0  # where what was met so far ends
    last = ""
    for begin, nbytes, name in sorted(spans):
        if name and begin < written:
            raise UsageError("two outputs share memory", where="out")
        if begin < (read if name else written):
            raise InvalidInput("an output overlaps an input", where=f"out {name or last!r}",
                               hint=APART)
        if name:
            written, last = begin + nbytes, name
        else:
            read = max(read, begin + nbytes)


def _is_same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.nbytes == b.nbytes and address_of(a) == address_of(b)


def output_names(wanted: Sequence[str] | None, specs: Sequence[TensorSpec]) -> list[str] | None:
    """The outputs asked for; None means all.

    Raises:
        InvalidInput: no output has that name.
    """
    if wanted is None:
        return None
    names = [spec.name for spec in specs]
    with reading("the outputs wanted"):
        wanted = [wanted] if isinstance(wanted, str) else list(wanted)
    for name in wanted:
        if not isinstance(name, str) or name not in names:
            found = f"{name!r:.200}" if isinstance(name, str) else type(name).__name__
            raise InvalidInput(f"no output is named {found}", expected=", ".join(names), found=found)
    return wanted
