"""Pools over regions of interest: RoiAlign at interpolated positions, MaxRoiPool over whole elements."""

from __future__ import annotations

from ..types import Dim, TensorType
from . import layout_policies
from .base import Attr, Float, In, InferContext, Int64, Ints, Operator, Rows, op
from .work_rules import Shapes, Work

SAMPLE_FLOPS = 8  # of an interpolated element
USUAL_SAMPLES = 4  # of a bin, where the regions say how many it has
MOST_SAMPLES = 1 << 16  # along an axis of a bin


class OverRegions(Operator):
    """Cuts each region of an image [N, C, H, W] into bins and combines what lies in each: [regions, C, bins, bins]."""

    layout_policy = layout_policies.FollowFirst()
    fusion_root = False

    def row_axis(self, rows: Rows) -> int | None:
        """Regions do not depend on each other; images may have regions anywhere."""
        if rows.given[0] is not None or any(axis != 0 for axis in rows.given[1:]):
            raise rows.interact("rows are not the regions")
        return 0

    def bins(self, ctx: InferContext, n: Dim, height: int, width: int) -> list[TensorType]:
        """The result's type, for n regions."""
        x = ctx.shape(0)
        if len(x) != 4:
            ctx.fail("x must be [batch, channels, height, width]", found=ctx.types[0])
        if height < 1 or width < 1:
            ctx.fail("a region needs bins", expected="1 or more on each axis", found=[height, width])
        ctx.require_elements((x[0], *x[2:]), (n, x[1]), "an empty image has no regions")
        return [ctx.tensor(0).with_shape((n, x[1], height, width))]


@op(since=16)
class RoiAlign(OverRegions):
    """Means or maxima of bilinear samples in each bin of a region (He et al., "Mask R-CNN", 2017).

    rois: [regions, 4], x and y of two corners, times `spatial_scale`; batch_indices: [regions], their images. A bin has
    `sampling_ratio`² samples, or, where that is 0, one for each element that it covers, rounded up. As ONNX Runtime and
    onnx.reference have it, the maximum is of the samples' four weighted neighbours, and not of their sums.
    """

    x: In[Float]
    rois: In[Float]
    batch_indices: In[Int64]
    coordinate_transformation_mode: Attr[str] = "half_pixel"
    mode: Attr[str] = "avg"
    output_height: Attr[int] = 1
    output_width: Attr[int] = 1
    sampling_ratio: Attr[int] = 0
    spatial_scale: Attr[float] = 1.0

    def infer(self, ctx: InferContext) -> list[TensorType]:
        for name, known in (("coordinate_transformation_mode", ("half_pixel", "output_half_pixel")),
                            ("mode", ("avg", "max"))):  # fmt: skip
            if getattr(self, name) not in known:
                ctx.fail(f"unknown {name}", expected=" or ".join(known), found=getattr(self, name)[:60])
        if not 0 <= self.sampling_ratio <= MOST_SAMPLES:
            ctx.fail("impossible sampling_ratio", expected=f"0 to {MOST_SAMPLES}", found=self.sampling_ratio)
        rois, images = ctx.shape(1), ctx.shape(2)
        if len(rois) != 2 or rois[1] != 4:
            ctx.fail("rois must be [regions, 4]", found=ctx.types[1])
        if len(images) != 1:
            ctx.fail("batch_indices must be a vector", found=ctx.types[2])
        n = ctx.equal(rois[0], images[0], "every region needs a batch index")
        return self.bins(ctx, n, self.output_height, self.output_width)

    def work(self, shapes: Shapes) -> Work:
        samples = self.sampling_ratio**2 or USUAL_SAMPLES
        return Work("pool", shapes.y_elements * samples * SAMPLE_FLOPS)




@op(since=1)
class MaxRoiPool(OverRegions):
    """Maxima of the elements in each bin of a region (Girshick, "Fast R-CNN", 2015); 0 in bins without any.

    rois: [regions, 5], an image's number, and x and y of the first and the last element, which `spatial_scale`
    multiplies and rounds, halves away from 0. Neighbouring bins may share elements.
    """

    x: In[Float]
    rois: In[Float]
    pooled_shape: Attr[Ints]
    spatial_scale: Attr[float] = 1.0

    def infer(self, ctx: InferContext) -> list[TensorType]:
        rois = ctx.shape(1)
        if len(rois) != 2 or rois[1] != 5:
            ctx.fail("rois must be [regions, 5]", found=ctx.types[1])
        if len(self.pooled_shape) != 2:
            ctx.fail("malformed pooled_shape", expected="2 integers >= 1", found=list(self.pooled_shape))
        return self.bins(ctx, rois[0], *self.pooled_shape)

    def work(self, shapes: Shapes) -> Work:
        return Work("pool", shapes.y_elements * USUAL_SAMPLES)
