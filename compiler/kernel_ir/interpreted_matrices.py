"""Matrix registers as the interpreter keeps them: what Intel's manual says of each instruction, shapes checked.

A register without a shape, or shapes that do not meet, end a program on the CPU; here they are an InternalError.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ...errors import InternalError
from ..ir.types import U8, DType
from .interpreted_cores import Access, Pointer
from .interpreted_lanes import flushed_multiply_add, flushed_sum
from .loops import KOp, KType
from .matrix_registers import ELEMENT_NBYTES


class Running(Protocol):
    """What matrix registers need of a running function."""

    matrices: dict[int, np.ndarray]

    def get(self, v: Any) -> Any: ...
    def number(self, v: Any) -> int: ...
    def refuse(self, message: str) -> InternalError: ...
    def read(self, o: KOp, ptr: Pointer, t: KType, index: np.ndarray, on: np.ndarray,
             access: Access = ...) -> np.ndarray: ...  # fmt: skip
    def write(self, o: KOp, ptr: Pointer, dtype: DType, index: np.ndarray, x: np.ndarray, on: np.ndarray,
              access: Access = ...) -> None: ...  # fmt: skip


def shapes(f: Running, o: KOp) -> None:
    """All registers that are used hold zeros."""
    sizes = zip(o.attrs["rows"], o.attrs["nbytes"], strict=True)
    f.matrices = {n: np.zeros(size, np.uint8) for n, size in enumerate(sizes) if all(size)}


def release(f: Running, o: KOp) -> None:
    """No register has a shape."""
    f.matrices = {}


def zero(f: Running, o: KOp) -> None:
    """Zeros."""
    _register(f, o, "number")[:] = 0


def load(f: Running, o: KOp) -> None:
    """Row by row."""
    register = _register(f, o, "number")
    pointer, at = _places(f, o, register)
    register[:] = f.read(o, pointer, KType(U8, register.size), at, np.ones(register.size, bool)).reshape(register.shape)


def store(f: Running, o: KOp) -> None:
    """Row by row."""
    register = _register(f, o, "number")
    pointer, at = _places(f, o, register)
    f.write(o, pointer, U8, at, register.reshape(-1), np.ones(register.size, bool))


def dot(f: Running, o: KOp) -> None:
    """The sums' register gains the product."""
    sums, a, b = (_register(f, o, word) for word in ("sums", "a", "b"))
    if a.shape[0] != sums.shape[0] or b.shape[1] != sums.shape[1] or a.shape[1] != ELEMENT_NBYTES * b.shape[0]:
        raise f.refuse(f"matrix_dot of shapes that do not meet: {sums.shape} of {a.shape} and {b.shape}")
    _PRODUCTS[o.attrs["kind"]](sums, a, b)


def _register(f: Running, o: KOp, word: str) -> np.ndarray:
    found = f.matrices.get(o.attrs[word])
    if found is None:
        raise f.refuse(f"{o.opcode} of matrix register {o.attrs[word]}, which has no shape")
    return found


def _places(f: Running, o: KOp, register: np.ndarray) -> tuple[Pointer, np.ndarray]:
    """The pointer, and the number of each byte of the register behind it."""
    ptr, index, pitch = o.operands
    rows, nbytes = register.shape
    first = (f.number(index) + np.arange(rows) * f.number(pitch)) * ptr.dtype.nbytes
    return f.get(ptr), (first[:, None] + np.arange(nbytes)).reshape(-1)


def _of_bf16(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """TDPBF16PS: sums of the pairs' first and of their second products, each in order; both, and then the sum so far.

    Every step rounds once, to nearest even; denormals are zeros, of operands, sums and results.
    """
    left, right = (np.ascontiguousarray(x).view(np.uint16).astype(np.uint32) << 16 for x in (a, b))
    left, right = left.reshape(len(a), -1, 2).view(np.float32), right.reshape(len(b), -1, 2).view(np.float32)
    own = np.zeros((len(a), right.shape[1], 2), np.float32)
    for step in range(len(b)):
        own = flushed_multiply_add(left[:, step, None, :], right[None, step], own)
    total = sums.view(np.float32)
    total[:] = flushed_sum(total, flushed_sum(own[..., 0], own[..., 1]))


def _of_bytes(kind: type[np.integer]) -> Any:
    """TDPBSSD and TDPBUSD: exact modulo 2^32."""

    def product(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        left = np.ascontiguousarray(a).view(kind).astype(np.int64).reshape(len(a), -1, 4)
        right = np.ascontiguousarray(b).view(np.int8).astype(np.int64).reshape(len(b), -1, 4)
        total = sums.view(np.uint32)
        total[:] = (total + np.einsum("mkq,knq->mn", left, right)) & 0xFFFFFFFF

    return product


_PRODUCTS = {"bf16": _of_bf16, "i8i8": _of_bytes(np.int8), "u8i8": _of_bytes(np.uint8)}
