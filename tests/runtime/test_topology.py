"""The topology reader against made-up /sys, /proc and cgroup trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from parax.errors import UsageError
from parax.runtime.topology import choose_cores, machine, read_topology


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def core_files(number: int, siblings: str, package: int = 0) -> dict[str, str]:
    folder = f"sys/devices/system/cpu/cpu{number}/topology"
    return {f"{folder}/thread_siblings_list": siblings, f"{folder}/physical_package_id": str(package)}


@pytest.fixture
def two_nodes(tmp_path: Path) -> Path:
    """Two nodes of two physical cores with two hyper-threads each: 0-3 and their siblings 4-7."""
    for core in range(8):
        write(tmp_path, core_files(core, f"{core % 4},{core % 4 + 4}", package=core % 4 // 2))
    write(
        tmp_path,
        {f"sys/devices/system/node/node{n}/cpulist": f"{2 * n}-{2 * n + 1},{2 * n + 4}-{2 * n + 5}" for n in (0, 1)},
    )
    cache = "sys/devices/system/cpu/cpu0/cache/index"
    for i, (kind, level, size) in enumerate((("Data", 1, "32K"), ("Instruction", 1, "32K"), ("Unified", 2, "1M"))):
        write(tmp_path, {f"{cache}{i}/type": kind, f"{cache}{i}/level": str(level), f"{cache}{i}/size": size})
        write(tmp_path, {f"{cache}{i}/shared_cpu_list": "0,4"})
    return tmp_path


def test_physical_cores_come_first_node_by_node(two_nodes: Path) -> None:
    topology = read_topology(two_nodes, set(range(8)))
    assert [c.number for c in topology.cores] == [0, 1, 2, 3, 4, 5, 6, 7]
    assert [c.node for c in topology.cores] == [0, 0, 1, 1, 0, 0, 1, 1]
    assert topology.default_cores() == (0, 1, 2, 3)


def test_affinity_leaves_a_sibling_as_the_first_of_its_core(two_nodes: Path) -> None:
    topology = read_topology(two_nodes, {1, 4, 5, 7})
    assert topology.default_cores() == (1, 4, 7)


def test_caches(two_nodes: Path) -> None:
    caches = read_topology(two_nodes, {0}).caches
    assert [(c.level, c.nbytes, c.shared_by) for c in caches] == [(1, 32768, (0, 4)), (2, 1 << 20, (0, 4))]


@pytest.mark.parametrize(
    ("files", "quota", "n_cores"),
    [
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "150000 100000"}, 1.5, 2),
        ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "149000 100000"}, 1.49, 1),
        ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/cpu.max": "max 100000"}, None, 4),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "300000 100000"}, 3.0, 3),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "10000 100000"}, 0.1, 1),
        (
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/docker/1\n0::/",
                "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us": "200000",
                "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us": "100000",
            },
            2.0,
            2,
        ),
        ({"proc/self/cgroup": "1:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1"}, None, 4),
        ({"proc/self/cgroup": "garbage", "sys/fs/cgroup/cpu.max": "garbage too"}, None, 4),
        ({}, None, 4),
    ],
)
def test_quota(two_nodes: Path, files: dict[str, str], quota: float | None, n_cores: int) -> None:
    write(two_nodes, files)
    topology = read_topology(two_nodes, set(range(8)))
    assert topology.quota == quota
    assert len(topology.default_cores()) == n_cores


def test_nothing_to_read_still_gives_cores(tmp_path: Path) -> None:
    topology = read_topology(tmp_path, {2, 3})
    assert topology.default_cores() == (2, 3)
    assert topology.caches == ()


def test_choose_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    first = machine().cores[0].number
    assert choose_cores([first, first]) == (first,)
    assert choose_cores(str(first)) == (first,)
    monkeypatch.setenv("PARAX_CORES", str(first))
    assert choose_cores(None) == (first,)
    monkeypatch.delenv("PARAX_CORES")
    assert choose_cores(None) == machine().default_cores()
    for wrong in ([9999], [], "x", "3-1"):
        with pytest.raises(UsageError):
            choose_cores(wrong)
