"""Models, plans and inputs through pipes, in both directions, in a shell."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import parax

Bash = Callable[..., "subprocess.CompletedProcess[bytes]"]
MODEL = "g (float[N, 4] x) => (float[N, 4] y) { y = Relu (x) }"
RESULT = [[0, 2, 0, 4]]


@pytest.fixture
def bash(tmp_path: Path) -> Bash:
    """Runs a line of bash in a folder with m.onnx, p.bin and x.npy; `parax` and `paraxc` are those under test."""
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {MODEL}'), tmp_path / "m.onnx")
    parax.compile(tmp_path / "m.onnx").save(tmp_path / "p.bin")
    np.save(tmp_path / "x.npy", np.array([[-1, 2, -3, 4]], np.float32))
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(line: str, **streams: int) -> subprocess.CompletedProcess[bytes]:
        python = shlex.quote(sys.executable)
        paraxc = f'{python} -c "import sys; from parax.compiler.cli import paraxc; sys.exit(paraxc())" "$@"'
        start = f'parax() {{ {python} -m parax "$@"; }}; paraxc() {{ {paraxc}; }}\n'
        where = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
        environment = {**os.environ, "TMPDIR": str(scratch)}
        command = ["bash", "-c", f"{start}{line}"]
        done = subprocess.run(command, cwd=tmp_path, timeout=120, check=False, env=environment, **where)
        assert not list(scratch.glob("parax-*"))  # what came through pipes is gone
        return done

    return run


def results(done: subprocess.CompletedProcess[bytes]) -> object:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["outputs"]["y"]["values"]


def test_from_a_model_to_results_without_a_file(bash: Bash) -> None:
    done = bash("cat m.onnx | paraxc - -o - | parax run - --input x=[[-1,2,-3,4]] --format json")
    assert results(done) == RESULT
    assert done.stderr.startswith(b"stdin \xe2\x86\x92 stdout, ")


@pytest.mark.sample(3)
@pytest.mark.parametrize("given", [
    "- < p.bin", "- < m.onnx", "/dev/stdin < p.bin", "<(cat p.bin)", "<(cat m.onnx)", "p.bin", "/dev/fd/3 3< p.bin",
])  # fmt: skip
@pytest.mark.parametrize("x", ["@x.npy", "@/dev/fd/9"])
def test_ways_to_give_a_plan_and_an_input(given: str, x: str, bash: Bash) -> None:
    assert results(bash(f"parax run {given} --input x={x} --format json 9< <(cat x.npy)")) == RESULT


def test_an_input_from_stdin(bash: Bash) -> None:
    assert results(bash("cat x.npy | parax run p.bin --input x=@- --format json")) == RESULT
    done = bash("cat x.npy | parax run - --input x=@-")
    assert done.returncode == 2 and b"stdin: can be read only once" in done.stderr


@pytest.mark.sample(2)
@pytest.mark.parametrize("verb", ["inspect", "plan --measure 0", "verify --n 1", "bench --duration 0.05 --rounds 1"])
def test_other_verbs_read_pipes(verb: str, bash: Bash) -> None:
    done = bash(f"cat m.onnx | parax {verb} - --format json")
    assert done.returncode == 0, done.stderr
    assert b"scratch" not in done.stdout + done.stderr and json.loads(done.stdout)


def test_what_is_wrong_with_a_pipe_is_said_by_its_name(bash: Bash) -> None:
    done = bash("echo '<html>' | parax run -")
    assert done.returncode == 4 and done.stderr.startswith(b"error: stdin: not an ONNX model: this is an HTML page")
    done = bash("parax inspect <(head -c 99 p.bin)")
    assert done.returncode == 4 and done.stderr.startswith(b"error: /dev/fd/")
    done = bash("cat m.onnx | paraxc -")
    assert done.returncode == 2 and b"give -o FILE, or -o - for stdout" in done.stderr
    done = bash("parax run p.bin --input x=@x.npy --output y=@-")
    assert done.returncode == 2 and b"stdout has the results already" in done.stderr


@pytest.mark.parametrize("place", ["-", "/dev/stdout"])
def test_stdout_has_the_plan_and_nothing_else(place: str, bash: Bash, tmp_path: Path) -> None:
    assert bash(f"paraxc m.onnx -o {place} --format json > q.bin").returncode == 0
    assert (tmp_path / "q.bin").read_bytes() == (tmp_path / "p.bin").read_bytes()


@pytest.mark.parametrize("line", ["paraxc - -o - < m.onnx | true", "parax inspect - < p.bin | true"])
def test_a_reader_that_leaves_is_no_error(line: str, bash: Bash) -> None:
    done = bash(f"{line}; echo ${{PIPESTATUS[0]}}")
    assert done.stdout.strip() in (b"0", b"141")
    assert b"error" not in done.stderr and b"Traceback" not in done.stderr


def test_terminals_get_no_plan_and_give_no_model(bash: Bash, tmp_path: Path) -> None:
    outer, terminal = os.openpty()
    try:
        done = bash("paraxc m.onnx -o -", stdout=terminal)
        assert done.returncode == 2 and b"stdout: is a terminal" in done.stderr
        name = os.ttyname(terminal)
        done = bash(f"paraxc m.onnx --emit obj -o {name}")
        assert done.returncode == 2 and f"{name}: is a terminal".encode() in done.stderr
        done = bash("paraxc m.onnx --emit ir -o -", stdout=terminal)
        assert done.returncode == 0 and b"Relu" in os.read(outer, 4096)
        done = bash("parax run -", stdin=terminal)
        assert done.returncode == 2 and b"stdin: is a terminal; redirect a file" in done.stderr
    finally:
        os.close(terminal)
        os.close(outer)
