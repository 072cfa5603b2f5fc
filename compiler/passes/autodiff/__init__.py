"""Reverse-mode differentiation of graphs: what `ai.onnx.preview.training::Gradient` and training are built from."""
