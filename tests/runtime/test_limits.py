"""Memory and time of a request: what is counted, what the machine leaves, and that everything large asks first."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import parax
from parax.runtime.host_ops import HOST_OPS
from parax.runtime.limits import Allowance, Limits, available_nbytes, physical_nbytes, within

GIB = 1 << 30


def plan_of(text: str, **options: object) -> parax.Plan:
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    return parax.compile(made, options=parax.CompileOptions(**options))  # type: ignore[arg-type]


def test_what_is_held_counts() -> None:
    allowance = Allowance(Limits(nbytes=1000), base=300, held=lambda: 400)
    allowance.afford(300, "a")
    with pytest.raises(parax.ResourceLimit, match="beside 700"):
        allowance.afford(301, "b")


def test_without_a_limit_the_machine_decides() -> None:
    allowance = Allowance(Limits())
    allowance.afford(1 << 20, "little")
    with pytest.raises(parax.ResourceLimit):
        allowance.afford(1 << 50, "much")


def _machine(root: Path, limit: str = "max", used: int = 0, cache: int = 0) -> Path:
    group = root / "sys/fs/cgroup/a/b"
    group.mkdir(parents=True)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n")
    (root / "proc/self/cgroup").write_text("0::/a/b\n")
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\n")
    return root


def test_the_machine_and_its_control_groups(tmp_path: Path) -> None:
    free = _machine(tmp_path / "free")
    assert (physical_nbytes(free), available_nbytes(free)) == (8 * GIB, 4 * GIB)
    group = _machine(tmp_path / "group", str(3 * GIB), 2 * GIB, GIB // 2)
    assert (physical_nbytes(group), available_nbytes(group)) == (3 * GIB, 3 * GIB // 2)
    assert available_nbytes(_machine(tmp_path / "full", str(GIB), 2 * GIB)) == 0


X = np.ones((2, 3), np.float32)
LARGE = {
    "Expand": ({}, [X, np.array([1 << 30, 2, 3])]),
    "Tile": ({}, [X, np.array([1 << 20, 1 << 12])]),
    "Pad": ({}, [X, np.array([0, 0, 1 << 40, 0])]),
    "Range": ({}, [np.array(0), np.array(1 << 40), np.array(1)]),
    "OneHot": ({}, [np.zeros(1 << 10, np.int64), np.array(1 << 40), np.array([0, 1])]),
    "Resize": ({"mode": "nearest"}, [X, None, None, np.array([1 << 24, 1 << 20])]),
    "MaxUnpool": ({"kernel_shape": [1 << 20, 1 << 20]}, [X[None, None], np.zeros((1, 1, 2, 3), np.int64), np.ones(4)]),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.parametrize("limit", [None, GIB])
def test_host_operators_ask_before_they_allocate(kind: str, limit: int | None) -> None:
    import json

    settings, inputs = LARGE[kind]
    step = HOST_OPS["parax", "AtRuntime"]({"kind": kind, "settings": json.dumps(settings)})
    with within(Allowance(Limits(nbytes=limit))), pytest.raises(parax.ResourceLimit, match=kind):
        step(inputs)


def test_a_copy_of_a_huge_view_is_refused() -> None:
    x = np.lib.stride_tricks.as_strided(np.zeros(32, np.float32), (2**33, 32), (0, 4))
    with plan_of("g (float[N,32] x) => (float[N,32] y) { y = Relu(x) }").session(instances=1) as session:
        with pytest.raises(parax.ResourceLimit):
            session.run({"x": x})
        assert session.run({"x": np.ones((2, 32), np.float32)})["y"].sum() == 64


def test_the_plans_limit_and_the_sessions() -> None:
    plan = plan_of("g (float[N,32] x) => (float[N,32] y) { a = Softmax(x)  y = MatMul(a, a) }", max_memory=1 << 20,
                   dims={"N": 32})  # fmt: skip
    assert plan.manifest.max_memory == 1 << 20
    plan = plan_of("g (float[N,32] x) => (float[N,32] y) { y = Softmax(x) }", max_memory=1 << 20)
    x = np.ones((1 << 15, 32), np.float32)
    with plan.session(instances=1) as session, pytest.raises(parax.ResourceLimit, match="1048576"):
        session.run({"x": x})
    with plan.session(instances=1, max_memory=1 << 26) as session:
        assert session.run({"x": x})["y"].shape == x.shape
    seconds = [{"max_seconds": wrong} for wrong in (-1, 0, True, 10**400, 10**5000)]
    for wrong in ({"max_memory": 0}, {"max_memory": "8GiB"}, *seconds):
        with pytest.raises(parax.UsageError):
            plan.session(**wrong)


ENDLESS = """g (float[1] x, int64[1] n) => (float[K,M] y) {
    y = Loop(, , ) <body = b (int64 i, bool go) => (bool again, float[M] o) {
        z = Constant<value_float = 0.0>()  c = Greater(x, z)  again = Squeeze(c)  o = Expand(x, n) }> }"""


@pytest.fixture(scope="module")
def endless() -> parax.Plan:
    """A loop whose condition only the data decide."""
    return plan_of(ENDLESS)


def test_loops_end_with_their_time(endless: parax.Plan) -> None:
    with endless.session(instances=1, max_seconds=0.5) as session:
        assert session.run({"x": np.zeros(1, np.float32), "n": np.array([2])})["y"].shape == (1, 2)
        began = time.monotonic()
        with pytest.raises(parax.ResourceLimit, match="time is over"):
            session.run({"x": np.ones(1, np.float32), "n": np.array([2])})
        assert time.monotonic() - began < 30


def test_scan_outputs_end_with_their_memory(endless: parax.Plan) -> None:
    with endless.session(instances=1, max_memory=1 << 26, max_seconds=100) as session:
        with pytest.raises(parax.ResourceLimit, match="memory"):
            session.run({"x": np.ones(1, np.float32), "n": np.array([1 << 20])})
        assert session.run({"x": np.zeros(1, np.float32), "n": np.array([2])})["y"].shape == (1, 2)
