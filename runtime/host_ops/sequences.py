"""Sequences, which are lists, and optionals, which are None or their element. None is changed: results are others."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import InvalidInput
from ..limits import afford
from .base import Attributes, host_op, one_number


def _position(what: str, given: Any, default: int, least: int, most: int) -> int:
    at = default if given is None else int(one_number(f"{what}: position", given))
    if not least <= at <= most:
        raise InvalidInput(f"{what}: the position is outside of the sequence", expected=f"{least} to {most}", found=at)
    return at


@host_op("SequenceConstruct")
def sequence_construct(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """A list of the operands."""
    return [list(inputs)]


@host_op("SequenceEmpty")
def sequence_empty(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """An empty list."""
    return [[]]


@host_op("SequenceInsert")
def sequence_insert(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """As Python's insert, for positions inside."""
    sequence, tensor, at = [*inputs, None][:3]
    where = _position("SequenceInsert", at, len(sequence), -len(sequence), len(sequence))
    made = list(sequence)
    made.insert(where, tensor)
    return [made]


@host_op("SequenceErase")
def sequence_erase(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Without one element."""
    sequence, at = [*inputs, None][:2]
    made = list(sequence)
    del made[_position("SequenceErase", at, -1, -len(sequence), len(sequence) - 1)]
    return [made]


@host_op("SequenceAt")
def sequence_at(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """One element."""
    sequence, at = inputs
    return [sequence[_position("SequenceAt", at, 0, -len(sequence), len(sequence) - 1)]]


@host_op("SequenceLength")
def sequence_length(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """How many there are."""
    return [np.array(len(inputs[0]), np.int64)]


@host_op("SplitToSequence")
def split_to_sequence(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Pieces, each an array of its own."""
    x, split = [*inputs, None][:2]
    axis, size = int(attributes.get("axis", 0)), x.shape[int(attributes.get("axis", 0))]
    if split is not None and split.ndim:
        ends = np.cumsum(split)
        if (split < 0).any() or (ends[-1] if ends.size else 0) != size:
            raise InvalidInput("SplitToSequence: split must add up to the axis", expected=size, found=split.tolist())
        ends = ends[:-1]
    else:
        each = 1 if split is None else int(one_number("SplitToSequence: split", split))
        if each < 1:
            raise InvalidInput("SplitToSequence: split must be positive", found=each)
        ends = np.arange(each, size, each)
    afford(x.nbytes, "SplitToSequence")
    if not size and not (split is not None and split.ndim and split.size):
        return [[]]
    pieces = np.split(x, ends, axis)
    if split is None and not attributes.get("keepdims", 1):
        pieces = [np.squeeze(piece, axis) for piece in pieces]
    return [[np.array(piece, order="C") for piece in pieces]]


@host_op("ConcatFromSequence")
def concat_from_sequence(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """One array of all."""
    (sequence,) = inputs
    if not sequence:
        raise InvalidInput("ConcatFromSequence: an empty sequence cannot be joined")
    join = np.stack if attributes.get("new_axis", 0) else np.concatenate
    afford(sum(item.nbytes for item in sequence), "ConcatFromSequence")
    try:
        return [join(sequence, int(attributes["axis"]))]
    except ValueError as error:  # numpy's own words for the shapes
        shapes = ", ".join(str(list(item.shape)) for item in sequence[:4])
        raise InvalidInput("ConcatFromSequence: the elements do not fit together", found=shapes) from error


@host_op("Optional")
def optional(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """The operand, or None."""
    return [inputs[0] if inputs else None]


@host_op("OptionalHasElement")
def optional_has_element(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """Whether it is not None."""
    return [np.array(bool(inputs) and inputs[0] is not None)]


@host_op("OptionalGetElement")
def optional_get_element(attributes: Attributes, inputs: list[Any]) -> list[Any]:
    """What is not None."""
    if inputs[0] is None:
        raise InvalidInput("OptionalGetElement: the optional has no element")
    return [inputs[0]]
