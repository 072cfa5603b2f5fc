"""silero VAD, whose package holds the files, and a decoder with a loop of its own."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from .sources import Traced, Written, float_feed

SILERO = {
    "silero-vad": ("silero_vad", (16000, 8000)), "silero-vad-op15": ("silero_vad_16k_op15", (16000,)),
    "silero-vad-ifless": ("silero_vad_op18_ifless", (16000,)), "silero-vad-half": ("silero_vad_half", (16000,)),
}  # fmt: skip
"""Files of the package, and the rates (Hz) that they take."""
SAMPLES_A_HERTZ = 576 / 16000
"""Of a window: 512 at 16 kHz, behind the last 64 of the window before."""


def _silero(name: str) -> Callable[[], Written]:
    def build() -> Written:
        file, rates = SILERO[name]
        path = Path(str(files("silero_vad"))) / "data" / f"{file}.onnx"
        rng = np.random.default_rng(0)
        feeds = [{"input": 0.1 * float_feed(rng, rows, int(SAMPLES_A_HERTZ * rate)),
                  "state": float_feed(rng, 2, rows, 128), "sr": np.array(rate, np.int64)}
                 for rate in rates for rows in (1, 3)]  # fmt: skip
        return Written(path, f"silero-vad {version('silero-vad')}", feeds)

    return build


class _Cell(torch.nn.Module):
    """One step of a Tacotron-like decoder: pre-net, attention LSTM, location-free attention, decoder LSTM."""

    def __init__(self, bands: int, width: int) -> None:
        super().__init__()
        self.prenet = torch.nn.Sequential(torch.nn.Linear(bands, width), torch.nn.ReLU())
        self.attending = torch.nn.LSTMCell(2 * width, width)
        self.decoding = torch.nn.LSTMCell(2 * width, width)
        self.query, self.key, self.energy = (torch.nn.Linear(width, n, bias=False) for n in (width, width, 1))
        self.frame, self.stop = torch.nn.Linear(2 * width, bands), torch.nn.Linear(2 * width, 1)

    def forward(self, frame: torch.Tensor, memory: torch.Tensor, context: torch.Tensor, h: torch.Tensor,
                c: torch.Tensor, h2: torch.Tensor, c2: torch.Tensor) -> list[torch.Tensor]:  # fmt: skip
        h, c = self.attending(torch.cat([self.prenet(frame), context], 1), (h, c))
        energies = self.energy(torch.tanh(self.query(h)[:, None] + self.key(memory)))
        weights = torch.softmax(energies, 1)
        context = (weights * memory).sum(1)
        h2, c2 = self.decoding(torch.cat([h, context], 1), (h2, c2))
        both = torch.cat([h2, context], 1)
        return [self.frame(both), torch.sigmoid(self.stop(both)), context, h, c, h2, c2]


class Speaker(torch.nn.Module):
    """A Tacotron-like decoder, whose loop ends where a frame says so: memory (1, T, width) → frames (L, bands)."""

    def __init__(self, bands: int = 20, width: int = 64, most: int = 40) -> None:
        super().__init__()
        self.cell, self.bands, self.width, self.most = _Cell(bands, width), bands, width, most

    def forward(self, memory: torch.Tensor, patience: torch.Tensor) -> torch.Tensor:
        frame = torch.zeros(1, self.bands)
        context = torch.zeros(1, self.width)
        h, c, h2, c2 = context, context, context, context
        frames = torch.zeros(0, self.bands)
        asked = torch.zeros(1, 1)
        steps = 0
        while steps < self.most and bool((asked < patience).all()):
            frame, stop, context, h, c, h2, c2 = self.cell(frame, memory, context, h, c, h2, c2)
            frames = torch.cat([frames, frame], 0)
            asked = asked + stop
            steps += 1
        return frames


def tacotron() -> Traced:
    """A Tacotron-like decoder: it ends where the sum of what frames say reaches `patience`."""
    torch.manual_seed(0)
    inputs = {"memory": torch.randn(1, 12, 64), "patience": torch.tensor([[4.3]])}
    other = {"memory": torch.randn(1, 17, 64), "patience": torch.tensor([[7.7]])}
    return Traced(Speaker().eval(), inputs, ("frames",), {"memory": {1: "length"}}, scripted=True, resized=other)


MODELS = {**{name: _silero(name) for name in SILERO}, "tacotron-loop": tacotron}
