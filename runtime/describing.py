"""Plans and sessions as people see them in a prompt or a notebook: one line, or a table in HTML.

A plan's names are whoever's the model was: nothing of them is taken for HTML, and what does not print is spelled out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path

from .. import units
from .manifest import HostStep, Manifest, TensorSpec

MOST_SHOWN, MOST_CHARACTERS = 8, 80  # tensors or operators in a list; of a name
size = partial(units.size, unit="bytes")


def line(plan: Manifest) -> str:
    """What a plan is, in one line that names do not break."""
    ins, outs = (", ".join(_shown([_plain(spec) for spec in specs])) for specs in plan.signature)
    facts = [f"{ins} -> {outs}", *_states(plan), _batch(plan), _targets(plan),
             f"{size(plan.weights.size)} of weights", _steps(plan)]  # fmt: skip
    return f"<Plan {_printable(plan.name)}: {'; '.join(facts)}>"


def table(plan: Manifest, path: Path | None, code_nbytes: Mapping[str, int]) -> str:
    """The same as an HTML table, with sizes and the signature tensor by tensor.

    Args:
        path: of its file, where there is one. code_nbytes: of object code, by the target's name.
    """
    code = "; ".join(f"{name} {size(nbytes)}" for name, nbytes in code_nbytes.items())
    facts = [("file", str(path) if path else "not saved yet"), ("hint", plan.hint),
             ("batch", _batch(plan)), ("code", code or "none"), ("weights", size(plan.weights.size)),
             ("steps", _steps(plan))]  # fmt: skip
    facts += [("state", text) for text in _states(plan)]
    for kind, specs in zip(("input", "output"), plan.signature, strict=True):
        facts += [(kind, text) for text in _shown([_plain(spec) for spec in specs])]
    cell = 'style="text-align: left"'
    rows = "".join(f"<tr><th {cell}>{escape(name)}</th><td {cell}>{escape(_printable(text, 4 * MOST_CHARACTERS))}"
                   "</td></tr>" for name, text in facts)  # fmt: skip
    return f"<table><caption>parax plan <b>{escape(_printable(plan.name))}</b></caption><tbody>{rows}</tbody></table>"


def session_line(plan: Manifest, core_groups: Sequence[Sequence[int]], mode: str, target: str | None) -> str:
    """What a session is, in one line.

    Args:
        core_groups: the cores of each instance. mode: how they run. target: whose code they run.
    """
    groups = "; ".join(",".join(map(str, group)) for group in core_groups)
    program = plan.scheduled
    if program is not None and program.n_cores != len(core_groups[0]):
        mode += f" (the plan's {program.mode} program is for {program.n_cores} cores an instance)"
    on = f"{len(core_groups)} instances on cores {groups}"
    return f"<Session of {plan.name!r}: {on}, {mode}, code {target}>"


def _batch(plan: Manifest) -> str:
    batch = plan.batch
    return f"batch {batch.symbol}" if batch is not None else "no batch"


def _states(plan: Manifest) -> list[str]:
    """What it keeps between calls, in words; nothing where it keeps nothing."""
    if not plan.states:
        return []
    names = _shown([f"{_printable(s.input)} = {_printable(s.output)}" for s in plan.states])
    return [f"state {', '.join(names)}"]


def _targets(plan: Manifest) -> str:
    return ", ".join(target.name for target in plan.targets) or "no native code"


def _steps(plan: Manifest) -> str:
    steps = plan.steps
    host = Counter(step.op for step in steps if isinstance(step, HostStep) and step.native is None)
    n_native = len(steps) - host.total()
    text = f"{n_native} native step{'' if n_native == 1 else 's'}"
    if not host:
        return text
    names = [_printable(op) if n == 1 else f"{_printable(op)} ×{n}" for op, n in host.most_common()]
    return f"{text}, {host.total()} on the host ({', '.join(_shown(names))})"


def _shown(texts: Sequence[str]) -> list[str]:
    """The first of them, and how many more there are."""
    left = len(texts) - MOST_SHOWN
    return [*texts[:MOST_SHOWN], *([f"… {left} more"] if left > 0 else [])]


def _plain(spec: TensorSpec) -> str:
    return str(spec._replace(name=_printable(spec.name)))


def _printable(text: str, most: int = MOST_CHARACTERS) -> str:
    shown = text if text.isprintable() else repr(text)[1:-1]
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
