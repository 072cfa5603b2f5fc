"""Detectors with their choice of boxes inside the model. Random weights find nothing that a threshold of trained ones
lets pass, so thresholds are lower here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .sources import Traced
from .torchvision_operators import torchvision

HEAD = 0.01
"""Standard deviation of the weights that give scores: far larger ones make scores of 1, whose order is rounding."""
SCORES = {"cls_": HEAD}
MASKED = {"cls_": 0.1, "bbox_pred": 0.001, "mask_fcn_logits": 0.01}
"""Standard deviations of a model's last layers by their names. HEAD leaves each of 91 classes near 1/91, so that the
order of thousands of scores is rounding. Boxes are moved as little as Fast R-CNN's first weights do, by 0.001: masks
are drawn at them, and show any rounding of them as often enlarged as they are steep."""


class _Detector(torch.nn.Module):
    """A detector of torchvision: one picture (3, H, W) → tensors of its boxes."""

    def __init__(self, model: torch.nn.Module, outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.outputs = model, outputs

    def forward(self, image: torch.Tensor) -> Sequence[torch.Tensor]:
        found = self.model([image])[0]
        return tuple(found[name] for name in self.outputs)


def _spread(model: torch.nn.Module, image: Any, heads: Mapping[str, float]) -> torch.nn.Module:
    """The model in evaluation mode, with weights by which its boxes differ, as those of a trained one do.

    Args:
        image: what it is called with; statistics of BatchNorm become those of this picture, or signals would fade.
        heads: the names of the last layers, as regular expressions, and what standard deviation their weights get.
    """
    model.eval()
    norms = [module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    hooks = [norm.register_forward_pre_hook(_take_statistics) for norm in norms]
    with torch.no_grad():
        model(image)
        for name, parameter in model.named_parameters():
            for head, deviation in heads.items():
                if re.search(head, name) and parameter.ndim > 1:
                    parameter *= deviation / parameter.std()
    for hook in hooks:
        hook.remove()
    return model


def _take_statistics(norm: torch.nn.BatchNorm2d, inputs: tuple[torch.Tensor]) -> None:
    assert norm.running_mean is not None and norm.running_var is not None
    (x,) = inputs
    norm.running_mean.copy_(x.mean((0, 2, 3)))
    if x[:, 0].numel() > 1:
        # maps of few elements hardly vary, and those of another picture would explode
        norm.running_var.copy_(x.var((0, 2, 3)).clamp(min=0.05))


def _torchvision(
    name: str, size: int, outputs: Sequence[str], heads: Mapping[str, float] = SCORES, **options: Any
) -> Callable[[], Traced]:
    def build() -> Traced:
        torch.manual_seed(0)
        make = getattr(torchvision().models.detection, name)
        image = 0.5 + 0.3 * torch.randn(3, size, size)
        model = _spread(make(weights=None, weights_backbone=None, **options), [image], heads)
        return Traced(_Detector(model, outputs).eval(), {"image": image}, outputs)

    return build


BOXES = ("boxes", "labels", "scores")
REGIONS: dict[str, Any] = {"min_size": 160, "max_size": 200, "box_score_thresh": 0.012, "rpn_pre_nms_top_n_test": 200,
                           "rpn_post_nms_top_n_test": 100}  # fmt: skip
ANCHORED: dict[str, Any] = {"min_size": 160, "max_size": 200, "score_thresh": 0.012, "topk_candidates": 100,
                            "detections_per_img": 50}  # fmt: skip


class _Block(torch.nn.Module):
    """Convolution, BatchNorm, SiLU."""

    def __init__(self, taken: int, given: int, taps: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(taken, given, taps, stride, taps // 2, bias=False)
        self.norm = torch.nn.BatchNorm2d(given)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.silu(self.norm(self.conv(x)))


class _Split(torch.nn.Module):
    """YOLOv8's C2f: half of the channels go through residual blocks, and all stages are joined."""

    def __init__(self, taken: int, given: int, blocks: int) -> None:
        super().__init__()
        self.half = given // 2
        self.first = _Block(taken, given, 1)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(_Block(self.half, self.half), _Block(self.half, self.half)) for _ in range(blocks)
        )
        self.last = _Block((2 + blocks) * self.half, given, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.last(torch.cat(parts, 1))


class _Pyramid(torch.nn.Module):
    """YOLOv8's SPPF: one pooling, three times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = _Block(width, width // 2, 1), _Block(2 * width, width, 1)
        self.pool = torch.nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        return self.last(torch.cat(parts, 1))


class Yolo(torch.nn.Module):
    """YOLOv8 at a width of 16, 20 classes; boxes as distributions over 16 distances; suppression of overlaps inside.

    (1, 3, H, W) → boxes (K, 4), scores (K), classes (K) of the boxes that are kept, the best first.
    """

    classes, bins = 20, 16

    def __init__(self, width: int = 16, least: float = 0.55, overlap: float = 0.5) -> None:
        super().__init__()
        self.least, self.overlap = least, overlap
        w = [width, 2 * width, 4 * width, 8 * width, 16 * width]
        self.stem = torch.nn.Sequential(_Block(3, w[0], 3, 2), _Block(w[0], w[1], 3, 2), _Split(w[1], w[1], 1))
        self.down3 = torch.nn.Sequential(_Block(w[1], w[2], 3, 2), _Split(w[2], w[2], 2))
        self.down4 = torch.nn.Sequential(_Block(w[2], w[3], 3, 2), _Split(w[3], w[3], 2))
        self.down5 = torch.nn.Sequential(_Block(w[3], w[4], 3, 2), _Split(w[4], w[4], 1), _Pyramid(w[4]))
        self.up4, self.up3 = _Split(w[4] + w[3], w[3], 1), _Split(w[3] + w[2], w[2], 1)
        self.back4, self.back5 = _Block(w[2], w[2], 3, 2), _Block(w[3], w[3], 3, 2)
        self.out4, self.out5 = _Split(w[2] + w[3], w[3], 1), _Split(w[3] + w[4], w[4], 1)
        self.distances = torch.nn.ModuleList(
            torch.nn.Sequential(_Block(n, 64), torch.nn.Conv2d(64, 4 * self.bins, 1)) for n in w[2:]
        )
        self.scores = torch.nn.ModuleList(
            torch.nn.Sequential(_Block(n, 64), torch.nn.Conv2d(64, self.classes, 1)) for n in w[2:]
        )

    def features(self, image: torch.Tensor) -> list[torch.Tensor]:
        """Feature maps at strides 8, 16 and 32."""
        p3 = self.down3(self.stem(image))
        p4 = self.down4(p3)
        p5 = self.down5(p4)
        n4 = self.up4(torch.cat([torch.nn.functional.interpolate(p5, scale_factor=2.0), p4], 1))
        n3 = self.up3(torch.cat([torch.nn.functional.interpolate(n4, scale_factor=2.0), p3], 1))
        n4 = self.out4(torch.cat([self.back4(n3), n4], 1))
        return [n3, n4, self.out5(torch.cat([self.back5(n4), p5], 1))]

    def forward(self, image: torch.Tensor) -> Sequence[torch.Tensor]:
        boxes, scores = [], []
        steps = torch.arange(self.bins, dtype=torch.float32)
        for i, features in enumerate(self.features(image)):
            height, width = features.shape[2:]
            bins = self.distances[i](features).flatten(2).view(1, 4, self.bins, -1)
            sides = (bins.softmax(2) * steps.view(1, 1, -1, 1)).sum(2)[0].T
            rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
            centres = torch.stack([columns.flatten(), rows.flatten()], 1) + 0.5
            boxes.append(torch.cat([centres - sides[:, :2], centres + sides[:, 2:]], 1) * 2.0 ** (3 + i))
            scores.append(self.scores[i](features).flatten(2)[0].T.sigmoid())
        return self.chosen(torch.cat(boxes), torch.cat(scores))

    def chosen(self, boxes: torch.Tensor, scores: torch.Tensor) -> Sequence[torch.Tensor]:
        """Boxes whose best class has a score above the threshold, without those that better ones overlap."""
        best, classes = scores.max(1)
        passing = torch.nonzero(best > self.least).flatten()
        boxes, best, classes = boxes[passing], best[passing], classes[passing]
        kept = torch.ops.torchvision.nms(boxes + classes[:, None] * 4096.0, best, self.overlap)[:100]
        return boxes[kept], best[kept], classes[kept]


def yolo() -> Traced:
    """YOLOv8 with its post-processing."""
    torch.manual_seed(0)
    torchvision()
    image = 0.5 + 0.3 * torch.randn(1, 3, 128, 128)
    return Traced(_spread(Yolo(), image, {r"^scores\.\d\.1\.": HEAD}), {"image": image}, ("boxes", "scores", "classes"))


class _Answers(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, image: torch.Tensor) -> Sequence[torch.Tensor]:
        found = self.model(pixel_values=image)
        return found.logits, found.pred_boxes


def detr() -> Traced:
    """DETR of transformers: ResNet-50, two layers of encoder and decoder."""
    torch.manual_seed(0)
    torchvision()
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig

    config = DetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, encoder_layers=2,
                        backbone_config=ResNetConfig(out_features=["stage4"]), decoder_layers=2, d_model=128,
                        encoder_ffn_dim=256, decoder_ffn_dim=256, num_queries=50)  # fmt: skip
    image = torch.randn(1, 3, 192, 256)
    model = _Answers(DetrForObjectDetection(config))
    return Traced(_spread(model, image, {"class_labels_classifier": HEAD}), {"image": image}, ("logits", "boxes"))


MODELS = {
    "mask-rcnn": _torchvision("maskrcnn_resnet50_fpn", 160, (*BOXES, "masks"), MASKED,
                              **{**REGIONS, "box_score_thresh": 0.25}),
    "faster-rcnn": _torchvision("fasterrcnn_mobilenet_v3_large_fpn", 160, BOXES, **REGIONS),
    "ssd": _torchvision("ssd300_vgg16", 300, BOXES, score_thresh=0.012, topk_candidates=100, detections_per_img=50),
    "ssdlite": _torchvision("ssdlite320_mobilenet_v3_large", 320, BOXES, score_thresh=0.012),
    "retinanet": _torchvision("retinanet_resnet50_fpn", 160, BOXES, **ANCHORED),
    "fcos": _torchvision("fcos_resnet50_fpn", 160, BOXES, **ANCHORED),
    "keypoint-rcnn": _torchvision("keypointrcnn_resnet50_fpn", 160, (*BOXES, "keypoints", "keypoints_scores"),
                                  **{**REGIONS, "box_score_thresh": 0.4}),
    "yolo": yolo, "detr": detr,
}  # fmt: skip
