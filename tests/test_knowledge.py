"""Who may know what by name: operators are asked what they are like, and so are machines."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from parax.compiler.ir.ops import CATALOGUE
from sources import Rule, Source, fits, sources

BY_CLASS = ("compiler/ir", "compiler/passes", "compiler/planner", "compiler/backend")
BY_DESCRIPTION = ("compiler/backend/kernels",)


def knows_no_operator_by_name(source: Source) -> Iterator[str]:
    """What an operator is like, its class says; a name is for texts."""
    if not any(fits(source.path, room) for room in BY_CLASS) or fits(source.path, "compiler/ir/ops"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Compare):
            asked = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            asked = list(node.args[:1])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "frozenset":
            asked = list(node.args)
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Assign):
            asked = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        else:
            continue
        if any(_is_operators_name(part) for part in asked):
            yield f"{node.lineno}: {ast.unparse(node)[:60]}: ask for its class, or for what it declares of itself"


def _is_operators_name(node: ast.expr) -> bool:
    """`op.name` of anything, a text that is the name of one, or several of them."""
    if isinstance(node, ast.Attribute):
        owner = node.value
        return node.attr == "name" and "op" in (getattr(owner, "attr", ""), getattr(owner, "id", ""))
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return len(node.elts) > 0 and all(_is_operators_name(element) for element in node.elts)
    return isinstance(node, ast.Constant) and any(node.value == name for _, name in CATALOGUE)


def knows_no_cpu_by_name(source: Source) -> Iterator[str]:
    """How fast a kernel is follows from a description of the machine, never from what it is called."""
    if not any(fits(source.path, room) for room in BY_DESCRIPTION):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr in ("tune", "cpu"):
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_every_file() -> None:
    rules = (knows_no_operator_by_name, knows_no_cpu_by_name)
    ours = (source for source in sources() if source.in_a_room)
    problems = [f"{source.path}:{problem}" for source in ours for rule in rules for problem in rule(source)]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (knows_no_operator_by_name, "compiler/passes/node/x.py", "if node.op.name == 'Conv': pass"),
        (knows_no_operator_by_name, "compiler/passes/node/x.py", "name = node.op.name"),
        (knows_no_operator_by_name, "compiler/backend/x.py", "if op.name not in CHEAP: pass"),
        (knows_no_operator_by_name, "compiler/backend/x.py", "CHEAP = frozenset({'Add', 'Sub'})"),
        (knows_no_operator_by_name, "compiler/planner/x.py", "RULES.get(node.op.name)"),
        (knows_no_operator_by_name, "compiler/planner/x.py", "RULES[node.op.name]"),
        (knows_no_operator_by_name, "compiler/ir/x.py", "if name in ('Add', 'Sub'): pass"),
        (knows_no_cpu_by_name, "compiler/backend/kernels/x.py", "if target.tune == 'znver4': pass"),
    ],
)
def test_each_rule_sees_what_breaks_it(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))
