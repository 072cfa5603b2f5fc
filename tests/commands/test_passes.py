"""`parax passes`, `--passes` and `--print-after`: what is listed is taken, what is asked for runs and is shown."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import parax
from commanding import run_here
from parax import CompileOptions
from parax.compiler import driver
from parax.compiler.passes.base import StepPass
from parax.compiler.passes.pipelines import known_passes
from parax.compiler.samples import random_inputs
from parax.errors import UsageError
from sampling import thorough

hypothesis = pytest.importorskip("hypothesis")
st = hypothesis.strategies


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, what can be fused and folded around it, a concatenation, and an output that is an input."""
    path = tmp_path_factory.mktemp("models") / "m.onnx"
    rng = np.random.default_rng(3)
    shapes = {"w": (8, 4, 3, 3), "d": (8, 1, 3, 3), "p": (4, 8, 1, 1)}
    constants = {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"half": np.array(0.5)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Identity", ["b"], ["b2"]), helper.make_node("Mul", ["b2", "half"], ["c"]),
        helper.make_node("Conv", ["c", "d"], ["e"], pads=[1] * 4, group=8), helper.make_node("Conv", ["e", "p"], ["f"]),
        helper.make_node("Relu", ["f"], ["g"]), helper.make_node("Concat", ["g", "x"], ["y"], axis=1),
        helper.make_node("Flatten", ["y"], ["z"]), helper.make_node("Softmax", ["z"], ["s"]),
    ]  # fmt: skip
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "s")]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 16, 16])
    weights = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()]
    graph = helper.make_graph(nodes, "m", [x], [*values, x], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    made.ir_version = 8
    path.write_bytes(made.SerializeToString())
    return path


def results(plan: parax.Plan) -> list[np.ndarray]:
    inputs = random_inputs(plan.inputs, {"N": 2}, np.random.default_rng(1), {})
    with plan.session(instances=1) as session:
        return list(session.run(inputs).values())


def test_the_list_names_every_pass_with_its_options() -> None:
    found = json.loads(run_here("main", ["passes", "--format", "json"]).stdout)["passes"]
    assert [entry["name"] for entry in found] == list(known_passes())
    fuse = next(entry for entry in found if entry["name"] == "fuse-elementwise")
    assert fuse["options"] == {"max_nodes": 64, "max_operands": 24} and fuse["looks_at"] == "block"
    assert "before:" in run_here("main", ["passes", "fold-pad"]).stdout
    wrong = run_here("main", ["passes", "fold-pat"])
    assert wrong.returncode == 2 and "did you mean fold-pad" in wrong.stderr


def test_the_passes_of_a_level_can_be_given_back_and_make_the_same_plan(model: Path, tmp_path: Path) -> None:
    text = run_here("main", ["passes", "-O", "2"]).stdout.strip()
    for name, words in (("level", []), ("text", ["--passes", text])):
        done = run_here("paraxc", [str(model), "-o", str(tmp_path / name), "--emit", "llvm-ir", *words])
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "level").read_bytes() == (tmp_path / "text").read_bytes()


def test_only_what_is_named_runs_and_the_plan_says_so(model: Path) -> None:
    plain = parax.compile(model, options=CompileOptions(passes="assign-layouts,fuse-elementwise{max_nodes=2}"))
    steps = "steps(separate-outputs,write-in-place,read-in-place,overwrite-inputs)"
    assert plain.manifest.provenance["passes"] == f"assign-layouts,fuse-elementwise{{max_nodes=2}},{steps}"
    assert "Identity" in plain.graph and "DepthwisePointwise" not in plain.graph
    usual = parax.compile(model)
    assert "Identity" not in usual.graph and "passes" not in usual.manifest.provenance
    for ours, theirs in zip(results(plain), results(usual), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_graphs_are_printed_after_the_passes_that_were_asked_for(model: Path, tmp_path: Path) -> None:
    words = [str(model), "-o", str(tmp_path / "p"), "-q", "--print-after", "fuse-elementwise",
             "--print-after", "fold-pad"]  # fmt: skip
    printed = run_here("paraxc", words).stderr
    heads = re.findall(r"(?m)^after \d+ (\S+?):(.*)", printed)
    assert heads[-1] == ("fuse-elementwise", "") and set(heads[:-1]) == {("fold-pad", " nothing changed")}
    assert printed.count("graph @m(") == 1 and "fused<Conv>" in printed
    everything = run_here("paraxc", [*words[:4], "--print-after", "all", "--dump", str(tmp_path / "dump")]).stderr
    texts = re.split(r"(?m)^after (\d+ \S+):\n", everything)[1:]
    dumped = {file.stem: file.read_text() for file in (tmp_path / "dump").glob("*.txt") if file.name[:2] != "00"}
    assert {head.replace(" ", "-", 1): text.rstrip() for head, text in zip(texts[::2], texts[1::2])} == {
        name: text.rstrip() for name, text in dumped.items()}  # fmt: skip
    assert {"fuse-elementwise", "separate-outputs"} <= {head.split()[1] for head in texts[::2]}


@pytest.mark.parametrize(("words", "message"), [
    (["--passes", "fuse-element"], "passes: no such pass; expected one of .*; did you mean fuse-elementwise?"),
    (["--print-after", "fuse-element"], "no such pass that runs; .*; did you mean fuse-elementwise?"),
    (["--print-after", "fold-pad", "--passes", "dead-code"], "no such pass that runs; expected one of all, dead-code"),
    (["--passes", "dead-code,steps(write-in-place)"], "output x: an output that has no bytes of its own; "
                                                      "begin the passes of native steps with separate-outputs"),
])  # fmt: skip
def test_what_cannot_run_is_refused(model: Path, tmp_path: Path, words: list[str], message: str) -> None:
    done = run_here("paraxc", [str(model), "-o", str(tmp_path / "p"), *words])
    assert done.returncode == 2 and re.search(message, done.stderr) and not (tmp_path / "p").exists(), done.stderr


def test_a_wrong_text_is_refused_before_the_model_is_read() -> None:
    with pytest.raises(UsageError, match="no such pass"):
        driver.compile_model("there is no such file.onnx", CompileOptions(passes="x"))


OF_STEPS = [name for name, kind in known_passes().items() if issubclass(kind, StepPass)]
ROUNDS = "round-products"  # the one whose results are others on purpose
OF_GRAPHS = [name for name in known_passes() if name not in (*OF_STEPS, ROUNDS)]


@thorough(30, derandomize=True)
@hypothesis.given(st.lists(st.sampled_from(OF_GRAPHS), min_size=1, max_size=10), st.permutations(OF_STEPS))
def test_any_passes_in_any_order_keep_the_results(model: Path, names: list[str], steps: list[str]) -> None:
    usual = results(parax.compile(model, options=CompileOptions(opt_level=0)))
    text = f"{','.join(names)},steps({','.join(steps)})"
    plan = parax.compile(model, options=CompileOptions(passes=text))
    for ours, theirs in zip(results(plan), usual, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
