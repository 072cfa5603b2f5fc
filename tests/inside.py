"""What a session keeps to itself, for tests of the runtime's inside: the only place that knows where it lies."""

from __future__ import annotations

from parax.runtime.batching import Batches
from parax.runtime.executor import Executor
from parax.runtime.router import Router
from parax.runtime.session import Session


def executor_of(session: Session) -> Executor:
    """What runs its requests on its instances."""
    return session._executor


def router_of(session: Session) -> Router:
    """What finds the executor and the binding of a request."""
    return session._router


def batches_of(session: Session) -> Batches:
    """What collects requests that run together; only sessions with a window have it."""
    assert session._batches is not None
    return session._batches
