"""What the fields of a manifest say of each other: unique names, values and symbols defined before they are used."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import CorruptPlan
from .dims import Dim, symbols_of
from .host_values import is_tensor
from .manifest import Block, HostStep, Manifest, NativeStep, Scheduled, TensorSpec


def _unique(names: list[str], what: str) -> None:
    if len(set(names)) != len(names):
        raise CorruptPlan(f"two {what} of one name", where="manifest", found=", ".join(sorted(names)))


def check_references(manifest: Manifest) -> None:
    """Check what fields say of each other: names are unique, values and symbols are defined before they are used.

    Raises:
        CorruptPlan: a reference to nothing.
    """
    for what, names in (
        ("inputs", [t.name for t in manifest.inputs]),
        ("outputs", [t.name for t in manifest.outputs]),
        ("symbols", [s.name for s in manifest.symbols]),
        ("targets", [t.name for t in manifest.targets]),
    ):
        _unique(names, what)
    for symbol in manifest.symbols:
        if symbol.input is None or symbol.axis is None:
            continue
        dims = manifest.inputs[symbol.input].dims if symbol.input < len(manifest.inputs) else None
        if dims is None or symbol.axis >= len(dims) or dims[symbol.axis] != symbol.name:
            raise CorruptPlan("a symbol is not where the manifest says", where=f"manifest.symbols.{symbol.name}")
    _check_defaults(manifest)
    _check_donated(manifest)
    _check_states(manifest)
    _check_steps(manifest)
    if manifest.scheduled is not None:
        _check_scheduled(manifest, manifest.scheduled)


def _check_defaults(manifest: Manifest) -> None:
    """Every default is that of an input and has its type and rank; sizes are checked as a request's are."""
    inputs = {t.name: t for t in manifest.inputs}
    for name, default in manifest.defaults.items():
        spec = inputs.get(name)
        if spec is None or spec.dtype != default.dtype or spec.dims is None or len(spec.dims) != len(default.shape):
            raise CorruptPlan("a default fits no input", where=f"manifest.defaults.{name}",
                              expected=spec, found=f"{default.dtype} {list(default.shape)}")  # fmt: skip


def _check_donated(manifest: Manifest) -> None:
    """Every output that may overwrite an input has its type and sizes, and no other output is to overwrite that."""
    inputs, outputs = {t.name: t for t in manifest.inputs}, {t.name: t for t in manifest.outputs}
    _unique(list(manifest.donated.values()), "donated inputs")
    for name, given in manifest.donated.items():
        a, b = outputs.get(name), inputs.get(given)
        if a is None or b is None or a.dims is None or (a.dtype, a.dims) != (b.dtype, b.dims):
            raise CorruptPlan("an output fits no input that it overwrites", where=f"manifest.donated.{name}",
                              expected=b, found=a)  # fmt: skip
    if manifest.donated and (len(manifest.steps) != 1 or manifest.scheduled is not None):
        raise CorruptPlan("only a plan of one step overwrites inputs", where="manifest.donated")


def _check_states(manifest: Manifest) -> None:
    """The two sides of every state are one memory: of one shape, or of one but for the first axis."""
    inputs, outputs = {t.name: t for t in manifest.inputs}, {t.name: t for t in manifest.outputs}
    _unique([state.input for state in manifest.states], "states")
    _unique([state.output for state in manifest.states], "states")
    for i, (given, kept, axis) in enumerate(manifest.states):
        a, b = inputs.get(given), outputs.get(kept)
        if a is None or b is None or a.dtype != b.dtype or not _is_one_memory(a.dims, b.dims, axis):
            raise CorruptPlan("an output does not fit the input that it is the state of",
                              where=f"manifest.states[{i}]", expected=a, found=b)  # fmt: skip
    if manifest.states and (len(manifest.steps) != 1 or manifest.scheduled is not None or manifest.batch is not None):
        raise CorruptPlan("only a plan of one step whose batch is not cut keeps state", where="manifest.states")


def _is_one_memory(a: tuple[Dim, ...] | None, b: tuple[Dim, ...] | None, axis: int | None) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return a == b if axis is None else axis < len(a) and a[1:] == b[1:] and isinstance(a[0], str)


def _check_scheduled(manifest: Manifest, scheduled: Scheduled) -> None:
    """A scheduled program does the same as the plan's only step, on groups of cores that do not overlap."""
    where = "manifest.schedule"
    only = manifest.steps[0] if len(manifest.steps) == 1 else None
    if not isinstance(only, NativeStep) or not _is_twin(only, scheduled.step):
        expected = "another segment with the inputs and outputs of the only step"
        raise CorruptPlan("a scheduled program does something else", where=where, expected=expected)
    _check_native(manifest, scheduled.step, {s.name for s in manifest.symbols if s.input is not None}, where)
    end = 0
    for stage in sorted(scheduled.stages, key=lambda stage: stage.first_core):
        if stage.first_core < end:
            raise CorruptPlan("stages share cores", where=f"{where}.stages", found=f"core {stage.first_core}")
        end = stage.first_core + stage.n_cores
    whole = [stage.n_cores for stage in scheduled.stages] == [scheduled.n_cores]
    if not scheduled.stages or (scheduled.mode == "layered" and not whole):
        expected = "one stage on all cores if layered, at least one if pipelined"
        raise CorruptPlan("wrong stages", where=f"{where}.stages", expected=expected, found=len(scheduled.stages))
    if scheduled.mode == "pipelined" and manifest.batch is None:
        raise CorruptPlan("a pipeline needs a batch that may be cut", where=f"{where}.mode")


def _is_twin(step: NativeStep, other: NativeStep) -> bool:
    """Whether the other is another native function of the same values."""
    return step.segment != other.segment and (step.inputs, step.outputs) == (other.inputs, other.outputs)


def _check_steps(manifest: Manifest) -> None:
    bound = {s.name for s in manifest.symbols if s.input is not None}
    for spec in manifest.inputs:
        if spec.dims is not None and not symbols_of(("+", *spec.dims)) <= bound:
            raise CorruptPlan("an input's shape depends on what no input binds", where=f"manifest.inputs.{spec.name}")
    constants = set(manifest.constants)
    _unique([*constants, *(t.name for t in manifest.inputs)], "values")
    _check_block(manifest, manifest.main(), constants, bound, "manifest")


def _check_block(manifest: Manifest, block: Block, constants: set[str], bound: set[str], where: str) -> None:
    """`bound`: the symbols that have a value where the block begins. Bodies see no values of the block around them."""
    bound = bound | {bind.symbol for bind in block.binds}
    defined = set(block.inputs) | constants
    for i, step in enumerate(block.steps):
        at = f"{where}.steps[{i}]"
        missing = [name for name in step.inputs if name is not None and name not in defined]
        if missing:
            raise CorruptPlan("a step reads a value that nothing has written", where=at, found=missing[0])
        if isinstance(step, HostStep):
            if step.native is not None:
                _check_loop(manifest, step, bound, at)
            for name, body in step.bodies.items():
                _check_block(manifest, body, constants, bound, f"{at}.bodies.{name}")
            bound |= {bind.symbol for bind in step.binds}
        else:
            _check_native(manifest, step, bound, at)
        written = {name for name in step.outputs if name is not None}
        if written & constants:
            raise CorruptPlan("a step writes a constant", where=at, found=min(written & constants))
        defined |= written
    lost = [name for name in block.outputs if name not in defined]
    if lost:
        raise CorruptPlan("no step writes an output", where=f"{where}.outputs", found=lost[0])


def _check_loop(manifest: Manifest, step: HostStep, bound: set[str], where: str) -> None:
    """A native loop: as a native step, but for how many rows its scan outputs have."""
    assert step.native is not None
    specs = {**manifest.values, **{t.name: t for t in (*manifest.outputs, *manifest.inputs)}}
    stacked = [name for name in step.outputs[step.n_states :] if name is not None]
    for name in stacked:  # how many rows these have, the run finds
        dims = specs[name].dims if name in specs else None
        if not dims or not symbols_of(("+", *dims[1:], 0)) <= bound or not is_tensor(specs[name].dtype):
            raise CorruptPlan("a native loop needs the shape of what it stacks", where=where, found=name)
    states = tuple(name for name in step.outputs[: step.n_states] if name is not None)
    _check_native(manifest, step.native._replace(outputs=states), bound, where)
    types = [_type_of(manifest, specs, name) for name in step.native.inputs]
    for state, given in zip(step.outputs[: step.n_states], types, strict=False):
        if state is not None and _type_of(manifest, specs, state) != given:
            raise CorruptPlan("a native loop's state changes its type", where=where, expected=given, found=state)


def _type_of(manifest: Manifest, specs: Mapping[str, TensorSpec], name: str) -> tuple[str, tuple[Dim, ...] | None]:
    if name in manifest.constants:
        return manifest.constants[name].dtype, manifest.constants[name].shape
    return specs[name].dtype, specs[name].dims


def _check_native(manifest: Manifest, step: NativeStep, bound: set[str], where: str) -> None:
    specs = {**manifest.values, **{t.name: t for t in (*manifest.outputs, *manifest.inputs)}}
    dims: list[Dim] = [step.arena, step.scratch]
    for name in (*step.inputs, *step.outputs):
        shape: tuple[Dim, ...]
        if name in manifest.constants:
            dtype, shape = manifest.constants[name].dtype, manifest.constants[name].shape
        elif name in specs and (known := specs[name].dims) is not None:
            dtype, shape = specs[name].dtype, known
        else:
            raise CorruptPlan("a native step needs the value's shape", where=where, found=name)
        if dtype == "str" or not is_tensor(dtype):
            raise CorruptPlan("a native step cannot read or write this type", where=where, found=f"{name}: {dtype}")
        dims.extend(shape)
    if not symbols_of(("+", *dims)) <= bound:
        raise CorruptPlan("a shape depends on a symbol that is not bound yet", where=where)
    if not manifest.targets:
        raise CorruptPlan("a native step without any target", where=where)
