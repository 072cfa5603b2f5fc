"""Every error a user of parax can meet. Owns the messages' shape; knows nothing else of parax.

An error says where (which node, file or argument), what was expected, what was found, and what to do.
Each kind carries the exit code that the command line ends with.
"""

from __future__ import annotations


class ParaxError(Exception):
    """Base of all parax errors.

    Args:
        message: what went wrong, one sentence.
        where: the place: a node with its ONNX name, a file, an argument.
        expected, found: the two sides of a violated expectation.
        hint: what the user can do about it.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        self.message, self.where, self.expected, self.found, self.hint = message, where, expected, found, hint
        parts = [f"{where}: {message}" if where else message]
        if expected is not None:
            parts.append(f"expected {expected}")
        if found is not None:
            parts.append(f"found {found}")
        if hint:
            parts.append(hint)
        super().__init__("; ".join(parts))


class UsageError(ParaxError):
    """A wrong option or argument."""

    exit_code = 2


class InvalidInput(ParaxError):
    """A tensor given at run time has the wrong name, shape or dtype, or holds an index out of range."""

    exit_code = 2


class UnsupportedOp(ParaxError):
    """An operator, domain, operator-set version or element type that parax does not implement."""

    exit_code = 3


class InvalidModel(ParaxError):
    """The ONNX model is malformed or breaks the operators' rules."""

    exit_code = 4


class CorruptPlan(ParaxError):
    """A plan.bin whose bytes are not what its manifest promises."""

    exit_code = 4


class IncompatiblePlan(ParaxError):
    """A sound plan.bin that this runtime or this CPU cannot run."""

    exit_code = 4


class AccuracyMismatch(ParaxError):
    """Results differ from the reference by more than the tolerance."""

    exit_code = 5


class ResourceLimit(ParaxError):
    """A limit on memory, size, depth, expansion or time was reached."""

    exit_code = 6


class InternalError(ParaxError):
    """A broken promise inside parax itself: please report it with the attached IR."""

    exit_code = 1
