"""The inputs of `parax run`: from files, JSON texts or pictures, cast where asked for, or at random."""

from __future__ import annotations

import argparse
import json
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from ...errors import UsageError
from . import arguments, pictures
from .console import Console
from .made_up import random_arrays, sizes_of
from .models import opened

if TYPE_CHECKING:
    import numpy as np

    from ...runtime.host_values import HostType
    from ...runtime.manifest import TensorSpec
    from ...runtime.plan import Plan

RANDOM = "random"


class Inputs(NamedTuple):
    """The inputs of a request.

    Attributes:
        arrays: by name. at_random: names of those that were made up. sizes: of the open dimensions, for those.
    """

    arrays: dict[str, np.ndarray]
    at_random: list[str]
    sizes: dict[str, int]


def inputs_of(plan: Plan, args: argparse.Namespace, console: Console) -> Inputs:
    """The inputs of a request. Says on stderr what was made up or changed.

    Where no input is given, all are random; where some are, the others have to be asked for (--random). Inputs for
    which the plan has a default may be left out.

    Raises:
        UsageError: one is missing, unreadable, or does not parse.
    """
    given = dict(args.input)
    missing = [spec for spec in plan.inputs if spec.name not in given and spec.name not in plan.manifest.defaults]
    if missing and given and not args.random:
        hint = f"give --input {missing[0].name}=@FILE, or --random"
        raise UsageError("inputs missing", expected=", ".join(map(str, missing)), hint=hint)
    wanted = [spec for spec in plan.inputs if given.get(spec.name) == RANDOM or spec in missing]
    arrays: dict[str, np.ndarray] = {}
    taken = [spec for spec in plan.inputs if spec.name in given and spec not in wanted]
    used = [_read(spec, given[spec.name], arrays, args, console) for spec in taken]
    if pictures.preparation(args) != pictures.Preparation() and not any(used):
        raise UsageError("no input is a picture", where="--resize, --mean, …", hint="give --input NAME=@FILE.png")
    sizes = _random(plan, wanted, arrays, args, console)
    return Inputs(arrays, [spec.name for spec in wanted], sizes)


def _random(
    plan: Plan, wanted: list[TensorSpec], arrays: dict[str, np.ndarray], args: argparse.Namespace, console: Console
) -> dict[str, int]:
    """Add the inputs wanted at random to the arrays, of sizes that fit those that are given; the sizes."""
    if not wanted:
        return {}
    sizes = sizes_of(plan, arguments.fixed_dims(args.dim), 1, console, arrays)
    made = random_arrays(plan, sizes, args.seed, [spec.name for spec in wanted])
    arrays |= made
    shapes = ", ".join(f"{spec.name} {spec.dtype}{list(made[spec.name].shape)}" for spec in wanted)
    open_sizes = "; sizes by --dim" if sizes else ""
    console.note(f"random inputs (--seed {args.seed}{open_sizes}): {shapes}")
    return sizes


def _read(
    spec: TensorSpec, text: str, arrays: dict[str, np.ndarray], args: argparse.Namespace, console: Console
) -> bool:
    """Add one input to the arrays; whether it was a picture."""
    where = f"{spec.name}={text}"
    if text.startswith("@"):
        with _opened(text[1:]) as file:
            if not spec.is_tensor:
                arrays[spec.name] = _of_json(file.read().decode("utf-8", "replace"), spec)
                return False
            if _is_picture(file):
                arrays[spec.name], done = pictures.read(file, spec, pictures.preparation(args), where)
                console.note(f"{spec.name}: {'stdin' if text == '@-' else text[1:]}, {done}")
                return True
            array = _loaded(file, spec.name, text[1:])
    else:
        array = _parsed(text, spec.name, spec.numpy) if spec.is_tensor else _of_json(text, spec)
    if args.cast and spec.is_tensor and array.dtype.newbyteorder("=") != spec.numpy:
        from .casting import fitted

        console.note(f"{spec.name}: cast from {array.dtype} to {spec.numpy}")
        array = fitted(array, spec, where)
    arrays[spec.name] = array
    return False


def _is_picture(file: BinaryIO) -> bool:
    from ...file_kinds import HEAD_NBYTES, JPEG, PNG, kind_of_bytes

    head = file.read(HEAD_NBYTES)
    file.seek(0)
    return kind_of_bytes(head) in (PNG, JPEG)


def _parsed(text: str, name: str, dtype: np.dtype) -> np.ndarray:
    import numpy as np

    try:
        return np.asarray(json.loads(text), dtype=dtype)
    except (ValueError, TypeError) as error:
        hint = f"give {name}=@{text}" if Path(text).is_file() else None
        expected = f"JSON numbers for {dtype}"
        raise UsageError("not a value", where=name, expected=expected, found=text, hint=hint) from error


def _of_json(text: str, spec: TensorSpec) -> Any:
    """A value that is no tensor from JSON: lists, objects, null.

    Raises:
        UsageError: no JSON, or no value of the input's type.
    """
    from ...runtime.host_values import host_type

    try:
        return _typed(json.loads(text), host_type(spec.dtype))
    except (ValueError, TypeError, AttributeError) as error:
        raise UsageError("not a value", where=spec.name, expected=f"JSON for {spec.dtype}", found=text[:80]) from error


def _typed(value: Any, type_: HostType) -> Any:
    """JSON's value as the type has it: keys of maps as numbers, lists as arrays where they are tensors."""
    import numpy as np

    from ...runtime.dtypes import numpy_dtype
    from ...runtime.host_values import Map, Optional, Sequence

    if isinstance(type_, Optional):
        return None if value is None else _typed(value, type_.elem)
    if isinstance(type_, Sequence):
        return [_typed(item, type_.elem) for item in value]
    if isinstance(type_, Map):
        return {key if type_.key == "str" else int(key): item for key, item in value.items()}
    return np.asarray(value, dtype=numpy_dtype(type_.dtype))


def read_value(like: Any, name: str, place: str) -> Any:
    """What is in a file, to compare with a result: an array, or where that is no tensor JSON.

    Raises:
        UsageError: it cannot be read, or is something else.
    """
    import numpy as np

    if isinstance(like, np.ndarray):
        array = read_array(name, place)
        return array.astype(object) if like.dtype.kind == "O" and array.dtype.kind == "U" else array
    try:
        with _opened(place) as file:
            return _as_result(json.loads(file.read()), like)
    except ValueError as error:
        raise UsageError("not a JSON file", where=place, found=str(error)[:80]) from error


def _as_result(value: Any, like: Any) -> Any:
    """JSON's value with the keys and arrays that a result has where it is of the same form."""
    import numpy as np

    if isinstance(like, list) and isinstance(value, list) and len(value) == len(like):
        return [_as_result(item, other) for item, other in zip(value, like, strict=True)]
    if isinstance(like, dict) and isinstance(value, dict):
        keys = {str(key): key for key in like}
        return {keys.get(key, key): item for key, item in value.items()}
    return np.asarray(value, like.dtype) if isinstance(like, np.ndarray) else value


def read_array(name: str, place: str) -> np.ndarray:
    """The array in a file, `.npy` or `.npz` (the member called `name`, or the only one).

    Raises:
        UsageError: it cannot be read, or is something else.
    """
    with _opened(place) as file:
        return _loaded(file, name, place)


def _loaded(file: BinaryIO, name: str, place: str) -> np.ndarray:
    import numpy as np

    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return loaded
        with loaded:
            return np.asarray(loaded[name if name in loaded or len(loaded.files) != 1 else loaded.files[0]])
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise _no_array(place, error) from error


def _no_array(place: str, error: Exception) -> UsageError:
    from ...file_kinds import ARRAY, ARRAYS, kind_of

    kind = kind_of(Path(place))
    found = error if kind in (None, ARRAY, ARRAYS) else f"{kind.name}"
    return UsageError("not a .npy file, or .npz with that name, nor a picture", where=place, found=found)


def _opened(place: str) -> BinaryIO:
    """The file at a path, for reading and seeking: a pipe, and stdin for `-`, is read whole.

    Raises:
        UsageError: it cannot be read.
    """
    file = opened(Path(place))
    try:
        if file.seekable() and place != "-":
            return file
        with file:
            return BytesIO(file.read())
    except OSError as error:
        raise UsageError("cannot be read", where=place, found=error.strerror or error) from error
