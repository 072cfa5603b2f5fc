"""Which operators parax has, of which versions, on which element types, and where they run: the catalogue as a list.

Owns the list that `parax operators` prints and docs/operators.md is made of; what is supported is the catalogue's, the
upgrades' and the kernels' to say, and what there is to support is onnx's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import operator_name
from . import driver  # noqa: F401  every kernel registers itself
from .backend.lowering import LOWERINGS
from .frontend import upgrade_rules  # noqa: F401  registers the rules
from .frontend.parse import normal_domain
from .frontend.schemas import find_schema
from .frontend.sequences import is_of_sequences
from .frontend.upgrades import UPGRADES
from .frontend.vocabulary import ONNX_VERSION, defined_by, versions_of
from .ir.ops import CATALOGUE, Operator
from .ir.ops.base import Composite, Control, Host, HostComposite
from .ir.ops.signature import Mixed

OWN = "parax"  # the domain of what only passes write
NATIVE, HOST, CONTROL, DEFINITION, CONSTANT, COMPILED, NONE = (
    "native", "host", "host, bodies native", "by ONNX's definition", "constant", "when compiling", "no",
)  # fmt: skip


@dataclass(frozen=True)
class Supported:
    """One operator of ONNX, or of another domain that parax reads.

    Attributes:
        versions: of its definition that ONNX has had, ascending; none for other domains.
        runs: "native"; "host", in Python; "by ONNX's definition", as the operators that this is made of; "when
            compiling", as there are only tensors in a plan; "no".
        types: operand → the element types that it may have; none where the definition decides.
        left_out: of an old version, an attribute that is refused.
    """

    domain: str
    name: str
    versions: tuple[int, ...]
    runs: str
    types: tuple[tuple[str, str], ...]
    left_out: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name, after the domain where that is not ONNX's own."""
        return operator_name(self.domain, self.name)

    @property
    def types_text(self) -> str:
        """The operands' element types; those of all together where they are alike."""
        texts = dict.fromkeys(text for _, text in self.types)
        if len(texts) <= 1:
            return "".join(texts)
        names = {text: ", ".join(name for name, own in self.types if own == text) for text in texts}
        return "; ".join(f"{names[text]}: {text}" for text in texts)


def supported(domain: str | None = None) -> list[Supported]:
    """Every operator of ONNX and of the other domains that parax reads, by domain and name.

    Args:
        domain: only of this one; "" or "ai.onnx" is ONNX's own.
    """
    versions = versions_of()
    keys = {*versions, *UPGRADES, *(key for key in CATALOGUE if key[0] != OWN)}
    wanted = None if domain is None else normal_domain(domain)
    return [_supported(key, versions.get(key, ())) for key in sorted(keys) if wanted in (None, key[0])]


def _supported(key: tuple[str, str], versions: tuple[int, ...]) -> Supported:
    cls = CATALOGUE.get(key)
    types = () if cls is None else tuple((spec.name, spec.group.text()) for spec in cls.signature.inputs
                                         if not issubclass(spec.group, Mixed))  # fmt: skip
    return Supported(*key, versions, _runs(key, versions), types, tuple(_left_out(cls, versions)))


def _runs(key: tuple[str, str], versions: tuple[int, ...]) -> str:
    if is_of_sequences(*key):
        return COMPILED
    cls = CATALOGUE.get(key)
    if cls is not None:
        return CONTROL if issubclass(cls, Control) else HOST if _on_host(cls) else NATIVE
    if key == ("", "Constant"):
        return CONSTANT
    newest = versions[-1] if versions else 0
    if any(newest <= up_to for up_to, _ in UPGRADES.get(key, ())):
        return NATIVE  # as what its newest version is rewritten into
    operators = defined_by(*key, versions[-1]) if versions else ()
    parts = (_runs(operator, versions_of().get(operator, ())) for operator in operators)
    return DEFINITION if operators and NONE not in parts else NONE


def _on_host(cls: type[Operator]) -> bool:
    """Whether the runtime does its work: not if it stands for operators that have kernels, though the host ends it."""
    of_host = issubclass(cls, HostComposite) or (issubclass(cls, Host) and not issubclass(cls, Composite))
    return of_host and not any(kind in LOWERINGS for kind in cls.__mro__)


def _left_out(cls: type[Operator] | None, versions: tuple[int, ...]) -> Iterator[str]:
    """Attributes of old versions that neither the newest form nor an upgrade knows; see frontend.nodes."""
    newest = None if cls is None else find_schema(cls.domain, cls.name, cls.since)
    if cls is None or newest is None:
        return
    rules = [up_to for up_to, _ in UPGRADES.get((cls.domain, cls.name), ())]
    for version in versions:
        old = find_schema(cls.domain, cls.name, version)
        if version < cls.since and old is not None and not any(version <= up_to for up_to in rules):
            gone = set(old.types) - set(newest.types) - {"consumed_inputs"}
            yield from (f"{name} of version {version}" for name in sorted(gone))


def page() -> str:
    """docs/operators.md: the list as Markdown."""
    lines = [
        "# Operators", "",
        f"Made by `parax operators -o docs/operators.md` with onnx {ONNX_VERSION}. *Versions* are those of an "
        "operator's definition that ONNX has had; parax reads them all. *Runs* says where: in native code; on the "
        "host, in Python, between stretches of native code; by ONNX's definition, as the operators that it is made "
        "of; or when compiling, on [sequences and optionals](sequences.md) whose length is known then, else on the "
        "host. *Types* are those of the operands. What a node does beyond these (an attribute's value, an unknown "
        "rank) `parax inspect MODEL.onnx` checks for a whole model.",
    ]  # fmt: skip
    listed = supported()
    for domain in dict.fromkeys(entry.domain for entry in listed):
        own = [entry for entry in listed if entry.domain == domain]
        have = [entry for entry in own if entry.runs != NONE]
        lines += ["", f"## {domain or 'ai.onnx'}", "", f"{len(have)} of {len(own)}.", ""]
        if have:
            lines += ["| operator | versions | runs | types |", "|---|---|---|---|"]
            lines += [f"| {e.name} | {_versions(e)} | {e.runs} | {_cell(e.types_text)} |" for e in have]
        lacking = ", ".join(entry.name for entry in own if entry.runs == NONE)
        lines += ["", f"Not supported: {lacking}."] if lacking else []
    return "\n".join(lines) + "\n"


def _versions(entry: Supported) -> str:
    refused = f" (without {', '.join(entry.left_out)})" if entry.left_out else ""
    return ", ".join(map(str, entry.versions)) + refused


def _cell(text: str) -> str:
    return text.replace(" | ", " ")
