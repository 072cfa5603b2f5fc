"""One random model from a seed and a number, with inputs for each binding of its symbols."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .families import BUILDERS, FREQUENCY
from .families.registry import Builder
from .maker import SYMBOLS, Maker, Refused, Value, tensor_code
from .sizes import Size

OPSETS, OFTEN = (18, 19, 20, 21, 22, 23, 24), (1, 1, 1, 3, 3, 3, 2)
MOST_OUTPUTS = 12
FROZEN = 0.08
"""Of all models: the share whose inputs are constants."""
Feeds = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """A model and its inputs, a set for each run.

    Attributes:
        wild: with Inf, NaN and extremes among them.
        recorded: what the framework that the model was exported from computes of the first inputs, where it has spoken.
    """

    name: str
    model: onnx.ModelProto
    feeds: list[Feeds]
    wild: bool = False
    recorded: Feeds | None = None


def generate(seed: str, number: int) -> Case:
    """The model of that seed and number, always the same."""
    rng = random.Random(f"{seed}/{number}")
    names = sorted(BUILDERS)
    required = names[number % len(names)]
    maker = _start(rng, _introduced().get(required, 1))
    _add(maker, required, BUILDERS[required])
    count = rng.choices([0, rng.randint(1, 5), rng.randint(5, 14)], [3, 6, 2])[0]
    weights = [FREQUENCY[name] for name in names]
    for name in rng.choices(names, weights, k=count):
        _add(maker, name, BUILDERS[name])
    while not any(v.kind == "node" for v in maker.values) and not maker.ends:
        name = rng.choice(names)
        _add(maker, name, BUILDERS[name])
    case = Case(f"{seed}-{number}", model_of(maker), maker.feeds, maker.wild)
    return frozen(case) if random.Random(f"{seed}/{number}/frozen").random() < FROZEN else case


def frozen(case: Case) -> Case:
    """The model with the inputs of its first run as constants: what folding makes of it is its result."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in case.feeds[0].items())
    del model.graph.input[:]
    return replace(case, model=model, feeds=[{}])


@cache
def _introduced() -> dict[str, int]:
    """Operator → the first operator set that has it."""
    found: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            found[schema.name] = min(schema.since_version, found.get(schema.name, schema.since_version))
    return found


def _start(rng: random.Random, least: int) -> Maker:
    """An empty graph with its general choices made; its operator set is not below `least`."""
    symbols = {}
    if rng.random() < 0.45:
        for name in rng.sample(SYMBOLS, rng.choice([1, 1, 2])):
            second = 0 if rng.random() < 0.15 else rng.choice([1, 1, 2, 4, 9, 33])
            symbols[name] = Size(name, (rng.choice([1, 2, 3, 5, 7, 16, 17]), second), symbol=True)
    opset = max(rng.choices(OPSETS, OFTEN)[0], least)
    numpy = np.random.default_rng(rng.getrandbits(64))
    return Maker(rng, numpy, opset, wild=rng.random() < 0.12, symbols=symbols, large=rng.random() < 0.04)


def _add(maker: Maker, name: str, builder: Builder) -> None:
    """Try to add an operator or block a few times."""
    for _ in range(6):
        try:
            builder(maker, name)
            return
        except Refused:
            continue
        except onnx.defs.SchemaError:  # this operator set does not have it
            return


def model_of(maker: Maker) -> onnx.ModelProto:
    """The finished model: what nothing uses are its outputs, and some other values."""
    rng, outputs = maker.rng, _outputs(maker)
    for value in list(outputs):
        if rng.random() < 0.04:  # the same bytes twice
            copies = [maker.node("Identity", [value], [(value.dtype, value.shape)])[0] for _ in range(2)]
            outputs += [c for c in copies if all(c.name != o.name for o in outputs)]
    names = {v.name for v in outputs}
    used = maker.used | names
    inputs = [v for v in maker.inputs if v.name in used]
    for feed in maker.feeds:
        for name in [n for n in feed if n not in used]:
            del feed[name]
    initializers = [t for t in maker.initializers if t.name in used]
    graph = helper.make_graph(
        maker.nodes,
        "fuzzed",
        [_info(v, True) for v in inputs],
        [_info(v, rng.random() < 0.7) for v in outputs],
        initializers,
    )
    opsets = [helper.make_opsetid("", maker.opset)]
    if any(n.domain == "ai.onnx.ml" for n in maker.nodes):
        opsets.append(helper.make_opsetid("ai.onnx.ml", 3))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _outputs(maker: Maker) -> list[Value]:
    """Values that nothing uses, some others, now and then an input or a constant."""
    rng = maker.rng
    nodes = [v for v in maker.values if v.kind == "node"]
    leaves = [v for v in nodes if v.name not in maker.used]
    rng.shuffle(leaves)
    found = [*maker.ends, *leaves[:MOST_OUTPUTS]]
    found += [v for v in nodes if v.name in maker.used and rng.random() < 0.08][:3]
    inputs, constants = ([v for v in maker.values if v.kind == k] for k in ("input", "constant"))
    if inputs and rng.random() < 0.06:
        found.append(rng.choice(inputs))
    known = {t.name for t in maker.initializers}
    constants = [v for v in constants if v.name in known]
    if constants and rng.random() < 0.05:
        found.append(rng.choice(constants))
    return found


def _info(value: Value, shaped: bool) -> onnx.ValueInfoProto:
    shape = [(s.value if s.is_static else s.text if s.symbol else None) if shaped else None for s in value.shape]
    return helper.make_tensor_value_info(value.name, tensor_code(value.dtype), shape)
