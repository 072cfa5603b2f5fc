"""The native function of a program: kernels of several segments, chosen and repeated (`programs.py`), in kernel IR.

Owns where values between segments lie, in a frame at the arena's begin, before the segments' own arenas; and who waits
for whom. Cores meet after each segment's kernels. What one core alone writes, the iteration's number, it writes before
such a meeting; that, states and conditions lie in two places that iterations take in turns, as a core that is late may
still read what is of the iteration before. It must not know operators nor how kernels are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

from ..ir.types import I64, U8, Dim, ceil_div, dim_max
from ..kernel_ir.builder import BYTES, Builder, KValue
from ..kernel_ir.loops import INDEX, KFunc
from ..kernel_ir.synchronisation import barrier
from .link_calls import SHARED, segment_builder
from .link_iterations import WORD_NBYTES, Repeated, Scope
from .link_parts import Part
from .lower import ALIGN, Segment
from .programs import Body, Branches, Kernels, Program, Repetition, Stage

LANES = 64  # bytes that are copied at once
BEGIN, END, ENDED, HOLDS = range(4)
"""The words that the caller of a led program shares with it; runtime/native_loops.py knows them, too."""
Parts = Mapping[int, Sequence[Part]]


def program_part(program: Program, parts: Parts, symbols: tuple[str, ...]) -> Part:
    """The function that runs a program, with the parameters of a segment's functions.

    Args:
        parts: functions of each of its segments.
    """
    frame, k = frame_nbytes(program, symbols), _builder(program, symbols)

    def write() -> None:
        _Emitter(k, program, parts, frame).whole()

    def lead() -> None:
        k.params.update(tid=k.index(0), nt=k.index(1))
        write()

    if program.is_alone:
        k.if_(k["tid"] == 0, lead)
    else:
        write()
    return Part(k.func, tuple(range(_n_inputs(program) + len(program.outputs))))


def program_memory(program: Program, segments: Sequence[Segment], symbols: tuple[str, ...]) -> tuple[Dim, Dim]:
    """Bytes of a program's arena, and of each core's scratch behind it, with these segments of a target."""
    arena: Dim = 0
    scratch: Dim = 0
    for number in program.segments():
        arena, scratch = dim_max(arena, segments[number].arena), dim_max(scratch, segments[number].scratch)
    return frame_nbytes(program, symbols) + arena, scratch


def frame_nbytes(program: Program, symbols: tuple[str, ...]) -> Dim:
    """Bytes of the values between segments: what the function asks for while it is written."""
    emitter = _Emitter(_builder(program, symbols), program, {}, 0)
    emitter.whole()
    return emitter.frame


def _n_inputs(program: Program) -> int:
    return len(program.inputs) + program.is_led


def _builder(program: Program, symbols: tuple[str, ...]) -> Builder:
    shape = Segment(n_inputs=_n_inputs(program), n_outputs=len(program.outputs))
    return segment_builder(shape, f"program_{program.number}", symbols)


class _Emitter:
    """Writes one program.

    Attributes:
        frame: bytes of the frame that have been asked for.
    """

    def __init__(self, k: Builder, program: Program, parts: Parts, frame_nbytes: Dim) -> None:
        """`parts`: without any, no kernel is called, to find out how large the frame is."""
        self.k, self.program, self._parts = k, program, parts
        self.frame: Dim = 0
        self._kernels_arena = k.gep(k["arena"], k.index(frame_nbytes))

    def whole(self) -> None:
        """Write the program."""
        k, program = self.k, self.program
        first = int(program.is_led)
        scope = {name: k[f"in{i}"] for i, name in enumerate(program.inputs, first)}
        scope |= {name: k.gep(k["weights"], offset) for name, offset in program.constants.items() if name not in scope}
        targets = {name: k[f"out{i}"] for i, name in enumerate(program.outputs)}
        self.stages((program.root,), scope, targets)

    def stages(self, stages: Sequence[Stage], scope: Scope, targets: Scope) -> None:
        """Write stages one after the other.

        Args:
            scope: where values lie; the stages' outputs are added. targets: where some of these shall lie.
        """
        for stage in stages:
            if isinstance(stage, Kernels):
                self._kernels(stage, scope, targets)
            elif isinstance(stage, Branches):
                self._branches(stage, scope, targets)
            else:
                self._repetition(stage, scope, targets)

    def meet(self) -> None:
        """All cores that run the program wait for each other."""
        if not self.program.is_alone:
            barrier(self.k)

    def take(self, nbytes: Dim) -> KValue:
        """Memory of the frame."""
        offset, self.frame = self.frame, self.frame + ceil_div(nbytes, ALIGN) * ALIGN
        return self.k.gep(self.k["arena"], self.k.index(offset))

    def nbytes(self, name: str) -> Dim:
        """The bytes of a value."""
        return self.program.types[name].nbytes

    def _place(self, name: str, scope: Scope, targets: Scope) -> KValue:
        """Where a stage's output lies."""
        scope[name] = targets[name] if name in targets else self.take(self.nbytes(name))
        return scope[name]

    def _kernels(self, stage: Kernels, scope: Scope, targets: Scope) -> None:
        k = self.k
        places = [scope[name] for name in stage.inputs]
        places += [self._place(name, scope, targets) for name in stage.outputs]
        shared = [self._kernels_arena if name == "arena" else k[name] for name in SHARED]
        for part in self._parts.get(stage.segment, ()):
            k.call(part.func, [*(places[i] for i in part.used), *shared])
            self.meet()

    def body(self, body: Body, scope: Scope, ends: Sequence[KValue | None]) -> Scope:
        """Write a body.

        Args:
            scope: where its inputs, and constants, lie. ends: where its results shall lie; None: anywhere.

        Returns:
            where all of its values lie; all cores have met since they were written.
        """
        made = {name for stage in body.stages for name in stage.outputs}
        targets: Scope = {}
        copies = []
        for name, end in zip(body.outputs, ends, strict=True):
            if end is None:
                continue
            if name in made and name not in targets:
                targets[name] = end
            else:
                copies.append((name, end))
        self.stages(body.stages, scope, targets)
        for name, end in copies:
            self.copy(end, scope[name], self.nbytes(name))
        if copies:
            self.meet()
        return scope

    def inner(self, scope: Scope, names: Sequence[str], places: Sequence[KValue]) -> Scope:
        """A body's scope: its inputs, and constants."""
        constants = {name: scope[name] for name in self.program.constants if name in scope}
        return {**constants, **dict(zip(names, places, strict=True))}

    def _branches(self, stage: Branches, scope: Scope, targets: Scope) -> None:
        k = self.k
        ends = [None if name is None else self._place(name, scope, targets) for name in stage.outputs]
        captured = [scope[name] for name in stage.captured]

        def write(body: Body) -> None:
            self.body(body, self.inner(scope, body.inputs, captured), ends)

        condition = k.load(scope[stage.condition]) != 0
        k.if_(condition, *(partial(write, body) for body in stage.bodies))

    def _repetition(self, stage: Repetition, scope: Scope, targets: Scope) -> None:
        outer = self.inner(scope, stage.operands, [scope[name] for name in stage.operands])
        repeated = Repeated(self, stage, outer)
        if stage.condition is not None:
            repeated.going = self.k.cast(self.k.load(scope[stage.condition]) != 0, I64)
        if stage.is_led:
            words = self.k["in0"]
            repeated.begin, repeated.end = self.load_word(words, BEGIN), self.load_word(words, END)
        ends = [None if name is None else self._place(name, scope, targets) for name in stage.outputs]
        count, going = repeated.run(ends)
        if stage.is_led:
            self.store_word(words, ENDED, repeated.begin + count)
            self.store_word(words, HOLDS, going)

    # Bytes

    def copy(self, to: KValue, source: KValue, nbytes: Dim) -> None:
        """Copy a value that lies in one piece; each core its share."""
        k = self.k
        if self.program.is_alone:
            k.call(copy_function(), [to, source, 0, k.index(nbytes)])
            return
        n_blocks = k.index(ceil_div(nbytes, LANES))
        begin, end = (k.udiv(n_blocks * core, k["nt"]) * LANES for core in (k["tid"], k["tid"] + 1))
        k.call(copy_function(), [to, source, begin, k.min(end, k.index(nbytes))])

    def store_word(self, words: KValue, index: int, value: KValue) -> None:
        """Write an i64, by the first core."""
        k = self.k

        def store() -> None:
            k.store(words, index * WORD_NBYTES, k.bitcast(value, U8))

        k.if_(k["tid"] == 0, store)

    def load_word(self, words: KValue, index: int) -> KValue:
        """An i64."""
        return self.k.bitcast(self.k.load(words, index * WORD_NBYTES, lanes=WORD_NBYTES), I64)


@cache
def copy_function() -> KFunc:
    """parax_copy(to, source, begin, end): bytes begin to end of one value, into another place."""
    k = Builder("parax_copy", [("to", BYTES), ("source", BYTES), ("begin", INDEX), ("end", INDEX)], inline="never")
    to, source, begin, end = (k[name] for name in ("to", "source", "begin", "end"))
    wide = begin + k.udiv(k.max(end - begin, 0), LANES) * LANES

    def move(at: KValue, _: Sequence[KValue], lanes: int) -> None:
        k.store(to, at, k.load(source, at, lanes=lanes))

    k.for_(begin, wide, LANES, (), partial(move, lanes=LANES))
    k.for_(wide, end, 1, (), partial(move, lanes=1))
    return k.func
