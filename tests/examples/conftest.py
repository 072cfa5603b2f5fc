"""Lets these tests import `examples`, which is not installed: the repository's root goes last on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
