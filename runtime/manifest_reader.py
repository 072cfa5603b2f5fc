"""From untrusted JSON to a checked Manifest. Every malformed or out-of-bounds field ends in CorruptPlan, here."""

from __future__ import annotations

import math

from ..errors import CorruptPlan, IncompatiblePlan
from .dims import MAX_INT, Dim, checked_dim
from .dtypes import NAMES, numpy_dtype
from .host_values import host_type, is_tensor
from .manifest import (
    FORMAT,
    Arrangement,
    Batch,
    Bind,
    Block,
    Constant,
    Constraint,
    Delay,
    HostStep,
    Manifest,
    NativeStep,
    Samples,
    Scheduled,
    SizeRule,
    StageSpec,
    State,
    Step,
    Symbol,
    Target,
    TensorSpec,
    Weights,
)
from .manifest_checks import check_references
from .manifest_fields import Fields

MAX_NBYTES = 1 << 46
MAX_RANK = 64
MAX_DEPTH = 64
MAX_CORES = 1 << 16
MAX_DELAY_SECONDS = 3600
_HINTS = ("throughput", "latency")
_SCHEDULED_MODES = ("layered", "pipelined")
_COMPARISONS = ("==", "<=", "<", ">=", ">")


def _name(raw: object, where: str) -> str:
    if not isinstance(raw, str):
        raise CorruptPlan("malformed manifest", where=where, expected="text", found=repr(raw)[:80])
    return raw


def _optional_name(raw: object, where: str) -> str | None:
    return None if raw is None else _name(raw, where)


def _symbol(raw: object, where: str) -> Symbol:
    fields = Fields(raw, where)
    name = fields.text("name")
    if not name or name.isdigit():
        raise fields.bad("name", "a symbol")
    source = fields.optional_integer("input", 0, 1 << 20)
    axis = fields.optional_integer("axis", 0, MAX_RANK)
    if (source is None) != (axis is None):
        raise fields.bad("axis", "an axis exactly where there is an input")
    return Symbol(name, source, axis, fields.integer("min", 0, MAX_INT, 1), fields.optional_integer("max", 0, MAX_INT))


def _state(raw: object, where: str) -> State:
    fields = Fields(raw, where)
    return State(fields.text("input"), fields.text("output"), fields.optional_integer("axis", 0, MAX_RANK))


def _target(raw: object, where: str) -> Target:
    fields = Fields(raw, where)
    code = fields.text("code")
    if not code.startswith("code/"):
        raise fields.bad("code", "a member in code/")
    features = fields.items("features", _name, optional=True)
    return Target(fields.text("name"), fields.text("arch", "x86_64"), features, code, fields.digest("digest"))


def _stage(raw: object, where: str, n_cores: int) -> StageSpec:
    fields = Fields(raw, where)
    first = fields.integer("first_core", 0, n_cores - 1)
    return StageSpec(first, fields.integer("n_cores", 1, n_cores - first), fields.integer("n_layers", 0, 1 << 24))


def _delay(fields: Fields) -> Delay | None:
    """The field `delay`; null where all instances start at once."""
    if fields.raw.get("delay") is None:
        return None
    inner = Fields(fields.raw["delay"], fields.at("delay"))
    seconds = inner.raw.get("seconds")
    if not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 <= seconds <= MAX_DELAY_SECONDS:
        raise inner.bad("seconds", f"a number of seconds in [0, {MAX_DELAY_SECONDS}]")
    return Delay(inner.integer("groups", 1, MAX_CORES), float(seconds))


def _for_rows(raw: object, where: str, cores: int) -> SizeRule:
    fields = Fields(raw, where)
    least = fields.integer("least", 1, MAX_INT)
    most = fields.optional_integer("most", least, MAX_INT)
    instances = fields.integer("instances", 1, cores)
    return SizeRule(least, most, instances, fields.integer("cores_each", 1, cores // instances))


class ManifestReader:
    """Reads one manifest; keeps the symbols while the expressions are read."""

    def __init__(self, raw: object) -> None:
        self.fields = Fields(raw, "manifest")
        self.depth = 0
        self.symbols: tuple[Symbol, ...] = ()
        self.names: frozenset[str] = frozenset()

    def dim(self, raw: object, where: str) -> Dim:
        """A dimension over the manifest's symbols; a plain number must not be negative."""
        dim = checked_dim(raw, self.names, where)
        if isinstance(dim, int) and dim < 0:
            raise CorruptPlan("negative dimension", where=where, found=dim)
        return dim

    def spec(self, raw: object, where: str, name: str | None = None) -> TensorSpec:
        """A tensor's name, type and shape."""
        fields = Fields(raw, where)
        name = fields.text("name") if name is None else name
        dtype = fields.text("dtype")
        if not is_tensor(dtype):
            host_type(dtype)
        elif dtype not in NAMES:
            raise fields.bad("dtype", "an element type")
        if not is_tensor(dtype) or fields.raw.get("shape") is None:
            return TensorSpec(name, dtype, None)
        dims = fields.items("shape", self.dim)
        if len(dims) > MAX_RANK or math.prod(d for d in dims if isinstance(d, int)) > MAX_NBYTES:
            raise fields.bad("shape", f"at most {MAX_RANK} axes and {MAX_NBYTES} elements")
        return TensorSpec(name, dtype, dims)

    def constraint(self, raw: object, where: str) -> Constraint:
        """A comparison of two dimensions."""
        fields = Fields(raw, where)
        left, right = (checked_dim(fields.raw.get(k), self.names, fields.at(k)) for k in ("left", "right"))
        return Constraint(fields.choice("op", _COMPARISONS, "=="), left, right, fields.text("text", ""))

    def step(self, raw: object, where: str) -> Step:
        """One step: native, host or control."""
        fields = Fields(raw, where)
        kind = fields.choice("kind", ("native", "host", "control"))
        if kind == "native":
            return self.native(fields, fields.items("inputs", _name), fields.items("outputs", _name))
        results = fields.items("outputs", _optional_name)
        binds = fields.items("binds", lambda r, w: self.bind(r, w, len(results)), optional=True)
        attrs, operands = fields.get_object("attrs"), fields.items("inputs", _optional_name)
        op, domain = fields.text("op"), fields.text("domain", "")
        bodies = self.bodies(fields) if kind == "control" else {}
        native = self.native_loop(fields, operands, results) if "native" in fields.raw else None
        return HostStep(op, domain, attrs, operands, results, binds, bodies, native)

    def native(self, fields: Fields, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> NativeStep:
        """A native function of these values."""
        arena, scratch = (self.dim(fields.raw.get(key, 0), fields.at(key)) for key in ("arena", "scratch"))
        return NativeStep(fields.integer("segment", 0, 1 << 20), inputs, outputs, arena, scratch)

    def native_loop(
        self, fields: Fields, operands: tuple[str | None, ...], results: tuple[str | None, ...]
    ) -> NativeStep:
        """The function of a native loop; a state that nobody reads goes by the name of what it begins with."""
        given = tuple(name for name in operands[2:] if name is not None)
        captures = Fields(fields.get_object("attrs"), fields.at("attrs")).integer("captures", 0, len(given), 0)
        n_states = len(given) - captures
        if len(given) < len(operands) - 2 or len(results) < n_states:
            raise fields.bad("inputs", "states, with a result for each, and captured values")
        written = [name or given[i] for i, name in enumerate(results) if name is not None or i < n_states]
        return self.native(Fields(fields.raw["native"], fields.at("native")), given, tuple(written))

    def bodies(self, fields: Fields) -> dict[str, Block]:
        """The bodies of a control step."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise fields.bad("bodies", f"bodies nested at most {MAX_DEPTH} deep")
        found = fields.mapping("bodies", self.block)
        self.depth -= 1
        return found

    def block(self, raw: object, where: str) -> Block:
        """A body."""
        fields = Fields(raw, where)
        inputs, outputs = fields.items("inputs", _name), fields.items("outputs", _name)
        binds = fields.items("binds", lambda r, w: self.bind(r, w, len(inputs)), optional=True)
        constraints = fields.items("constraints", self.constraint, optional=True)
        return Block(inputs, outputs, fields.items("steps", self.step), binds, constraints)

    def bind(self, raw: object, where: str, n_outputs: int) -> Bind:
        """A symbol bound by a host step."""
        fields = Fields(raw, where)
        symbol = fields.choice("symbol", self.names)
        if any(s.name == symbol and s.input is not None for s in self.symbols):
            raise fields.bad("symbol", "a symbol that no input binds")
        axis, element = (fields.optional_integer(key, 0, MAX_NBYTES) for key in ("axis", "element"))
        if (axis is None) == (element is None):
            raise fields.bad("axis", "either axis or element")
        return Bind(symbol, fields.integer("output", 0, n_outputs - 1), axis, element)

    def constant(self, raw: object, where: str, weights: Weights) -> Constant:
        """A constant that lies within the weights, or a list of strings."""
        fields = Fields(raw, where)
        dtype = fields.choice("dtype", NAMES)
        shape = fields.items("shape", lambda r, w: Fields({"d": r}, w).integer("d", 0, MAX_NBYTES))
        if dtype == "str":
            data = fields.items("data", _name)
            if len(data) != math.prod(shape):
                raise fields.bad("data", f"{math.prod(shape)} strings")
            return Constant(dtype, shape, 0, data)
        offset = fields.integer("offset", 0, weights.size)
        from_end = weights.size - offset
        if len(shape) > MAX_RANK or math.prod(shape) * numpy_dtype(dtype).itemsize > from_end:
            raise fields.bad("shape", f"a tensor within the weights' {weights.size} bytes")
        return Constant(dtype, shape, offset, None)

    def samples(self) -> Samples:
        """What inputs that are made up keep to; absent in plans of an earlier parax."""
        fields = Fields(self.fields.get_object("samples"), "manifest.samples")

        def ends(raw: object, where: str) -> tuple[Dim, Dim]:
            if not isinstance(raw, list) or len(raw) != 2:
                raise CorruptPlan("malformed range", where=where, expected="[least, greatest]", found=repr(raw)[:80])
            return checked_dim(raw[0], self.names, where), checked_dim(raw[1], self.names, where)

        return Samples(fields.mapping("ranges", ends), fields.items("conditions", self.constraint, optional=True))

    def batch(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Batch | None:
        """How a request may be cut into pieces; null where it may not."""
        if self.fields.raw.get("batch") is None:
            return None
        fields = Fields(self.fields.raw["batch"], "manifest.batch")
        symbol = fields.choice("symbol", self.names)
        raw_axes = fields.get_object("axis")
        axes = {name: Fields(raw_axes, "manifest.batch.axis").integer(name, 0, MAX_RANK) for name in raw_axes}
        by_name = {spec.name: spec for spec in (*inputs, *outputs)}
        for name, axis in axes.items():
            dims = by_name[name].dims if name in by_name else None
            if dims is None or axis >= len(dims) or dims[axis] != symbol:
                raise fields.bad("axis", f"tensors of the signature with {symbol} on that axis")
        if not {spec.name for spec in outputs} <= set(axes) or not any(spec.name in axes for spec in inputs):
            raise fields.bad("axis", "an axis for every output and for some input")
        return Batch(symbol, axes, fields.integer("min_rows", 1, MAX_INT, 1))

    def arrangement(self) -> Arrangement | None:
        """Instances × cores for so many cores; null where the hint decides."""
        if self.fields.raw.get("arrangement") is None:
            return None
        fields = Fields(self.fields.raw["arrangement"], "manifest.arrangement")
        cores, instances, each = (fields.integer(key, 1, MAX_INT) for key in ("cores", "instances", "cores_each"))
        if instances * each > cores:
            raise fields.bad("instances", f"at most {cores} cores in all")
        others = fields.items("for_rows", lambda raw, where: _for_rows(raw, where, cores), optional=True)
        return Arrangement(cores, instances, each, _delay(fields), others)

    def scheduled(self) -> Scheduled | None:
        """The scheduled program; null where there is none."""
        if self.fields.raw.get("schedule") is None:
            return None
        fields = Fields(self.fields.raw["schedule"], "manifest.schedule")
        mode, n_cores = fields.choice("mode", _SCHEDULED_MODES), fields.integer("n_cores", 2, MAX_CORES)
        step = self.step(fields.raw.get("step"), fields.at("step"))
        if not isinstance(step, NativeStep):
            raise fields.bad("step", "a native step")
        stages = fields.items("stages", lambda r, where: _stage(r, where, n_cores))
        micro_batches = fields.optional_integer("micro_batches", 1, MAX_INT)
        if (micro_batches is None) != (mode == "layered"):
            raise fields.bad("micro_batches", "a number exactly where the mode is pipelined")
        return Scheduled(mode, n_cores, step, stages, micro_batches, fields.optional_integer("micro_rows", 1, MAX_INT))

    def read(self) -> Manifest:
        """The manifest.

        Raises:
            CorruptPlan: a malformed field.
            IncompatiblePlan: a format of a later parax.
        """
        fields = self.fields
        version = fields.integer("format", 1, MAX_INT)
        if version != FORMAT:
            hint = "use the parax that wrote it, or compile the model again"
            raise IncompatiblePlan("unknown plan format", expected=FORMAT, found=version, hint=hint)
        self.symbols = fields.items("symbols", _symbol, optional=True)
        self.names = frozenset(symbol.name for symbol in self.symbols)
        inputs, outputs = fields.items("inputs", self.spec), fields.items("outputs", self.spec)
        w = Fields(fields.raw.get("weights"), "manifest.weights")
        weights = Weights(w.integer("size", 0, MAX_NBYTES), w.digest("digest"), w.digest("checksum"))
        manifest = Manifest(
            name=fields.text("name", ""),
            hint=fields.choice("hint", _HINTS, "throughput"),
            inputs=inputs,
            outputs=outputs,
            symbols=self.symbols,
            constraints=fields.items("constraints", self.constraint, optional=True),
            targets=fields.items("targets", _target),
            steps=fields.items("steps", self.step),
            values={k: self.spec(v, f"manifest.values.{k}", k) for k, v in fields.get_object("values").items()},
            constants=fields.mapping("constants", lambda r, where: self.constant(r, where, weights)),
            weights=weights,
            batch=self.batch(inputs, outputs),
            micro_batch=fields.optional_integer("micro_batch", 1, MAX_INT),
            instances=fields.optional_integer("instances", 1, MAX_INT),
            errors={int(k): v for k, v in fields.mapping("errors", _name).items() if self._site(k)},
            graph=_optional_name(fields.raw.get("graph"), "manifest.graph"),
            graph_digest=fields.digest("graph_digest"),
            provenance=fields.get_object("provenance"),
            scheduled=self.scheduled(),
            arrangement=self.arrangement(),
            delay=_delay(fields),
            choice=fields.get_object("choice") if fields.raw.get("choice") is not None else None,
            max_memory=fields.optional_integer("max_memory", 1, MAX_INT),
            defaults=fields.mapping("defaults", lambda r, where: self.constant(r, where, weights)),
            fixed=fields.items("fixed", _name, optional=True),
            samples=self.samples(),
            donated=fields.mapping("donated", _name),
            states=fields.items("states", _state, optional=True),
        )
        check_references(manifest)
        return manifest

    def _site(self, key: str) -> bool:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise CorruptPlan("malformed manifest", where="manifest.errors", expected="error site numbers", found=key)
        return True
