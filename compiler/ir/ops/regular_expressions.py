"""Regular expressions as RE2 reads them, written as Python's `re` reads them: of both, the same texts match as a whole.

What a text's match is made of (greedy or not, captures) does not matter where only whole texts are matched. What the
two read differently is spelled out: classes like \\d and \\b are of ASCII, $ is the end of the text alone. RE2's rarer
parts are refused.

Syntax: https://github.com/google/re2/wiki/Syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....errors import UnsupportedOp

_CLASSES = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_ANCHORS = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:(?!\b))"}
"""Before Python 3.14, an empty text has no \\B."""
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_REPEAT = re.compile(r"\{(\d{1,4})(?:(,)(\d{0,4}))?\}")
_GROUP = re.compile(r"\((?:\?(?:P?<[A-Za-z_]\w*>|([is]*)(-[is]+)?:))?(?!\?)", re.ASCII)
_FLAGS = re.compile(r"\(\?([is]+)\)")
_MOST_REPEATED = 1000


def as_python(pattern: str) -> str:
    """The pattern of `re.fullmatch` that matches what RE2's FullMatch does.

    Raises:
        UnsupportedOp: RE2 does not read it, or it has a part that is not supported.
    """
    return _Reader(pattern).read()


class _Reader:
    """One pattern, from its beginning to its end."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0

    def read(self) -> str:
        flags = _FLAGS.match(self.pattern)
        if flags:
            self.at = flags.end()
        text = "".join(self._items())
        if "i" in "".join(re.findall(r"\(\?([is]*)", self.pattern)) and not self.pattern.isascii():
            raise self._refused("letters beyond ASCII whose case is ignored")
        whole = f"(?{flags[1]}:{text})" if flags else text
        try:
            re.compile(whole)
        except (re.error, RecursionError, OverflowError) as error:
            raise UnsupportedOp("no regular expression", expected="RE2's syntax", found=f"{error}") from error
        return whole

    def _refused(self, what: str) -> UnsupportedOp:
        return UnsupportedOp(f"not supported in a regular expression: {what}", expected="RE2's common syntax",
                             found=f"{self.pattern!r:.100} at character {self.at}")  # fmt: skip

    def _take(self, count: int = 1) -> str:
        found = self.pattern[self.at : self.at + count]
        if len(found) < count:
            raise self._refused("an end in the middle")
        self.at += count
        return found

    def _items(self) -> Iterator[str]:
        repeatable, depth = False, 0
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            repeat = self._repetition() if char in "*+?{" else None
            if repeat is not None:
                if not repeatable:
                    raise self._refused("a repetition of nothing, or of a repetition")
                yield repeat
                repeatable = False
                continue
            depth += {"(": 1, ")": -1}.get(char, 0)
            if depth < 0:
                raise self._refused("a bracket that closes nothing")
            is_quoted = self.pattern.startswith(r"\Q", self.at)  # of whose text a repetition takes the end alone
            text = self._item(char)
            yield text
            repeatable = char not in "(|^$" and not is_quoted and not text.startswith(("(?a:", r"\A", r"\Z"))
        if depth:
            raise self._refused("a bracket that is not closed")

    def _repetition(self) -> str | None:
        """A repetition; None for a bracket that stands for itself."""
        char = self.pattern[self.at]
        text = char
        if char == "{":
            counted = _REPEAT.match(self.pattern, self.at)
            if counted is None:
                return None
            if max(int(n) for n in (counted[1], counted[3] or "0")) > _MOST_REPEATED:
                raise self._refused(f"more than {_MOST_REPEATED} repetitions")
            text = counted[0]
        self.at += len(text)
        if self.pattern[self.at : self.at + 1] == "?":  # as few as possible: of a whole match the same
            self.at += 1
        return text

    def _item(self, char: str) -> str:
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        self.at += 1
        if char in "|).":
            return char
        return {"^": r"\A", "$": r"\Z"}.get(char, re.escape(char))

    def _group(self) -> str:
        found = _GROUP.match(self.pattern, self.at)
        if found is None:
            raise self._refused("this kind of group")
        self.at = found.end()
        on, off = found[1] or "", found[2] or ""
        return f"(?{on}{off}:"

    def _escape(self) -> str:
        char = self._take(2)[1]
        if char in _ANCHORS:
            return _ANCHORS[char]
        if char.lower() in _CLASSES:
            return f"[{'^' if char.isupper() else ''}{_CLASSES[char.lower()]}]"
        if char == "Q":
            end = self.pattern.find(r"\E", self.at)
            text = self.pattern[self.at : end if end >= 0 else None]
            self.at = end + 2 if end >= 0 else len(self.pattern)
            return re.escape(text)
        return re.escape(self._character(char))

    def _character(self, char: str) -> str:
        """What an escaped character stands for."""
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            if self.pattern[self.at : self.at + 1] == "{":
                digits = self._take(self.pattern.find("}", self.at) + 1 - self.at)[1:-1]
            else:
                digits = self._take(2)
            if not re.fullmatch("[0-9A-Fa-f]{1,6}", digits) or int(digits, 16) > 0x10FFFF:
                raise self._refused("no number of a character")
            return chr(int(digits, 16))
        if char.isalnum() or not char.isascii() or char == "_":
            raise self._refused(f"\\{char}")
        return char

    def _class(self) -> str:
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        parts: list[str] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            parts.append(self._member())
            first = False
        self.at += 1
        return f"[{'^' if negated else ''}{''.join(parts)}]"

    def _member(self) -> str:
        """Characters from one to another, one alone, or a class."""
        if self.pattern.startswith("[:", self.at):
            end = self.pattern.find(":]", self.at)
            name = self.pattern[self.at + 2 : max(end, 0)]
            if name not in _POSIX:
                raise self._refused("this class of characters")
            self.at = end + 2
            return _POSIX[name]
        if self.pattern[self.at : self.at + 1] == "\\" and self.pattern[self.at + 1 : self.at + 2] in _CLASSES:
            return _CLASSES[self._take(2)[1]]
        low = self._single()
        if not self.pattern.startswith("-", self.at) or self.pattern.startswith("-]", self.at):
            return _in_class(low)
        self.at += 1
        high = self._single()
        if high < low:
            raise self._refused("characters from a later one to an earlier one")
        return f"{_in_class(low)}-{_in_class(high)}"

    def _single(self) -> str:
        char = self._take()
        return self._character(self._take()) if char == "\\" else char


def _in_class(char: str) -> str:
    return f"\\{char}" if char in r"\]^-[&~|" else char
