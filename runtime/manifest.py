"""manifest.json as typed, checked, immutable values. Owns the schema of plan format 4; does no input or output.

Value ids are strings. The plan's inputs and outputs go by their own names; values that only cross steps are listed in
`values`, constants that host steps read in `constants`. Named tuples, because making sixteen frozen data classes takes
a tenth of a cold start.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from .dims import Dim, dim_text, shape_text
from .dtypes import numpy_dtype
from .host_values import is_tensor

FORMAT = 5


class TensorSpec(NamedTuple):
    """A value of the plan: a tensor, or what host_values.py tells of.

    Attributes:
        name: the ONNX name.
        shape: one int, or text such as `N` or `2*S+1`, per axis; None where only the run can tell.
        dtype: element type by parax's name, such as f32; of what is no tensor its type, such as seq(map(i64,f32)).
        dims: the shape as checked expressions.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...] | None

    @property
    def shape(self) -> tuple[int | str, ...] | None:
        """The shape with expressions as text."""
        return None if self.dims is None else tuple(d if isinstance(d, int) else dim_text(d) for d in self.dims)

    @property
    def numpy(self) -> np.dtype:
        """The numpy element type; of what is no tensor, that of any Python object."""
        return numpy_dtype(self.dtype if self.is_tensor else "str")

    @property
    def is_tensor(self) -> bool:
        """Whether the value is a tensor: an array for callers."""
        return is_tensor(self.dtype)

    def __str__(self) -> str:
        if not self.is_tensor:
            return f"{self.name}: {self.dtype}"
        return f"{self.name}: {self.dtype}{'[*]' if self.dims is None else shape_text(self.dims)}"


class Symbol(NamedTuple):
    """A dimension known at run time: taken from axis `axis` of input `input`, or bound by a host step (input None)."""

    name: str
    input: int | None
    axis: int | None
    min: int
    max: int | None


class Constraint(NamedTuple):
    """`left op right` must hold for the symbols' values; `text` says it in the model's words."""

    op: str
    left: Dim
    right: Dim
    text: str


class Target(NamedTuple):
    """Object code for one kind of CPU: the features it needs, the member that holds it, its SHA-256."""

    name: str
    arch: str
    features: tuple[str, ...]
    code: str
    digest: str


class NativeStep(NamedTuple):
    """One call of `parax_run_<segment>`; it needs `arena` bytes, and behind them `scratch` bytes per core."""

    segment: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arena: Dim
    scratch: Dim = 0


class Bind(NamedTuple):
    """A symbol's value read off a host step's output: the length of `axis`, or the integer at flat index `element`."""

    symbol: str
    output: int
    axis: int | None
    element: int | None


class HostStep(NamedTuple):
    """An operator that Python executes; an omitted optional input is None.

    Attributes:
        bodies: of If, Loop and Scan, which run them; operands and body inputs end with what the bodies capture.
        native: of a Loop, in their place: the function that runs iterations, as native_loops.py calls it. Its inputs
            are the states and what is captured, its outputs the states and the scan outputs that are used.
    """

    op: str
    domain: str
    attrs: Mapping[str, Any]
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    binds: tuple[Bind, ...]
    bodies: Mapping[str, Block] = MappingProxyType({})
    native: NativeStep | None = None

    @property
    def n_states(self) -> int:
        """Of a Loop: values that each iteration hands to the next."""
        return max(0, len(self.inputs) - 2 - int(self.attrs.get("captures", 0)))


class Block(NamedTuple):
    """Steps that run together: a whole plan, or a body of a control step.

    Attributes:
        inputs: what the values given to a body are called inside. outputs: the values it gives back.
        binds: symbols read off the inputs; `output` counts inputs here.
        constraints: equalities that must hold as soon as their symbols are bound.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    binds: tuple[Bind, ...] = ()
    constraints: tuple[Constraint, ...] = ()


Step = NativeStep | HostStep


class Constant(NamedTuple):
    """A constant that a host step reads: a range of the weights, or (strings only) its elements in `data`."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    data: tuple[str, ...] | None


class StageSpec(NamedTuple):
    """A pipeline stage's cores, counted from an instance's first, and how many layers it runs."""

    first_core: int
    n_cores: int
    n_layers: int


class Scheduled(NamedTuple):
    """A program that does what the plan's only step does, on several cores in another way.

    Attributes:
        mode: "layered" (concurrent branches) or "pipelined" (micro-batches flow through stages).
        n_cores: cores of an instance, exactly.
        step: its native entry and memory. stages: one if layered.
        micro_batches: into how many at least a pipeline cuts a request. micro_rows: of each at most.
    """

    mode: str
    n_cores: int
    step: NativeStep
    stages: tuple[StageSpec, ...]
    micro_batches: int | None
    micro_rows: int | None = None


class Delay(NamedTuple):
    """Instances that share a request start in so many groups, each `seconds` after the one before."""

    groups: int
    seconds: float


class SizeRule(NamedTuple):
    """Requests of `least` to `most` rows (None: any number above) take other instances of the same cores."""

    least: int
    most: int | None
    instances: int
    cores_each: int


class Arrangement(NamedTuple):
    """Where sessions have `cores` cores: so many instances of `cores_each`.

    Attributes:
        delay: of their starts. for_rows: other instances, for requests of some sizes while no other one runs.
    """

    cores: int
    instances: int
    cores_each: int
    delay: Delay | None = None
    for_rows: tuple[SizeRule, ...] = ()


class Batch(NamedTuple):
    """Rows are independent along these axes, so a request may be cut into pieces.

    Attributes:
        symbol: the symbol that counts rows.
        axes: batch axis per input and output name; an input that is absent is shared by all rows.
        min_rows: the fewest rows worth an instance of their own.
    """

    symbol: str
    axes: Mapping[str, int]
    min_rows: int


class Samples(NamedTuple):
    """What inputs made up for a measurement keep to, so that indices stay inside what they index.

    Attributes:
        ranges: name of an integer input → its least and greatest value.
        conditions: on sizes, beside the plan's constraints.
    """

    ranges: Mapping[str, tuple[Dim, Dim]] = MappingProxyType({})
    conditions: tuple[Constraint, ...] = ()


class State(NamedTuple):
    """An input and an output, by their names, that are one memory between calls.

    Attributes:
        axis: of the model's tensor, along which the output is longer; it is the first of the plan's. None: both have
            one shape.
    """

    input: str
    output: str
    axis: int | None


class Weights(NamedTuple):
    """The size in bytes of weights.bin, its SHA-256, and its fast checksum (checksums.py)."""

    size: int
    digest: str
    checksum: str


class Manifest(NamedTuple):
    """Everything a plan says about itself.

    Attributes:
        defaults: input → its content where a request does not give it. fixed: what the model calls inputs, but are
            constants of the plan. donated: output → the input whose memory it may be given.
        states: what a call leaves for the next one.
    """

    name: str
    hint: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[Symbol, ...]
    constraints: tuple[Constraint, ...]
    targets: tuple[Target, ...]
    steps: tuple[Step, ...]
    values: Mapping[str, TensorSpec]
    constants: Mapping[str, Constant]
    weights: Weights
    batch: Batch | None
    micro_batch: int | None
    instances: int | None
    errors: Mapping[int, str]
    graph: str | None
    graph_digest: str
    provenance: Mapping[str, Any] = MappingProxyType({})
    scheduled: Scheduled | None = None
    arrangement: Arrangement | None = None
    delay: Delay | None = None
    choice: Mapping[str, Any] | None = None
    max_memory: int | None = None
    defaults: Mapping[str, Constant] = MappingProxyType({})
    fixed: tuple[str, ...] = ()
    samples: Samples = Samples()
    donated: Mapping[str, str] = MappingProxyType({})
    states: tuple[State, ...] = ()

    @property
    def not_split(self) -> tuple[str, ...]:
        """Why rows of a request are not independent, symbol by symbol, as far as the compiler said."""
        reasons = self.provenance.get("not_split")
        return tuple(map(str, reasons)) if isinstance(reasons, list) else ()

    @property
    def signature(self) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """What callers give and get: inputs and outputs but for states."""
        if not self.states:
            return self.inputs, self.outputs
        given, kept = {s.input for s in self.states}, {s.output for s in self.states}
        inputs = tuple(t for t in self.inputs if t.name not in given)
        return inputs, tuple(t for t in self.outputs if t.name not in kept)

    def donated_numbers(self) -> dict[str, int]:
        """Output → number of the input whose memory it may be given."""
        numbers = {spec.name: i for i, spec in enumerate(self.inputs)}
        return {name: numbers[given] for name, given in self.donated.items()}

    def rescheduled(self) -> Manifest:
        """The same plan with the scheduled program as its only step."""
        assert self.scheduled is not None
        return self._replace(steps=(self.scheduled.step,), scheduled=None)

    def main(self) -> Block:
        """The plan's own steps as a block."""
        inputs, outputs = tuple(t.name for t in self.inputs), tuple(t.name for t in self.outputs)
        return Block(inputs, outputs, self.steps, (), self.constraints)

    def native_steps(self) -> list[NativeStep]:
        """All native steps, those inside of bodies included."""
        found: list[NativeStep] = []
        pending = list(reversed(self.steps))
        while pending:
            step = pending.pop()
            if isinstance(step, NativeStep):
                found.append(step)
            elif step.native is not None:
                found.append(step.native)
            else:
                pending += [inner for block in step.bodies.values() for inner in block.steps]
        return found

    def most_pointers(self) -> int:
        """Of inputs and outputs that a native function takes; a loop's takes one more, see native_loops.py."""
        return max((len(step.inputs) + len(step.outputs) + 1 for step in self.native_steps()), default=0)

    def segments(self) -> list[int]:
        """The numbers of all native functions that the code must have."""
        steps = [*self.native_steps(), *([self.scheduled.step] if self.scheduled else [])]
        return [step.segment for step in steps]
