"""Sends home the threads of numpy's BLAS before a plan starts. Knows nothing of plans.

OpenBLAS starts a thread for every core but one when numpy is imported, and each looks for work without a pause for 2²⁸
ticks of the clock (0.1 s; `THREAD_TIMEOUT` of its driver/others/blas_server.c) before it sleeps: just while a plan is
checked and gives its first result on the same cores. They are ended here as OpenBLAS ends them before a fork
(`blas_thread_shutdown_`), and start again when a product next wants them.

Only where nobody can be using them: the process has no threads but the caller and these. NumPy 2.5's OpenBLAS exports
nothing that ends them: there they stay, and sleep after their 0.1 s.
"""

from __future__ import annotations

import ctypes
import os
import sys

_PARTS_OF_NUMPY = ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath")  # 2, 1: linked to the BLAS
_END = "blas_thread_shutdown_"
_COUNTS = ("scipy_openblas_get_num_threads64_", "openblas_get_num_threads64_", "openblas_get_num_threads")


def end_idle_blas_threads() -> bool:
    """Whether there were such threads, and no others; then they are gone."""
    paths = [getattr(sys.modules.get(name), "__file__", None) for name in _PARTS_OF_NUMPY]
    path = next(filter(None, paths), None)
    if path is None:
        return False
    numpy = ctypes.CDLL(path)  # loaded long ago: this finds its symbols and those of the libraries it is linked to
    count = next((getattr(numpy, name) for name in _COUNTS if hasattr(numpy, name)), None)
    if count is None or not hasattr(numpy, _END):
        return False
    if count() < 2 or count() != _n_threads():
        return False
    getattr(numpy, _END)()
    return True


def _n_threads() -> int:
    """How many this process has now, those that Python knows nothing of included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0
