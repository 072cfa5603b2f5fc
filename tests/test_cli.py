"""The command line as a process: help, exit codes, streams, signals."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from parax.compiler.commands.console import Console, Table
from parax.compiler.commands.models import BUNDLED
from parax.runtime.manifest import FORMAT

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
Capture = pytest.CaptureFixture[str]


def relu_model(path: Path, op: str = "Relu", domain: str = "") -> Path:
    """A model of one node, f32[N,4] → f32[N,4]."""
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"], "only", domain=domain)],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    )
    opsets = [helper.make_opsetid("", 17)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, path)
    return path


def failed_cleanly(done: subprocess.CompletedProcess[str], code: int) -> None:
    """The expected exit code, one clear message, no traceback, nothing on stdout."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "error: " in done.stderr


@pytest.mark.parametrize("script", ["main", "paraxc"])
def test_help(script: str, cli: Cli) -> None:
    done = cli("--help", script=script)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: parax")


MOST_MODULES = 200
"""Of ours and of others, beyond what a bare interpreter has: what help, which is to be quick, may load."""


def test_help_loads_little(cli: Cli) -> None:
    script = """if True:
        import sys
        bare = set(sys.modules)
        import argparse
        from parax.compiler import cli
        try:
            cli.paraxc(["--help"])
        except SystemExit:
            print(len(set(sys.modules) - bare))
            print(sorted({"numpy", "onnx", "rich", "llvmlite", "networkx"} & set(sys.modules)))"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded, libraries = done.stdout.splitlines()[-2:]
    assert libraries == "[]"
    assert int(loaded) <= MOST_MODULES


def test_version(cli: Cli) -> None:
    import parax

    assert cli("--version").stdout == f"parax {parax.__version__}\n"


@pytest.mark.parametrize("verb", ["compile", "run", "bench", "inspect", "verify", "doctor"])
def test_every_verb_has_help_and_the_common_flags(verb: str, cli: Cli) -> None:
    text = cli(verb, "--help").stdout
    assert "--format" in text
    assert "--verbose" in text
    assert "--quiet" in text


def test_help_speaks_of_flags_not_of_python(cli: Cli) -> None:
    for verb in ("compile", "run", "bench", "plan", "verify"):
        assert "None" not in cli(verb, "--help").stdout


@pytest.mark.parametrize("rich", ["rich", "plain text"])
def test_tables_fit_a_terminal_and_leave_no_blanks_in_a_pipe(
    rich: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    if rich != "rich":
        monkeypatch.setitem(sys.modules, "rich", None)  # as if it were not installed
    rows = [["→", "some words that fold " * 5, "", "94%"], ["", "b", None, 8]]
    table = Table("", ("", "candidate", "never", "of peak"), rows)
    monkeypatch.setattr("parax.compiler.commands.console.WIDTH_OF_A_PIPE", 60)
    Console().result({}, table)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 60 and line == line.rstrip() for line in lines)
    assert lines[0].split() == ["candidate", "of", "peak"]
    assert lines[1].endswith("94%")
    monkeypatch.setattr("parax.compiler.commands.console.WIDTH_OF_A_PIPE", 20)
    Console().result({}, table)
    assert "of peak" in capsys.readouterr().out.splitlines()[0]


def test_tables_look_the_same_without_rich(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    rows = [["×", "[12]", 1.5], ["", "longer than its name", None]]
    tables = [Table("two [of] them", ("", "name", "n"), rows), Table("", ("", ""), [["fact", "figure"]])]
    Console().result({}, *tables)
    rich = capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "rich", None)  # as if it were not installed
    Console().result({}, *tables)
    assert capsys.readouterr().out == rich


@pytest.mark.parametrize(
    "arguments",
    [
        [], ["nonsense"], ["compile"], ["compile", "m.onnx", "-O", "4"], ["compile", "m.onnx", "--dim", "N"],
        ["compile", "m.onnx", "--dim", "N=9..1"], ["compile", "m.onnx", "--shape", "x"],
        ["compile", "m.onnx", "--shape", "x:1x-3"], ["compile", "m.onnx", "--check", "0"],
        ["compile", "m.onnx", "--cores", "3-1"], ["compile", "m.onnx", "--max-memory", "8 apples"],
        ["compile", "m.onnx", "--hint", "fast"], ["compile", "m.onnx", "-v", "-q"],
        ["compile", "absent.onnx"], ["run", "absent.bin"], ["inspect", "absent.onnx"], ["verify", "absent.onnx"],
        ["bench", "absent.onnx"], ["run", "p.bin", "--input", "x"], ["bench", "p.bin", "--duration", "-1"],
        ["compile", "m.onnx", "--target", "z80"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_usage_errors(arguments: list[str], cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    failed_cleanly(cli(*arguments), 2)
    assert not list(tmp_path.glob("*.plan.bin"))


@pytest.mark.parametrize("place", ["no/such/folder/p.bin", "."])
@pytest.mark.parametrize(
    "arguments",
    [
        ["compile", "m.onnx", "-o"], ["compile", "m.onnx", "--emit", "ir", "-o"], ["bench", "m.onnx", "--export-json"],
        ["plan", "m.onnx", "--svg"], ["plan", "m.onnx", "--html"], ["inspect", "m.onnx", "--partition", "--svg"],
        ["run", "m.onnx", "--input", "x=random", "--output"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_unwritable_place_is_refused_at_once(arguments: list[str], place: str, cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    done = cli(*arguments, f"y=@{place}" if arguments[0] == "run" else place)
    failed_cleanly(done, 2)
    assert "make it first" in done.stderr or "is a folder" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_bad_variable_is_named(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAX_DEBUG", "loud")
    done = cli("compile", relu_model(tmp_path / "m.onnx"))
    failed_cleanly(done, 2)
    assert "PARAX_DEBUG" in done.stderr


def test_an_unknown_operator_is_code_3(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", relu_model(tmp_path / "m.onnx", "Nonsense"))
    failed_cleanly(done, 3)
    assert "Nonsense" in done.stderr


@pytest.mark.parametrize("content", [b"", b"not a model at all", bytes(range(256)) * 8])
@pytest.mark.parametrize("verb", ["compile", "inspect", "verify", "bench", "run"])
def test_garbage_is_code_4(verb: str, content: bytes, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    failed_cleanly(cli(verb, "m.onnx"), 4)


@pytest.mark.parametrize("verb", ["run", "inspect", "bench"])
def test_a_damaged_plan_is_code_4(verb: str, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "plan.bin").write_bytes(b"PK\x03\x04" + b"\0" * 100)
    failed_cleanly(cli(verb, "plan.bin"), 4)


def test_verbose_errors_carry_the_traceback(cli: Cli, tmp_path: Path) -> None:
    done = cli("inspect", "absent.onnx", "-v")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_compile_then_run(cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    done = cli("m.onnx", "-o", "plan.bin", script="paraxc")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    x = np.array([[-1, 2, -3, 4]], np.float32)
    np.save(tmp_path / "x.npy", x)
    done = cli("run", "plan.bin", "--input", "x=@x.npy", "--output", "y=@y.npy", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"]["y"]["values"] == [[0, 2, 0, 4]]
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.maximum(x, 0))
    assert cli("run", "plan.bin", "--input", "x=@x.npy", "--expect", "y=@y.npy").returncode == 0
    assert cli("run", "plan.bin", "--input", "x=@x.npy", "--expect", "y=@x.npy").returncode == 5


def test_the_default_name_is_the_models(cli: Cli, tmp_path: Path) -> None:
    assert cli("compile", relu_model(tmp_path / "m.onnx")).returncode == 0
    assert (tmp_path / "m.plan.bin").is_file()


def test_a_dry_run_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", relu_model(tmp_path / "m.onnx"), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize("emit", ["ir", "llvm-ir", "asm", "obj"])
def test_emit_to_stdout(emit: str, tmp_path: Path) -> None:
    command = "import sys; from parax.compiler import cli; sys.exit(cli.paraxc())"
    model = relu_model(tmp_path / "m.onnx")
    done = subprocess.run(
        [sys.executable, "-c", command, str(model), "--emit", emit, "-o", "-"], capture_output=True, check=True
    )
    marks = {"ir": b"Relu", "llvm-ir": b"define", "asm": b".text", "obj": b"\x7fELF"}
    assert marks[emit] in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "z=1"], "z"),
        (["--input", "x=[1, 2]"], "x"),
        (["--input", "x=@absent.npy"], "absent.npy"),
        (["--input", "x=nonsense"], "x"),
        (["--input", "x=random", "--output", "z=@z.npy"], "z"),
        (["--input", "x=random", "--dim", "M=3"], "M"),
    ],
    ids=lambda a: " ".join(a) if isinstance(a, list) else a,
)
def test_wrong_inputs_are_code_2(arguments: list[str], message: str, cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    done = cli("run", "m.onnx", *arguments)
    failed_cleanly(done, 2)
    assert message in done.stderr


def test_check_and_verify_agree_with_another_implementation(cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    assert cli("compile", "m.onnx", "--check", "2", "--dim", "N=1..9").returncode == 0
    done = cli("verify", "m.onnx", "--against", "reference", "--n", "2", "--batch", "3", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    assert len(report["runs"]) == 2


def test_verify_layer_by_layer(cli: Cli) -> None:
    done = cli("verify", BUNDLED / "digits.onnx", "--layerwise", "--n", "1", "--format", "json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] and report["first"] is None
    assert [layer["name"] for layer in report["layers"] if not layer["compared"]] == ["c1", "c2", "flat"]  # fused
    names = [layer["name"] for layer in report["layers"]]
    assert names == ["c1", "r1", "p1", "c2", "r2", "p2", "flat", "scores", "probabilities"]


@pytest.mark.slow
def test_inspect_shows_why_each_kernel_was_chosen(cli: Cli, tmp_path: Path) -> None:
    flags = ["-O", "3", "--tune-seconds", "60", "--cache-dir", "cache"]
    assert cli("compile", str(BUNDLED / "digits.onnx"), "-o", "plan.bin", *flags).returncode == 0
    choices = json.loads(cli("inspect", "plan.bin", "--format", "json").stdout)["provenance"]["choices"]
    assert choices and all(choice["kernel"] in choice["seconds"] for choice in choices)
    shown = cli("inspect", "plan.bin").stdout
    assert "kernels chosen" in shown and "measured" in shown and " µs" in shown


def test_inspect_shows_models_and_plans(cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    found = json.loads(cli("inspect", "m.onnx", "--format", "json").stdout)
    assert found["operators"] == {"Relu": 1}
    assert found["unsupported"] == []
    cli("compile", "m.onnx", "-o", "plan.bin")
    found = json.loads(cli("inspect", "plan.bin", "--format", "json").stdout)
    assert found["digests"] == "right"
    assert [spec["name"] for spec in found["inputs"]] == ["x"]
    assert "x" in cli("inspect", "plan.bin").stdout
    assert cli("inspect", "plan.bin", "--version-only", "--format", "json").stdout.split() == [
        "{",
        '"format":',
        f"{FORMAT}",
        "}",
    ]


@pytest.mark.parametrize(("op", "said"), [
    ("Softmax <axis = 0> (x)", 'not split: N: Softmax "mix": works along the rows'),
    ("Relu (x)", "N: rows are independent"),
    ("Unique <sorted = 1> (x)", 'not split: Unique "mix": runs on the host'),
])  # fmt: skip
def test_inspect_says_what_counts_rows_or_what_is_to_blame(cli: Cli, tmp_path: Path, op: str, said: str) -> None:
    text = f'<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] x) => (float[?, ?] y) {{ [mix] y = {op} }}'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    assert cli("compile", "m.onnx", "-o", "plan.bin").returncode == 0
    assert said in " ".join(cli("inspect", "plan.bin").stdout.split())


def test_inspect_lists_what_is_unsupported(cli: Cli, tmp_path: Path) -> None:
    done = cli("inspect", relu_model(tmp_path / "m.onnx", "Nonsense"), "--format", "json")
    assert done.returncode == 3
    found = json.loads(done.stdout)
    assert not found["compiles"] and found["problem"]["kind"] == "UnsupportedOp"
    assert [(use["operator"], use["version"], use["reason"]) for use in found["unsupported"]] == [("Nonsense", 17, "")]


def test_bench_exports_everything(cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    pytest.importorskip("onnxruntime")
    done = cli(
        "bench", "m.onnx", "--vs", "onnxruntime", "--duration", "0.1", "--rounds", "2", "--export-json", "b.json"
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "b.json").read_text())
    assert {contestant["runtime"] for contestant in found["contestants"]} == {"parax", "onnxruntime"}
    assert all(ratio["middle"] > 0 for ratio in found["ratios"])
    assert "throughput" in done.stdout


@pytest.mark.slow
def test_bench_of_requests_that_are_batched(cli: Cli, tmp_path: Path) -> None:
    relu_model(tmp_path / "m.onnx")
    done = cli("bench", "m.onnx", "--duration", "0.1", "--rounds", "1", "--cores-per-instance", "1", "--batch-window",
               "0.1", "--format", "json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    setups = [contestant["setup"] for contestant in json.loads(done.stdout)["contestants"]]
    assert len(setups) == 3 and setups[2] == f"{setups[1]}, batched" and "callers" in setups[1]
    assert cli("run", "m.onnx", "--input", "x=random", "--batch-window", "1").returncode == 0
    assert cli("run", "m.onnx", "--input", "x=random", "--batch-window", "-1").returncode == 2


def test_the_bundled_model_reads_its_digits(cli: Cli) -> None:
    done = cli("run", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["read"] == found["drawn"]


def test_doctor_reports_and_warns(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAX_DEBUGG", "1")
    found = json.loads(cli("doctor", "--format", "json").stdout)
    assert found["versions"]["parax"]
    assert any("PARAX_DEBUGG" in line for line in found["advice"])


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -c 'import sys; from parax.compiler import cli; sys.exit(cli.main())' doctor | true"
    done = subprocess.run(
        ["bash", "-c", f"{command}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: int, code: int, tmp_path: Path) -> None:
    fifo = tmp_path / "m.bin"  # opening it for reading blocks until somebody writes
    os.mkfifo(fifo)
    script = "import sys; from parax.compiler import cli; sys.exit(cli.main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "inspect", str(fifo)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # a shell's background jobs ignore SIGINT
    )  # fmt: skip
    writer = None
    while writer is None:  # until the command reads: what comes while modules load may go unnoticed
        with contextlib.suppress(OSError):
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        assert process.poll() is None
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=20)
    os.close(writer)
    assert process.returncode == code
    assert errors == ""
