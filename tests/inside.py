"""What a session keeps to itself, for tests of the runtime's inside: the only place that knows where it lies."""

from __future__ import annotations

from parax.runtime.batching import Batches
from parax.runtime.executor import Executor
from parax.runtime.manifest import Delay
from parax.runtime.router import Router
from parax.runtime.session import Session
from parax.runtime.submissions import Submissions


def executor_of(session: Session) -> Executor:
    """What runs its requests on its instances."""
    return session.executor


def router_of(session: Session) -> Router:
    """What finds the executor and the binding of a request."""
    return session._router


def batches_of(session: Session) -> Batches:
    """What collects requests that run together; only sessions with a window have it."""
    assert session._batches is not None
    return session._batches


def executors_made(session: Session) -> dict[tuple[int, int], Executor]:
    """(instances, cores each) → the other instances that requests of some sizes made it make."""
    return dict(router_of(session).size_router._executors)


def delay_of(session: Session) -> Delay | None:
    """By how much groups of its instances start one after the other; None: they do not."""
    return executor_of(session)._delay


def has_others_beside(session: Session) -> bool:
    """Whether its teams hold shares of instances for requests side by side."""
    teams = router_of(session).teams
    assert teams is not None
    return bool(teams._beside)


def in_flight(session: Session) -> int:
    """Requests that were taken and whose results nobody has yet; only sessions with a window count them."""
    return batches_of(session)._in_flight


def pretend_in_flight(session: Session, n: int) -> None:
    """Count so many more requests, whose callers do not come back."""
    batches_of(session)._in_flight += n


def is_closing(closed: Session | Submissions) -> bool:
    """Whether `close` has begun to refuse requests."""
    return closed._is_closing if isinstance(closed, Submissions) else batches_of(closed)._is_closing


def waiting_and_running(session: Session) -> tuple[int, int]:
    """How many batches wait for company or an instance, and how many run."""
    batches = batches_of(session)
    return len(batches._groups), batches._running


def has_function(session: Session) -> bool:
    """Whether the function of a plan in steps is written."""
    return session.program._written is not None
