"""Whether Ctrl-C at the end of a loop's round reaches the `finally`, `with` or `except` that the loop stands in.

From Python 3.12 on the jump back to a loop's head may lie outside of the block's handlers, and a signal is answered at
that jump: what the block owns is lost. A loop that is a function of its own, called in the block, is safe.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

import parax

PACKAGE = Path(parax.__file__).parent
UNSAFE = """
def f(items, use):
    try:
        for item in items:
            if item is not None:
                use(item)
    finally:
        use(None)
"""


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def escaping(text: str) -> list[str]:
    """Function and line of each jump back that leaves handlers which stand around where it goes."""
    return [line for code in codes(compile(text, "text", "exec")) for line in _escaping(code)]


def _escaping(code: CodeType) -> Iterator[str]:
    listing = dis.Bytecode(code)
    names = {i.offset: i.opname for i in listing}
    entries = [e for e in listing.exception_entries if names[e.target] == "PUSH_EXC_INFO"]
    for i in listing:
        line = i.positions.lineno if i.positions else None
        if i.opname == "JUMP_BACKWARD" and line is not None:
            outer, own = ({e.target for e in entries if e.start <= at < e.end} for at in (i.argval, i.offset))
            if outer - own:
                yield f"{code.co_qualname}, line {line}"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="before Python 3.12 the jump lies inside")
def test_no_loop_leaves_the_handlers_around_it() -> None:
    assert escaping(UNSAFE) == ["f, line 5"]
    found = [f"{path}: {line}" for path in sorted(PACKAGE.rglob("*.py")) for line in escaping(path.read_text())]
    assert found == []
