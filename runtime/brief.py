"""Native calls that take so little that they keep the GIL, and need no second core.

A thread that releases the GIL waits for it behind all others that want it: several threads with calls of some
microseconds would spend most of their time so. To cut such a request, or to have all cores at hand for it, takes longer
than one core takes for all of it. Owns which shapes are brief; the executor calls.
"""

from __future__ import annotations

import time

from .bindings import TIMED_CALLS, Timing
from .instance import Instance

BRIEF_SECONDS, LONG_SECONDS = 30e-6, 1e-3
"""A native call that need not release the GIL takes less than the one; one that takes more than the other is timed
anew, or no more than twice if it is the first that is known of its shape."""
MOST_NBYTES = 1 << 20
"""Of a request's arena: what works through more is not brief."""
BRIEF_CALLS = 63
"""Brief calls after each that is timed: to ask the system for the thread's time takes as long as the shortest call."""


def timed_call(instance: Instance, binding: Timing) -> int:
    """The answer of one native call; whether calls of this shape are brief is found out by a few of them.

    By the time that the thread computes: whoever waits for the GIL behind others that keep it has not taken longer.
    """
    call = instance.code.team_held if binding.is_brief else instance.code.team
    began = time.thread_time()
    status = call(instance.worker)
    seconds = time.thread_time() - began
    is_long = seconds > LONG_SECONDS
    if binding.n_untimed:
        binding.n_untimed = max(0, binding.n_untimed - (TIMED_CALLS // 2 if is_long else 1))
        binding.least = min(binding.least, seconds)
        binding.is_brief = not binding.n_untimed and binding.least < BRIEF_SECONDS and len(instance.cores) == 1
    elif is_long:
        binding.is_brief, binding.n_untimed, binding.least = False, TIMED_CALLS, float("inf")
    binding.n_brief = BRIEF_CALLS if binding.is_brief else 0
    return int(status)
