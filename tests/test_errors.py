"""Public functions raise ParaxErrors only, whatever goes wrong inside; the graph comes along."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import parax
from parax import onnx_backend
from parax.compiler.passes.dataflow.dead_code import DeadCode
from parax.errors import as_parax_error, reported
from parax.runtime.executor import Executor

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
)
X = np.ones((2, 3), np.float32)
NOTES = sys.version_info >= (3, 11)
BUILTIN = [ValueError("v"), ZeroDivisionError(), KeyError("k"), AttributeError("a"), OverflowError(), UnicodeError(),
           AssertionError(), IndexError(), TypeError("t"), OSError("nameless")]  # fmt: skip


@pytest.mark.parametrize("error", BUILTIN, ids=lambda error: type(error).__name__)
def test_whatever_is_left_is_ours(error: Exception) -> None:
    found = as_parax_error(error, "here")
    assert type(found) is parax.InternalError and type(error).__name__ in str(found)


def test_limits_and_files_are_not_our_mistakes() -> None:
    assert type(as_parax_error(MemoryError())) is parax.ResourceLimit
    assert type(as_parax_error(RecursionError("deep"))) is parax.ResourceLimit
    assert type(as_parax_error(PermissionError(13, "Permission denied", "f"))) is parax.UsageError
    known = parax.InvalidModel("m")
    assert as_parax_error(known) is known


@reported
def divide(a: int, b: int) -> float:
    return a / b


def test_calls_and_signals_pass() -> None:
    assert divide(1, 2) == 0.5
    with pytest.raises(parax.InternalError) as caught:
        divide(1, 0)
    assert type(caught.value.__cause__) is ZeroDivisionError
    with pytest.raises(TypeError, match="unexpected keyword"):
        divide(1, c=2)  # type: ignore[call-arg]
    for signal in (KeyboardInterrupt, SystemExit):
        with pytest.raises(signal):
            reported(lambda signal=signal: (_ for _ in ()).throw(signal))()


def _raise(error: BaseException) -> None:
    raise error


def test_a_mistake_in_a_pass_carries_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeadCode, "run", lambda *_: _raise(ZeroDivisionError("ours")))
    for call in (lambda: parax.compile(MODEL), lambda: onnx_backend.prepare(MODEL)):
        with pytest.raises(parax.InternalError, match="ZeroDivisionError") as caught:
            call()
        assert not NOTES or any("Relu(%x)" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("error", [*BUILTIN, MemoryError()], ids=lambda error: type(error).__name__)
def test_a_mistake_while_running_carries_the_graph(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with parax.compile(MODEL).session(instances=1) as session:
        session.run({"x": X})
        monkeypatch.setattr(Executor, "run_whole", lambda *_: _raise(error))
        expected = parax.ResourceLimit if isinstance(error, MemoryError) else parax.InternalError
        for call in (lambda: session.run({"x": X}), lambda: session.submit({"x": X}).result()):
            with pytest.raises(expected) as caught:
                call()
        if expected is parax.InternalError and NOTES:
            assert any("Relu(%x)" in note for note in caught.value.__notes__)
        monkeypatch.setattr(Executor, "run_whole", lambda *_: _raise(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            session.run({"x": X})


@pytest.mark.parametrize("wrong", [None, 5, ["m"], object(), "no\0file", b"\0"])
def test_wrong_models_and_paths(wrong: object, tmp_path: Path) -> None:
    for call in (parax.compile, parax.load, onnx_backend.prepare):
        with pytest.raises(parax.ParaxError) as caught:
            call(wrong)  # type: ignore[operator]
        assert not isinstance(caught.value, parax.InternalError)
    if not isinstance(wrong, str):
        with pytest.raises(parax.UsageError):
            parax.compile(MODEL).save(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "wrong",
    [{"shapes": 5}, {"shapes": {"x": 5}}, {"shapes": {"x": (2.5, 3)}}, {"shapes": {5: (2, 3)}}, {"dims": [1]},
     {"dims": {"N": "many"}}, {"dims": {"N": (1, 2, 3)}}, {"dims": {5: 5}}, {"dims": {"N": (None, 2)}}, {"hint": 5},
     {"target": 5}, {"target": [5]}, {"target": "z80"}, {"options": 5}],
    ids=str,
)  # fmt: skip
def test_wrong_arguments_of_compile(wrong: dict[str, object]) -> None:
    with pytest.raises(parax.UsageError):
        parax.compile(MODEL, **wrong)  # type: ignore[arg-type]
