"""`import torchvision` beside a torch that its binary extension does not fit (PyPI's beside a torch for CPUs).

Owns the two operators of that extension that its detection models call, in Python: plain, and only run while a model
is traced. Exporters know them by their names and write NonMaxSuppression and RoiAlign.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

NMS = "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
ROI_ALIGN = ("roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
             "int sampling_ratio, bool aligned) -> Tensor")  # fmt: skip

_KEPT = torch.library.Library("torchvision", "FRAGMENT")
"""Operators live as long as this does."""


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Indices of boxes (N, 4) that no better one overlaps by more than the threshold, the best first."""
    left = torch.argsort(scores, descending=True, stable=True)
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        low = torch.maximum(boxes[best, :2], boxes[left, :2])
        high = torch.minimum(boxes[best, 2:], boxes[left, 2:])
        shared = (high - low).clamp(min=0).prod(dim=1)
        left = left[shared <= iou_threshold * (area[best] + area[left] - shared)]
    return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)


def torchvision() -> Any:
    """The package, with the operators of its extension or, where that does not load, with these."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or "torchvision" in sys.modules or _extension_loads(Path(str(spec.origin)).parent):
        return importlib.import_module("torchvision")
    _KEPT.define(NMS)
    _KEPT.define("q" + NMS)  # of quantised tensors: named while importing, never called
    _KEPT.define(ROI_ALIGN)
    _KEPT.impl("nms", nms, "CPU")
    package = importlib.import_module("torchvision")
    _KEPT.impl("roi_align", _plain_roi_align(), "CPU")
    _KEPT.impl("roi_align", _shape_of_roi_align, "Meta")
    for module in (package.extension, importlib.import_module("torchvision.ops.roi_align")):
        module._has_ops = _has_ops
    return package


def _extension_loads(folder: Path) -> bool:
    try:
        torch.ops.load_library(str(folder / "_C.so"))
    except OSError:
        return False
    return True


def _plain_roi_align() -> Callable[..., torch.Tensor]:
    """torchvision's own in Python, as it is before torch.compile, which cannot run while a model is traced."""
    module = importlib.import_module("torchvision.ops.roi_align")
    return module._roi_align.__wrapped__  # type: ignore[no-any-return]


def _has_ops() -> bool:
    return True


def _shape_of_roi_align(features: torch.Tensor, rois: torch.Tensor, scale: float, height: int, width: int,
                        ratio: int, aligned: bool) -> torch.Tensor:  # fmt: skip
    return features.new_empty((rois.shape[0], features.shape[1], height, width))
