"""Every Python file of the project, as the tests of its own rules read it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("parax", "compiler", "runtime")
GROUNDS = (*ROOMS, "tests", "benchmarks", "examples")
FACES = ("parax/__init__", "parax/__main__", "parax/onnx_backend", "parax/torch", "parax/torch_backend")
"""Public names of what lies in the rooms: they know everything, lazily."""



@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root with slashes, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All of the tree."""
        return list(ast.walk(self.tree))

    @property
    def stem(self) -> str:
        return self.path.removesuffix(".py")

    @property
    def in_a_room(self) -> bool:
        return self.path.split("/")[0] in ROOMS

    def imports(self) -> Iterator[tuple[ast.stmt, list[str]]]:
        """Each import with the modules it may mean: ours from the root (`compiler/ir/types`), others dotted."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield node, [_from_root(alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                yield node, self._targets(node)

    def _targets(self, node: ast.ImportFrom) -> list[str]:
        if not node.level:
            return [_from_root(node.module or "")]
        installed = self.path if self.path.startswith("parax/") else f"parax/{self.path}"
        package = installed.split("/")[: -node.level]
        base = ".".join([*package, *((node.module or "").split(".") if node.module else [])])
        return [_from_root(f"{base}.{alias.name}") for alias in node.names]

    def absolute_imports(self) -> Iterator[tuple[ast.stmt, list[str]]]:
        """Each import that is not relative, with the dotted modules it names."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield node, [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                yield node, [node.module or ""]

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield node


def _from_root(dotted: str) -> str:
    """`parax.compiler.ir.types` → `compiler/ir/types`; `parax.errors` → `parax/errors`; others unchanged."""
    parts = dotted.split(".")
    if parts[0] != "parax":
        return dotted
    return "/".join(parts[1:] if parts[1:2] and parts[1] in ROOMS else parts)


def sources() -> Iterator[Source]:
    """Every file, one after the other: the trees of all are hundreds of megabytes, which make every fork slow."""
    listed = [path.relative_to(ROOT).as_posix() for ground in GROUNDS for path in (ROOT / ground).rglob("*.py")]
    for path in sorted(listed):
        yield Source(path, (ROOT / path).read_text())


def imported_modules(file: Source, modules: set[str]) -> Iterator[str]:
    """Those of our modules that a file imports: of `compiler/ir/types/Dim` the module, `compiler/ir/types`."""
    for _, targets in file.imports():
        for target in targets:
            while "/" in target and target not in modules:
                target = target.rpartition("/")[0]
            if target in modules and target.split("/")[0] in ROOMS:
                yield target


def fits(path: str, prefix: str) -> bool:
    """Whether a path is the prefix, or lies below it."""
    return path == prefix or path.startswith(f"{prefix}/")


Rule = Callable[[Source], Iterator[str]]
"""The problems of a file, each with its line."""
