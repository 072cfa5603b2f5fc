"""What an operator class declares: type groups, annotations and the signature read from them. Knows no graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Generic, TypeVar, get_args, get_origin, get_type_hints

from ....errors import InternalError
from .. import types as t
from ..types import DType, TensorType, Type
from .attributes import MISSING, AttrSpec, attribute_kind


class TypeGroup:
    """A set of element types. Inputs of one operator that name the same group share one type variable."""

    dtypes: ClassVar[frozenset[DType]] = frozenset()
    shared: ClassVar[bool] = True

    @classmethod
    def accepts(cls, type_: Type) -> bool:
        return isinstance(type_, TensorType) and type_.dtype in cls.dtypes

    @classmethod
    def text(cls) -> str:
        return " | ".join(sorted((d.name for d in cls.dtypes), key=lambda n: (n[0], len(n), n)))


class Float(TypeGroup):
    dtypes = frozenset({t.F16, t.F32, t.F64, t.BF16})


class Float32(TypeGroup):
    dtypes = frozenset({t.F32})


class SignedInt(TypeGroup):
    dtypes = frozenset({t.I8, t.I16, t.I32, t.I64})


class UnsignedInt(TypeGroup):
    dtypes = frozenset({t.U8, t.U16, t.U32, t.U64})


class Int(TypeGroup):
    dtypes = SignedInt.dtypes | UnsignedInt.dtypes


class Numeric(TypeGroup):
    dtypes = Float.dtypes | Int.dtypes


class Signed(TypeGroup):
    dtypes = Float.dtypes | SignedInt.dtypes


class Bool(TypeGroup):
    dtypes = frozenset({t.BOOL})


class Str(TypeGroup):
    dtypes = frozenset({t.STR})


class Int64(TypeGroup):
    dtypes = frozenset({t.I64})


class Index(TypeGroup):
    """Index and axis tensors: i32 or i64."""

    dtypes = frozenset({t.I32, t.I64})


class NumericOrBool(TypeGroup):
    dtypes = Numeric.dtypes | Bool.dtypes


class NumericBoolOrStr(TypeGroup):
    dtypes = NumericOrBool.dtypes | Str.dtypes


class Any_(TypeGroup):
    """Every tensor; exported as `Any` by `base`."""

    dtypes = frozenset(DType.from_code(c) for c in range(1, 29))

    @classmethod
    def text(cls) -> str:
        return "a tensor"


class Float2(Float):
    """A second, independent type variable over Float."""


class Int2(Int):
    """A second, independent type variable over Int."""


class Index2(Index):
    """A second, independent type variable over Index."""


class Numeric2(Numeric):
    """A second, independent type variable over Numeric."""


class Any2(Any_):
    """A second, independent type variable over every tensor."""


class Mixed(TypeGroup):
    """No type variable: each input has its own type, sequences and optionals included."""

    shared = False

    @classmethod
    def accepts(cls, type_: Type) -> bool:
        return True

    @classmethod
    def text(cls) -> str:
        return "anything"


G = TypeVar("G", bound=TypeGroup)
V = TypeVar("V")


class In(Generic[G]):
    """A required input: `x: In[Float]`."""


class Opt(Generic[G]):
    """An optional input, None in `node.inputs` where omitted: `b: Opt[Float]`."""


class Variadic(Generic[G]):
    """The last input, given any number of times (at least `min_variadic` of the class)."""


class Out:
    """An output."""


class OptOut:
    """An output that the node may leave out, from the end."""


class VariadicOut:
    """The last output, any number of times."""


class Body:
    """A graph attribute, kept in `node.bodies` under the annotation's name."""


class _AttrMark:
    pass


Attr = Annotated[V, _AttrMark]
"""An attribute: `alpha: Attr[float] = 0.2`; required without a default; `= None` for optional without default."""


@dataclass(frozen=True)
class InputSpec:
    """One declared input."""

    name: str
    group: type[TypeGroup]
    kind: str
    """in | opt | variadic"""


@dataclass(frozen=True)
class OutputSpec:
    """One declared output."""

    name: str
    kind: str
    """out | opt | variadic"""


@dataclass(frozen=True)
class Signature:
    """Inputs, outputs, attributes and bodies of one operator class, in ONNX's order."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[OutputSpec, ...]
    attributes: dict[str, AttrSpec]
    bodies: tuple[str, ...]
    min_inputs: int
    min_outputs: int
    max_inputs: int | None
    max_outputs: int | None

    def input_spec(self, index: int) -> InputSpec:
        """The declaration that the operand at `index` falls under."""
        return self.inputs[min(index, len(self.inputs) - 1)]


def read_signature(cls: type, min_variadic: int) -> Signature:
    """Reads the annotations of `cls` and its bases (bases first)."""
    inputs: list[InputSpec] = []
    outputs: list[OutputSpec] = []
    attributes: dict[str, AttrSpec] = {}
    bodies: list[str] = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        origin = get_origin(hint)
        if origin is Annotated and get_args(hint)[1] is _AttrMark:
            attributes[name] = _attribute(cls, name, get_args(hint)[0])
        elif origin in (In, Opt, Variadic):
            kind = {In: "in", Opt: "opt", Variadic: "variadic"}[origin]
            inputs.append(InputSpec(name, get_args(hint)[0], kind))
        elif hint in (Out, OptOut, VariadicOut):
            outputs.append(OutputSpec(name, {Out: "out", OptOut: "opt", VariadicOut: "variadic"}[hint]))
        elif hint is Body:
            bodies.append(name)
    outputs = outputs or [OutputSpec("y", "out")]
    _check_order(cls, [i.kind for i in inputs], [o.kind for o in outputs])
    required = [i for i, spec in enumerate(inputs) if spec.kind == "in"]
    min_inputs = required[-1] + 1 if required else 0
    variadic_in = bool(inputs) and inputs[-1].kind == "variadic"
    variadic_out = outputs[-1].kind == "variadic"
    return Signature(
        tuple(inputs),
        tuple(outputs),
        attributes,
        tuple(bodies),
        len(inputs) - 1 + min_variadic if variadic_in and min_variadic else min_inputs,
        sum(o.kind == "out" for o in outputs),
        None if variadic_in else len(inputs),
        None if variadic_out else len(outputs),
    )


class UnreadSignature:
    """Stands as `signature` in an operator's class until somebody asks for it, and then the signature itself does.

    A process uses some ten of the hundreds of operators, and resolving a class's annotations takes 0.2 ms.
    """

    def __get__(self, instance: object, cls: Any) -> Signature:
        cls.signature = read_signature(cls, cls.min_variadic)
        found: Signature = cls.signature
        return found


def _attribute(cls: type, name: str, hint: Any) -> AttrSpec:
    kind = attribute_kind(hint)
    if kind is None:
        raise InternalError("attribute of unknown kind", where=f"{cls.__name__}.{name}", found=hint)
    default = getattr(cls, name, MISSING)
    return AttrSpec(name, kind, default)


def _check_order(cls: type, inputs: list[str], outputs: list[str]) -> None:
    if "variadic" in inputs[:-1] or "variadic" in outputs[:-1]:
        raise InternalError("only the last input and the last output may be variadic", where=cls.__name__)
