"""Kernels in kernel IR, one family per module. Must not know LLVM."""
