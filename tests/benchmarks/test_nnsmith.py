"""The run of NNSmith's models, with a generator in its place that needs no PyTorch; and what it says without one."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks import nnsmith, nnsmith_environment
from benchmarks.trials import FAILURES, NO_ORACLE, PASS, UNSTABLE, UNSUPPORTED, Command

GENERATOR = '''
import json, sys
import numpy as np, onnx
from onnx import parser
folder = sys.argv[sys.argv.index("--output") + 1]
first, count, step = map(int, sys.argv[-1].split(":"))
x = np.array([-3, 0.5], np.float64)
for number in range(first, count, step):
    print(json.dumps({"number": number, "phase": "make"}), flush=True)
    status = "unsupported" if number == 1 else "pass"
    if number == 2:
        sys.exit(7)
    if status == "pass":
        body = "a = Neg<no_such = 1>(x) y = Neg(a)" if number == 5 else "y = LeakyRelu<alpha = 0.01>(x)"
        model = parser.parse_model('<ir_version: 8, opset_import: ["" : 18]> g (double[2] x) => (double[2] y) {'
                                   + body + "}")
        onnx.save(model, f"{folder}/{number}.onnx")
        slope = {0: float(np.float32(0.01)), 3: 0.01, 4: 0.02, 5: 1}[number]
        np.savez(f"{folder}/{number}.npz", **{"in/x": x, "out/y": np.where(x < 0, slope * x, x)})
    outcome = {"status": status, "problem": ""}
    print(json.dumps({"number": number, "outcome": outcome, "seconds": 0.0}), flush=True)
'''


@pytest.fixture
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Number 0 agrees, of 1 comes no model, 2 takes the generator with it, 3 is unstable, 4 is disputed, and parax
    refuses 5 without saying which operator it lacks."""
    monkeypatch.setattr(nnsmith, "ready_environment", lambda folder, seconds: folder)

    def generator(python: Path, seed: str, output: Path) -> Command:
        return Command([sys.executable, "-c", GENERATOR, "--seed", seed, "--output", str(output)], output)

    monkeypatch.setattr(nnsmith, "generator", generator)


@pytest.mark.usefixtures("_stand_in")
def test_every_model_is_sorted_and_findings_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--models", "6", "--seed", "s", "--jobs", "1", "--keep", str(tmp_path / "found"),
             "--json", str(tmp_path / "found.json")]  # fmt: skip
    assert nnsmith.main(words) == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["classes"] == {"agree": 1, "unstable": 1, "unexplained": 1, "internal error": 1}
    classes = [(f["number"], f["class"]) for f in found["findings"]]
    assert classes == [(3, "unstable"), (4, "unexplained"), (5, "internal error")]
    assert [f["number"] for f in found["not made"]] == [1, 2]
    kept = {f"{number}.{suffix}" for number in (3, 4, 5) for suffix in ("onnx", "npz")}
    assert {path.name for path in (tmp_path / "found").iterdir()} == {*kept, "s-5-refused"}
    reduced = onnx.load(tmp_path / "found" / "s-5-refused" / "model.onnx")
    assert [len(node.attribute) for node in reduced.graph.node] == [1]
    assert "python -m benchmarks.nnsmith --seed s --only 4" in capsys.readouterr().out


@pytest.mark.usefixtures("_stand_in")
def test_one_model_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert nnsmith.main(["--seed", "s", "--only", "3"]) == 0
    assert "1 models of seed s" in capsys.readouterr().out


def test_every_outcome_has_a_class() -> None:
    statuses = [status for kinds in nnsmith.CLASSES.values() for status in kinds]
    assert sorted(statuses) == sorted((PASS, UNSUPPORTED, NO_ORACLE, UNSTABLE, *FAILURES))


def test_without_an_index_of_packages_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nnsmith_environment, "REQUIREMENTS", (str(tmp_path / "no-such-package.whl"),))
    words = ["--models", "1", "--environment", str(tmp_path / "environment")]
    assert nnsmith.main([*words, "--may-skip"]) == 0
    assert "skipped:" in capsys.readouterr().out
    assert not (tmp_path / "environment").exists()
    with pytest.raises(nnsmith.ResourceLimit, match="cannot be made"):
        nnsmith.main(words)
