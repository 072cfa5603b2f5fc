"""What works where only plans run: a bare virtual environment that holds NumPy and parax, nothing of the compiler's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import parax
import parax.compiler
import parax.runtime
from parax.compiler.cli import VERBS
from parax.compiler.commands.models import BUNDLED
from parax.errors import COMPILER_LIBRARIES, INSTALL_COMPILER, as_parax_error
from parax.runtime.native import host_features

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ONE_LINE = f"error: the compiler is not installed; {INSTALL_COMPILER}\n"
MODEL = str(BUNDLED / "digits.onnx")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of a new environment with links to this one's NumPy and a copy of parax; no index is asked."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python3*/site-packages")
    installed = Path(np.__path__[0]).parent
    for place in (installed / "numpy", *installed.glob("numpy.libs"), *installed.glob("numpy-*.dist-info")):
        (site / place.name).symlink_to(place)
    rooms = {"parax": parax, "parax/compiler": parax.compiler, "parax/runtime": parax.runtime}
    for name, package in rooms.items():
        shutil.copytree(package.__path__[0], site / name, ignore=shutil.ignore_patterns("__pycache__"),
                        dirs_exist_ok=True)  # fmt: skip
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a plan that was compiled elsewhere."""
    folder = tmp_path_factory.mktemp("plans")
    parax.compile(MODEL, options=parax.CompileOptions(profile=True)).save(folder / "plan.bin")
    return folder


@pytest.fixture
def python(bare: Path, place: Path) -> Run:
    """Runs Python code in the bare environment."""

    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(bare), "-I", "-c", code, *arguments], capture_output=True, text=True, timeout=120,
                              cwd=place, env={**os.environ, "COLUMNS": "120"}, check=False)  # fmt: skip

    return run


@pytest.fixture
def alone(python: Run) -> Run:
    """Runs `parax …` (or another script of ours) in the bare environment."""

    def run(*arguments: str, script: str = "main") -> subprocess.CompletedProcess[str]:
        return python(f"import sys; from parax.compiler import cli; sys.exit(cli.{script}())", *arguments)

    return run


@pytest.mark.parametrize("name", ["llvmlite", "networkx", "onnx", "rich", "google.protobuf", "ml_dtypes", "tomli"])
def test_nothing_else_is_installed(name: str, python: Run) -> None:
    done = python(f"import {name}")
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "run plan.bin -q --input picture=random --output probabilities=@p.npy",
        "bench plan.bin --duration 0.1 --rounds 1", "inspect plan.bin", "inspect plan.bin --graph --partition",
        "inspect plan.bin --version-only", "doctor", "profile plan.bin -q --seconds 0.1 -o trace.json",
        "compare plan.bin plan.bin --seconds 0.1",
    ],
)  # fmt: skip
def test_what_works(command: str, alone: Run) -> None:
    for form in ("table", "json"):
        done = alone(*command.split(), "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) if form == "json" else len(done.stdout.splitlines()) > 1


@pytest.mark.parametrize("verb", [verb.NAME for verb in VERBS])
def test_every_verb_has_help(verb: str, alone: Run) -> None:
    assert alone(verb, "--help").stdout.startswith(f"usage: parax {verb}")


def test_the_commands_themselves_have_help(alone: Run) -> None:
    assert alone("--help").stdout.startswith("usage: parax ")
    assert alone("--help", script="paraxc").stdout.startswith("usage: paraxc ")
    assert alone("--version").stdout == f"parax {parax.__version__}\n"


def test_results_are_those_of_the_whole_installation(alone: Run, cli: Run, place: Path) -> None:
    command = ("run", "--input", "picture=random", "--seed", "7", "--format", "json")
    here, there = cli(*command, str(place / "plan.bin")), alone(*command, "plan.bin")
    assert json.loads(here.stdout)["outputs"] == json.loads(there.stdout)["outputs"]


def test_what_is_shown_is_what_the_whole_installation_shows(alone: Run, cli: Run, place: Path) -> None:
    command = ("inspect", str(place / "plan.bin"), "--graph", "--partition")
    assert alone(*command).stdout.split() == cli(*command).stdout.split()


@pytest.mark.parametrize(
    "command",
    [
        f"compile {MODEL}", "run", f"run {MODEL}", f"bench {MODEL}", f"profile {MODEL}",
        f"inspect {MODEL}", f"inspect {MODEL} --partition", f"inspect {MODEL} --costs", f"plan {MODEL}",
        f"verify {MODEL}", f"verify {MODEL} --plan plan.bin", "operators",
        "doctor --measure",
    ],
    ids=lambda command: command.replace(MODEL, "MODEL.onnx"),
)  # fmt: skip
def test_what_needs_the_compiler_says_so_in_one_line(command: str, alone: Run) -> None:
    done = alone(*command.split())
    assert (done.returncode, done.stdout, done.stderr) == (parax.CompilerMissing.exit_code, "", ONE_LINE)


def test_paraxc_says_so_too(alone: Run, place: Path) -> None:
    done = alone(MODEL, "-o", "other.bin", script="paraxc")
    assert (done.returncode, done.stderr) == (2, ONE_LINE)
    assert not (place / "other.bin").exists()


def test_doctor_says_what_is_absent_and_how_it_is_installed(alone: Run) -> None:
    from parax.compiler.targets.target import best_target

    found = json.loads(alone("doctor", "--format", "json").stdout)
    assert found["versions"]["numpy"] == np.__version__
    assert [found["versions"][name] for name in (*COMPILER_LIBRARIES, "rich")] == [None] * 4
    best = best_target(host_features())
    assert found["machine"]["native target"].startswith(best.name if best else "none")
    assert any(INSTALL_COMPILER in line for line in found["advice"])
    shown = alone("doctor").stdout
    assert f"llvmlite     not installed: {INSTALL_COMPILER}" in shown.splitlines()


@pytest.mark.parametrize(
    "statement",
    [
        "parax.compile", "parax.onnx_backend", "from parax import compile", "from parax import onnx_backend",
        "from parax.compiler import compile", "import parax.onnx_backend",
    ],
)  # fmt: skip
def test_python_meets_one_error(statement: str, python: Run) -> None:
    code = f"""if True:
        import parax
        try:
            {statement}
        except parax.CompilerMissing as error:
            print(isinstance(error, parax.UsageError), isinstance(error, ImportError), error)"""
    done = python(code)
    assert done.stdout.startswith("True True parax."), done.stderr
    assert done.stdout.endswith(f": the compiler is not installed; {INSTALL_COMPILER}\n")


def test_python_runs_plans(python: Run) -> None:
    done = python("""if True:
        import numpy, parax
        parax.CompileOptions()
        with parax.load("plan.bin").session() as session:
            print(session.run({"picture": numpy.zeros((3, 1, 28, 28), "f4")})["probabilities"].shape)""")
    assert done.stdout == "(3, 10)\n", done.stderr


@pytest.mark.parametrize("name", [*COMPILER_LIBRARIES, "protobuf"])
def test_a_single_library_that_is_absent_is_named(name: str) -> None:
    module = name if name != "protobuf" else "google.protobuf"
    code = f"""if True:
        import sys
        sys.modules[{module!r}] = None  # as if it were not installed
        from parax.compiler import cli
        sys.exit(cli.main())"""
    done = subprocess.run([sys.executable, "-c", code, "compile", MODEL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"error: the compiler lacks {name}; {INSTALL_COMPILER}\n")


def test_other_modules_are_not_the_compilers() -> None:
    error = as_parax_error(ModuleNotFoundError("No module named 'theirs'", name="theirs"))
    assert isinstance(error, parax.InternalError)


def test_the_dependencies_are_numpy_alone(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert [requirement.split(">")[0] for requirement in project["dependencies"]] == ["numpy"]
    extras = project["optional-dependencies"]
    compiler = {requirement.split(">")[0] for requirement in extras.pop("compiler")}
    assert compiler == {*COMPILER_LIBRARIES, "rich", "tomli"}
    assert all("parax[compiler]" in extras[name] for name in ("test", "bench", "export", "dev"))
