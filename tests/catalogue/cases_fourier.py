"""Cases of MelWeightMatrix, and of DFT and STFT: lengths that are one product, that divide, that do not; real, complex,
one-sided, inverse.
"""

from __future__ import annotations

import numpy as np

from catalogue.cases import case, const

ONE_SIDED, INVERSE = {"onesided": 1}, {"inverse": 1}
BACK = {**ONE_SIDED, **INVERSE}


def number(n: int, dtype: type = np.int64) -> np.ndarray:
    return const(np.array(n, dtype))


def mel(bins: int, length: int, rate: int, low: float, high: float, dtype: type = np.float32) -> list[np.ndarray]:
    edges = [const(np.array(hertz, dtype)) for hertz in (low, high)]
    return [number(bins), number(length), number(rate), *edges]


CASES = [
    *(case("MelWeightMatrix", mel(*given)) for given in (
        (8, 16, 8192, 0, 8192 / 2), (80, 400, 16000, 0, 8000), (40, 512, 22050, 20, 11025), (1, 2, 100, 0, 50),
        (5, 9, 100, 10, 20))),
    case("MelWeightMatrix", mel(8, 64, 8192, 30, 4000, np.float64), {"output_datatype": 11}),
    case("MelWeightMatrix", mel(8, 64, 8192, 30, 4000), {"output_datatype": 7}),
    case("MelWeightMatrix", mel(8, 64, 8192, 30, 4000), {"output_datatype": 10}),
    case("MelWeightMatrix", [number(8, np.int32), number(64, np.int32), np.array(8000, np.int32),
                             np.array(20, np.float32), np.array(3900, np.float32)]),
    *(case("DFT", [f"{t}[2,{n},{c}]"], given) for t in ("f32", "f64")
      for n, c, given in (
          (10, 1, {}), (7, 2, {}), (10, 1, ONE_SIDED), (7, 1, ONE_SIDED), (9, 2, INVERSE), (6, 2, BACK))),
    case("DFT", ["f16[2,16,2]"]), case("DFT", ["bf16[2,12,1]"], atol=0.2),
    case("DFT", ["f32[3,5,4,2]", None, number(0)]), case("DFT", ["f32[3,5,4,1]", number(9), number(-3)], INVERSE),
    case("DFT", ["f32[2,10,1]", number(6, np.int32)], ONE_SIDED), case("DFT", ["f32[2,10,2]", number(15)], BACK),
    case("DFT", ["f32[2,4,2]", number(11)], BACK), case("DFT", ["f32[N=3,300,1]"], ONE_SIDED),
    case("DFT", ["f32[1,1,2]"]), case("DFT", ["f32[0,8,2]"]),
    *(case("DFT", [f"f32[1,{n},{c}]"], given) for n, c, given in (
        (1031, 2, INVERSE), (1040, 1, {}), (521, 1, ONE_SIDED), (1033, 2, BACK), (2 * 1033, 1, ONE_SIDED),
        (1037, 2, {}))),
    *(case("STFT", [f"{t}[2,40,1]", number(7), const(np.hanning(12).astype(d)), number(12)])
      for t, d in (("f32", np.float32), ("f64", np.float64))),
    case("STFT", ["f32[2,40,2]", number(3), const(np.hamming(9).astype(np.float32))], {"onesided": 0}),
    case("STFT", ["f16[1,64,1]", number(16, np.int32), "f16[16]"]),
    case("STFT", ["f32[2,40,1]", number(5), None, number(8)], {"onesided": 0}),
    case("STFT", ["f32[N=2,L=45,1]", number(5), const(np.hanning(10).astype(np.float32))]),
    case("STFT", ["f32[2,L=45,2]", number(4), None, number(11)], {"onesided": 0}),
]  # fmt: skip
