"""Described machines: what is read, what is refused and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from parax.compiler.targets.machine import load_machine, parse_machine, print_machine, shipped_machines
from parax.errors import UsageError

LEAST = """
name = "box"
cores_per_socket = 4
flops_per_core = 100e9
bandwidth_per_core = 10e9
bandwidth_per_socket = 20_000_000_000
"""


@pytest.mark.parametrize("name", shipped_machines())
def test_shipped_machines_load_and_print_back(name: str) -> None:
    machine = load_machine(name)
    assert machine.simulated
    assert machine.bandwidth_per_core <= machine.bandwidth_per_socket
    assert parse_machine(print_machine(machine)) == machine


def test_the_papers_machine() -> None:
    machine = load_machine("xeon-8280-2s")
    assert machine.n_cores == 56
    assert machine.flops == pytest.approx(2 * 28 * 2.7e9 * 64)
    assert machine.bandwidth_per_socket < 6 * 8 * 2933e6
    assert machine.sockets_of(20, 16) == [(0, 8), (1, 8)]


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(LEAST + "[efficiency]\nconv = 0.5\n")
    machine = load_machine(tmp_path / "box.toml")
    assert (machine.name, machine.n_cores, machine.bandwidth_per_socket) == ("box", 4, 20e9)
    assert machine.share("conv") == 0.5
    assert machine.share("matmul") > 0, "kinds that are not named keep their defaults"
    assert machine.barrier(1) == 0 < machine.barrier(2) < machine.barrier(4)


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        (LEAST.replace("cores_per_socket = 4", ""), "cores_per_socket", "a whole number"),
        (LEAST + "colour = 1", "colour", "cores_per_socket"),
        (LEAST.replace("= 4", '= "four"'), "cores_per_socket", "a whole number"),
        (LEAST.replace("= 4", "= true"), "cores_per_socket", "a whole number"),
        (LEAST.replace("= 4", "= 0"), "cores_per_socket", "at least 1"),
        (LEAST.replace("= 4", "= 1_000_000"), "box.toml", "at most 4096"),
        (LEAST.replace("100e9", "nan"), "flops_per_core", "above 0"),
        (LEAST.replace("100e9", "-1"), "flops_per_core", "above 0"),
        (LEAST + "barrier_seconds = -1", "barrier_seconds", "0 or more"),
        (LEAST + "[efficiency]\nconv = 0", "efficiency.conv", "above 0"),
        (LEAST + "[efficiency]\nconv = 'all'", "efficiency.conv", "a number"),
        (LEAST + "efficiency = 1", "efficiency", "a table"),
        (LEAST + "= 3", "box.toml", "key = value"),
    ],
)
def test_bad_descriptions_say_where_expected_and_found(text: str, where: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_machine(text, "box.toml")
    error = caught.value
    assert error.where is not None
    assert error.where.startswith("box.toml")
    assert where in error.where
    assert expected in str(error.expected)
    assert error.found is not None


def test_unknown_names_list_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="xeon-8280-2s"):
        load_machine("abacus")
    with pytest.raises(UsageError, match="cannot read"):
        load_machine(tmp_path / "none.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="cannot read"):
        load_machine(tmp_path / "bytes.toml")
