"""A process that answers each line of its input with a line of JSON, and ends with it.

Owns the process, its end and what it said when it ended too early. Knows nothing of what is asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from parax.errors import InternalError

Record = dict[str, Any]
_ROOT = Path(__file__).parents[1]
_MOST_MESSAGES = 400
"""Characters of what a process said that are kept: its last ones."""


class Answering:
    """Runs `python -m MODULE JSON`, or the module's file by another interpreter.

    Attributes:
        name: in messages and tables.
    """

    def __init__(
        self, name: str, module: str, task: Mapping[str, Any], before: Sequence[str] = (), python: str = ""
    ) -> None:  # fmt: skip
        """Start it and wait until it has said its first line.

        Args:
            task: its argument. before: words before the command, say those that put it into a control group.
            python: an interpreter, which runs the module's file and finds nothing of this checkout.

        Raises:
            InternalError: it ended instead; its messages are in the error.
        """
        self.name = name
        alone = [python, "-I", str(_ROOT.joinpath(*module.split(".")).with_suffix(".py"))]
        command = [*before, *(alone if python else [sys.executable, "-m", module]), json.dumps(task)]
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in close)
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       stderr=self._messages, cwd=_ROOT)  # fmt: skip
        try:
            self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, **what: Any) -> Record:
        """One line there, one line back.

        Raises:
            InternalError: it has ended; its messages are in the error.
        """
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):  # the answer's absence says why
            self._child.stdin.write(json.dumps(what) + "\n")
            self._child.stdin.flush()
        return self._answer()

    def _answer(self) -> Record:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            self._child.wait()
            self._messages.seek(0)
            raise InternalError("ended", where=self.name, found=self._messages.read().strip()[-_MOST_MESSAGES:])
        return dict(json.loads(line))

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        self._messages.close()
