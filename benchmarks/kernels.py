"""How close single kernels come to the machine's limits: GFLOP/s and share of the measured multiply-add peak.

    python -m benchmarks.kernels [gemm conv depthwise ...] [--repeats 15] [--target x86-64-v3]

All cases are interleaved (A B C A B C …) with the peak and the copy bandwidth measured in the same rounds; medians
are printed, so that a noisy neighbour hits everything alike. One core, its processor time. Convolutions are direct
unless --winograd. Each turn of a case is timed twice:

  cold  one run, after more memory than the last cache holds has been read: all operands come from memory.
  warm  the runs that follow at once, the first one left out: operands come from the caches that hold them.

In a network activations are what the layer before has just written, while weights come from memory once a model is
larger than the caches; a layer's speed lies between the two columns. Aims (GEMM >= 95 % of peak) are about warm, which
depends on the code more than on the memory; % roof is warm too. Shares are of the peak in f32, beside which gemm-bf16
and gemm-int8 show what their instructions reach alone (aim: products >= 90 % of that). % copy is cold: the bytes of the
operands a second, by the bytes that a copy reads and writes.
"""

from __future__ import annotations

import ctypes

import numpy as np

from parax.compiler.backend.host import host_features, resolve_target
from parax.compiler.backend.microkernels.table import features_of, tiles
from parax.compiler.ir.fp import Fp
from parax.compiler.ir.graph import Graph
from parax.compiler.ir.ops import lookup
from parax.compiler.ir.types import BF16, DType, TensorType
from parax.compiler.kernel_ir import matrices
from parax.compiler.kernel_ir.builder import F32, F32PTR, KValue, kernel
from parax.compiler.kernel_ir.matrix_registers import Shape
from parax.compiler.targets.target import Target, extended

from . import kernel_cases
from .command import command_line, finish
from .kernel_cases import bound_case, compile_kernels, copy_case, node_case, peak_case
from .kernel_narrow import gemm_bf16_cases, gemm_int8_cases
from .warm_cold import Case, aligned, measure

LAST = (0, 2, 3, 1)

GEMMS = [(3136, 64, 256), (784, 512, 128), (196, 256, 1024), (49, 2048, 512), (128, 768, 768), (512, 768, 3072),
         (512, 3072, 768), (1024, 1024, 1024), (1, 2048, 1000), (1, 4096, 4096), (35, 650, 2600)]  # fmt: skip


def gemm_cases(target: Target) -> list[Case]:
    """Shapes of ResNet-50's pointwise layers and of BERT-base."""
    return [node_case(f"gemm {m}x{k}x{n}", target, "MatMul", [(m, k), (k, n)], {}, (1,)) for m, k, n in GEMMS]


def matrix_cases(target: Target) -> list[Case]:
    """Tensors of bf16 by matrix registers, and what these reach alone; none where the CPU has no such registers."""
    able = extended(target, features_of(BF16) & host_features())
    if not any(tile.emitter.matrices for tile in tiles(able, BF16)):
        return []
    products = [node_case(f"gemm of bf16 {m}x{k}x{n}", able, "MatMul", [(m, k), (k, n)], {}, (1,), dtype=BF16)
                for m, k, n in GEMMS]  # fmt: skip
    layers = [(56, 64, 64, 1), (56, 64, 256, 1), (14, 1024, 256, 1), (7, 512, 2048, 1), (56, 64, 64, 3),
              (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3)]  # fmt: skip
    few = [(56, 24, 144, 1), (56, 144, 24, 1), (28, 8, 32, 5), (56, 48, 96, 3)]
    image = conv_case(able, 224, 3, 64, 7, 2, plain_input=True, dtype=BF16)
    upward = transposed_case(able, 32, 128, 64, 2, 2, "parax::Bf16ConvTranspose", BF16)
    convolutions = [conv_case(able, *s, dtype=BF16) for s in (*layers, *few)]
    return [matrix_peak_case(able), *products, *convolutions, image, upward, attention_case(able, 4, 128, BF16)]


def matrix_peak_case(target: Target, steps: int = 20_000) -> Case:
    """Products of full matrix registers alone: four independent sums."""
    k = kernel("matrix_peak", [("x", F32PTR)])
    matrices.shape(k, [Shape(16, 64)] * 8)

    def step(i: KValue, _: list[KValue]) -> None:
        for n in range(4):
            matrices.dot(k, "bf16", n, 4 + n // 2, 6 + n % 2)

    k.for_(0, k["end"], 1, [], step)
    matrices.store(k, 0, k["x"], 0, 16)
    matrices.release(k)
    code, x, dims = compile_kernels([k.func], target), aligned(1024), np.zeros(8, np.int64)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)(
        code.address("bench_matrix_peak")
    )

    def run(code: object = code) -> None:
        function(x.ctypes.data, dims.ctypes.data, dims.ctypes.data, 0, steps)

    return Case("matrix registers alone", run, steps * 4 * 16 * 16 * 32 * 2.0, 0)


def blocked_case(target: Target, m: int, k: int, n: int, bits: int, rounds: bool = False, size: int = 32) -> Case:
    """A product by weights of so many bits that share a scale in blocks; `rounds`: activations have 8 bits."""
    rng, graph = np.random.default_rng(0), Graph("bench")
    x = graph.add_input("x", TensorType(F32, (m, k)))
    q = graph.add_constant(rng.integers(0, 256, (n, k // size, size * bits // 8)).astype(np.uint8))
    scales = graph.add_constant(rng.uniform(0.01, 0.1, (n, k // size)).astype(np.float32))
    op = lookup("parax", "BlockedMatMul")(bits=bits, block_size=size, rounds=int(rounds))
    node = graph.add_node(op, [x, q, scales])
    graph.set_outputs(node.outputs)
    return bound_case(f"gemm int{bits} {m}x{k}x{n}{' rounded' if rounds else ''}", target, node, rng)


def gemm_int4_cases(target: Target) -> list[Case]:
    """Products of a language model's step and of its prompt by weights of 4 bits, and a step's of 8 bits and of f32."""
    shapes = [(1, 4096, 4096), (1, 4096, 11008), (1, 11008, 4096), (4, 4096, 4096), (128, 4096, 4096)]
    return [
        *(blocked_case(target, *shape, 4, rounds) for shape in shapes for rounds in (False, True)),
        blocked_case(target, 1, 4096, 4096, 8),
        node_case("gemm 1x4096x4096 f32", target, "MatMul", [(1, 4096), (4096, 4096)], {}, (1,)),
    ]


def conv_case(
    target: Target,
    h: int,
    cin: int,
    cout: int,
    kernel: int,
    stride: int = 1,
    group: int = 1,
    batch: int = 1,
    plain_input: bool = False,
    dilation: int = 1,
    dtype: DType = F32,
) -> Case:
    """A square convolution with "same" padding."""
    pad = kernel // 2 * dilation
    name = (
        f"conv{kernel}x{kernel}/{stride} {batch}x{h}²x{cin}→{cout}"
        + (f" g{group}" if group > 1 else "")
        + (f" d{dilation}" if dilation > 1 else "")
        + (" nchw" if plain_input else "")
        + ("" if dtype == F32 else f" of {dtype}")
    )
    return node_case(
        name,
        target,
        "Conv",
        [(batch, cin, h, h), (cout, cin // group, kernel, kernel), (cout,)],
        {} if plain_input else {0: LAST},
        (1, 2),
        LAST,
        pads=[pad] * 4,
        strides=[stride] * 2,
        dilations=[dilation] * 2,
        group=group,
        dtype=dtype,
    )


def transposed_case(
    target: Target, h: int, cin: int, cout: int, kernel: int, stride: int, op: str = "ConvTranspose", dtype: DType = F32
) -> Case:
    """A square transposed convolution whose result is `stride` times as large (one less where the kernel is odd)."""
    name = f"convT{kernel}x{kernel}/{stride} {h}²x{cin}→{cout}" + ("" if dtype == F32 else f" of {dtype}")
    shapes: list[tuple[int, ...]] = [(1, cin, h, h), (cin, cout, kernel, kernel)]
    shapes += [(cout,)] * (dtype == F32)  # a bias is of f32 always
    constants = tuple(range(1, len(shapes)))
    pads = [(kernel - stride + 1) // 2] * 4
    return node_case(name, target, op, shapes, {0: LAST}, constants, LAST, dtype=dtype, pads=pads, strides=[stride] * 2)


def conv_cases(target: Target) -> list[Case]:
    """ResNet-50's layers and MobileNet's pointwise ones."""
    shapes = [
        (56, 64, 64, 1, 1),
        (56, 64, 256, 1, 1),
        (56, 256, 64, 1, 1),
        (56, 256, 512, 1, 2),
        (28, 128, 512, 1, 1),
        (14, 1024, 256, 1, 1),
        (7, 512, 2048, 1, 1),
        (56, 64, 64, 3, 1),
        (28, 128, 128, 3, 1),
        (28, 256, 256, 3, 2),
        (14, 256, 256, 3, 1),
        (7, 512, 512, 3, 1),
        (112, 32, 64, 1, 1),
        (56, 24, 144, 1, 1),
        (14, 96, 576, 1, 1),
        (56, 144, 24, 1, 1),
    ]
    return [conv_case(target, *s) for s in shapes]


def first_cases(target: Target) -> list[Case]:
    """Layers that read the image."""
    return [
        conv_case(target, 224, 3, 64, 7, 2, plain_input=True),
        conv_case(target, 224, 3, 32, 3, 2, plain_input=True),
        conv_case(target, 224, 3, 64, 3, 1, plain_input=True),
        conv_case(target, 224, 3, 64, 7, 2),
    ]


def grouped_cases(target: Target) -> list[Case]:
    """ResNeXt's layers (32 groups), AlexNet's (2), ShuffleNet's pointwise ones (3, 4, 8)."""
    shapes = [
        (56, 128, 128, 3, 1, 32),
        (56, 256, 256, 3, 2, 32),
        (28, 256, 256, 3, 1, 32),
        (14, 512, 512, 3, 1, 32),
        (7, 1024, 1024, 3, 1, 32),
        (27, 96, 256, 5, 1, 2),
        (13, 384, 256, 3, 1, 2),
        (28, 240, 60, 1, 1, 3),
        (28, 272, 68, 1, 1, 4),
        (28, 384, 96, 1, 1, 8),
        (28, 96, 384, 1, 1, 8),
    ]
    return [conv_case(target, h, i, o, kernel, stride, group) for h, i, o, kernel, stride, group in shapes]


def odd_cases(target: Target) -> list[Case]:
    """Few input channels, small maps, columns that fill no register, groups, dilations, transposed convolutions."""
    image = [(224, 3, 64, 7, 2), (224, 3, 32, 3, 2), (299, 3, 32, 3, 2), (224, 3, 96, 11, 4), (224, 1, 64, 3, 1)]
    shapes = [
        (56, 64, 128, 3, 2),
        (7, 512, 2048, 1, 1),
        (7, 2048, 512, 1, 1),
        (7, 160, 960, 1, 1),
        (28, 64, 100, 1, 1),
        (28, 48, 57, 3, 1),
        (35, 192, 48, 1, 1),
        (56, 144, 24, 1, 1),
        (17, 128, 192, 7, 1),
    ]
    dilated = [conv_case(target, 28, 128, 128, 3, dilation=d) for d in (2, 4)]
    upward = [(28, 128, 64, 2, 2), (112, 64, 32, 2, 2), (8, 512, 256, 4, 2), (32, 128, 64, 4, 2), (28, 64, 64, 3, 2)]
    return (
        [conv_case(target, *s, plain_input=True) for s in image]
        + [conv_case(target, *s) for s in shapes]
        + dilated
        + [transposed_case(target, *s) for s in upward]
        + [transposed_case(target, 64, 64, 3, 4, 2), transposed_case(target, 56, 21, 21, 4, 2)]
        + grouped_cases(target)
    )


def depthwise_cases(target: Target) -> list[Case]:
    """MobileNet's depthwise layers."""
    layers = [(112, 32, 1), (112, 64, 2), (56, 128, 1), (28, 256, 1), (14, 512, 1), (7, 1024, 1)]
    shapes = [*layers, (56, 144, 2), (14, 576, 1)]
    return [conv_case(target, h, c, c, 3, s, group=c) for h, c, s in shapes]


HEADS = (0, 2, 1, 3), (0, 3, 1, 2)  # layouts of queries and values, and of keys, as transformers have them


def attention_case(target: Target, n: int, s: int, dtype: DType = F32) -> Case:
    """Whole attention of 12 heads of 64; of f32 with a mask."""
    heads, keys = HEADS
    shapes: list[tuple[int, ...]] = [(n, 12, s, 64), (n, 12, 64, s), (n, 12, s, 64)]
    shapes += [(n, 1, 1, s)] * (dtype == F32)
    name = f"attention {n}x12x{s}x64" + ("" if dtype == F32 else f" of {dtype}")
    op = "parax::DotProductAttention" if dtype == F32 else "parax::Bf16Attention"
    return node_case(name, target, op, shapes, {0: heads, 1: keys, 2: heads}, (), heads, dtype=dtype, scale=0.125)


def attention_cases(target: Target) -> list[Case]:
    """BERT-base's products of two activations, heads of 64 with batch 4, length 128; whole attention, also ViT's."""
    heads, keys = HEADS
    return [
        attention_case(target, 4, 128),
        attention_case(target, 1, 197),
        attention_case(target, 1, 1024),
        node_case("attention PV", target, "MatMul", [(4, 12, 128, 128), (4, 12, 128, 64)], {1: heads}, (), heads),
        node_case(
            "attention QKt", target, "MatMul", [(4, 12, 128, 64), (4, 12, 64, 128)], {0: heads, 1: keys}, ()
        ),
    ]


def pool_case(target: Target, op: str, h: int, channels: int, window: int, stride: int, pad: int) -> Case:
    """A square pool over a map that lies with its channels innermost."""
    name = f"{op} {window}x{window}/{stride} {h}²x{channels}"
    attributes = {"kernel_shape": [window] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    return node_case(name, target, op, [(1, channels, h, h)], {0: LAST}, (), LAST, **attributes)


def pool_cases(target: Target) -> list[Case]:
    """Pools of ResNet, Inception-BN and VGG."""
    shapes = [(112, 64, 3, 2, 1), (56, 192, 3, 2, 1), (28, 320, 3, 2, 1), (7, 1024, 3, 1, 1), (56, 256, 2, 2, 0)]
    return [pool_case(target, op, *s) for op in ("MaxPool", "AveragePool") for s in shapes]


GROUPS = {
    "gemm": gemm_cases,
    "gemm-bf16": lambda target: gemm_bf16_cases(target, GEMMS),
    "gemm-int8": lambda target: gemm_int8_cases(target, GEMMS),
    "gemm-int4": gemm_int4_cases,
    "matrices": matrix_cases,
    "conv": conv_cases,
    "first": first_cases,
    "odd": odd_cases,
    "depthwise": depthwise_cases,
    "attention": attention_cases,
    "pool": pool_cases,
}


def main() -> None:
    """Measure and print a table."""
    parser = command_line("kernels", __doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"which cases: {' '.join(GROUPS)} (default: all)")
    parser.add_argument("--repeats", type=int, default=15, metavar="R", help="turns of each case (default 15)")
    parser.add_argument("--target", default="native", help="to compile for (default: native)")
    parser.add_argument("--winograd", action="store_true", help="let convolutions use Winograd")
    args = parser.parse_args()
    if unknown := set(args.groups) - set(GROUPS):
        parser.error(f"no such group: {' '.join(sorted(unknown))}")
    kernel_cases.FP = Fp.DEFAULT if args.winograd else Fp.STRICT
    target = resolve_target(args.target)
    limits = [peak_case(target), copy_case()]
    cases = limits + [c for g in args.groups or GROUPS for c in GROUPS[g](target)]
    times = measure(cases, args.repeats)
    peak = limits[0].flops / times["fma peak"].warm
    bandwidth = limits[1].nbytes / times["copy"].warm
    print(f"{target.name}: peak {peak / 1e9:.1f} GFLOP/s, copy {bandwidth / 1e9:.1f} GB/s, median of {args.repeats}")
    print(f"{'case':32} {'µs':>9} {'GFLOP/s':>8} {'% warm':>7} {'% cold':>7} {'% roof':>7} {'% copy':>7} "
          f"{'compile ms':>10}")
    for c in cases[2:]:
        t = times[c.name]
        roof = max(c.flops / peak, c.nbytes / bandwidth)
        parts = (c.flops / peak / t.warm, c.flops / peak / t.cold, roof / t.warm, c.nbytes / bandwidth / t.cold)
        shares = " ".join(f"{100 * part:7.1f}" for part in parts)
        print(f"{c.name:32} {t.warm * 1e6:9.1f} {c.flops / t.warm / 1e9:8.1f} {shares} {c.compile_seconds * 1e3:10.0f}")


if __name__ == "__main__":
    finish(main)
