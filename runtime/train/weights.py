"""Weights by name, in files that others read and write: safetensors, and PyTorch's state dicts."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import InvalidData, InvalidInput, UsageError
from ...files import write_whole

SAFETENSORS, TORCH = (".safetensors",), (".pt", ".pth", ".bin")
_STATE = ("weights/", "statistics/")  # how a checkpoint of a training calls them
_DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_INSIDE = ("state_dict", "model_state_dict", "model")  # where those who save more than weights keep them
Arrays = dict[str, np.ndarray]


class Match(NamedTuple):
    """How a file's names fit. missing: names that it lacks. extra: names that only it has."""

    missing: tuple[str, ...]
    extra: tuple[str, ...]


def read_weights(path: Path) -> Arrays:
    """The tensors of floats of a file, by name, in f32; whole numbers (counters, indices) are no weights.

    f16 and bf16 are taken as they are, f64 is rounded. Of a checkpoint of a training the parameters and running
    statistics.

    Args:
        path: a .safetensors file, or a state dict that torch.save wrote (.pt, .pth, .bin), which needs torch.

    Raises:
        UsageError: no such file, another ending, torch or safetensors is not installed. InvalidData: the file is
            damaged, or holds something else.
    """
    _require_known(path)
    if not path.is_file():
        raise UsageError("no such file of weights", where=str(path))
    found = _safetensors(path) if path.suffix in SAFETENSORS else _state_dict(path)
    if not found:
        raise InvalidData("a file of weights without one", where=str(path), expected="a tensor of floats", found="none")
    return found


def write_weights(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write tensors by name, whole or not at all, as `read_weights` reads them.

    Raises:
        UsageError: another ending, torch or safetensors is not installed, the file cannot be written.
    """
    _require_known(path)
    own = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    if path.suffix in SAFETENSORS:
        write_whole(path, _safetensors_library().numpy.save(own))
        return
    torch, file = _torch(), io.BytesIO()
    torch.save({name: torch.from_numpy(array.copy()) for name, array in own.items()}, file)
    write_whole(path, file.getvalue())


def matched(given: Mapping[str, np.ndarray], own: Mapping[str, tuple[int, ...]], where: str) -> Arrays:
    """Those of `given` that `own` has, after a look at every shape.

    Raises:
        InvalidInput: a tensor of another shape, or none that fits at all.
    """
    both = {name: array for name, array in given.items() if name in own}
    for name, array in both.items():
        if array.shape != own[name]:
            raise InvalidInput("a weight of another shape", where=f"{where}: {name!r}", expected=list(own[name]),
                               found=list(array.shape))  # fmt: skip
    if not both:
        raise InvalidInput("no weight has a name of the model", where=where, expected=_few(own), found=_few(given))
    return both


def require_all(match: Match, where: str) -> None:
    """Refuse a file that lacks names or has others.

    Raises:
        InvalidInput: see above.
    """
    if match.missing:
        raise InvalidInput("weights are missing", where=where, expected=_few(match.missing),
                           hint="Trainer.load(path, strict=False) takes what there is")  # fmt: skip
    if match.extra:
        raise InvalidInput("weights that the model does not have", where=where, found=_few(match.extra),
                           hint="Trainer.load(path, strict=False) leaves them out")  # fmt: skip


def _require_known(path: Path) -> None:
    if path.suffix not in SAFETENSORS + TORCH:
        raise UsageError("not a file of weights by its ending", where=str(path),
                         expected=", ".join(SAFETENSORS + TORCH), found=path.suffix or "none")  # fmt: skip


def _safetensors(path: Path) -> Arrays:
    """Of a safetensors file; bf16, which numpy lacks, by its bits."""
    content = _safetensors_library()
    try:
        with content.safe_open(path, "np") as file:
            facts = json.loads((file.metadata() or {}).get("parax", "null"))
        tensors = content.deserialize(path.read_bytes())
    except (content.SafetensorError, OSError, ValueError) as error:
        raise InvalidData("a damaged safetensors file", where=str(path), found=str(error)[:200]) from error
    found: Arrays = {}
    for name, tensor in tensors:
        if tensor["dtype"] in _DTYPES:
            flat = np.frombuffer(tensor["data"], _DTYPES[tensor["dtype"]])
            if tensor["dtype"] == "BF16":
                flat = (flat.astype(np.uint32) << 16).view(np.float32)
            found[name] = flat.reshape(tensor["shape"]).astype(np.float32)
    if isinstance(facts, dict):
        found = {name.split("/", 1)[1]: array for name, array in found.items() if name.startswith(_STATE)}
    return found


def _state_dict(path: Path) -> Arrays:
    """Of a state dict, by itself or as an entry of what was saved."""
    torch = _torch()
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, ValueError, KeyError) as error:
        found = str(error).strip().splitlines() or [type(error).__name__]
        raise InvalidData("not a state dict that can be read", where=str(path), found=found[0][:200],
                          expected="what torch.save(module.state_dict(), …) writes") from error  # fmt: skip
    for name in _INSIDE:
        if isinstance(content, Mapping) and isinstance(content.get(name), Mapping):
            content = content[name]
            break
    is_one = isinstance(content, Mapping) and all(isinstance(v, torch.Tensor) for v in content.values())
    if not is_one:
        raise InvalidData("not a state dict", where=str(path), expected="a mapping of tensors by name",
                          found=_words(content))  # fmt: skip
    return {
        str(name): tensor.detach().to(torch.float32).contiguous().numpy().copy()
        for name, tensor in content.items()
        if tensor.is_floating_point()
    }


def _safetensors_library() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise UsageError("safetensors is not installed", hint="pip install 'parax[train]'") from error
    return safetensors


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError("PyTorch's files need torch", hint="pip install 'parax[torch]'") from error
    return torch


def _words(content: object) -> str:
    if isinstance(content, Mapping):
        return f"a mapping of {_few([str(name) for name in content])}"
    return type(content).__name__


def _few(names: Mapping[str, Any] | tuple[str, ...] | list[str]) -> str:
    shown = sorted(names)
    return ", ".join(shown[:6]) + (f" and {len(shown) - 6} more" if len(shown) > 6 else "") or "none"
