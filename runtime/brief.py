"""Native calls that take so little that they keep the GIL.

A thread that releases the GIL waits for it behind all others that want it: several threads with calls of some
microseconds would spend most of their time so. Owns which shapes are brief; the executor calls.
"""

from __future__ import annotations

import time

from .bindings import TIMED_CALLS, Binding
from .instance import Instance

BRIEF_SECONDS, LONG_SECONDS = 20e-6, 1e-3
"""A native call that need not release the GIL takes less than the one; longer than the other, it is timed anew."""
BRIEF_CALLS = 15
"""Brief calls after each that is timed: to read a clock twice takes 1 % of the shortest requests."""


def timed_call(instance: Instance, binding: Binding) -> int:
    """The answer of one native call; whether calls of this shape are brief is found out by a few of them."""
    call = instance.code.team_held if binding.is_brief else instance.code.team
    began = time.perf_counter()
    status = call(instance.lane)
    seconds = time.perf_counter() - began
    if binding.n_untimed:
        binding.n_untimed -= 1
        binding.least = min(binding.least, seconds)
        binding.is_brief = not binding.n_untimed and binding.least < BRIEF_SECONDS and len(instance.cores) == 1
    elif seconds > LONG_SECONDS:  # or the system let another thread run: calls are timed again
        binding.is_brief, binding.n_untimed, binding.least = False, TIMED_CALLS, float("inf")
    binding.n_brief = BRIEF_CALLS if binding.is_brief else 0
    return int(status)
