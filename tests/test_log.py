"""What is told, to whom: loggers for programs, stderr for PARAX_DEBUG and for commands, nobody by default."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest

import parax
from parax import log

from .conftest import Cli

MODEL = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N,3] x) => (float[N,3] y) { y = Relu(x) }'
)
HOST = onnx.parser.parse_model(
    '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (int64[1,M] y) { y = NonZero(x) }'
)


def test_a_library_is_silent_unless_somebody_configures_logging(capfd: pytest.CaptureFixture[str]) -> None:
    parax.compile(MODEL)
    log.inform("nobody asked", log.CALIBRATION)
    assert capfd.readouterr() == ("", "")
    silent = "import logging, parax.log; logging.getLogger('parax').warning('told')"
    done = subprocess.run([sys.executable, "-c", silent], capture_output=True, text=True, check=True, cwd="/")
    assert done.stderr == "", "logging's last resort printed"


def test_phases_are_debug_and_decisions_are_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="parax")
    parax.compile(MODEL)
    phases = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    for phase in ("import", "passes", "plan", "memory", "lower", "link", "code", "write"):
        assert any(text.startswith(f"{phase}: ") and text.endswith(" ms") for text in phases), (phase, phases)
    (decided,) = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO and "compiled" in r.getMessage()]
    assert decided.startswith("compiled 'g': batch N, ")
    assert {r.levelno for r in caplog.records} == {logging.DEBUG, logging.INFO}
    assert all(r.name.split(".")[0] == "parax" for r in caplog.records)


def test_what_runs_outside_native_code_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="parax")
    parax.compile(HOST)
    assert "outside native code: 1 of 1 operators (NonZero × 1)" in caplog.text
    assert "no batch (" in caplog.text
    assert {r.levelno for r in caplog.records} == {logging.INFO}


def test_levels_below_debug_are_the_rest_of_the_ladder(caplog: pytest.LogCaptureFixture) -> None:
    for rung, word in ((log.EVERYTHING_DONE, "items) for"), (log.REFUSALS, "refused"), (log.CODE, "define ")):
        for level, is_there in ((logging.DEBUG + 2 - rung, False), (logging.DEBUG + 1 - rung, True)):
            caplog.clear()
            caplog.set_level(level, logger="parax")
            parax.compile(MODEL)
            assert (word in caplog.text) == is_there, (rung, level)


def test_the_variable_prints_each_line_once_whatever_the_program_logs(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PARAX_DEBUG", "1")
    for level in (logging.WARNING, logging.DEBUG):
        caplog.set_level(level, logger="parax")
        caplog.clear()
        parax.compile(MODEL)
        lines = capfd.readouterr().err.splitlines()
        assert len([line for line in lines if line.startswith("parax: memory: ")]) == 1
        assert all(line.startswith("parax: ") for line in lines)
        assert bool(caplog.records) == (level == logging.DEBUG), "the variable changes nothing about logging"


def test_a_command_shows_decisions_with_v_only(cli: Cli, tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "m.onnx")
    for more, says in (([], False), (["-v"], True), (["-q"], False)):
        done = cli("compile", tmp_path / "m.onnx", *more)
        assert done.returncode == 0
        assert done.stderr.count("parax: compiled 'g': batch N") == says, done.stderr
        assert "memory: " not in done.stderr


def test_what_one_command_shows_ends_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    with log.shown(logging.INFO, log.CALIBRATION, log.NAME):
        log.inform("first")
        log.inform("measured", log.CALIBRATION)
        with log.shown(None, log.CALIBRATION):
            log.inform("third", log.CALIBRATION)
    with log.shown(logging.INFO, log.CALIBRATION):
        log.inform("second")
        log.inform("again", log.CALIBRATION)
    log.inform("fourth", log.CALIBRATION)
    assert capfd.readouterr().err == "parax: first\nparax: measured\nparax: again\n"
