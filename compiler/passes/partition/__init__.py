"""Passes and plans that spread a graph over cores: layers, stages, micro-batches."""
