"""The iterations of a repetition, in kernel IR: where each one's states, slices and results lie, and which is the last.

Owns the loop. The body, and where cores meet in it, are link_programs.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..ir.ops.iterations import Slices
from ..ir.types import I64, Dim, TensorType, ceil_div, prod
from ..kernel_ir.builder import Builder, KValue
from .lower import ALIGN
from .programs import Body, Kernels, Program, Repetition

TURNS = 2  # places that iterations take in turns
WORD_NBYTES = 8
Scope = dict[str, KValue]


class Emitter(Protocol):
    """Who writes the program, bodies and all (link_programs.py)."""

    k: Builder
    program: Program

    def meet(self) -> None: ...

    def take(self, nbytes: Dim) -> KValue: ...

    def nbytes(self, name: str) -> Dim: ...

    def copy(self, to: KValue, source: KValue, nbytes: Dim) -> None: ...

    def store_word(self, words: KValue, index: int, value: KValue) -> None: ...

    def inner(self, scope: Scope, names: Sequence[str], places: Sequence[KValue]) -> Scope: ...

    def body(self, body: Body, scope: Scope, ends: Sequence[KValue | None]) -> Scope: ...


class _Turning:
    """A place for each of two iterations in turns."""

    def __init__(self, emitter: Emitter, nbytes: Dim) -> None:
        self._k = emitter.k
        stride = ceil_div(nbytes, ALIGN) * ALIGN
        self._base, self._stride = emitter.take(stride * TURNS), emitter.k.index(stride)

    def of(self, iteration: KValue) -> KValue:
        """That of an iteration."""
        return self._k.gep(self._base, self._k.urem(iteration, TURNS) * self._stride)


@dataclass(frozen=True)
class _State:
    """A value that each iteration hands to the next.

    Attributes:
        first: where that of the first lies. turning: those of all; None where none changes it.
    """

    name: str
    first: KValue
    turning: _Turning | None

    def of(self, iteration: KValue) -> KValue:
        """That of an iteration."""
        return self.first if self.turning is None else self.turning.of(iteration)


class _Sliced:
    """A tensor with a slice for each iteration: `n_runs` pieces of `run_nbytes`, `pitch` apart.

    Attributes:
        room: where a slice lies in one piece; None where it does so in the tensor.
    """

    def __init__(self, emitter: Emitter, whole: KValue, type_: TensorType, along: Slices) -> None:
        k, axis = emitter.k, along.axis_of(type_.rank)
        self._emitter, self._whole = emitter, whole
        self._length = k.index(type_.dims[axis]) if along.is_backward else None
        self._n_runs = prod(type_.dims[:axis])
        self._run_nbytes: Dim = prod(type_.dims[axis + 1 :]) * type_.dtype.nbytes
        self._pitch = type_.dims[axis] * self._run_nbytes if axis else self._run_nbytes
        self.room = emitter.take(self._n_runs * self._run_nbytes) if axis else None

    def of(self, iteration: KValue) -> KValue:
        """Where the slice of an iteration begins in the tensor."""
        number = iteration if self._length is None else self._length - 1 - iteration
        return self._emitter.k.gep(self._whole, number * self._emitter.k.index(self._run_nbytes))

    def gather(self, iteration: KValue) -> None:
        """Copy the slice into the room."""
        assert self.room is not None
        self._copy(self.room, self._run_nbytes, self.of(iteration), self._pitch)

    def scatter(self, iteration: KValue) -> None:
        """Copy the room into the slice."""
        assert self.room is not None
        self._copy(self.of(iteration), self._pitch, self.room, self._run_nbytes)

    def _copy(self, to: KValue, to_pitch: Dim, source: KValue, source_pitch: Dim) -> None:
        k = self._emitter.k

        def one(run: KValue, _: Sequence[KValue]) -> None:
            places = k.gep(to, run * k.index(to_pitch)), k.gep(source, run * k.index(source_pitch))
            self._emitter.copy(*places, self._run_nbytes)

        k.for_(0, self._n_runs, 1, (), one)


class Repeated:
    """One repetition, written by `run`.

    Attributes:
        begin, end: the numbers of the first iteration and of the first that is not to be. going: 0 if none is to be.
    """

    def __init__(self, emitter: Emitter, stage: Repetition, outer: Scope) -> None:
        """`outer`: where the operands and constants lie."""
        self._emitter, self._how, self._body, self._outer = emitter, stage.how, stage.body, outer
        how, body, k = stage.how, stage.body, emitter.k
        trips = 0 if stage.trips is None else stage.trips
        self.begin, self.end, self.going = k.index(0), k.index(trips), k.const(1, I64)
        n = how.n_states
        names, ends = body.inputs[how.n_ahead :], body.outputs[how.n_results_ahead :]
        places = [outer[name] for name in stage.operands]
        self._states = [
            _State(name, place, None if name == end else _Turning(emitter, emitter.nbytes(name)))
            for name, end, place in zip(names[:n], ends[:n], places, strict=False)
        ]
        types = [emitter.program.types[name] for name in stage.operands[n : n + len(how.scanned)]]
        self._slices = [_Sliced(emitter, *each) for each in zip(places[n:], types, how.scanned, strict=False)]
        self._inputs, self._captured = names, places[n + len(how.scanned) :]
        self._numbers = _Turning(emitter, WORD_NBYTES) if how.is_counted and _is_read(body, body.inputs[0]) else None
        stays = how.is_counted and body.outputs[0] == body.inputs[1]
        self._conditions = _Turning(emitter, 1) if how.is_counted and not stays else None
        self._stacked_names = stage.outputs[n:]

    def run(self, ends: Sequence[KValue | None]) -> tuple[KValue, KValue]:
        """Write it; how many iterations there were, and 0 if a condition ended them.

        Args:
            ends: where the results lie; None: nowhere.
        """
        emitter, k, n = self._emitter, self._emitter.k, self._how.n_states
        types = emitter.program.types
        stacks = [
            None if name is None or end is None else _Sliced(emitter, end, types[name], along)
            for name, end, along in zip(self._stacked_names, ends[n:], self._how.stacked, strict=True)
        ]
        self._enter()
        count = self.end - self.begin

        def look(carried: list[KValue]) -> tuple[KValue, Sequence[KValue]]:
            return (carried[0] < count) & (carried[1] != 0), carried

        def iterate(carried: list[KValue]) -> Sequence[KValue]:
            return [carried[0] + 1, self._iteration(carried[0], stacks)]

        made, going = k.while_([k.index(0), self.going], look, iterate)
        copies = [(end, state) for end, state in zip(ends, self._states, strict=False) if end is not None]
        for end, state in copies:
            emitter.copy(end, state.of(made), emitter.nbytes(state.name))
        if copies:
            emitter.meet()
        return made, going

    def _enter(self) -> None:
        """What the first iteration reads."""
        emitter, zero = self._emitter, self._emitter.k.index(0)
        turning = [state for state in self._states if state.turning is not None]
        for state in turning:
            emitter.copy(state.of(zero), state.first, emitter.nbytes(state.name))
        if self._numbers is not None:
            emitter.store_word(self._numbers.of(zero), 0, self.begin)
        if turning or self._numbers is not None:
            emitter.meet()

    def _iteration(self, number: KValue, stacks: Sequence[_Sliced | None]) -> KValue:
        """Write the body of iteration `number`, from 0; 0 if it is the last."""
        emitter, k = self._emitter, self._emitter.k
        following = number + 1
        if self._numbers is not None:  # where the iteration before read, after which all met
            emitter.store_word(self._numbers.of(following), 0, self.begin + following)
        apart = [each for each in self._slices if each.room is not None]
        for each in apart:
            each.gather(number)
        if apart:
            emitter.meet()
        ends: list[KValue | None] = []
        if self._how.is_counted:
            ends.append(None if self._conditions is None else self._conditions.of(number))
        ends += [None if state.turning is None else state.of(following) for state in self._states]
        ends += [None if s is None else s.room if s.room is not None else s.of(number) for s in stacks]
        emitter.body(self._body, self._scope(number), ends)
        scattered = [each for each in stacks if each is not None and each.room is not None]
        for each in scattered:
            each.scatter(number)
        if scattered or not self._body.stages:
            emitter.meet()
        holds = ends[0] if self._how.is_counted else None
        return k.const(1, I64) if holds is None else k.cast(k.load(holds) != 0, I64)

    def _scope(self, number: KValue) -> Scope:
        """Where the body's inputs lie in an iteration."""
        places = [state.of(number) for state in self._states]
        places += [each.of(number) if each.room is None else each.room for each in self._slices]
        places += self._captured
        scope = self._emitter.inner(self._outer, self._inputs, places)
        if self._how.is_counted:
            k = self._emitter.k
            scope[self._body.inputs[1]] = k.gep(k["weights"], self._emitter.program.true)
            if self._numbers is not None:
                scope[self._body.inputs[0]] = self._numbers.of(number)
        return scope


def _is_read(body: Body, name: str) -> bool:
    """Whether anything in a body reads one of its inputs."""
    read = set(body.outputs)
    for stage in body.stages:
        if isinstance(stage, Kernels):
            read.update(stage.inputs)
        elif isinstance(stage, Repetition):
            read.update((*stage.operands, *([stage.condition] if stage.condition else ())))
        else:
            read.update((stage.condition, *stage.captured))
    return name in read
