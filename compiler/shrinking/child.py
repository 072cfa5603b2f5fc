"""A child process that answers questions, one after the other; what it dies of is an answer, too.

A question is bytes, an answer a JSON object; what they hold is between caller and child. Owns the process, its time
limit and the folder that both see.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...files import write_whole

CRASH, HANG = "crash", "hang"
DYING_SECONDS = 0.5
"""That a process whose stdout is closed may take to end, so that it says of what."""


class Child:
    """`python -m MODULE`, which reads paths of questions on stdin and writes answers to stdout; see `serve`.

    A new one is started where it died or took too long.
    """

    def __init__(self, command: Sequence[str], seconds: float, **popen: Any) -> None:
        """
        Args:
            command: arguments of Python. seconds: an answer may take; popen: more for subprocess.Popen.
        """
        self.command, self.seconds, self.popen = list(command), seconds, popen
        self.folder = tempfile.TemporaryDirectory(prefix="parax-child-")
        self._stderr = Path(self.folder.name) / "stderr"
        self._process: subprocess.Popen[str] | None = None

    def ask(self, question: bytes) -> dict[str, Any]:
        """The answer; {"status": CRASH or HANG, "problem": of what} where there is none."""
        process = self._running()
        path = Path(self.folder.name) / "question"
        write_whole(path, question)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{path}\n")
            process.stdin.flush()
            ready, _, _ = select.select([process.stdout], [], [], self.seconds)
            line = process.stdout.readline() if ready else ""
        except BrokenPipeError:  # it died before it read
            ready, line = [process.stdout], ""
        if line.startswith("{"):
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._end()
        if not ready:
            return {"status": HANG, "problem": f"no answer within {self.seconds:g} s"}
        code = process.returncode
        if code < 0:
            return {"status": CRASH, "problem": signal.Signals(-code).name}
        said = self._stderr.read_text(errors="replace").strip().splitlines()
        return {"status": CRASH, "problem": f"exit code {code}: {said[-1] if said else 'no word'}"}

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._stderr.open("wb") as stderr:
                self._process = subprocess.Popen([sys.executable, *self.command], stdin=subprocess.PIPE,
                                                 stdout=subprocess.PIPE, stderr=stderr, text=True,
                                                 **self.popen)  # fmt: skip
        return self._process

    def _end(self) -> None:
        """Kill the process, if it has not ended by itself, and wait for it."""
        if self._process is None:
            return
        try:
            self._process.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdout.close()
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process = None

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._end()
        self.folder.cleanup()


def serve(answer: Callable[[bytes], dict[str, Any]]) -> None:
    """The child's side: answer questions until stdin ends. What the work prints goes to stderr."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(answer(Path(line.strip()).read_bytes())) + "\n")
