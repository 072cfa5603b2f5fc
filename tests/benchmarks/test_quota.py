"""CPU control groups for a benchmark's processes: where they are made, that they hold, that they go away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import quota as quota_module
from benchmarks.quota import Group, cpu_quota, parent_group, quota
from parax.errors import UsageError

V1 = "4:memory:/box\n2:cpu,cpuacct:/box\n0::/box"
QUOTA = "from parax.runtime.topology import machine; print(machine().quota)"


def tree(root: Path, cgroup: str, *files: str) -> Path:
    """A made-up root with that /proc/self/cgroup and those files below /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": cgroup, **{f"sys/fs/cgroup/{file}": "" for file in files}}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root / "sys/fs/cgroup"


@pytest.mark.parametrize(("cgroup", "files", "group", "version"), [
    (V1, ["cpu,cpuacct/box/cpu.cfs_quota_us", "box/cgroup.controllers"], "cpu,cpuacct/box", 1),
    ("2:cpu:/of/the/host\n0::/", ["cpu/cpu.cfs_quota_us", "cgroup.controllers"], "cpu", 1),
    ("0::/a.slice/b.scope", ["a.slice/b.scope/cgroup.controllers", "cgroup.controllers"], "a.slice/b.scope", 2),
    ("0::/of/the/host", ["cgroup.controllers"], "", 2),
])  # fmt: skip
def test_the_groups_parent(tmp_path: Path, cgroup: str, files: list[str], group: str, version: int) -> None:
    assert (base := tree(tmp_path, cgroup, *files)) and parent_group(tmp_path) == (base / group, version)


@pytest.mark.parametrize("cgroup", ["", "0::/", "4:memory:/box\n3:cpuset:/box"])
def test_a_machine_without_groups_is_told_what_to_do(tmp_path: Path, cgroup: str) -> None:
    tree(tmp_path, cgroup, "memory/x")
    with pytest.raises(UsageError, match=r"--quota: no CPU control group can be made here.*Delegate"), \
         cpu_quota(1.5, tmp_path):  # fmt: skip
        pytest.fail("there is none")


def test_a_group_that_takes_no_limit_is_told_and_removed(tmp_path: Path) -> None:
    base = tree(tmp_path, "0::/", "cgroup.controllers")
    (base / "cgroup.subtree_control").mkdir()  # cannot be written, as in a group with processes of its own
    with pytest.raises(UsageError, match="--quota"), cpu_quota(1.5, tmp_path):
        pytest.fail("there is none")
    assert not list(base.glob("parax-*"))


def test_no_quota_is_no_group(tmp_path: Path) -> None:
    with cpu_quota(None, tmp_path) as group:
        assert group.before == [] and group.throttled() == 0.0


def test_the_share_of_throttled_periods(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 17\nnr_periods 8\nnr_throttled 2\nthrottled_usec 5")
    assert Group(tmp_path, []).throttled() == 0.25
    (tmp_path / "cpu.stat").write_text("nr_periods 0\nnr_throttled 0")
    assert Group(tmp_path, []).throttled() == 0.0


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", "0.001"])
def test_what_is_no_quota(text: str) -> None:
    with pytest.raises(Exception, match="is no number of cores"):
        quota(text)
    assert quota("1.5") == 1.5


@pytest.fixture
def ours() -> Iterator[Path]:
    """The group below which this process may make others; checks that nothing is left there."""
    try:
        parent, _ = parent_group(Path("/"))
        with cpu_quota(1.0):
            pass
    except UsageError as error:
        pytest.skip(str(error))
    pattern = f"parax-bench-{os.getpid()}-*"
    yield parent
    assert not list(parent.glob(pattern))


def test_a_process_is_in_the_group_before_its_program_begins(ours: Path) -> None:
    with cpu_quota(1.5) as group:
        done = subprocess.run([*group.before, sys.executable, "-c", QUOTA], capture_output=True, text=True, check=True)
    assert float(done.stdout) == 1.5


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_group_goes_away_after_errors_too(ours: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), cpu_quota(0.5) as group:
        child = subprocess.Popen([*group.before, sys.executable, "-c", "while True: pass"])
        try:
            raise error
        finally:
            child.kill()
            child.wait()


def test_the_group_goes_away_when_the_command_is_told_to_end(ours: Path) -> None:
    code = """
import time
from benchmarks import command, quota
def main():
    with quota.cpu_quota(1.0) as group:
        print(group.before[-1], flush=True)
        time.sleep(60)
command.finish(main)"""
    root = Path(quota_module.__file__).parents[1]
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=root) as child:
        assert child.stdout is not None
        group = Path(child.stdout.readline().strip()).parent
        assert group.is_dir() and group.parent == ours
        child.terminate()
        assert child.wait(60) == 143
    assert not group.exists()
