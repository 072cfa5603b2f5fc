"""What of ONNX's backend suite passes, operator by operator: docs/coverage.md, and the list of cases that do not pass.

Owns the page and the reading of `suite_skips.json`, which has a reason for every case that parax does not pass. The
list may only shrink: `benchmarks.suite` and a test say which of its cases pass, and which others do not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx

from parax.compiler import supported

SKIPS = Path(__file__).with_name("suite_skips.json")
Key = tuple[str, str]
"""A case: its kind and its name."""


@dataclass(frozen=True)
class Skips:
    """The cases that do not pass.

    Attributes:
        onnx: the version of onnx whose suite it is of. reasons: case → why.
    """

    onnx: str
    reasons: Mapping[Key, str]

    @property
    def is_of_this_version(self) -> bool:
        """Whether the list is of the suite that is installed."""
        return self.onnx == onnx.__version__


def read_skips(path: Path = SKIPS) -> Skips:
    """The list in a JSON file: {"onnx": version, "cases": {reason: ["kind/name", …]}}."""
    found = json.loads(path.read_text())
    reasons: dict[Key, str] = {}
    for reason, names in found["cases"].items():
        for name in names:
            kind, _, rest = name.partition("/")
            if (kind, rest) in reasons:
                raise ValueError(f"{path.name} has {name} twice")
            reasons[kind, rest] = reason
    return Skips(found["onnx"], reasons)


def disagreements(skips: Skips, passed: Mapping[Key, bool]) -> list[str]:
    """What the list and the cases that ran say differently; nothing for the suite of another version."""
    if not skips.is_of_this_version:
        return []
    lines = []
    for key in skips.reasons:
        if passed.get(key, True):
            why = "passes" if key in passed else "is no case"
            lines.append(f"{' '.join(key)}: listed in {SKIPS.name}, but {why}")
    return lines + [f"{' '.join(key)}: does not pass, and is not listed in {SKIPS.name}"
                    for key, good in passed.items() if not good and key not in skips.reasons]


def operators_of(model: onnx.ModelProto) -> set[str]:
    """The full names of the operators in a model, in bodies and in its own functions, too."""
    own = [node for function in model.functions for node in function.node]
    return {_full_name(node) for node in _nodes([*model.graph.node, *own])}


def _full_name(node: onnx.NodeProto) -> str:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def page(operators: Mapping[Key, set[str]], reasons: Mapping[Key, str]) -> str:
    """docs/coverage.md.

    Args:
        operators: case → the operators in it, of every case. reasons: case → why it does not pass.
    """
    total, missed = Counter[str](), Counter[str]()
    for key, names in operators.items():
        total.update(names)
        missed.update(names if key in reasons else ())
    lines = [
        "# Coverage", "",
        "Made by `python -m benchmarks.suite --coverage docs/coverage.md` with onnx "
        f"{onnx.__version__}, whose opset is {onnx.defs.onnx_opset_version()}. Of the {len(operators):,} cases of "
        f"ONNX's backend suite that come with the package {len(operators) - len(reasons):,} pass. *Cases* are those "
        "that have the operator: how many pass, of how many. *Runs* and *types* are as in [Operators](operators.md). "
        "The cases that do not pass are listed below, each with the reason; `benchmarks/suite_skips.json` has them for "
        "a test that lets the list shrink only.",
    ]  # fmt: skip
    listed = supported.supported()
    for domain in dict.fromkeys(entry.domain for entry in listed):
        rows = [(e, total[e.full_name], missed[e.full_name]) for e in listed if e.domain == domain]
        if any(n for _, n, _ in rows):
            lines += ["", f"## {domain or 'ai.onnx'}", "", "| operator | versions | runs | types | cases |",
                      "|---|---|---|---|---|"]  # fmt: skip
            lines += [f"| {e.name} | {', '.join(map(str, e.versions))} | {e.runs} | "
                      f"{e.types_text.replace(' | ', ' ')} | {_share(n, bad)} |" for e, n, bad in rows]
    lines += ["", "## Cases that do not pass", ""]
    for reason in sorted(set(reasons.values())):
        names = sorted(f"`{name}`" for (_, name), why in reasons.items() if why == reason)
        lines.append(f"- {reason}: {', '.join(names)}.")
    return "\n".join(lines) + "\n"


def _share(n: int, bad: int) -> str:
    return f"{n - bad} of {n}" if n else "none"
