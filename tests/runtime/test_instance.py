"""Instances as the system sees them: pinned threads, shared memory, forks, exits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_plans import add_manifest, fake_plan, object_code
from inside import executor_of
from parax.errors import ResourceLimit, UsageError
from parax.runtime import Plan
from parax.runtime.topology import machine

CORES = machine().default_cores()
X = np.arange(32, dtype=np.float32).reshape(8, 4)


def affinity_of_threads() -> dict[str, str]:
    """Allowed cores by name, of the threads that are not the main one."""
    found = {}
    for thread in threading.enumerate():
        if thread.name.startswith("parax-core") and thread.native_id:
            status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
            found[thread.name] = status.split("Cpus_allowed_list:")[1].split()[0]
    return found


@pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")
@pytest.mark.parametrize("mode", [{"instances": 1, "cores_per_instance": 2}, {"instances": 2}])
def test_threads_are_pinned_and_the_caller_stays_free(add_plan: Callable[..., Plan], mode: dict[str, Any]) -> None:
    before = os.sched_getaffinity(0)
    with add_plan().session(cores=CORES[:2], **mode) as session:
        for _ in range(20):
            session.run({"x": X})
        assert affinity_of_threads() == {f"parax-core{CORES[1]}": str(CORES[1])}
        assert os.sched_getaffinity(0) == before
    assert not affinity_of_threads()


@pytest.mark.skipif(len(CORES) < 2, reason="needs two usable cores")
def test_a_caller_confined_to_another_core_stays_there(add_plan: Callable[..., Plan]) -> None:
    done: list[Any] = []

    def confined() -> None:
        os.sched_setaffinity(0, {CORES[1]})
        done.append((session.run({"x": X})["y"], os.sched_getaffinity(0)))

    with add_plan().session(instances=1, cores=CORES[:2], cores_per_instance=2) as session:
        thread = threading.Thread(target=confined)
        thread.start()
        thread.join()
    assert np.array_equal(done[0][0], X + 1)
    assert done[0][1] == {CORES[1]}


SPIN = """
define i32 @parax_run_0(ptr %io, ptr %weights, ptr %arena, ptr %dims, i64 %tid, i64 %nt, ptr %sync) {
entry:
  %y.p = getelementptr ptr, ptr %io, i64 1
  %y = load ptr, ptr %y.p
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  store volatile i64 %i, ptr %y
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, 300000000
  br i1 %more, label %loop, label %out
out:
  ret i32 0
}
"""


def test_the_gil_is_free_while_kernels_run() -> None:
    plan = fake_plan({**add_manifest(), "batch": None}, {"base": object_code(SPIN)}, bytes(64))
    with plan.session(instances=1) as session:
        future = session.submit({"x": X})
        ticks, start = 0, time.perf_counter()
        while not future.done() and time.perf_counter() - start < 30:
            time.sleep(0.001)
            ticks += 1
        future.result()
        assert ticks > 5


def test_the_arena_grows_and_too_much_is_refused(add_plan: Callable[..., Plan]) -> None:
    with add_plan().session(instances=1) as session:
        for n in (1, 1000, 10, 50_000):
            assert np.array_equal(session.run({"x": np.zeros((n, 4), np.float32)})["y"], np.ones((n, 4), np.float32))
        assert executor_of(session).instances[0].arena_nbytes == 16 * 50_000
    step = {"kind": "native", "segment": 0, "inputs": ["x"], "outputs": ["y"], "arena": ["*", 1 << 44, "N"]}
    with add_plan(steps=[step]).session(instances=1) as session:
        for n in (2, 100):
            with pytest.raises(ResourceLimit):
                session.run({"x": np.zeros((n, 4), np.float32)})
        assert len(executor_of(session).free) == 1


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)


def test_a_session_left_open_does_not_hold_up_the_exit(saved_plan: Path) -> None:
    done = run_script(
        "import numpy as np, parax.runtime as r\n"
        f"s = r.load({str(saved_plan)!r}).session()\n"
        "s.run({'x': np.zeros((4, 4), 'f4')})\n"
        "s.submit({'x': np.zeros((4, 4), 'f4')})\n"
        "print('end')\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_a_fork_makes_the_childs_sessions_refuse(add_plan: Callable[..., Plan]) -> None:
    plan = add_plan()
    with plan.session() as session:
        session.run({"x": X})
        child = os.fork()
        if child == 0:
            code = 1
            try:
                session.run({"x": X})
            except UsageError as error:
                session.close()
                with plan.session() as own:
                    right = np.array_equal(own.run({"x": X})["y"], X + 1)
                code = 0 if right and "before a fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert np.array_equal(session.run({"x": X})["y"], X + 1)


def test_further_sessions_share_the_weights(add_code: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.bin"
    fake_plan(add_manifest(), {"base": add_code}, np.ones(16 << 20, np.float32)).save(path)
    done = run_script(
        "import numpy as np, parax.runtime as r\n"
        "def resident():\n"
        "    return int([l for l in open('/proc/self/status') if l.startswith('VmRSS')][0].split()[1]) << 10\n"
        f"plan = r.load({str(path)!r})\n"
        "x = np.zeros((4, 4), 'f4')\n"
        "sessions = [plan.session(instances=1)]\n"
        "sessions[0].run({'x': x})\n"
        "before = resident()\n"
        "for _ in range(4):\n"
        "    sessions.append(plan.session(instances=1)); sessions[-1].run({'x': x})\n"
        "print((resident() - before) / 4)\n"
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.05 * (64 << 20)


def test_many_sessions_come_and_go(add_plan: Callable[..., Plan]) -> None:
    plan = add_plan()
    n_files = len(os.listdir("/proc/self/fd"))
    for _ in range(30):
        with plan.session() as session:
            session.run({"x": X})
    assert len(os.listdir("/proc/self/fd")) == n_files
    assert not affinity_of_threads()
