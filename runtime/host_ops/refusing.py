"""What must not be reached: a branch of If that does not fit the sizes that the plan was compiled for."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import InvalidInput
from .base import Attributes, host_op


@host_op("CannotRun", "parax")
def cannot_run(attributes: Attributes, inputs: list[Any]) -> NoReturn:
    """Raises InvalidInput."""
    raise InvalidInput("the inputs choose a branch that cannot run for these shapes", where=attributes["reason"],
                       hint="compile the model for sizes that fit both branches")  # fmt: skip
