"""The house rules, read from the source with ast: who imports whom, sizes, docstrings, words that must not appear."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from sources import ROOMS, ROOT, Rule, Source, fits, sources

# Who may import whom: the longest prefix that fits a module decides; what is not listed is closed.
BASE = {
    "parax/errors", "parax/env", "parax/files", "parax/file_kinds", "parax/lazy", "parax/log", "parax/sources",
    "parax/units",
}  # fmt: skip
MAY_IMPORT = {
    "parax/errors": set(),
    "parax/env": {"parax/errors"},
    "parax/files": {"parax/errors"},
    "parax/file_kinds": {"parax/errors"},
    "parax/lazy": {"parax/errors"},
    "parax/log": {"parax/env"},
    "parax/sources": {"parax/errors"},
    "parax/units": set(),
    "parax/models": set(),
    "parax/__init__": {"parax", "compiler", "runtime"},  # the public face, all of it lazy
    "parax/onnx_backend": {"parax/lazy", "compiler/onnx_backend"},  # that module by its public name
    "parax/torch": {"parax/lazy", "compiler/torch_training"},  # likewise
    "parax/torch_backend": {"parax/lazy", "compiler/torch_backend"},  # likewise
    "parax/__main__": {"compiler/cli"},
    "compiler/options": BASE,
    "compiler/targets": BASE | {"compiler/targets"},
    "compiler/ir": BASE | {"compiler/ir"},
    "compiler/costs": BASE | {"compiler/ir", "compiler/targets", "compiler/costs"},
    "compiler/kernel_ir": BASE | {"compiler/ir", "compiler/kernel_ir", "runtime/sync"},
    "compiler/frontend": BASE | {"compiler/options", "compiler/ir", "compiler/costs", "compiler/frontend"},
    "compiler/passes": BASE | {
        "compiler/options", "compiler/ir", "compiler/kernel_ir", "compiler/targets", "compiler/passes",
    },
    "compiler/backend": BASE | {
        "compiler/options", "compiler/ir", "compiler/costs", "compiler/kernel_ir", "compiler/targets",
        "compiler/backend", "runtime",
    },
    "compiler/training": BASE | {
        "compiler/options", "compiler/ir", "compiler/passes", "compiler/training",
        "compiler/frontend/head", "runtime/train/schedules", "runtime/train/data/transforms",
    },  # the last three are tables of a job file
    "compiler/planner": BASE | {
        "compiler/options", "compiler/ir", "compiler/targets", "compiler/passes", "compiler/costs", "compiler/backend",
        "compiler/planner", "compiler/contest", "compiler/samples", "compiler/sizes", "runtime",
    },  # not the driver: what makes a candidate's plan is handed in
    "compiler/precision": BASE | {
        "compiler/options", "compiler/ir", "compiler/frontend", "compiler/passes", "compiler/compilation",
        "compiler/driver", "compiler/optimisation", "compiler/contest", "compiler/precision", "runtime",
    },
    "compiler/shrinking": BASE | {
        "compiler/options", "compiler/ir", "compiler/frontend", "compiler/api", "compiler/compare",
        "compiler/row_order", "compiler/samples", "compiler/sizes", "compiler/shrinking", "runtime",
    },
    "compiler": {"parax", "compiler", "runtime"},  # driver, api, check, commands: they tie the rooms together
    "runtime": BASE | {"runtime"},
}
# Libraries that only some rooms may know.
ONLY = {
    "onnx": ("compiler/frontend", "compiler/shrinking"),
    "llvmlite": ("compiler/backend",),
    "networkx": ("compiler",),
    "mpi4py": ("runtime/train",),
    "rich": ("compiler/commands",),
    "PIL": ("compiler/commands/pictures.py", "runtime/train"),
    "pyarrow": ("runtime/train/data",),
    "sklearn": ("runtime/train/data",),
    "altair": ("runtime/charts.py",),
    "vl_convert": ("runtime/charts.py",),
    "tensorboardX": ("runtime/train/events.py",),
}
# Imports inside a function: optional packages, and modules whose start must be quick.
OPTIONAL = {
    "safetensors", "altair", "vl_convert", "onnxruntime", "openvino", "ml_dtypes", "mpi4py", "torch", "PIL", "pyarrow",
    "sklearn", "tensorboardX",
}  # fmt: skip
LAZY = {
    "compiler/commands": "a verb loads what does its work when it runs, so that --help is quick",
    "compiler/frontend/oracle.py": "onnx.reference brings in hundreds of modules",
    "compiler/frontend/evaluate.py": "onnx.reference brings in hundreds of modules",
    "runtime/plan.py": "sessions are imported while other threads check the weights; tables are for notebooks",
    "runtime/plan_contents.py": "zipfile is for writing",
    "runtime/loading.py": "modules load while other threads check the weights",
    "runtime/step_blocks.py": "most plans have no host operators",
    "runtime/session.py": "asyncio and thread pools cost imports that most sessions never need",
}
MOST_LINES, MOST_FUNCTION_LINES = 400, 60
LONG: dict[str, str] = {  # file, or file:function → why it is long
    "compiler/trainer.py:__init__": "two dozen settings of a training, each with a line and its documentation",
    "compiler/ir/dim.py": "one class: a polynomial's arithmetic, ordering, text and JSON need its private normal form",
    "compiler/ir/graph.py": "value, node and graph keep each other's uses and links right, and nobody else may",
    "runtime/handoff.py": "one text of LLVM, whose functions are internal to it",
    "tests/backend/test_emit_llvm.py": "a case per instruction of the kernel IR",
}
POOR_NAMES = {"utils", "util", "helpers", "helper", "manager", "common", "misc"}
FORBIDDEN_WORDS = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")


def _length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


@dataclass(frozen=True)
class Names:
    """All names that some file imports from another, and how often a function of a name is defined in the rooms."""

    imported: set[str]
    defined: Counter[str]


@cache
def all_names() -> Names:
    """Of every file."""
    found = Names(set(), Counter())
    for source in sources():
        found.imported.update(a.name for n in source.nodes if isinstance(n, ast.ImportFrom) for a in n.names)
        if source.in_a_room:
            found.defined.update(function.name for function in source.functions())
    return found


def imports_only_the_rooms_it_may(source: Source) -> Iterator[str]:
    allowed = MAY_IMPORT[max((room for room in MAY_IMPORT if fits(source.stem, room)), key=len)]
    for node, targets in source.imports():
        for target in targets:
            ours = target.split("/")[0] in ROOMS and "/" in target and target != "parax/__version__"
            if ours and not any(fits(target, room) for room in allowed):
                yield f"{node.lineno}: may not import {target}"


def imports_our_rooms_by_their_installed_names(source: Source) -> Iterator[str]:
    for node, names in source.absolute_imports():
        for name in names:
            top = name.split(".")[0]
            if top in ("compiler", "runtime"):
                yield f"{node.lineno}: `{top}` is parax.{top}"
            if top == "parax" and source.in_a_room:
                yield f"{node.lineno}: import relatively"


def keeps_libraries_in_their_rooms(source: Source) -> Iterator[str]:
    for node, targets in source.imports():
        for target in targets:
            rooms = ONLY.get(target.split(".")[0])
            if rooms and not any(fits(source.path, room) for room in rooms):
                yield f"{node.lineno}: {target} belongs to {' and '.join(rooms)}"


def runs_plans_with_numpy_alone(source: Source) -> Iterator[str]:
    if source.path.startswith("compiler/"):
        return
    for node, names in source.absolute_imports():
        for name in names:
            if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", *OPTIONAL}:
                yield f"{node.lineno}: {name} is no dependency of the runtime"


def imports_at_the_top(source: Source) -> Iterator[str]:
    if any(fits(source.path, place) for place in LAZY):
        return
    for function in source.functions():
        for node in ast.walk(function):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                if not all(name.split(".")[0] in OPTIONAL for name in names):
                    yield f"{node.lineno}: import inside {function.name}"


def says_what_it_is(source: Source) -> Iterator[str]:
    if not ast.get_docstring(source.tree):
        yield "1: no module docstring"
    for node in source.nodes:
        is_silent = isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
        if is_silent and len(node.body) > 1:  # type: ignore[attr-defined]
            yield f"{node.lineno}: class {node.name} has no docstring"
    for top in source.tree.body:
        if isinstance(top, ast.FunctionDef) and any(ast.unparse(d) == "overload" for d in top.decorator_list):
            continue
        if isinstance(top, ast.FunctionDef) and top.name in all_names().imported and not ast.get_docstring(top):
            yield f"{top.lineno}: {top.name} is used by other modules and has no docstring"


def is_of_readable_size(source: Source) -> Iterator[str]:
    lines = source.text.count("\n")
    if lines > MOST_LINES and source.path not in LONG:
        yield f"{lines} lines: split it, or say in LONG why not"
    for function in source.functions():
        size = _length(function)
        if size > MOST_FUNCTION_LINES and f"{source.path}:{function.name}" not in LONG:
            yield f"{function.lineno}: {function.name} has {size} lines: split it, or say in LONG why not"


def has_nothing_unfinished(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if any(word in line for word in FORBIDDEN_WORDS):
            yield f"{number}: {line.strip()}"
    for function in source.functions():
        body = function.body[1:] if ast.get_docstring(function) else function.body
        raises = len(body) == 1 and isinstance(body[0], ast.Raise) and "NotImplementedError" in ast.unparse(body[0])
        if raises and all_names().defined[function.name] < 2:
            yield f"{function.lineno}: {function.name} is a stub: nothing overrides it"


def swallows_no_exception(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"{node.lineno}: catches everything, signals too"
            elif len(node.body) == 1 and isinstance(node.body[0], ast.Pass) and ast.unparse(node.type) != "ImportError":
                yield f"{node.lineno}: an exception swallowed"


def writes_files_whole(source: Source) -> Iterator[str]:
    for node in source.nodes:
        writes = isinstance(node, ast.Attribute) and node.attr in ("write_text", "write_bytes")
        if writes and source.path != "parax/files.py":
            yield f"{node.lineno}: parax/files.py writes files, whole or not at all"  # type: ignore[attr-defined]


def is_named_for_what_it_holds(source: Source) -> Iterator[str]:
    for part in set(source.stem.split("/")) & POOR_NAMES:
        yield f"0: {part} says nothing"


FOR_MODULES: tuple[Rule, ...] = (
    imports_only_the_rooms_it_may,
    keeps_libraries_in_their_rooms,
    runs_plans_with_numpy_alone,
    imports_at_the_top,
    says_what_it_is,
    writes_files_whole,
)
FOR_ALL: tuple[Rule, ...] = (
    imports_our_rooms_by_their_installed_names,
    is_of_readable_size,
    has_nothing_unfinished,
    swallows_no_exception,
    is_named_for_what_it_holds,
)


def test_every_file() -> None:
    problems = [
        f"{source.path}:{problem}"
        for source in sources()
        for rule in ((*FOR_MODULES, *FOR_ALL) if source.in_a_room else FOR_ALL)
        for problem in rule(source)
    ]
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [
        (imports_only_the_rooms_it_may, "runtime/x.py", "from ..compiler.ir import graph"),
        (imports_only_the_rooms_it_may, "compiler/passes/node/x.py", "from ...backend.lower import lower_graph"),
        (imports_only_the_rooms_it_may, "compiler/ir/x.py", "from ..passes import base"),
        (imports_only_the_rooms_it_may, "compiler/planner/x.py", "from ..driver import build_plan"),
        (imports_only_the_rooms_it_may, "compiler/planner/x.py", "from ..frontend.importer import import_model"),
        (imports_our_rooms_by_their_installed_names, "tests/x.py", "import compiler.ir"),
        (imports_our_rooms_by_their_installed_names, "runtime/x.py", "from parax.errors import ParaxError"),
        (keeps_libraries_in_their_rooms, "compiler/passes/x.py", "from onnx import helper"),
        (runs_plans_with_numpy_alone, "runtime/x.py", "import scipy.linalg"),
        (imports_at_the_top, "compiler/ir/x.py", "def f():\n    import json"),
        (says_what_it_is, "compiler/ir/x.py", "x = 1"),
        (is_of_readable_size, "compiler/ir/x.py", "x = 1\n" * (MOST_LINES + 1)),
        (has_nothing_unfinished, "compiler/ir/x.py", "def nobody_overrides_me():\n    raise NotImplementedError"),
        (swallows_no_exception, "compiler/ir/x.py", "try:\n    f()\nexcept ValueError:\n    pass"),
        (writes_files_whole, "compiler/commands/x.py", "Path('x').write_text('y')"),
        (is_named_for_what_it_holds, "compiler/utils.py", ""),
    ],
)
def test_each_rule_sees_what_breaks_it(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


def test_every_folder_of_a_room_is_a_package() -> None:
    for source in sources():
        if not source.in_a_room:
            continue
        assert (ROOT / source.path).with_name("__init__.py").is_file(), f"{source.path}: no __init__.py beside it"


def test_the_allow_tables_only_shrink() -> None:
    for entry in LONG:
        path, _, function = entry.partition(":")
        source = Source(path, (ROOT / path).read_text())
        if function:
            sizes = [_length(f) for f in source.functions() if f.name == function]
            assert sizes and max(sizes) > MOST_FUNCTION_LINES, f"{entry} is short now: remove it from LONG"
        else:
            assert source.text.count("\n") > MOST_LINES, f"{entry} is short now: remove it from LONG"
    for place in LAZY:
        assert (ROOT / place).exists(), f"{place} is gone: remove it from LAZY"


def _loaded_after(code: str) -> set[str]:
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    return set(done.stdout.split())


def test_importing_parax_loads_nothing() -> None:
    loaded = _loaded_after("import parax")
    assert not loaded & {"numpy", "onnx", "llvmlite", "networkx", "rich", "parax.compiler", "parax.runtime"}


def test_loading_plans_needs_no_compiler() -> None:
    loaded = _loaded_after("import parax; parax.load")
    assert not loaded & {"onnx", "networkx", "rich", "parax.compiler"}


def test_a_session_needs_no_compiler() -> None:
    loaded = _loaded_after("import parax; parax.Session")
    assert not loaded & {"onnx", "networkx", "rich", "parax.compiler"}


def test_the_checkout_as_current_folder_does_not_hide_the_rooms() -> None:
    script = "import parax.compiler.driver, parax.runtime.plan, parax.onnx_backend"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_no_bare_room_is_importable() -> None:
    script = "import importlib.util as u; print(u.find_spec('compiler'), u.find_spec('runtime'))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.split() == ["None", "None"]
