"""From a fused graph to a plan: schedule, lower, emit LLVM, link. Must not know the passes or ONNX."""
