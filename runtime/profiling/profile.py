"""A profile: what a session's cores did while requests ran, operator by operator, as data.

Owns the document (its JSON form is FORMAT) and what is computed from it; how it is drawn is text, page and events.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import InvalidInput, UsageError
from ...files import write_whole
from .events import events
from .page import page
from .text import html, text

FORMAT = "parax-profile-1"
HTML, CHROME, JSON = ".html", "trace.json", ".json"


class Profile:
    """What `Session.profile` recorded. Times are in seconds.

    Made by `with session.profile() as profile:`, and filled at the end of the block; print it, look at it in a
    notebook, `save` it as a page (….html), for Perfetto or chrome://tracing (…trace.json) or as data (other ….json, to
    `load` again).

    The time in which at least one request was in flight, on every core that took part, is divided: in kernels, waiting
    between kernels for other cores, in Python operators, and outside of all these (hand-off, Python, idle). An
    operator's `seconds` is its kernels' and its waiting time of all these cores, divided by their number and by the
    number of requests: of requests that run alone, one after the other, its part of the latency. The operators' seconds
    and `outside` add up to `seconds_per_request`.
    """

    def __init__(self, document: dict[str, Any] | None = None) -> None:
        """Of the JSON form; None: still being recorded."""
        self._document = document

    def fill(self, document: dict[str, Any]) -> None:
        """What was recorded."""
        self._document = document

    @property
    def document(self) -> dict[str, Any]:
        """The JSON form.

        Raises:
            UsageError: it is still being recorded.
        """
        if self._document is None:
            raise UsageError("the profile is still being recorded", hint="use it after the `with` block")
        return self._document

    @property
    def operators(self) -> list[dict[str, Any]]:
        """A record per operator, the longest first.

        `title`, `names` (the model's nodes), `op`, `kernels` (functions); `seconds` and of these `waiting`; `share` of
        the request; where it is counted, `flops` and `nbytes` of a request; `predicted` seconds, where the compiler
        was asked.
        """
        found: list[dict[str, Any]] = self.document["operators"]
        return found

    @property
    def seconds_per_request(self) -> float:
        """Seconds in which requests were in flight, divided by their number: the latency of requests one by one."""
        return float(self.document["seconds_per_request"])

    @property
    def outside(self) -> float:
        """Seconds of a request in which a core was in no kernel, nor waiting for one, nor in a Python operator."""
        return float(self.document["outside"])

    def __str__(self) -> str:
        """Tables."""
        return text(self.document)

    def __repr__(self) -> str:
        if self._document is None:
            return "<Profile, still being recorded>"
        d = self.document
        return f"<Profile of {d['plan']!r}: {d['requests']} requests, {self.seconds_per_request * 1e3:.3f} ms each>"

    def _repr_html_(self) -> str:
        """The tables, in notebooks."""
        return html(self.document)

    def save(self, path: str | Path) -> None:
        """Write a file, in the form that its name ends with: .html, trace.json or .json.

        Raises:
            UsageError: it ends with something else, it cannot be written, or what draws the page is missing.
        """
        path, document = Path(path), self.document
        write_whole(path, render(document, path))

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """A profile that was saved as .json.

        Raises:
            UsageError: the file cannot be read. InvalidInput: it is no profile.
        """
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise UsageError("cannot be read", where=str(path), found=error.strerror or error) from error
        try:
            return cls(_checked(json.loads(raw)))
        except (ValueError, RecursionError) as error:
            found = error if str(error) else "not JSON"
            raise InvalidInput("not a profile", where=str(path), expected=f"JSON of format {FORMAT}",
                               found=str(found)[:200],
                               hint="make one with parax profile -o FILE.json") from error  # fmt: skip


def check_name(path: Path) -> None:
    """Refuse a file name whose ending says of no form.

    Raises:
        UsageError: it is of none.
    """
    if not path.name.endswith((HTML, JSON)):
        raise UsageError("no such form of a profile", where=str(path), expected=f"{HTML}, {CHROME} or {JSON}")


def render(document: dict[str, Any], path: Path) -> str:
    """The text of a file of that name.

    Raises:
        UsageError: see Profile.save.
    """
    check_name(path)
    if path.name.endswith(HTML):
        return page(document)
    if path.name.endswith(CHROME):
        return json.dumps(events(document))
    return json.dumps(document, indent=1)


NUMBERS = ("seconds_per_request", "outside", "requests")
LISTS = ("operators", "cores", "timeline", "memory")


def _checked(document: Any) -> dict[str, Any]:
    """The document, if it is one."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"format {document.get('format')!r}" if isinstance(document, dict) else "no object")
    for keys, kind in ((NUMBERS, (int, float)), (LISTS, list)):
        for key in keys:
            if not isinstance(document.get(key), kind):
                raise ValueError(f"{key}: {document.get(key)!r}"[:100])
    for own in document["operators"]:
        if not isinstance(own, dict) or not {"title", "op", "seconds", "waiting"} <= own.keys():
            raise ValueError(f"an operator: {own!r}"[:100])
    return document


def total(operators: Sequence[dict[str, Any]]) -> float:
    """Seconds of all operators."""
    return float(sum(own["seconds"] for own in operators))
