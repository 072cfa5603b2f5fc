"""The compiler: an ONNX model in, a plan out. Knows how plans are built; knows nothing of how they are scheduled on cores."""
