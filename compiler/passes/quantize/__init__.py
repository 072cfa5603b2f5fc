"""Quantisation: a graph of f32 becomes one that rounds activations and weights to 8 bits, in ONNX's own operators."""
