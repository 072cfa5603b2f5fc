"""The environment variables: parsing, defaults, and the documentation held against the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from parax import env
from parax.errors import UsageError

ROOT = Path(__file__).parent.parent


def test_unset_and_empty_give_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARAX_DEBUG", raising=False)
    assert env.read("PARAX_DEBUG") == 0
    monkeypatch.setenv("PARAX_DEBUG", "")
    assert env.read("PARAX_DEBUG") == 0


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("PARAX_VERIFY", "1", True),
        ("PARAX_VERIFY", "off", False),
        ("PARAX_DEBUG", "5", 5),
        ("PARAX_CORES", "0-2,7", (0, 1, 2, 7)),
        ("PARAX_CORES", "3,3", (3,)),
        ("PARAX_DUMP", "out", Path("out")),
    ],
)
def test_parses(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object) -> None:
    monkeypatch.setenv(name, text)
    assert env.read(name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [("PARAX_VERIFY", "maybe"), ("PARAX_DEBUG", "6"), ("PARAX_DEBUG", "-1"), ("PARAX_CORES", "3-1"),
     ("PARAX_CORES", "a"), ("PARAX_CORES", "0-99999999999")],
)  # fmt: skip
def test_a_wrong_text_says_where_and_what_is_expected(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    monkeypatch.setenv(name, text)
    with pytest.raises(UsageError) as caught:
        env.read(name)
    assert name in str(caught.value)
    assert caught.value.exit_code == 2


def test_cache_dir_follows_the_variable_then_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.delenv("PARAX_CACHE_DIR", raising=False)
    assert env.cache_dir() == Path("/somewhere/parax")
    monkeypatch.setenv("PARAX_CACHE_DIR", "/elsewhere")
    assert env.cache_dir() == Path("/elsewhere")


def test_a_misspelt_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARAX_DEBUGG", "1")
    assert "PARAX_DEBUGG" in env.unknown()


def test_documentation_lists_exactly_the_table() -> None:
    text = (ROOT / "docs" / "environment.md").read_text()
    rows = {m[1]: m[0] for m in re.finditer(r"^\| `(PARAX_\w+)` .*$", text, re.M)}
    assert list(rows) == list(env.VARIABLES)
    for name, row in rows.items():
        variable = env.VARIABLES[name]
        default = "unset" if variable.default is None else f"`{variable.default}`"
        assert row == f"| `{name}` | {variable.kind} | {default} | {variable.doc} |"
    ladder = dict(re.findall(r"^\| (\d) \| (.*) \|$", text, re.M))
    assert ladder == {str(level): doc for level, doc in env.DEBUG_LADDER.items()}


def test_code_reads_only_variables_of_the_table() -> None:
    used = {
        name
        for room in ("parax", "compiler", "runtime", "benchmarks")
        for path in (ROOT / room).rglob("*.py")
        for name in re.findall(r"\bPARAX_[A-Z_]+\b", path.read_text())
    }
    assert used <= set(env.VARIABLES), used - set(env.VARIABLES)
