"""Commands of ours in this process: a new one takes half a second."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout


def run_here(
    script: str, arguments: Sequence[str], together: bool = False
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run `parax …` ("main") or `paraxc …` ("paraxc"); `together`: stderr goes where stdout goes, as in a terminal."""
    from parax.compiler import cli  # here: some tests are of its import

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(out if together else err):
        try:
            code = getattr(cli, script)(list(arguments))
        except SystemExit as left:  # --help, --version
            code = left.code or 0
    return subprocess.CompletedProcess(list(arguments), code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
