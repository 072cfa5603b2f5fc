"""Kernels in kernel IR, a folder for each family. Must not know LLVM."""
