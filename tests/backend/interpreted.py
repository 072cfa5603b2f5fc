"""Runs a program of the harness by the interpreter of kernel IR: on targets that this machine does not run, too."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.harness import Feeds, Program, Run
from backend.ways import ALONE
from parax.compiler.backend.lowering import KernelCall, OffsetOperand, Scratch, SharedScratch, Weight
from parax.compiler.kernel_ir.interpreter import Pointer, interpret

SLACK = 63  # bytes behind weights and scratch that a kernel may read


class Interpreted(Run):
    """A run whose kernels are interpreted."""

    def call(self, call: KernelCall, where: str) -> None:
        pointers = []
        for operand in call.operands:
            guarded, shift = self._memory(operand)
            value = operand.value if isinstance(operand, OffsetOperand) else operand
            memory = guarded.view
            if isinstance(operand, (Weight, Scratch, SharedScratch)):
                memory = np.concatenate([memory, np.full(SLACK, 0xC5, np.uint8)])
            elif value in self.program.graph.inputs:
                memory = memory.view()
                memory.flags.writeable = False
            pointers.append(Pointer(memory, shift, str(operand)[:40]))
        end = self.evaluate(call.work)
        shared = [Pointer(self.dims.view, 0, "dims"), Pointer(self.sync, 0, "sync")]
        interpret(call.func, [*pointers, *shared, 0, end])


def interpreted(program: Program, feeds: Feeds, symbols: Mapping[str, int]) -> list[np.ndarray]:
    """The outputs in logical shape."""
    return Interpreted(program, dict(symbols), ALONE, lambda note: None).outputs(feeds)
