"""Places in the text of kernels, and the errors that name them. Knows nothing of what the text means."""

from __future__ import annotations

import re
from typing import NoReturn

from ...errors import InternalError

_SPACES = re.compile(r" *")


class Lines:
    """The lines of a text and the number of the next one."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.at = 0

    def skip_empty(self) -> bool:
        """Whether there is a line with something in it, which is the next one then."""
        while self.at < len(self.lines) and not self.lines[self.at].strip():
            self.at += 1
        return self.at < len(self.lines)

    def cursor(self) -> Cursor:
        """At the first character of the next line, or the end of the text."""
        return Cursor(self.lines[self.at] if self.at < len(self.lines) else "", self.at + 1)

    def starts(self, *words: str) -> bool:
        """Whether the next line begins so, spaces aside."""
        return self.cursor().text.lstrip().startswith(words)


class Cursor:
    """A place in a line."""

    def __init__(self, text: str, line: int) -> None:
        self.text, self.line, self.at = text, line, 0

    def fail(self, expected: str, found: str | None = None) -> NoReturn:
        """Raise InternalError that says what should be here."""
        rest = self.text[self.at : self.at + 40]
        raise InternalError("kernel text is malformed", where=f"line {self.line}, column {self.at + 1}",
                            expected=expected, found=found or (repr(rest) if rest else "the end of the line"))

    def skip(self) -> None:
        match = _SPACES.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, token: str) -> bool:
        self.skip()
        found = self.text.startswith(token, self.at)
        self.at += len(token) if found else 0
        return found

    def need(self, token: str) -> None:
        if not self.take(token):
            self.fail(repr(token))

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        self.skip()
        found = pattern.match(self.text, self.at)
        if found is None:
            self.fail(expected)
        self.at = found.end()
        return found

    def end(self) -> None:
        self.skip()
        if self.at < len(self.text):
            self.fail("the end of the line")

    def separated(self, closing: str) -> bool:
        """Whether another element of a list follows; the list's end is taken."""
        if self.take(closing):
            return False
        self.need(",")
        return True
