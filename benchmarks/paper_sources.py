"""Figures that the source papers report, as SPEC-like tables; no code. Times are milliseconds a call."""

from __future__ import annotations

INSTANCES = (1, 4, 14, 28, 56)

PER_OPERATOR: dict[tuple[str, str], tuple[float, ...]] = {
    ("resnet50", "Conv"): (12.5, 11.85, 11.82, 11.82, 11.82),
    ("resnet50", "BatchNormalization"): (8.6, 2.73, 2.3, 2.28, 2.28),
    ("resnet50", "Relu"): (5.08, 1.5, 1.35, 1.34, 1.34),
    ("word-lm", "Gemm"): (1.28, 0.64, 0.49, 0.46, 0.44),
    ("word-lm", "Cells"): (0.147, 0.047, 0.031, 0.028, 0.026),
    ("word-lm", "Gather"): (31.53, 4.38, 0.98, 0.746, 0.633),
    ("ncf", "Gemm"): (232.5, 107.7, 88.9, 88.4, 88.0),
    ("ncf", "Relu"): (192.3, 46.9, 16.5, 13.9, 12.4),
    ("ncf", "Gather"): (34.0, 12.5, 8.0, 7.5, 7.4),
}
"""ParaX: latency of an operator at 1, 4, 14, 28 and 56 instances on 56 cores (training; NCF: 1000 calls). "Cells" is
the activation of an LSTM."""

TRAINING_SPEED_UP = (1.73, 2.93)
INFERENCE_SPEED_UP = (2.08, 2.11)
LSTM_SPEED_UP = {128: 2.76, 256: 2.49}
CORE_USE, BANDWIDTH_USE = 0.948, 0.886
SATURATED_ROWS = {"training": 16, "inference": 16}  # a core: 64 × 14 and 16 × 56 rows on 56 cores
BEST_CIFAR_INSTANCES = 28

UTILISATIONS, STAGE_SUM = (0.5, 0.4, 0.3, 0.4, 0.5, 0.4), 1.0
MICRO_BATCHES = {2: 5, 3: 6, 4: 6, 5: 7, 6: 7, 7: 8, 8: 8}  # stages → micro-batches at B = 256, Bdev = 64
MICRO_BATCH_SIZES = (43, 43, 43, 43, 42, 42)
PIPELINE_IDLE = (0.5, 0.25)  # "more than" the first without micro-batches, about the second with
BLOCK_MS = (0.36, 0.34)  # an Inception block, its operators one by one and in layers
BLOCK_USE = ((0.95, 0.20), (0.70, 0.50))  # its utilisation in both ways: two figures each
LAYERS_SPEED_UP = {"inception-v3": 1.05, "resnet50": 1.02}  # in layers over without
PIPELINE_SPEED_UP = 1.10  # Inception-v3 in layers and as a pipeline over neither
OVER_TENSORFLOW = (1.05, 1.15)
ENERGY = 0.85
LOADER_THREADS, LOADER_ENERGY = (48, 64), 0.75
