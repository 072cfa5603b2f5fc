"""The operator catalogue: one class per operator. Must not know ONNX files or LLVM."""
