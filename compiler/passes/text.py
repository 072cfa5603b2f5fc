"""A pipeline as text: `decompose-composites,repeat(constant-folding,dead-code),fuse-elementwise{max_nodes=8}`.

Owns the grammar, both ways, and its errors; which passes there are is the caller's table.

    pipeline = item ("," item)* ["," "steps(" items ")"]      items = item ("," item)*
    item = pass | "repeat(" pass ("," pass)* ")"              pass = name ["{" option ("," option)* "}"]
    option = field "=" value                                  blanks may stand between any two

`repeat` runs its passes until none changes anything. `steps` has the StepPasses, and nothing else has any: they run on
the graph of each native step.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NoReturn, TypeAlias, TypeVar

from ...errors import UsageError
from .base import Item, Pass, StepPass
from .surroundings import Surroundings

T = TypeVar("T")
Kinds: TypeAlias = "Mapping[str, type[Pass]]"
REPEAT, STEPS = "repeat", "steps"
WHERE = "passes"
_TOKEN = re.compile(r"\s*([A-Za-z0-9_.+-]+|[(){},=]|\S|$)")


def option_kinds(kind: type[Pass]) -> dict[str, str]:
    """The options of a pass that can be written, each with its type's name: numbers and truth values."""
    return {f.name: str(f.type) for f in fields(kind) if f.type in _READ}


def print_passes(
    passes: Sequence[Item], step_passes: Sequence[Item] = (), surroundings: Surroundings | None = None
) -> str:  # fmt: skip
    """The text of a pipeline, which `parse_passes` reads again: of options, those that differ from the default.

    Args:
        surroundings: what the text need not say.
    """
    around = surroundings or Surroundings()

    def written(items: Sequence[Item]) -> list[str]:
        return [_pass_text(item, around) if isinstance(item, Pass) else f"{REPEAT}({','.join(written(item))})"
                for item in items]  # fmt: skip

    return ",".join([*written(passes), *([f"{STEPS}({','.join(written(step_passes))})"] if step_passes else [])])


def _pass_text(p: Pass, around: Surroundings) -> str:
    usual = around.make(type(p))
    options = [f"{name}={str(value).lower()}" for name in option_kinds(type(p))
               if (value := getattr(p, name)) != getattr(usual, name)]  # fmt: skip
    return p.pass_name() + ("{" + ",".join(options) + "}" if options else "")


def parse_passes(text: str, kinds: Kinds, surroundings: Surroundings) -> tuple[list[Item], list[Item] | None]:
    """The passes of a text, and those of native steps; None for the latter where the text says nothing of them.

    Args:
        kinds: name → class of the passes that there are. surroundings: what the text does not say.

    Raises:
        UsageError: another grammar, no such pass or option, or a value of another kind.
    """
    return _Parser(text, kinds, surroundings).pipeline()


def check_name(name: str, kinds: Iterable[str], what: str = "pass") -> None:
    """Refuse a name that is none of these, with the nearest and the list.

    Raises:
        UsageError: it is none.
    """
    known = sorted(kinds)
    if name in known:
        return
    near = difflib.get_close_matches(name.lower().replace("_", "-" if what == "pass" else "_"), known)
    hint = f"did you mean {' or '.join(near)}?" if near else "`parax passes` says what each does" if known else None
    listed = f"one of {', '.join(known)}" if known else f"no {what}"
    raise UsageError(f"no such {what}", where=WHERE, expected=listed, found=name or "nothing", hint=hint)


@dataclass
class _Parser:
    """Reads a text from its beginning; `at`: how much of it is read."""

    text: str
    kinds: Kinds
    surroundings: Surroundings
    at: int = 0
    in_steps: bool = False

    def pipeline(self) -> tuple[list[Item], list[Item] | None]:
        passes: list[Item] = []
        steps: list[Item] | None = None
        while steps is None:
            if self._opens(STEPS):
                self.in_steps = True
                steps = self._list(self._item, ")")
            else:
                passes.append(self._item())
                if not self._takes(","):
                    break
        if self._next():
            self._refuse("a comma, or the end" if steps is None else f"the end, as {STEPS}(…) comes last")
        return passes, steps

    def _item(self) -> Item:
        return self._list(self._pass, ")") if self._opens(REPEAT) else self._pass()

    def _pass(self) -> Pass:
        name = self._take()
        check_name(name, self.kinds)
        kind = self.kinds[name]
        if issubclass(kind, StepPass) != self.in_steps:
            where = f"inside of {STEPS}(…), which comes last" if not self.in_steps else f"before {STEPS}(…)"
            raise UsageError("a pass in the wrong place", where=WHERE, expected=where, found=name)
        return self.surroundings.make(kind, **self._options(name, option_kinds(kind)))

    def _options(self, name: str, known: Mapping[str, str]) -> dict[str, object]:
        found: dict[str, object] = {}

        def option() -> None:
            key = self._take()
            check_name(key, known, f"option of {name}")
            if key in found:
                raise UsageError("given twice", where=WHERE, found=f"{key} of {name}")
            if not self._takes("="):
                self._refuse(f"{key}=VALUE")
            found[key] = _value(self._take(), known[key], f"{key} of {name}")

        if self._takes("{"):
            self._list(option, "}")
        return found

    def _list(self, read: Callable[[], T], end: str) -> list[T]:
        """What `read` reads, once or more often with commas between, up to the bracket that ends it."""
        found = [read()]
        while self._takes(","):
            found.append(read())
        if not self._takes(end):
            self._refuse(f"a comma or {end}")
        return found

    def _next(self) -> str:
        """The next word or sign; "" at the end."""
        match = _TOKEN.match(self.text, self.at)
        assert match is not None
        return match[1]

    def _take(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return match[1]

    def _takes(self, sign: str) -> bool:
        """Whether the sign is next, which then is read."""
        if self._next() != sign:
            return False
        self._take()
        return True

    def _opens(self, group: str) -> bool:
        before = self.at
        if self._takes(group) and self._takes("("):
            return True
        self.at = before
        return False

    def _refuse(self, expected: str) -> NoReturn:
        read = self.text[: self.at].strip()[-40:]
        raise UsageError("cannot be read", where=WHERE, expected=f"{expected} behind {read!r}",
                         found=self.text[self.at :].strip()[:40] or "the end")  # fmt: skip


def _truth(word: str) -> bool:
    return {"true": True, "false": False}[word]


def _finite(word: str) -> float:
    value = float(word)
    if not math.isfinite(value):
        raise ValueError(word)
    return value


_READ: dict[object, Callable[[str], object]] = {"int": int, "float": _finite, "bool": _truth}
"""By the name of a field's type: how a value is read."""
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def _value(word: str, kind: str, where: str) -> object:
    try:
        return _READ[kind](word)
    except (ValueError, KeyError):
        raise UsageError("not such a value", where=f"{WHERE}: {where}", expected=_WORDS[kind],
                         found=word or "nothing") from None  # fmt: skip


__all__ = ["check_name", "option_kinds", "parse_passes", "print_passes"]
