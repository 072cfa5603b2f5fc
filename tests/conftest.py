"""What all tests share: where real models lie, how the command line is run, hypothesis without a stopwatch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from commanding import run_here
from crowd import in_the_room
from parax import env
from sampling import Whole

if find_spec("hypothesis"):  # the tests that need it skip by themselves
    hypothesis = import_module("hypothesis")
    # the machines that run this are shared: a slow example is no failure
    hypothesis.settings.register_profile("parax", deadline=None)
    hypothesis.settings.load_profile("parax")

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a shell's background jobs, which hand it on to children
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for benchmarks and examples; last, so that the installed parax comes first
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-cases", action="store_true", help="with -m slow: also the cases that CI leaves out")


def pytest_configure(config: pytest.Config) -> None:
    Whole.asked = "not slow" not in config.option.markexpr


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = [] if config.getoption("--all-cases") else [i for i in items if i.get_closest_marker("exhaustive")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if not item.get_closest_marker("exhaustive")]
    seen: Counter[str] = Counter()
    for item in items:
        if Whole.asked and item.get_closest_marker("thorough"):
            item.add_marker("slow")
        if item.get_closest_marker("exhaustive"):
            item.add_marker("slow")
        sample, test = item.get_closest_marker("sample"), item.nodeid.partition("[")[0]
        if sample and seen[test] % sample.args[0]:
            item.add_marker("slow")
        seen[test] += 1


@pytest.fixture(scope="session", autouse=True)
def _own_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of this run only, plans that do not depend on what else the machine does, graphs and kernels verified on
    their way, and a current folder in which processes find the installed parax, not the checkout.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARAX_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("PARAX_CALIBRATE", "0")
        patch.setenv("PARAX_VERIFY", "1")
        patch.chdir(tmp_path_factory.mktemp("elsewhere"))
        yield


@pytest.fixture(autouse=True)
def _crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where tests run in several processes, those marked `alone` run while no other one does."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    with in_the_room(tmp_path_factory.getbasetemp().parent, request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture
def any_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that choose targets themselves, also where all are run for one (PARAX_TARGET)."""
    monkeypatch.delenv("PARAX_TARGET", raising=False)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def models() -> Path:
    """The folder of real models with reference data: PARAX_MODELS, or ../shared/models beside the checkout."""
    folder: Path = env.read("PARAX_MODELS") or ROOT.parent / "shared" / "models"
    if not folder.is_dir():
        pytest.skip("no real models here: set PARAX_MODELS to their folder")
    return folder


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs `parax …` (or another script of ours) in an empty folder, in this process: a new one takes half a second."""

    def run(*arguments: object, script: str = "main") -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path)
            patch.setenv("NO_COLOR", "1")
            patch.setenv("COLUMNS", "120")
            return run_here(script, list(map(str, arguments)))

    return run
