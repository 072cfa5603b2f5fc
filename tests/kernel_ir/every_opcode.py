"""A kernel for each opcode: what tests of the table, of the text and of the verifier share."""

from __future__ import annotations

from collections.abc import Callable

from parax.compiler.ir.types import BOOL, F32, F64, I8, I16, I32, I64, U8, U32
from parax.compiler.kernel_ir import atomics, matrices
from parax.compiler.kernel_ir.builder import Builder, KValue
from parax.compiler.kernel_ir.loops import INDEX, KFunc, KType, PtrType
from parax.compiler.kernel_ir.matrix_registers import Shape
from parax.compiler.kernel_ir.opcodes import OPCODES

PARAMS: list[tuple[str, KType | PtrType]] = [
    ("p", PtrType(F32)), ("q", PtrType(I64)), ("sync", PtrType(U8)), ("tid", INDEX), ("nt", INDEX), ("n", INDEX),
    ("s", KType(F32)), ("x", KType(F32, 8)), ("y", KType(F32, 8)), ("d", KType(F64, 8)), ("i", KType(I64, 8)),
    ("w", KType(U32, 8)), ("z", KType(I32, 8)), ("m", KType(BOOL, 8)), ("c", KType(BOOL)),
    ("h", KType(I16, 16)), ("ub", KType(U8, 32)), ("sb", KType(I8, 32)),
]  # fmt: skip


def builder(name: str = "f", returns: KType | None = None) -> Builder:
    """A function of a value of each kind."""
    return Builder(name, PARAMS, returns=returns)


def callee() -> KFunc:
    """x + s, by lane."""
    k = Builder("sum", [("x", KType(F32, 8)), ("s", KType(F32))], returns=KType(F32, 8), inline="never")
    k.ret(k["x"] + k["s"])
    return k.func


def _loop(k: Builder) -> None:
    def body(i: KValue, carried: list[KValue]) -> list[KValue]:
        return [carried[0] + k.cast(i, F32), carried[1] + i]

    k.for_(0, k["n"], 2, [k["s"], k["tid"]], body)


def _halving(k: Builder) -> None:
    k.while_([k["n"], k["s"]], lambda c: (c[0] > 0, c), lambda c: [c[0] >> 1, c[1] * 0.5])


def _without_stores(k: Builder) -> None:
    """The product of a stack slot's bytes with themselves."""
    matrices.shape(k, [Shape(4, 16)] * 3)
    slot = k.alloca(F32, 16)
    for number in (0, 1):
        matrices.load(k, number, slot, 0, 4)
    matrices.zero(k, 2)
    matrices.dot(k, "u8i8", 2, 0, 1)
    matrices.release(k)


def _matrices(k: Builder) -> None:
    """A stack slot's bytes."""
    matrices.shape(k, [Shape(4, 16)])
    matrices.load(k, 0, k.alloca(F32, 16), 0, 4)
    matrices.store(k, 0, k["p"], 0, 4)


_MADE: dict[str, Callable[[Builder], object]] = {
    "cmp": lambda k: k["x"] < k["y"], "neg": lambda k: -k["x"], "fma": lambda k: k.fma(k["x"], 0.1, k["y"]),
    "dot_bf16": lambda k: k.op("dot_bf16", (k["w"], k["w"], k["x"]), k["x"].type),
    "dot_i16": lambda k: k.op("dot_i16", (k["h"], k["h"], k["z"]), k["z"].type),
    "dot_u8i8": lambda k: k.op("dot_u8i8", (k["ub"], k["sb"], k["z"]), k["z"].type, pairs_in_i16=True),
    "lookup": lambda k: k.op("lookup", (k.load(k["sync"], 0, 64), k.load(k["sync"], 0, 256)), KType(U8, 64)),
    "select": lambda k: k.select(k["m"], k["x"], float("-inf")), "cast": lambda k: k.cast(k["x"], I32),
    "round_to": lambda k: k.round_to(k["x"], I8, -3),
    "bitcast": lambda k: k.bitcast(k["x"], U32), "math": lambda k: k.math("tanh", k["x"]),
    "scale": lambda k: k.op("scale", (k["x"], k["y"]), k["x"].type), "splat": lambda k: k.splat(k["s"], 8),
    "ramp": lambda k: k.ramp(8), "reduce": lambda k: k.reduce("max", k["x"]), "extract": lambda k: k.extract(k["x"], 7),
    "insert": lambda k: k.insert(k["x"], k["s"], 1), "shuffle": lambda k: k.shuffle(k["x"], k["y"], (0, 8, 15)),
    "permute": lambda k: k.op("permute", (k["x"], k["y"], k["z"]), k["x"].type),
    "load": lambda k: k.load(k["p"], k["n"], 8, k["m"], align=4),
    "store": lambda k: k.store(k["p"], 0, k["x"], align=4), "gather": lambda k: k.gather(k["p"], k["i"], k["m"]),
    "scatter": lambda k: k.scatter(k["p"], k["i"], k["x"]), "gep": lambda k: k.gep(k["p"], k["n"]),
    "load_pointer": lambda k: k.load_pointer(k["q"], 1, F32),
    "alloca": lambda k: k.alloca(F32, 16), "prefetch": lambda k: k.prefetch(k["p"], k["n"], 2),
    "fail": lambda k: k.fail(3), "stamp": lambda k: k.stamp(5),
    "atomic_load": lambda k: atomics.atomic_load(k, k["q"], 1, "acquire"),
    "atomic_store": lambda k: atomics.atomic_store(k, k["q"], k["n"], k["n"], "release"),
    "atomic_add": lambda k: atomics.atomic_add(k, k["q"], 0, 3, "acq_rel"),
    **dict.fromkeys(("matrix_shapes", "matrix_release", "matrix_zero", "matrix_load", "matrix_dot"), _without_stores),
    "matrix_store": _matrices,
    "pause": atomics.pause, "yield_core": atomics.yield_core, "while": _halving,
    "call": lambda k: k.call(callee(), [k["x"], k["s"]]), "for": _loop,
    "if": lambda k: k.if_(k["c"], lambda: [k["s"]], lambda: [k.const(1.5, F32)]),
}  # fmt: skip


def made(opcode: str) -> KFunc:
    """A function with an operation of the opcode; two opcodes' operations have others in their regions."""
    k = builder(f"made_{opcode}")
    if opcode in _MADE:
        _MADE[opcode](k)
    elif opcode in ("and", "or", "xor", "shl", "shr", "udiv", "urem"):
        k.binary(opcode, k["i"], k["i"])
    else:
        k.binary(opcode, k["x"], 0.3)
    return k.func


EVERY = sorted(OPCODES)
