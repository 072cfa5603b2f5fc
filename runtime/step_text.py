"""A plan's steps as one Python function, written for the plan: what `steps.py` looks up each time is written out.

A request of a small model spends more time between native calls than in them. So values are local variables, shapes
that the inputs' shapes decide are found out once a shape (step_records.py), bodies of If, Loop and Scan stand where
they run (step_flow.py), and checks that cannot fail are left out. Results and errors are those of steps.py, which runs
what this text does not: requests with a limit of memory, with memory for outputs, or while somebody makes a profile.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import control
from .bindings import HOLDS, MAX_NBYTES, Binding, Signature
from .brief import timed_call
from .dims import evaluate
from .executor import Executor
from .instance import Instance
from .limits import Allowance, afford_tensor
from .manifest import Bind, Constraint, HostStep, Manifest, NativeStep, TensorSpec
from .memory import ADDRESS_NAMES, address_text
from .native_loops import NativeLoop
from .step_blocks import PreparedBlock, PreparedStep
from .step_flow import control_step
from .step_names import FIT, Names, Operand, Unwritten, are_apart, tuple_text
from .step_records import Needs, Records
from .step_values import empty_scan, entering, fitted, short, size_of
from .tensors import is_fit

MOST_DEPTH = 40
"""Of bodies in bodies; Python's own limit is at 100 indentations, and at 20 loops in loops."""


_FUNCTIONS = {
    "ndarray": np.ndarray, "empty": np.empty, "array": np.array, "int64": np.int64, "addressof": ctypes.addressof,
    "evaluate": evaluate, "afford_tensor": afford_tensor, "timed": timed_call, "size_of": size_of, "short": short,
    "empty_scan": empty_scan, "single": control.single, "Stacks": control.Stacks, "scan_slices": control.scan_slices,
    "scan_slice": control.scan_slice, "scan_results": control.scan_results,
}  # fmt: skip


class Written(NamedTuple):
    """The function, and what is known of it.

    Attributes:
        run: (instance, binding, inputs, allowance) → the outputs in the manifest's order.
        is_fresh: whether each output is memory of its own.
    """

    run: Callable[[Instance | None, Binding, Sequence[Any], Allowance], tuple[Any, ...]]
    is_fresh: bool


def written(
    manifest: Manifest, main: PreparedBlock, specs: Mapping[str, TensorSpec], constants: Mapping[str, Any],
    executor: Executor,
) -> Written | None:  # fmt: skip
    """The function of a plan; None for one that has to be run by `steps.py`.

    Args:
        main: its steps. specs: of its values. constants: by name. executor: knows its code; any of its instances runs.
    """
    writer = _Writer(manifest, specs, constants, executor)
    try:
        outputs = writer.whole(main)
        code = compile("\n".join(writer.lines) + "\n", f"<steps of {len(main.steps)}>", "exec")
    except (Unwritten, SyntaxError, RecursionError, MemoryError):  # too deep for Python
        return None
    exec(code, writer.names.constants)  # our own text: names of the plan are in no place of it
    return Written(writer.names.constants["run_steps"], are_apart(outputs))


class Block(NamedTuple):
    """A block while it is written: its number, its values by name, variables that are its own, what it needs."""

    number: int
    values: dict[str, Operand]
    own: set[str]
    needs: Needs
    items: list[str]
    memory: list[NativeStep]

    def item(self, names: Names, item: Callable[[dict[str, int]], object]) -> str:
        """The variable of what a request's sizes decide."""
        self.needs.items.append(item)
        self.items.append(names.new("k"))
        return self.items[-1]


class _Writer:
    """The lines of the function, as far as they are written."""

    def __init__(
        self, manifest: Manifest, specs: Mapping[str, TensorSpec], constants: Mapping[str, Any], executor: Executor
    ) -> None:
        self.manifest, self.executor = manifest, executor
        self.specs: Mapping[str, TensorSpec] = specs
        self.signature: Signature = executor.signature
        self.names = Names(manifest.symbols)
        self.symbols = {symbol.name: (i, symbol) for i, symbol in enumerate(manifest.symbols)}
        self.lines: list[str] = []
        self.needs: list[Needs] = []
        self.records = Records(self.signature, self.needs)
        self.indent = 1
        self.given = {name: self._constant(name, value) for name, value in constants.items()}
        self.names.constants |= {
            **ADDRESS_NAMES, **_FUNCTIONS, "failure": executor.failure, "learn": self.records.learn,
            "shape_of": self.signature.shape, "memory_of": self.signature.memory, "check": self.signature.check,
            "checked": self.signature.checked, "entering": self._entering, "fitted": self._fitted,
        }  # fmt: skip
        if executor.code is not None:
            self.names.constants |= {"team": executor.code.team, "team_held": executor.code.team_held}

    def _constant(self, name: str, value: Any) -> Operand:
        spec = None
        if isinstance(value, np.ndarray) and is_fit(value):
            spec = TensorSpec(name, self.manifest.constants[name].dtype, value.shape)
        return Operand(self.names.constant(value), spec)

    def _entering(self, spec: TensorSpec, value: Any, values: dict[str, int]) -> Any:
        return entering(self.signature, spec, spec.name, value, values)

    def _fitted(self, spec: TensorSpec, op: str, value: Any, values: dict[str, int]) -> Any:
        return fitted(self.signature, spec, op, value, values)

    def emit(self, text: str) -> None:
        """Add a line."""
        self.lines.append(" " * self.indent + text)

    def whole(self, main: PreparedBlock) -> list[Operand]:
        """Write the function; its outputs."""
        names = self.names
        inputs = [Operand(names.new("v"), self.specs[t.name]) for t in self.manifest.inputs]
        head, self.lines = self.lines, []
        outputs = self.block(main, inputs, set())
        body, self.lines = self.lines, head
        self.lines.append("def run_steps(instance, binding, inputs, allowance):")
        self.emit("values, learned, afford = binding.values, binding.steps, allowance.afford")
        self.emit(f"if learned is None: learned = binding.steps = [None] * {len(self.needs)}")
        if inputs:
            self.emit(f"{tuple_text(o.var for o in inputs)} = inputs")
        for var, name in names.early.items():
            self.emit(f"{var} = values[{name!r}]")
        if names.late:
            self.emit(f"{' = '.join(names.late)} = None")
            self.emit("dims = type(binding.dims).from_buffer_copy(binding.dims)")
        if self.manifest.native_steps():
            self.emit("io, leader, worker = instance.io, instance.leader, instance.worker")
            self.emit("instance.binding, leader.io = None, instance.io_address")
            self.emit(f"leader.dims = {'addressof(dims)' if names.late else 'binding.dims_address'}")
        self.lines += body
        self.emit(f"return {tuple_text(o.var for o in outputs)}")
        return outputs

    # Blocks and steps

    def block(self, prepared: PreparedBlock, given: Sequence[Operand], own: set[str]) -> list[Operand]:
        """Write a block; its outputs. `own`: variables of what is given that are the block's to clear."""
        if self.indent > MOST_DEPTH or len(given) != len(prepared.block.inputs):
            raise Unwritten
        block = Block(len(self.needs), dict(self.given), own, Needs(), [], [])
        self.needs.append(block.needs)
        self.bind(prepared.block.binds, [operand.var for operand in given], "the body")
        begin = len(self.lines)
        for name, operand in zip(prepared.block.inputs, given, strict=True):
            block.values[name] = self.entered(block, name, operand)
        self.constraints(block, prepared.constraints)
        for step in prepared.steps:
            (self.host if isinstance(step.step, HostStep) else self.native)(block, step)
            dead = {block.values[name].var for name in step.dead if name in block.values} & block.own
            if dead:
                self.emit(f"{' = '.join(sorted(dead))} = None")
        self.needed(block, begin)
        return [block.values[name] for name in prepared.block.outputs]

    def needed(self, block: Block, begin: int) -> None:
        """Write, where the block begins, what it needs of the sizes: a look-up for a shape met before."""
        rest, self.lines = self.lines[begin:], self.lines[:begin]
        if block.memory:
            sizes = block.item(self.names, self.records.memory(block.memory))
            self.emit(f"a, b = {sizes}")
            self.emit("if a + b * len(instance.cores) > instance.arena_nbytes: instance.reserve(a, b, afford)")
        unpacked = self.lines[begin:]
        self.lines = self.lines[:begin]
        if block.items:
            found = f"learned[{block.number}] or learn(binding, {block.number})"
            self.emit(f"{tuple_text(block.items)} = {found}")
        elif block.needs.constraints:
            self.emit(f"learned[{block.number}] or learn(binding, {block.number})")
        self.lines += unpacked + rest

    def entered(self, block: Block, name: str, operand: Operand) -> Operand:
        """A value as a block's input: of the shape that the block was compiled for."""
        spec = self.specs.get(name)
        if spec is None or spec.dims is None or self.names.agree(operand.spec, spec):
            return operand
        var = operand.var
        if var not in block.own:
            var = self.names.new("v")
            self.emit(f"{var} = {operand.var}")
            block.own.add(var)
        self.ensure(block, var, spec, f"entering({self.spec(spec)}, {var}, {{values}})", is_typed=False)
        return Operand(var, spec if operand.spec is not None and operand.spec.dtype == spec.dtype else None)

    def ensure(self, block: Block, var: str, spec: TensorSpec, mend: str, is_typed: bool) -> None:
        """Write a check of a value's type and shape, and what mends it or says why not."""
        wrong = [f"{var}.__class__ is not ndarray", f"{var}.flags.num & {FIT} != {FIT}"]
        if is_typed:
            wrong.append(f"{var}.dtype is not {self.names.constant(spec.numpy, spec.dtype)}")
        if spec.dims is not None:
            wrong.append(f"{var}.shape != {self.shape(block, spec)}")
        self.emit(f"if {' or '.join(wrong)}: {var} = {mend.format(values=self.names.values)}")

    def spec(self, spec: TensorSpec) -> str:
        """The name of a value's type."""
        return self.names.constant(spec, spec.name)

    def shape(self, block: Block, spec: TensorSpec) -> str:
        """The text of a value's shape."""
        dims = spec.dims or ()
        if not self.names.is_static(dims):
            return self.names.shape(dims)
        return block.item(self.names, self.records.shape(spec))

    def constraints(self, block: Block, constraints: Sequence[Constraint]) -> None:
        """Write checks: once a shape, or in every run."""
        for constraint in constraints:
            if constraint.op not in HOLDS:
                raise Unwritten
            if self.names.holds_always(constraint):
                block.needs.constraints.append(constraint)
                continue
            holds = f"{self.names.dim(constraint.left)} {constraint.op} {self.names.dim(constraint.right)}"
            self.emit(f"if not ({holds}): check({self.names.constant(constraint)}, {self.names.values})")

    def bind(self, binds: Sequence[Bind], given: Sequence[str], op: str) -> None:
        """Write how symbols are read off values."""
        for bind in binds:
            if bind.output >= len(given):
                raise Unwritten
            i, symbol = self.symbols[bind.symbol]
            if symbol.input is not None:
                raise Unwritten
            to, value = self.names.symbol(bind.symbol), given[bind.output]
            read = f"size_of({value}, {bind.axis}, {bind.element}, {op!r})"
            if bind.axis is not None:
                has_axis = f"{value}.__class__ is ndarray and {value}.ndim > {bind.axis}"
                read = f"{value}.shape[{bind.axis}] if {has_axis} else {read}"
            self.emit(f"{to} = {read}")
            most = MAX_NBYTES if symbol.max is None else symbol.max
            self.emit(f"if not {symbol.min} <= {to} <= {most}: checked({self.names.constant(symbol)}, {to})")
            self.emit(f"dims[{i}] = {to}")

    def native(self, block: Block, prepared: PreparedStep) -> None:
        """Write a native call."""
        step, names = prepared.step, self.names
        assert isinstance(step, NativeStep)
        assert self.executor.code is not None
        given = [block.values[name].var for name in step.inputs]
        specs = [self.specs[name] for name in step.outputs]
        made = [self.allocated(block, spec) for spec in specs]
        static = [spec for spec in specs if names.is_static(spec.dims or ())]
        if static:
            nbytes = block.item(names, self.records.nbytes(static))
            self.emit(f"afford({nbytes}, {f'value {static[0].name!r}'!r})")
        sizes_are_static = names.is_static((step.arena, step.scratch))
        if sizes_are_static:
            block.memory.append(step)
        else:
            self.emit(f"instance.reserve(*memory_of({names.constant(step)}, {names.values}), afford)")
        for slot, var in enumerate((*given, *made)):
            self.emit(f"io[{slot}] = {address_text(var)}")
        self.emit(f"leader.run = {self.executor.code.segments[step.segment]}")
        if sizes_are_static and all(self.has_static_shape(name) for name in (*step.inputs, *step.outputs)):
            timing = block.item(names, self.records.timing(step))
            self.emit(f"if {timing}.n_brief > 0:")
            self.emit(f" {timing}.n_brief -= 1")
            self.emit(" status = team_held(worker)")
            self.emit(f"else: status = timed(instance, {timing})")
        else:
            self.emit("status = team(worker)")
        self.emit("if status: raise failure(status)")
        for name, var, spec in zip(step.outputs, made, specs, strict=True):
            block.values[name] = Operand(var, spec, frozenset((var,)))
            block.own.add(var)

    def has_static_shape(self, name: str) -> bool:
        """Whether the inputs' shapes decide a value's."""
        return name not in self.specs or self.names.is_static(self.specs[name].dims or ())

    def allocated(self, block: Block, spec: TensorSpec) -> str:
        """Write how memory for a value is made; its variable."""
        var, dtype = self.names.new("v"), self.names.constant(spec.numpy, spec.dtype)
        shape = self.shape(block, spec)
        if not self.names.is_static(spec.dims or ()):
            dims = self.names.constant(spec.dims, ("dims", spec.name))
            self.emit(f"shape = shape_of({dims}, {self.names.values})")
            self.emit(f"afford_tensor(shape, {spec.numpy.itemsize}, {f'value {spec.name!r}'!r})")
            shape = "shape"
        self.emit(f"{var} = empty({shape}, {dtype})")
        return var

    # Operators that Python executes

    def native_loop(self, step: HostStep, prepared: PreparedStep, given: Sequence[Operand | None]) -> list[Operand]:
        """Write a Loop that native code runs."""
        names = self.names
        loop = NativeLoop(step, self.specs, self.signature, self.executor.failure)
        operands = ", ".join("None" if operand is None else operand.var for operand in given)
        results = [Operand(names.new("v")) for _ in step.outputs]
        self.emit(f"found = {names.constant(loop.run)}(instance, [{operands}], {names.values})")
        for i, (result, name) in enumerate(zip(results, step.outputs, strict=True)):
            self.emit(f"{result.var} = found[{i}]")
            if name is not None and i >= step.n_states:
                spec, bound = self.spec(self.specs[name]), names.constant(prepared.bound)
                self.emit(f"if {result.var} is None: {result.var} = empty_scan({spec}, {names.values}, {bound})")
        self.emit("found = None")
        return results

    def host(self, block: Block, prepared: PreparedStep) -> None:
        """Write an operator that Python executes, or one that runs bodies."""
        step = prepared.step
        assert isinstance(step, HostStep)
        given = [None if name is None else block.values[name] for name in step.inputs]
        if step.native is not None:
            results = self.native_loop(step, prepared, given)
        elif prepared.host is None:
            results = control_step(self, prepared, step, given)
        else:
            operands = ", ".join("None" if operand is None else operand.var for operand in given)
            results = [Operand(self.names.new("v")) for _ in step.outputs]
            self.emit(f"found = {self.names.constant(prepared.host)}([{operands}])")
            self.emit(f"if len(found) < {len(results)}: raise short({step.op!r}, found, {len(results)})")
            for i, result in enumerate(results):
                self.emit(f"{result.var} = found[{i}]")
            self.emit("found = None")
            fresh = getattr(prepared.host, "makes_new", False)
            results = [Operand(o.var, None, frozenset((o.var,)) if fresh else None) for o in results]
        self.bind(step.binds, [result.var for result in results], step.op)
        self.constraints(block, prepared.constraints)
        for name, result in zip(step.outputs, results, strict=True):
            block.own.add(result.var)
            if name is None:
                self.emit(f"{result.var} = None")
                continue
            spec, known = self.specs.get(name), result.spec
            if spec is not None and spec.is_tensor and not self.names.agree(known, spec):
                mend = f"fitted({self.spec(spec)}, {step.op!r}, {result.var}, {{values}})"
                self.ensure(block, result.var, spec, mend, is_typed=True)
                known = spec if spec.dims is not None else None
            block.values[name] = Operand(result.var, known, result.fresh)
