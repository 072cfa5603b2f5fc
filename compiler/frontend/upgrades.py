"""Older forms of operators to the newest: the registry, and the order in which the rules apply.

A rule is a small function registered for (domain, operator, last version of the old form). It changes the call in
place, or emits nodes and returns their results. The rules themselves are in the upgrade_*.py files.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.builder import GraphBuilder
from ..ir.graph import Value
from .calls import Call

Results = list[Value | None] | None
Rule = Callable[[Call, GraphBuilder], Results]
ALWAYS = 2**31
"""As `up_to`: the rule applies to every version."""
UPGRADES: dict[tuple[str, str], list[tuple[int, Rule]]] = {}
"""(domain, operator) → rules with the last version that each applies to, ascending."""


def upgrade(*names: str, up_to: int, domain: str = "") -> Callable[[Rule], Rule]:
    """Registers a rule for operators whose form is of version `up_to` or older."""

    def register(rule: Rule) -> Rule:
        for name in names:
            rules = UPGRADES.setdefault((domain, name), [])
            rules.append((up_to, rule))
            rules.sort(key=lambda entry: entry[0])
        return rule

    return register


def apply_upgrades(call: Call, g: GraphBuilder) -> Results:
    """Applies all rules that the call's version needs, oldest first.

    Returns the results if a rule emitted nodes itself; None if the call is now in the newest form.
    """
    call.pop("consumed_inputs")  # an early hint about memory, on many operators of version 1
    done: set[Any] = set()
    while True:
        rules = UPGRADES.get((call.domain, call.op), ())
        pending = [(up_to, rule) for up_to, rule in rules if call.version <= up_to and (call.op, rule) not in done]
        if not pending:
            return None
        up_to, rule = pending[0]
        done.add((call.op, rule))
        op = call.op
        results = rule(call, g)
        if results is not None:
            return results
        if call.op == op and up_to != ALWAYS:
            call.version = up_to + 1
