"""How many instances of how many cores a session starts: what its caller asks for, else the plan, else its hint."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UsageError
from .delayed_start import checked_delay
from .limits import shown
from .manifest import Arrangement, Delay, Manifest


def check_counts(**counts: object) -> None:
    """Refuse what is no positive number.

    Raises:
        UsageError: one is none.
    """
    for what, count in counts.items():
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise UsageError("must be a positive number", where=what, found=shown(count))


def wanted_delay(manifest: Manifest, planned: Arrangement | None, given: tuple[int, float] | None) -> Delay | None:
    """Of the instances' starts: the caller's, else that of the plan's user, else the planner's."""
    if given is not None:
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise UsageError("not a delay", where="delay", expected="(groups, seconds)", found=shown(given))
        return checked_delay(*given)
    return manifest.delay or (planned.delay if planned else None)


def wanted_size(
    manifest: Manifest, n_cores: int, instances: int | None, cores_per_instance: int | None
) -> tuple[Arrangement | None, tuple[int | None, int | None]]:
    """What the planner chose for so many cores, if that counts; instances and cores of each, None: the hint decides."""
    if instances is not None or cores_per_instance is not None:
        return None, (instances, cores_per_instance)
    if manifest.instances is not None:
        fewer = min(manifest.instances, n_cores)
        return None, (fewer, n_cores // fewer)
    planned = manifest.arrangement
    if planned is not None and planned.cores == n_cores:
        return planned, (planned.instances, planned.cores_each)
    if manifest.scheduled is not None and manifest.scheduled.n_cores <= n_cores:
        return None, (None, manifest.scheduled.n_cores)
    return None, (None, None)


def core_groups(
    hint: str, cores: Sequence[int], instances: int | None, cores_per_instance: int | None
) -> tuple[tuple[int, ...], ...]:
    """The cores of each instance; see Session.

    Raises:
        UsageError: not a positive number, or more cores than given.
    """
    for name, value in (("instances", instances), ("cores_per_instance", cores_per_instance)):
        if value is not None and value < 1:
            raise UsageError("must be positive", where=name, found=value)
    if instances is None and cores_per_instance is None:
        instances, cores_per_instance = (1, len(cores)) if hint == "latency" else (len(cores), 1)
    elif cores_per_instance is None:
        cores_per_instance = 1
    elif instances is None:
        instances = max(1, len(cores) // cores_per_instance)
    assert instances is not None
    if instances * cores_per_instance > len(cores):
        expected, found = f"at most {len(cores)} cores", f"{instances} × {cores_per_instance}"
        raise UsageError("more cores asked for than may be used", expected=expected, found=found)
    edges = range(0, instances * cores_per_instance, cores_per_instance)
    return tuple(tuple(cores[i : i + cores_per_instance]) for i in edges)
