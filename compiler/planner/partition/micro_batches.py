"""Into how many micro-batches a pipelined batch is cut: Mofang's algorithm 2.

With K stages and M micro-batches the pipeline idles for P_pipe(M) = (K−1)/(M+K−1) of the time (its bubble), and
micro-batches smaller than Bdev, the largest batch that the device needs to be full, lose
D_loss(M) = max(0, 1 − (B/M)/Bdev). The first falls with M and the second grows; they are balanced at the smallest M
with D_loss(M) ≥ P_pipe(M), which a binary search finds.
"""

from __future__ import annotations

from ....errors import UsageError


def bubble(n_stages: int, n_micro_batches: int) -> float:
    """P_pipe: the share of the time for which a stage has nothing to do."""
    return (n_stages - 1) / (n_micro_batches + n_stages - 1)


def device_loss(batch: int, device_batch: int, n_micro_batches: int) -> float:
    """D_loss: the share of the device that micro-batches leave unused."""
    return max(0.0, 1 - batch / n_micro_batches / device_batch)


def micro_batches(batch: int, device_batch: int, n_stages: int) -> int:
    """The number M of micro-batches: the smallest in [⌈batch / device_batch⌉, batch] with D_loss(M) ≥ P_pipe(M).

    Where no M has (a device that one row fills), the largest.

    Raises:
        UsageError: an argument below 1.
    """
    for name, value in (("batch", batch), ("device_batch", device_batch), ("n_stages", n_stages)):
        if value < 1:
            raise UsageError(f"{name} must be positive", where="micro-batches", expected="at least 1", found=value)
    low, high = max(1, -(-batch // device_batch)), batch
    while low < high:
        middle = (low + high) // 2
        if device_loss(batch, device_batch, middle) >= bubble(n_stages, middle):
            high = middle
        else:
            low = middle + 1
    return low


def micro_batch_sizes(batch: int, n_micro_batches: int) -> list[int]:
    """Rows of each micro-batch: ⌈B/M⌉ for the first B mod M, ⌊B/M⌋ for the others."""
    least, more = divmod(batch, n_micro_batches)
    return [least + 1] * more + [least] * (n_micro_batches - more)


__all__ = ["bubble", "device_loss", "micro_batch_sizes", "micro_batches"]
