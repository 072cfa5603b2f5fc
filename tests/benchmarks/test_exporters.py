"""The table of models of real exporters; a model itself, where what writes it is installed."""

from __future__ import annotations

from importlib import import_module

import pytest

from benchmarks.exporters import __main__ as exporters
from benchmarks.exporters import listed

AGREES = {"model": "a", "exporter": "torch 9, dynamo", "nodes": 7, "operators": 3, "status": "agrees", "problem": "",
          "ratio": 1.256}  # fmt: skip
REFUSED = {"model": "b", "exporter": "other", "nodes": 2, "operators": 1, "status": "refused", "problem": "a | b\nc"}
MISSING = {"model": "c", "exporter": "dynamo", "status": "not installed", "problem": "no torch"}


def test_the_table_says_what_became_of_each():
    assert exporters.table([AGREES, REFUSED, MISSING]).splitlines()[2:] == [
        "| a | torch 9, dynamo | 7 (3) | agrees | 1.26 |",
        "| b | other | 2 (1) | refused: a / b c |  |",
        "| c | dynamo |  | not installed: no torch |  |",
    ]
    assert "1 of 3 agree" in exporters.page([AGREES, REFUSED, MISSING])


def test_each_exporter_of_torch_writes_a_model_and_what_others_write_comes_once(monkeypatch):
    called = []
    monkeypatch.setattr(exporters, "records_of", lambda command, *_: called.append(command[3:]) or [dict(AGREES)])
    found = list(exporters.all_records(["yolo", "silero-vad"], ["torchscript", "dynamo"], True, 9.0))
    assert [words[0] for words in called] == ["yolo", "yolo", "silero-vad"]
    assert [words[1] for words in called[:2]] == ["torchscript", "dynamo"]
    assert all(words[-1] == "--speed" for words in called) and len(found) == 3


@pytest.mark.parametrize(("status", "code"), [("agrees", 0), ("not exported", 0), ("differs", 5), ("crash", 5)])
def test_what_parax_gets_wrong_is_the_exit_code(status, code, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(exporters, "records_of", lambda *_: [{"status": status}])
    page = tmp_path / "page.md"
    assert exporters.main(["--models", "yolo", "--dynamo", "-o", str(page)]) == code
    assert status in page.read_text() and status in capsys.readouterr().out


@pytest.mark.parametrize("module", sorted(set(listed.MODULES.values())))
def test_every_listed_model_is_one_of_its_module(module):
    for package in {"tabular": ["skl2onnx"]}.get(module, ["torch"]):
        pytest.importorskip(package)
    names = {name for name, where in listed.MODULES.items() if where == module}
    assert names == set(import_module(f"benchmarks.exporters.{module}").MODELS)
