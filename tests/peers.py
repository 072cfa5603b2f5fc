"""What an older ONNX Runtime gets wrong that the tests hold against it: Python 3.10 has none newer than 1.23."""

from __future__ import annotations

import importlib.metadata

import pytest


def onnxruntime_since(version: str, why: str) -> None:
    """Skip the running test where an older ONNX Runtime would be the judge; `why`: what that one gets wrong."""
    try:
        found = importlib.metadata.version("onnxruntime")
    except importlib.metadata.PackageNotFoundError:
        return
    if _numbers(found) < _numbers(version):
        pytest.skip(f"ONNX Runtime {found}, which {why}; {version} does not")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
