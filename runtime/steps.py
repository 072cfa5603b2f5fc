"""Runs a plan step by step: native segments on an instance, data-dependent operators and control flow in Python.

Owns the values between steps. The general path, for plans that are more than one native step.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import IncompatiblePlan, InternalError, InvalidInput
from .bindings import Binding, Signature
from .control import CONTROL_OPS, Body, ControlOp
from .dims import evaluate, symbols_of
from .executor import Executor
from .host_values import arrays_in, nbytes_of_maps, objects_in, owned
from .instance import Instance
from .limits import Allowance, afford, afford_tensor, within
from .manifest import Bind, Block, Constant, Constraint, HostStep, NativeStep, Step, TensorSpec
from .memory import address_of, owner_of
from .plan_contents import PlanContents
from .profiling.watch import NO_CORE, Watch
from .tensors import is_fit

if TYPE_CHECKING:
    from .host_ops import HostOp


class PreparedStep(NamedTuple):
    """A step with what it needs to run.

    Attributes:
        host: for an operator that Python executes. control, bodies: for one that runs bodies.
        dead: values that nothing needs afterwards. constraints: what can be checked afterwards, and not before.
        bound: symbols that have a value before.
    """

    step: Step
    host: HostOp | None
    control: ControlOp | None
    bodies: dict[str, PreparedBlock]
    dead: list[str]
    constraints: list[Constraint]
    bound: frozenset[str]


class PreparedBlock(NamedTuple):
    """A block with its steps made ready, and the constraints that hold from the beginning."""

    block: Block
    steps: list[PreparedStep]
    constraints: list[Constraint]


class Program:
    """A plan's steps, made ready to run.

    Attributes:
        watch: notes every host step, while somebody makes a profile.
    """

    def __init__(self, plan: PlanContents, signature: Signature) -> None:
        """Look up host operators and constants.

        Raises:
            IncompatiblePlan: a host operator that this runtime has not.
        """
        self.watch: Watch | None = None
        self.manifest = manifest = plan.manifest
        self.signature = signature
        self.symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self.index = {symbol.name: i for i, symbol in enumerate(manifest.symbols)}
        self.specs = {**manifest.values, **{t.name: t for t in (*manifest.inputs, *manifest.outputs)}}
        self.constants = {name: constant_array(plan, constant) for name, constant in manifest.constants.items()}
        self._main = self._prepare(manifest.main(), {s.name for s in manifest.symbols if s.input is not None})

    def _prepare(self, block: Block, bound: set[str]) -> PreparedBlock:
        bound = bound | {bind.symbol for bind in block.binds}
        pending = list(block.constraints)

        def checkable() -> list[Constraint]:
            found = [c for c in pending if symbols_of(c.left) | symbols_of(c.right) <= bound]
            pending[:] = [c for c in pending if c not in found]
            return found

        first = checkable()
        steps = []
        for step, dead in zip(block.steps, self._last_uses(block), strict=True):
            bodies: dict[str, PreparedBlock] = {}
            host, control, before = None, None, frozenset(bound)
            if isinstance(step, HostStep):
                if step.bodies:
                    control = _control_op(step)
                else:
                    host = _host_op(step)
                bodies = {name: self._prepare(body, bound) for name, body in step.bodies.items()}
                bound |= {bind.symbol for bind in step.binds}
            steps.append(PreparedStep(step, host, control, bodies, dead, checkable(), before))
        return PreparedBlock(block, steps, first)

    def _last_uses(self, block: Block) -> list[list[str]]:
        """Per step, the values that nothing needs afterwards."""
        needed = set(block.outputs) | set(self.constants)
        dead: list[list[str]] = []
        for step in reversed(block.steps):
            names = {name for name in (*step.inputs, *step.outputs) if name is not None}
            dead.append(sorted(names - needed))
            needed |= names
        return dead[::-1]

    def run(
        self,
        executor: Executor,
        binding: Binding,
        inputs: Sequence[np.ndarray],
        outputs: dict[str, np.ndarray],
        allowance: Allowance,
    ) -> list[np.ndarray]:
        """The outputs, in the manifest's order.

        Args:
            executor: one of whose instances runs the native steps. binding: of the inputs' shapes.
            inputs: in the manifest's order, fit for native code.
            outputs: caller's memory for some outputs, where their shapes are known before the run.
            allowance: of memory and time, for this request.

        Raises:
            InvalidInput: a value that an operator refuses. ResourceLimit: more memory or time than is allowed.
        """
        held: list[Instance] = []
        try:
            if executor.instances:
                executor.take_one(held)
            run = _Run(self, executor, binding, held[0] if held else None, outputs)
            allowance.held = run.held_nbytes
            with within(allowance):
                results = run.block(self._main, inputs)
        finally:
            executor.free.extend(held)
            executor.hand_over()
        return self._owned(results, inputs, outputs)

    def _owned(
        self, results: Sequence[Any], inputs: Sequence[np.ndarray], outputs: dict[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Results that the caller may keep: in the memory asked for, and shared with nothing."""
        shared = (*inputs, *self.constants.values(), *outputs.values())
        held = {name for value in shared for name in objects_in(value)}
        kept = []
        for spec, value in zip(self.manifest.outputs, results, strict=True):
            own = outputs.get(spec.name)
            if own is not None:
                if own is not value:
                    own[...] = value
                value = own
            else:
                value = owned(value, held)
            kept.append(value)
        return kept


class _Run:
    """One request on its way through the steps. Names are unique in a plan, so bodies share one table of values."""

    def __init__(
        self, program: Program, executor: Executor, binding: Binding, instance: Instance | None,
        outputs: dict[str, np.ndarray],
    ) -> None:  # fmt: skip
        self.program, self.executor, self.instance, self.outputs = program, executor, instance, outputs
        self.signature = program.signature
        self.env: dict[str, Any] = dict(program.constants)
        self.values = dict(binding.values)
        self.dims = self.signature.dims_array(binding.values)

    def held_nbytes(self) -> int:
        """Bytes of the values between steps, the same memory once, and of the arena."""
        arrays = {id(owner): owner.nbytes for value in self.env.values() for owner in map(owner_of, arrays_in(value))}
        maps = sum(map(nbytes_of_maps, self.env.values()))
        return sum(arrays.values()) + maps + (self.instance.arena_nbytes if self.instance is not None else 0)

    def block(self, prepared: PreparedBlock, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a block."""
        block, env = prepared.block, self.env
        self._bind(block.binds, inputs, "the body")
        for name, value in zip(block.inputs, inputs, strict=True):
            env[name] = self._entering(name, value)
        self._check(prepared.constraints)
        for step in prepared.steps:
            if isinstance(step.step, HostStep):
                (self._host if self.program.watch is None else self._watched)(step, step.step)
            else:
                self._native(step.step)
            for name in step.dead:
                env.pop(name, None)
        return [env[name] for name in block.outputs]

    def _entering(self, name: str, value: Any) -> Any:
        """A block's input of the shape that the block was compiled for."""
        spec = self.program.specs.get(name)
        if spec is None or spec.dims is None or not isinstance(value, np.ndarray):
            return value
        expected = self.signature.shape(spec.dims, self.values)
        if value.shape != expected:
            if value.size != 1 or any(length != 1 for length in expected):
                raise InvalidInput("a body was given another shape than it was compiled for", where=name,
                                   expected=expected, found=value.shape)  # fmt: skip
            value = value.reshape(expected)
        return value if is_fit(value) else np.require(value, requirements=["C", "A"])

    def _bind(self, binds: Sequence[Bind], values: Sequence[Any], op: str) -> None:
        for bind in binds:
            found = _bound(values[bind.output], bind.axis, bind.element, op)
            found = self.signature.checked(self.program.symbols[bind.symbol], found)
            self.values[bind.symbol] = found
            self.dims[self.program.index[bind.symbol]] = found

    def _check(self, constraints: Sequence[Constraint]) -> None:
        for constraint in constraints:
            self.signature.check(constraint, self.values)

    def _native(self, step: NativeStep) -> None:
        instance = self.instance
        assert instance is not None
        operands = [self.env[name] for name in step.inputs]
        results = []
        for name in step.outputs:
            spec = self.program.specs[name]
            shape = self.signature.shape(spec.dims or (), self.values)
            own = self.outputs.get(name)
            if own is None:
                afford_tensor(shape, spec.numpy.itemsize, f"value {name!r}")
                own = np.empty(shape, spec.numpy)
            results.append(own)
        arena, scratch = self.signature.memory(step, self.values)
        instance.reserve(arena, scratch, afford)
        instance.point(step.segment, ctypes.addressof(self.dims))
        for slot, array in enumerate((*operands, *results)):
            instance.io[slot] = address_of(array)
        try:
            status = instance.code.team(instance.worker)
            if status:
                raise self.executor.failure(status)
        except BaseException:  # as in Executor.run_on
            instance.clear_failure()
            raise
        self.env.update(zip(step.outputs, results, strict=True))

    def _host(self, prepared: PreparedStep, step: HostStep) -> None:
        operands = [None if name is None else self.env[name] for name in step.inputs]
        if prepared.host is not None:
            results = prepared.host(operands)
        else:
            assert prepared.control is not None
            results = prepared.control(step.attrs, operands, self._bodies(prepared))
            results = [*results, *[None] * (len(step.outputs) - len(results))]
            named = zip(step.outputs, results, strict=True)
            results = [self._empty(name, prepared.bound) if r is None else r for name, r in named]
        if len(results) < len(step.outputs):
            raise InternalError(f"{step.op} gave {len(results)} results", expected=len(step.outputs))
        self._bind(step.binds, results, step.op)
        self._check(prepared.constraints)
        for name, result in zip(step.outputs, results, strict=False):
            if name is not None:
                self.env[name] = self._fitted(name, result, step.op)

    def _watched(self, prepared: PreparedStep, step: HostStep) -> None:
        """The same while somebody makes a profile."""
        began, watch = time.perf_counter(), self.program.watch
        self._host(prepared, step)
        if watch is not None:
            core = self.instance.cores[0] if self.instance is not None else NO_CORE
            watch.note_host(core, next((name for name in step.outputs if name is not None), ""), began)

    def _bodies(self, prepared: PreparedStep) -> dict[str, Body]:
        return {name: partial(self.block, body) for name, body in prepared.bodies.items()}

    def _empty(self, name: str | None, bound: frozenset[str]) -> np.ndarray | None:
        """A scan output of no iterations; lengths that only an iteration could tell are 0.

        `bound`: the symbols that count: others may have a value of an earlier run of the same loop.
        """
        if name is None or not self.program.specs[name].is_tensor:
            return None
        spec = self.program.specs[name]
        dims = spec.dims or (0,)
        known = [symbols_of(dim) <= bound for dim in dims]
        shape = [evaluate(dim, self.values) if there else 0 for dim, there in zip(dims, known, strict=True)]
        return np.zeros(shape if 0 in shape else [0, *shape[1:]], spec.numpy)

    def _fitted(self, name: str, result: Any, op: str) -> Any:
        """A host result of the type and shape that later steps were compiled for."""
        spec = self.program.specs.get(name)
        if spec is None or not spec.is_tensor or result is None:
            return result
        array = np.asarray(result, dtype=spec.numpy)
        if spec.dims is not None:
            expected = self.signature.shape(spec.dims, self.values)
            if array.shape != expected:
                raise InvalidInput(
                    f"{op} gave another shape than the model allows", expected=expected, found=array.shape
                )
        return array if is_fit(array) else np.require(array, requirements=["C", "A"])


def _control_op(step: HostStep) -> ControlOp:
    try:
        return CONTROL_OPS[step.op]
    except KeyError:
        hint = "use a newer parax"
        raise IncompatiblePlan("this runtime lacks a control operator", found=step.op, hint=hint) from None


def _host_op(step: HostStep) -> HostOp:
    from .host_ops import HOST_OPS  # here: most plans have no host operators

    try:
        prepare = HOST_OPS[step.domain, step.op]
    except KeyError:
        name = f"{step.domain or 'ai.onnx'}.{step.op}"
        raise IncompatiblePlan("this runtime lacks a host operator", found=name, hint="use a newer parax") from None
    return prepare(step.attrs)


def constant_array(plan: PlanContents, constant: Constant) -> np.ndarray:
    """A constant of the plan, read-only: mapped from its weights."""
    spec = TensorSpec("", constant.dtype, constant.shape)
    if constant.data is not None:
        strings = np.array(constant.data, dtype=object).reshape(constant.shape)
        strings.flags.writeable = False  # as the mapped weights are, so that results are copied
        return strings
    n = int(np.prod(constant.shape, dtype=np.int64))
    if n == 0:
        return np.zeros(constant.shape, spec.numpy)
    return np.frombuffer(plan.weights, spec.numpy, n, constant.offset).reshape(constant.shape)


def _bound(result: Any, axis: int | None, element: int | None, op: str) -> int:
    array = np.asarray(result)
    if axis is not None and axis < array.ndim:
        return array.shape[axis]
    if element is not None and element < array.size and array.dtype.kind in "iub":
        return int(array.reshape(-1)[element])
    raise InternalError(f"no dimension can be read off the result of {op}", found=f"{array.dtype} {array.shape}")
