"""The intermediate representation: types, graph, text form, verifier, kernel IR, machine facts. Must not know ONNX files or LLVM."""
