"""What the frontend's tests share: models written as text."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx.parser
import pytest

ModelText = Callable[..., onnx.ModelProto]


@pytest.fixture
def model() -> ModelText:
    """`model("g (float[N] x) => (float[N] y) {y = Relu(x)}", opset=9)` in ONNX's text syntax."""

    def parse(text: str, opset: int = 18, ir_version: int = 8, extra: str = "", functions: str = "") -> onnx.ModelProto:
        head = f'<ir_version: {ir_version}, opset_import: ["": {opset}{extra}]>'
        return onnx.parser.parse_model(f"{head}\n{text}\n{functions}")

    return parse
