"""AArch64 on a machine that is none: Debian's cross compiler and emulator, where they are installed.

Tests import it by this name: tests/ is on their path.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

GCC, LD, OBJCOPY, EMULATOR = (
    "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-ld", "aarch64-linux-gnu-objcopy", "qemu-aarch64",
)  # fmt: skip
HINT = "apt-get install gcc-aarch64-linux-gnu qemu-user"


def needs(*tools: str) -> pytest.MarkDecorator:
    """Skips a test where one of the tools is not installed."""
    why = _lacking(tools)
    return pytest.mark.skipif(bool(why), reason=why)


def require(*tools: str) -> None:
    """Skips the rest of a test where one of the tools is not installed."""
    if why := _lacking(tools):
        pytest.skip(why)


def _lacking(tools: Sequence[str]) -> str:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return f"not installed: {', '.join(missing)} ({HINT})" if missing else ""


def run_tool(*command: str | Path) -> str:
    """What a tool prints; its errors are those of the test."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command[0]}: exit code {done.returncode}\n{done.stderr}\n{done.stdout}"
    return done.stdout
