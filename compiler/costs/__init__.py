"""The cost model: what a node computes and moves, counted from what its operator says and from what kernels do with it.

It must not know kernels: whoever plans hands their counts in (`backend.costs` has those of the native ones).
"""
