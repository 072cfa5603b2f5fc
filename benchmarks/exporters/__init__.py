"""Models as real exporters write them, on parax beside ONNX Runtime (`python -m benchmarks.exporters`)."""
