"""Loads and runs plans: instances, executors, schedulers. Must never import the compiler, onnx or networkx."""
