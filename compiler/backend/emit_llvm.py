"""Kernel IR → LLVM assembly text: modules, functions and control flow; the table from opcodes to instructions.

Owns the shape of a module: linkage, attributes, loop metadata. It must not know of graphs or schedules. Text rather
than llvmlite's IR objects: it is several times faster to build and is what the dumps show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import env
from ...errors import InternalError
from ..kernel_ir.loops import KFunc, KOp, KType, PtrType, Region, all_functions
from ..kernel_ir.verifier import verify_function
from ..targets.target import Target
from . import llvm_arith as arith
from . import llvm_atomics as atomics
from . import llvm_dots as dots
from . import llvm_matrices as matrices
from . import llvm_memory as memory
from .llvm_types import constant, llvm_type, memory_scalar

# our loops are unrolled and vectorised by the schedule: LLVM must leave their shape alone
_LOOP_METADATA = ('!0 = !{!"llvm.loop.unroll.disable"}', '!1 = !{!"llvm.loop.vectorize.enable", i1 false}',
                  '!2 = distinct !{!2, !0, !1}')
_GROUPS = {"": ("#0", "nounwind"), "always": ("#1", "nounwind alwaysinline"), "never": ("#2", "nounwind noinline")}


class ModuleEmitter:
    """Collects functions, intrinsic declarations and exports of one LLVM module.

    Args:
        target: the CPU the code is for; its features decide between instructions and expansions.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.declarations: dict[str, str] = {}
        self.functions: dict[str, str] = {}
        self.exports: dict[str, str] = {}
        self.verify = env.read("PARAX_VERIFY")

    def has(self, feature: str) -> bool:
        """Whether the code may use an ability of the target, by LLVM's name of the feature."""
        return feature in self.target.abilities

    def declare(self, name: str, result: str, args: str, attributes: str = "") -> str:
        """An external function; the same one may be declared again."""
        self.declarations[name] = f"declare {result} @{name}({args}) {attributes}".rstrip()
        return name

    def add(self, roots: list[KFunc]) -> None:
        """Emit the functions reachable from `roots` (each name once), visible inside the module only."""
        for f in all_functions(roots):
            if f.name not in self.functions:
                if self.verify:
                    verify_function(f)
                self.functions[f.name] = ""
                self.functions[f.name] = FunctionEmitter(self, f).text()

    def export(self, func: KFunc, name: str) -> None:
        """Emit `func` with a public entry `name` of the same signature."""
        self.add([func])
        result = llvm_type(func.returns) if func.returns else "void"
        params = ", ".join(f"{llvm_type(p.type)} %p{i}" for i, p in enumerate(func.params))
        call = f"call {result} @{func.name}({params})"
        body = f"  {call}\n  ret void" if func.returns is None else f"  %r = {call}\n  ret {result} %r"
        self.exports[name] = f"define {result} @{name}({params}) #0 {{\n{body}\n}}"

    def text(self, extra: str = "") -> str:
        """The module; `extra` is LLVM assembly to go with it (it may use attribute groups #0 to #2)."""
        machine = attributes(self.target)
        groups = [f"attributes {group} = {{ {words} {machine} }}" for group, words in _GROUPS.values()]
        parts = [*self.declarations.values(), *self.functions.values(), *self.exports.values(), extra, *groups,
                 *_LOOP_METADATA]
        return "\n".join(p for p in parts if p) + "\n"


def attributes(target: Target) -> str:
    """Function attributes that make LLVM generate code for the target."""
    features = ",".join(f"+{f}" for f in target.features)
    tune = f'"tune-cpu"="{target.tune}" ' if target.tune else ""
    # left to itself LLVM keeps to 256 bits on several CPUs
    return (f'"target-cpu"="{target.cpu}" "target-features"="{features}" {tune}'
            f'"prefer-vector-width"="{target.vector_bits}" "min-legal-vector-width"="{target.vector_bits}"')


class FunctionEmitter:
    """The text of one function."""

    def __init__(self, module: ModuleEmitter, func: KFunc) -> None:
        self.module, self.func = module, func
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.names: dict[int, str] = {}
        self.widened: dict[int, str] = {}  # by id: narrow numbers that there are in i32 as well
        self.clamped: dict[int, tuple[str, float]] = {}  # by id: what they are roundings of, and its zero
        self.steps: dict[int, tuple[str, float]] = {}  # by id: the same of these numbers as f32
        self.quotients: dict[int, tuple[Any, float]] = {}  # by id: of f32 by constants, what is divided by what
        self.counter = 0
        self.label = "entry"
        self._zero = ""

    def fresh(self) -> str:
        self.counter += 1
        return f"%v{self.counter}"

    def ref(self, v: Any) -> str:
        """A value's name or its constant."""
        return self.names[id(v)] if v.const is None else constant(v.const, v.type)

    def typed(self, v: Any) -> str:
        return f"{llvm_type(v.type)} {self.ref(v)}"

    def out(self, line: str) -> None:
        self.lines.append("  " + line)

    def assign(self, expression: str) -> str:
        """A new name for the result of an instruction."""
        name = self.fresh()
        self.out(f"{name} = {expression}")
        return name

    def start(self, label: str) -> None:
        """Open a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def text(self) -> str:
        f, params = self.func, []
        for i, p in enumerate(f.params):
            self.names[id(p)] = f"%p{i}"
            pointer = "ptr noalias" if f.noalias else "ptr"
            params.append(f"{pointer if isinstance(p.type, PtrType) else llvm_type(p.type)} %p{i}")
        self.region(f.body)
        result = llvm_type(f.returns) if f.returns else "void"
        self.out(f"ret {self.typed(f.body.yields[0])}" if f.returns else "ret void")
        linkage = "" if f.exported else "internal "
        head = f"define {linkage}{result} @{f.name}({', '.join(params)}) {_GROUPS[f.inline][0]} {{\nentry:"
        return "\n".join([head, *self.allocas, *self.lines, "}"])

    def region(self, region: Region) -> None:
        """Emit the operations of a region in place."""
        for o in region.ops:
            handler = HANDLERS.get(o.opcode)
            if handler is None:
                raise InternalError(f"no LLVM for opcode {o.opcode}", where=f"kernel {self.func.name}")
            name = handler(self, o)
            if name is not None:
                self.names[id(o.results[0])] = name

    def address(self, ptr: Any, index: Any) -> str:
        """The address of ptr[index]."""
        if index.const == 0:
            return self.ref(ptr)
        element = memory_scalar(ptr.dtype)
        return self.assign(f"getelementptr inbounds {element}, ptr {self.ref(ptr)}, {self.typed(index)}")

    def stack(self, count: int, element: str, align: int) -> str:
        """Stack memory, allocated once however often the place is reached."""
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align {align}")
        return name

    def zero_slot(self) -> str:
        """The address of eight bytes of zeros."""
        if not self._zero:
            self._zero = self.stack(1, "i64", 8)
            self.allocas.append(f"  store i64 0, ptr {self._zero}, align 8")
        return self._zero

    def intrinsic(self, name: str, result: KType, *args: Any, tail: str = "") -> str:
        """Declare and call an intrinsic; `tail` is one more, constant, argument."""
        t = llvm_type(result)
        types = [llvm_type(a.type) for a in args] + ([tail.split()[0]] if tail else [])
        self.module.declare(name, t, ", ".join(types))
        values = [self.typed(a) for a in args] + ([tail] if tail else [])
        return self.assign(f"call {t} @{name}({', '.join(values)})")


def _for(e: FunctionEmitter, o: KOp) -> None:
    """Tested at the top, so that an empty range runs no iteration."""
    lo, hi, step, *init = o.operands
    region = o.regions[0]
    e.counter += 1
    head, body, done = (f"{word}{e.counter}" for word in ("head", "body", "exit"))
    before, bound, starts = e.label, e.ref(hi), [e.ref(lo), *(e.ref(v) for v in init)]
    e.out(f"br label %{head}")
    e.start(head)
    names = [e.fresh() for _ in region.params]
    for p, name in zip(region.params, names):
        e.names[id(p)] = name
    phis = len(e.lines)
    e.lines.extend([""] * len(names))
    go = e.assign(f"icmp slt i64 {names[0]}, {bound}")
    e.out(f"br i1 {go}, label %{body}, label %{done}")
    e.start(body)
    e.region(region)
    ends = [e.assign(f"add nsw i64 {names[0]}, {e.ref(step)}"), *(e.ref(y) for y in region.yields)]
    e.out(f"br label %{head}, !llvm.loop !2")
    for i, (p, name, s, t) in enumerate(zip(region.params, names, starts, ends)):
        e.lines[phis + i] = f"  {name} = phi {llvm_type(p.type)} [ {s}, %{before} ], [ {t}, %{e.label} ]"
    e.start(done)
    for r, name in zip(o.results, names[1:]):
        e.names[id(r)] = name


def _while(e: FunctionEmitter, o: KOp) -> None:
    """The first region is run before each pass through the second one; both see the same values carried."""
    look, again = o.regions
    e.counter += 1
    head, body, done = (f"{word}{e.counter}" for word in ("look", "again", "done"))
    before, starts = e.label, [e.ref(v) for v in o.operands]
    e.out(f"br label %{head}")
    e.start(head)
    names = [e.fresh() for _ in look.params]
    e.names.update((id(p), name) for p, name in zip(look.params, names))
    phis = len(e.lines)
    e.lines.extend([""] * len(names))
    e.region(look)
    condition, *seen = (e.ref(y) for y in look.yields)
    e.out(f"br i1 {condition}, label %{body}, label %{done}")
    e.start(body)
    e.names.update((id(p), value) for p, value in zip(again.params, seen))
    e.region(again)
    ends = [e.ref(y) for y in again.yields]
    e.out(f"br label %{head}")
    for i, (p, name, s, t) in enumerate(zip(look.params, names, starts, ends)):
        e.lines[phis + i] = f"  {name} = phi {llvm_type(p.type)} [ {s}, %{before} ], [ {t}, %{e.label} ]"
    e.start(done)
    e.names.update((id(r), value) for r, value in zip(o.results, seen))


def _if(e: FunctionEmitter, o: KOp) -> None:
    e.counter += 1
    then, orelse, end = (f"{word}{e.counter}" for word in ("then", "else", "end"))
    e.out(f"br i1 {e.ref(o.operands[0])}, label %{then}, label %{orelse}")
    values, labels = [], []
    for label, region in zip((then, orelse), o.regions):
        e.start(label)
        e.region(region)
        values.append([e.ref(y) for y in region.yields])
        labels.append(e.label)
        e.out(f"br label %{end}")
    e.start(end)
    for i, r in enumerate(o.results):
        pairs = ", ".join(f"[ {v[i]}, %{label} ]" for v, label in zip(values, labels))
        e.names[id(r)] = e.assign(f"phi {llvm_type(r.type)} {pairs}")


def _stamp(e: FunctionEmitter, o: KOp) -> None:
    e.out(f"call void @parax_stamp({', '.join(e.typed(v) for v in o.operands)}, i64 {o.attrs['number']})")


def _call(e: FunctionEmitter, o: KOp) -> str | None:
    func = o.attrs["callee"]
    args = ", ".join(e.typed(a) for a in o.operands)
    if func.returns is None:
        e.out(f"call void @{func.name}({args})")
        return None
    return e.assign(f"call {llvm_type(func.returns)} @{func.name}({args})")


Handler = Callable[[FunctionEmitter, KOp], str | None]

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr",
                     "udiv", "urem", "pow"), arith.arith),
    "cmp": arith.compare, "neg": arith.negate, "fma": arith.fma, "select": arith.select, "cast": arith.cast,
    "round_to": arith.round_to,
    "dot_bf16": dots.dot_bf16, "dot_i16": dots.dot_i16, "dot_u8i8": dots.dot_u8i8,
    "bitcast": arith.bitcast, "math": arith.math_call, "scale": arith.scale,
    "splat": memory.splat, "ramp": memory.ramp, "reduce": memory.reduce, "extract": memory.extract,
    "insert": memory.insert, "shuffle": memory.shuffle, "permute": memory.permute, "lookup": memory.lookup,
    "load": memory.load, "store": memory.store, "gather": memory.gather, "scatter": memory.scatter,
    "gep": memory.gep, "alloca": memory.alloca, "load_pointer": memory.load_pointer,
    "prefetch": memory.prefetch, "fail": memory.fail, "for": _for, "if": _if, "call": _call, "stamp": _stamp,
    "while": _while, "pause": atomics.pause, "yield_core": atomics.yield_core,
    "atomic_load": atomics.load, "atomic_store": atomics.store, "atomic_add": atomics.add,
    "matrix_shapes": matrices.shapes, "matrix_release": matrices.release, "matrix_zero": matrices.zero,
    "matrix_load": matrices.load, "matrix_store": matrices.store, "matrix_dot": matrices.dot,
}  # fmt: skip
