"""`parax plan`: the table and its JSON on described machines, what is measured here, the drawings, the errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from xml.etree import ElementTree

import numpy as np
import onnx
import onnx.parser
import pytest

Cli = Callable[..., "CompletedProcess[str]"]
MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,3,16,16] x) => (float[N,4] y)
{ c = Conv <kernel_shape = [3,3], pads = [1,1,1,1]> (x, w)  r = Relu (c)  p = GlobalAveragePool (r)
  f = Flatten (p)  y = MatMul (f, m) }"""
MACHINE = """name = "made up"
cores_per_socket = 4
flops_per_core = 1e9
bandwidth_per_core = 5e9
bandwidth_per_socket = 10e9
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = onnx.parser.parse_model(MODEL)
    rng = np.random.default_rng(1)
    for name, shape in (("w", (16, 3, 3, 3)), ("m", (16, 4))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(rng.standard_normal(shape, np.float32), name))
    onnx.save(proto, tmp_path / "tiny.onnx")
    (tmp_path / "machine.toml").write_text(MACHINE)
    return tmp_path / "tiny.onnx"


def test_a_described_machine_gives_the_same_table_every_time(model: Path, cli: Cli) -> None:
    arguments = ("plan", str(model), "--machine", str(model.parent / "machine.toml"), "--batch", "8")
    first, again = cli(*arguments), cli(*arguments)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert "tiny.onnx, 8 rows a request, a request for every instance; made up, 4 cores (simulated)" in first.stdout
    assert "4 × 1 core, 8 rows a call" in first.stdout
    assert first.stdout.count("→") == 1


def test_the_document_has_every_candidate_and_nothing_measured(model: Path, cli: Cli) -> None:
    done = cli("plan", str(model), "--machine", "xeon-8280-2s", "--format", "json", "--hint", "latency",
               "--batch", "1", "--batch", "64")  # fmt: skip
    choices = json.loads(done.stdout)["choices"]
    assert [choice["load"] for choice in choices] == [{"rows": n, "saturated": False} for n in (1, 64)]
    for choice in choices:
        assert choice["simulated"]
        assert (choice["cores"], choice["hint"]) == (56, "latency")
        assert {c["instances"] * c["cores_each"] for c in choice["candidates"]} == {48, 56}
        assert not any("measured" in c for c in choice["candidates"])
        best = min(c["predicted"]["seconds"] for c in choice["candidates"])
        assert choice["candidates"][choice["chosen"]]["predicted"]["seconds"] <= best * 1.021
        assert choice["reasons"]


def test_the_best_are_run_here_and_drawn(model: Path, cli: Cli) -> None:
    drawing, page = model.parent / "t.svg", model.parent / "t.html"
    done = cli("plan", str(model), "--batch", "4", "--budget", "0.5", "--measure", "3", "--format", "json",
               "--svg", str(drawing), "--html", str(page))  # fmt: skip
    assert done.returncode == 0, done.stderr
    (choice,) = json.loads(done.stdout)["choices"]
    run = [c for c in choice["candidates"] if "measured" in c]
    assert 1 <= len(run) <= 3
    assert all(c["measured"]["seconds"] > 0 and c["measured"]["rounds"] >= 3 for c in run)
    assert "measured" in choice["candidates"][choice["chosen"]]
    assert not choice["simulated"]
    texts = [t.text or "" for t in ElementTree.parse(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert any(t.startswith("predicted: ") for t in texts)
    assert any(t.startswith("measured: ") for t in texts)
    assert drawing.read_text() in page.read_text()


def test_simulated_drawings_say_so(model: Path, cli: Cli) -> None:
    drawing = model.parent / "t.svg"
    cli("plan", str(model), "--machine", "laptop-8", "--svg", str(drawing))
    texts = [t.text or "" for t in ElementTree.parse(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert any(t.startswith("simulated: ") for t in texts)
    assert not any("measured" in t or "predicted" in t for t in texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--machine", "no-such"], "a TOML file, or one of"),
        (["--machine", "laptop-8", "--cores", "0"], "a described machine has its own cores"),
        (["--machine", "laptop-8", "--dim", "N=2", "--batch", "4"], "the model's batch is fixed"),
        (["--batch", "0"], "at least 1"),
    ],
)
def test_errors_are_clear(model: Path, cli: Cli, arguments: list[str], message: str) -> None:
    done = cli("plan", str(model), *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
