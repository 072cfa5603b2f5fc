"""Runs a plan step by step: native segments on an instance, data-dependent operators and control flow in Python.

Owns the way through plans that are more than one native step. The first request, and any that is limited, watched or
given memory for outputs, goes from step to step here; others by the function that step_text.py writes for the plan.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .bindings import Binding, Signature
from .control import Body
from .executor import Executor
from .host_values import arrays_in, nbytes_of_maps, objects_in, owned
from .instance import Instance
from .limits import Allowance, afford, afford_tensor, exchanged, within
from .manifest import Bind, Constant, Constraint, HostStep, NativeStep, TensorSpec
from .memory import address_of, owner_of
from .native_loops import NativeLoop
from .plan_contents import PlanContents
from .profiling.watch import NO_CORE, Watch
from .step_blocks import PreparedBlock, PreparedStep, prepared
from .step_text import Written, written
from .step_values import empty_scan, entering, fitted, short, size_of

PLAIN_REQUESTS = 2
"""That go from step to step before the function is written: who makes one request need not wait for it."""


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
        self._main = prepared(manifest)
        self._written: Written | None = None
        self._n_plain, self._is_tried = PLAIN_REQUESTS, False
        self._constant_objects = {name for value in self.constants.values() for name in objects_in(value)}

    @property
    def is_settled(self) -> bool:
        """Whether requests run by now as later ones will: by the function, where one can be written."""
        return self._n_plain <= 0

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
        function = self._function(executor) if not outputs and allowance.limits.nbytes is None else None
        try:
            if executor.instances:
                executor.take_one(held)
            instance = held[0] if held else None
            if function is not None:
                return self._called(function, instance, binding, inputs, allowance)
            with within(allowance):
                run = _Run(self, executor, binding, instance, outputs)
                allowance.held = run.held_nbytes
                results = run.block(self._main, inputs)
        finally:
            executor.free.extend(held)
            executor.hand_over()
        return self._owned(results, inputs, outputs)

    def run_ready(
        self, executor: Executor, binding: Binding, inputs: Sequence[np.ndarray], allowance: Allowance
    ) -> list[Any] | None:
        """The same for a request of a shape met before, where nothing has to be waited for; None: it needs `run`.

        Raises:
            As `run`.
        """
        function = self._function(executor)
        if function is None or allowance.limits.nbytes is not None:
            return None
        if not executor.instances:
            return self._called(function, None, binding, inputs, allowance) if not executor.closed else None
        instance = None
        try:
            for instance in executor.popped:  # a loop calls and assigns at once: no signal comes between
                return self._called(function, instance, binding, inputs, allowance)
        except IndexError:
            if instance is not None:
                raise
        finally:
            if instance is not None:
                executor.free.append(instance)
                if executor.waiting or executor.crews.active:
                    executor.hand_over()
        return None

    def _function(self, executor: Executor) -> Written | None:
        """The plan's function, written for its third request; None while there is none, or where it would not do."""
        if self.watch is not None:
            return None
        if self._n_plain > 0:
            self._n_plain -= 1
            return None
        if not self._is_tried:  # several threads may write it at once: it is the same
            self._written = written(self.manifest, self._main, self.specs, self.constants, executor)
            self._is_tried = True
        return self._written

    def _called(
        self, function: Written, instance: Instance | None, binding: Binding, inputs: Sequence[np.ndarray],
        allowance: Allowance,
    ) -> list[Any]:  # fmt: skip
        """What the function gives, for the caller to keep."""
        before = exchanged(allowance)
        try:
            results = function.run(instance, binding, inputs, allowance)
        except BaseException:  # as in Executor.run_on
            if instance is not None:
                instance.clear_failure()
            raise
        finally:
            exchanged(before)
        return list(results) if function.is_fresh else self._owned(results, inputs, {})

    def _owned(
        self, results: Sequence[Any], inputs: Sequence[np.ndarray], outputs: dict[str, np.ndarray]
    ) -> list[np.ndarray]:
        """Results that the caller may keep: in the memory asked for, and shared with nothing."""
        held = {name for value in (*inputs, *outputs.values()) for name in objects_in(value)} | self._constant_objects
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
        self.signature, self.specs = program.signature, program.specs
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
            env[name] = entering(self.signature, self.specs.get(name), name, value, self.values)
        self._check(prepared.constraints)
        for step in prepared.steps:
            if isinstance(step.step, HostStep):
                (self._host if self.program.watch is None else self._watched)(step, step.step)
            else:
                self._native(step.step)
            for name in step.dead:
                env.pop(name, None)
        return [env[name] for name in block.outputs]

    def _bind(self, binds: Sequence[Bind], values: Sequence[Any], op: str) -> None:
        for bind in binds:
            found = size_of(values[bind.output], bind.axis, bind.element, op)
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
            if step.native is not None:
                results = self._native_loop(step, operands)
            else:
                assert prepared.control is not None
                results = prepared.control(step.attrs, operands, self._bodies(prepared))
            results = [*results, *[None] * (len(step.outputs) - len(results))]
            named = zip(step.outputs, results, strict=True)
            results = [self._empty(name, prepared) if r is None else r for name, r in named]
        if len(results) < len(step.outputs):
            raise short(step.op, results, len(step.outputs))
        self._bind(step.binds, results, step.op)
        self._check(prepared.constraints)
        for name, result in zip(step.outputs, results, strict=False):
            if name is not None:
                self.env[name] = fitted(self.signature, self.specs.get(name), step.op, result, self.values)

    def _native_loop(self, step: HostStep, operands: Sequence[Any]) -> list[Any]:
        instance = self.instance
        assert instance is not None
        assert step.native is not None
        instance.point(step.native.segment, ctypes.addressof(self.dims))
        loop = NativeLoop(step, self.specs, self.signature, self.executor.failure)
        return loop.run(instance, operands, self.values)

    def _watched(self, prepared: PreparedStep, step: HostStep) -> None:
        """The same while somebody makes a profile."""
        began, watch = time.perf_counter(), self.program.watch
        self._host(prepared, step)
        if watch is not None:
            core = self.instance.cores[0] if self.instance is not None else NO_CORE
            watch.note_host(core, next((name for name in step.outputs if name is not None), ""), began)

    def _empty(self, name: str | None, prepared: PreparedStep) -> np.ndarray | None:
        return None if name is None else empty_scan(self.specs.get(name), self.values, prepared.bound)

    def _bodies(self, prepared: PreparedStep) -> dict[str, Body]:
        return {name: partial(self.block, body) for name, body in prepared.bodies.items()}


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
