"""Every error a user of parax can meet. Owns the messages' shape; knows nothing else of parax.

An error says where (which node, file or argument), what was expected, what was found, and what to do.
Each kind carries the exit code that the command line ends with. Exceptions that are not ours end at the public
functions: `as_parax_error` makes ours of them, a library of the compiler that is not installed among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.util import find_spec
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
MOST_NOTE = 1 << 20  # characters of a graph that an error carries
COMPILER_LIBRARIES = ("llvmlite", "networkx", "onnx")  # without one of them nothing is compiled; a plan needs none
_THEIR_LIBRARIES = {  # module → package, of what these import, or we do for the compiler alone
    "google": "protobuf", "ml_dtypes": "ml_dtypes", "tomli": "tomli", "typing_extensions": "typing_extensions",
}  # fmt: skip
INSTALL_COMPILER = "pip install 'parax[compiler]'"


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


class CompilerMissing(UsageError, ImportError):
    """What was asked for needs the compiler, and libraries of it are not installed: here only plans run."""


class WrongType(UsageError, TypeError):
    """An argument that is no object of a kind the function takes; Python's TypeError as well."""


class InvalidInput(ParaxError):
    """A tensor given at run time has the wrong name, shape or dtype, or holds an index out of range."""

    exit_code = 2


def operator_name(domain: str, name: str) -> str:
    """How users read an operator: its name, after its domain and a point where that is not ONNX's own, which is ""."""
    return f"{domain}.{name}" if domain else name


@dataclass(frozen=True)
class UnsupportedUse:
    """A node of a model that parax cannot compile.

    Attributes:
        operator: see `operator_name`.
        version: of the operator's definition; None where nobody knows.
        node: the node, as errors name it. reason: why; "" where parax has no such operator.
    """

    operator: str
    version: int | None
    node: str
    reason: str = ""


class UnsupportedOp(ParaxError):
    """An operator, domain, operator-set version or element type that parax does not implement.

    Attributes:
        uses: the nodes, all that were found; none where it is not a node that is unsupported.
    """

    exit_code = 3

    def __init__(
        self,
        message: str,
        *,
        uses: Sequence[UnsupportedUse] = (),
        where: str | None = None,
        expected: object = None,
        found: object = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, where=where, expected=expected, found=found, hint=hint)
        self.uses = tuple(uses)


def joined(errors: Sequence[UnsupportedOp]) -> UnsupportedOp:
    """One error of several, with the uses of all."""
    if len(errors) == 1:
        return errors[0]
    return UnsupportedOp("; ".join(map(str, errors)), uses=[use for error in errors for use in error.uses])


class InvalidModel(ParaxError):
    """The ONNX model is malformed or breaks the operators' rules."""

    exit_code = 4


class InvalidData(ParaxError):
    """A data set is malformed: a file that is cut off or of another kind, a sample unlike the others, none at all."""

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


class Diverged(ParaxError):
    """A training whose loss or gradient is no finite number any more; the parameters are as before the step."""

    exit_code = 5


class ResourceLimit(ParaxError):
    """A limit on memory, size, depth, expansion or time was reached."""

    exit_code = 6


class InternalError(ParaxError):
    """A broken promise inside parax itself: please report it with the attached IR."""

    exit_code = 1


def as_parax_error(error: Exception, where: str | None = None) -> ParaxError:
    """What users meet instead of an exception that is not ours; raise it `from` that one.

    Memory and recursion that end are limits, a file that the system refuses is the user's; everything else is a
    mistake in parax, whatever the model or the call looked like. Notes, such as the graph, are kept.
    """
    made: ParaxError
    if isinstance(error, ParaxError):
        return error
    if isinstance(error, ModuleNotFoundError) and is_of_the_compiler(error.name):
        lacking = what_the_compiler_lacks() or f"the compiler lacks {_package(error.name)}"
        made = CompilerMissing(lacking, where=where, hint=INSTALL_COMPILER)
    elif isinstance(error, MemoryError):
        hint = "give --max-memory, a smaller batch or fewer instances"
        made = ResourceLimit("out of memory", where=where, found=str(error) or None, hint=hint)
    elif isinstance(error, RecursionError):
        made = ResourceLimit("nested too deeply for Python's stack", where=where, found=str(error))
    elif isinstance(error, OSError) and error.filename is not None:
        made = UsageError(error.strerror or str(error), where=str(error.filename))
    else:
        found = f"{type(error).__name__}: {error}"[:1000]
        made = InternalError("internal failure", where=where, found=found, hint="this is a mistake in parax")
    for note in getattr(error, "__notes__", ()):
        attach(made, note)
    return made


def is_of_the_compiler(module: str | None) -> bool:
    """Whether a module that was not found belongs to the libraries that only compiling needs."""
    return _package(module) in (*COMPILER_LIBRARIES, *_THEIR_LIBRARIES.values())


def _package(module: str | None) -> str:
    top = (module or "").split(".")[0]
    return _THEIR_LIBRARIES.get(top, top)


def what_the_compiler_lacks() -> str:
    """In words, that the compiler is not installed, or which of its libraries are not; empty where nothing lacks."""
    absent = [name for name in COMPILER_LIBRARIES if find_spec(name) is None]
    if len(absent) == len(COMPILER_LIBRARIES):
        return "the compiler is not installed"
    return f"the compiler lacks {', '.join(absent)}" if absent else ""


def attach(error: Exception, note: str) -> None:
    """Give the error a note, where this Python has notes (3.11)."""
    if hasattr(error, "add_note"):
        error.add_note(note if len(note) <= MOST_NOTE else f"{note[:MOST_NOTE]}\n… ({len(note)} characters)")


def reported(function: Callable[P, R]) -> Callable[P, R]:
    """Let a public function raise nothing but ParaxErrors: see `as_parax_error`.

    Arguments that the function does not have stay Python's TypeError; KeyboardInterrupt and SystemExit pass.
    """

    @wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ParaxError:
            raise
        except Exception as error:
            if isinstance(error, TypeError) and error.__traceback__ is not None and not error.__traceback__.tb_next:
                raise  # the call itself: the function was never entered
            raise as_parax_error(error, f"parax {function.__name__}") from error

    return guarded
