"""Runs a plan step by step: native segments on an instance, data-dependent operators in Python between them.

Owns the values between steps. The general path, for plans that are more than one native step.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import IncompatiblePlan, InternalError, InvalidInput
from .bindings import Binding, Signature
from .executor import Executor
from .host_ops import HOST_OPS, HostOp
from .instance import Instance
from .manifest import HostStep, NativeStep, TensorSpec
from .memory import address_of
from .plan import Plan
from .tensors import is_fit


class Program:
    """A plan's steps, made ready to run."""

    def __init__(self, plan: Plan, executor: Executor) -> None:
        """Look up host operators and constants.

        Raises:
            IncompatiblePlan: a host operator that this runtime has not.
        """
        self.manifest = manifest = plan.manifest
        self._executor = executor
        self._signature: Signature = executor.signature
        self._symbols = {symbol.name: symbol for symbol in manifest.symbols}
        self._index = {symbol.name: i for i, symbol in enumerate(manifest.symbols)}
        self._specs = {**manifest.values, **{t.name: t for t in (*manifest.inputs, *manifest.outputs)}}
        self._constants = {name: _constant(plan, name) for name in manifest.constants}
        self._host: list[HostOp | None] = [_host_op(s) if isinstance(s, HostStep) else None for s in manifest.steps]
        self._dead = self._last_uses()

    def _last_uses(self) -> list[list[str]]:
        """Per step, the values that nothing needs afterwards."""
        needed = {spec.name for spec in self.manifest.outputs} | set(self._constants)
        dead: list[list[str]] = []
        for step in reversed(self.manifest.steps):
            names = {name for name in (*step.inputs, *step.outputs) if name is not None}
            dead.append(sorted(names - needed))
            needed |= names
        return dead[::-1]

    def run(self, binding: Binding, inputs: Sequence[np.ndarray], outputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The outputs, in the manifest's order.

        Args:
            binding: of the inputs' shapes.
            inputs: in the manifest's order, fit for native code.
            outputs: caller's memory for some outputs, where their shapes are known before the run.

        Raises:
            InvalidInput: a value that an operator refuses.
        """
        executor = self._executor
        instance = executor.take_one() if executor.instances else None
        try:
            env: dict[str, Any] = dict(self._constants)
            env.update((spec.name, array) for spec, array in zip(self.manifest.inputs, inputs, strict=True))
            values, dims = dict(binding.values), self._signature.dims_array(binding.values)
            for step, host, dead in zip(self.manifest.steps, self._host, self._dead, strict=True):
                if isinstance(step, HostStep):
                    assert host is not None
                    self._run_host(step, host, env, values)
                    for bind in step.binds:
                        dims[self._index[bind.symbol]] = values[bind.symbol]
                else:
                    assert instance is not None
                    self._run_native(step, instance, env, values, dims, outputs)
                for name in dead:
                    env.pop(name, None)
            return [self._result(spec, env[spec.name], inputs, outputs) for spec in self.manifest.outputs]
        finally:
            if instance is not None:
                executor.give([instance])

    def _run_native(
        self,
        step: NativeStep,
        instance: Instance,
        env: dict[str, Any],
        values: dict[str, int],
        dims: ctypes.Array[ctypes.c_int64],
        outputs: dict[str, np.ndarray],
    ) -> None:
        operands = [env[name] for name in step.inputs]
        results = []
        for name in step.outputs:
            spec = self._specs[name]
            shape = self._signature.shape(spec.dims or (), values)
            own = outputs.get(name)
            results.append(own if own is not None else np.empty(shape, spec.numpy))
        instance.reserve(*self._signature.memory(step, values))
        instance.point(step.segment, ctypes.addressof(dims))
        for slot, array in enumerate((*operands, *results)):
            instance.io[slot] = address_of(array)
        status = instance.code.team(instance.lane)
        if status:
            instance.clear_failure()
            raise self._executor.failure(status)
        env.update(zip(step.outputs, results, strict=True))

    def _run_host(self, step: HostStep, host: HostOp, env: dict[str, Any], values: dict[str, int]) -> None:
        results = host([None if name is None else env[name] for name in step.inputs])
        if len(results) < len(step.outputs):
            raise InternalError(f"{step.op} gave {len(results)} results", expected=len(step.outputs))
        for bind in step.binds:
            value = _bound(results[bind.output], bind.axis, bind.element, step.op)
            values[bind.symbol] = self._signature.checked(self._symbols[bind.symbol], value)
        for name, result in zip(step.outputs, results, strict=False):
            if name is not None:
                env[name] = self._fitted(name, result, values, step.op)

    def _fitted(self, name: str, result: Any, values: dict[str, int], op: str) -> Any:
        """A host result of the type and shape that later steps were compiled for."""
        spec = self._specs.get(name)
        if spec is None or isinstance(result, list) or result is None or "(" in spec.dtype:
            return result
        array = np.asarray(result, dtype=spec.numpy)
        if spec.dims is not None:
            expected = self._signature.shape(spec.dims, values)
            if array.shape != expected:
                raise InvalidInput(
                    f"{op} gave another shape than the model allows", expected=expected, found=array.shape
                )
        return array if is_fit(array) else np.require(array, requirements=["C", "A"])

    def _result(
        self, spec: TensorSpec, value: Any, inputs: Sequence[np.ndarray], outputs: dict[str, np.ndarray]
    ) -> Any:
        own = outputs.get(spec.name)
        if own is not None:
            if own is not value:
                own[...] = value
            return own
        if not isinstance(value, np.ndarray):
            return value
        theirs = any(value is array or value.base is array for array in inputs)
        return value.copy() if theirs or not value.flags.writeable else value


def _host_op(step: HostStep) -> HostOp:
    try:
        prepare = HOST_OPS[step.domain, step.op]
    except KeyError:
        name = f"{step.domain or 'ai.onnx'}.{step.op}"
        raise IncompatiblePlan("this runtime lacks a host operator", found=name, hint="use a newer parax") from None
    return prepare(step.attrs)


def _constant(plan: Plan, name: str) -> np.ndarray:
    constant = plan.manifest.constants[name]
    spec = TensorSpec(name, constant.dtype, constant.shape)
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
