"""From a model's graph to the graphs of a training step: forward and backward in one, and the optimiser's update."""
