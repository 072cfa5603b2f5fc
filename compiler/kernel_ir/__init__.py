"""The kernel IR: loops, vectors, loads and arithmetic. Kernels are written in it; must not know LLVM, nor the graph."""
