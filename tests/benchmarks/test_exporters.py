"""The table of models of real exporters; a model itself, where what writes it is installed."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from benchmarks.exporters import __main__ as exporters
from benchmarks.exporters import kept, listed, sources

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
    work = exporters.Work(["yolo", "silero-vad"], ["torchscript", "dynamo"], ["--speed"], 9.0)
    found = list(exporters.all_records(work))
    assert [words[0] for words in called] == ["yolo", "yolo", "silero-vad"]
    assert [words[1] for words in called[:2]] == ["torchscript", "dynamo"]
    assert all(words[-1] == "--speed" for words in called) and len(found) == 3


def test_what_is_kept_has_its_row_and_is_not_made_again(monkeypatch, tmp_path):
    kept.keep_record({"exporter": "torch 9, dynamo", "status": "agrees"}, kept.folder_of(tmp_path, "bert", "dynamo"))
    monkeypatch.setattr(exporters, "records_of", lambda command, *_: [{"status": " ".join(command[3:])}])
    found = list(exporters.all_records(exporters.Work(["yolo"], ["dynamo"], ["--timed"], 9.0, tmp_path)))
    assert found[0]["status"] == f"yolo dynamo --timed --keep {tmp_path}/yolo-dynamo"
    assert [(record["model"], record["exporter"]) for record in found[1:]] == [("bert", "torch 9, dynamo")]


def test_a_kept_model_comes_back_with_its_inputs(tmp_path):
    (tmp_path / "there.onnx").write_bytes(b"model")
    feeds = [{"a/b": np.ones((2, 3), np.float32), "n": np.int64(4)}, {"a/b": np.zeros(0, np.float32), "n": np.int64(5)}]
    written = sources.Written(tmp_path / "there.onnx", "tool 1", feeds)
    again = kept.keep_written(written, tmp_path / "kept")
    for found in (again, kept.kept_written(tmp_path / "kept")):
        assert found.path.read_bytes() == b"model" and found.exporter == "tool 1" and len(found.feeds) == 2
        for feed, expected in zip(found.feeds, feeds, strict=True):
            assert feed.keys() == expected.keys()
            assert all(np.array_equal(feed[name], expected[name]) for name in expected)
    assert kept.kept_written(tmp_path) is None and kept.kept_record(tmp_path / "kept") is None


def test_timing_alone_needs_what_is_kept(capsys):
    with pytest.raises(SystemExit):
        exporters.main(["--timed"])
    assert "--keep DIR" in capsys.readouterr().err


@pytest.mark.parametrize(("status", "code"), [("agrees", 0), ("not exported", 0), ("differs", 5), ("crash", 5)])
def test_what_parax_gets_wrong_is_the_exit_code(status, code, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(exporters, "records_of", lambda *_: [{"status": status}])
    page = tmp_path / "page.md"
    assert exporters.main(["--models", "yolo", "--dynamo", "-o", str(page)]) == code
    assert status in page.read_text() and status in capsys.readouterr().out


@pytest.mark.parametrize("module", sorted(set(listed.MODULES.values())))
def test_every_listed_model_is_one_of_its_module(module):
    for package in {"tabular": ["skl2onnx"], "tensorflow_models": []}.get(module, ["torch"]):
        pytest.importorskip(package)
    names = {name for name, where in listed.MODULES.items() if where == module}
    assert names == set(import_module(f"benchmarks.exporters.{module}").MODELS)
