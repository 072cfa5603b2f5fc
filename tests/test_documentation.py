"""The documentation against the project: links, exit codes, verbs, the examples of CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from parax import errors
from parax.compiler import cli
from parax.compiler.commands import reference

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}, target


def test_exit_codes_are_the_errors_own() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| ", (ROOT / "docs" / "commands.md").read_text(), re.M)
    documented = {int(code) for row in rows for code in row.split(",")}
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ParaxError)]
    used = {kind.exit_code for kind in kinds} | {
        cli.INTERRUPTED,
        cli.TERMINATED,
        0,
    }
    assert documented == used


def test_every_verb_is_documented() -> None:
    text = (ROOT / "docs" / "commands.md").read_text()
    assert all(f"parax {verb.NAME}" in text for verb in cli.VERBS)


def test_the_page_of_options_is_the_programs() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    assert text == reference.page(cli.parax_parser()), "write it anew: parax man --markdown > docs/cli.md"


def test_every_page_is_in_the_sites_navigation() -> None:
    listed = re.findall(r"(?m)^ +- (?:[\w ]+: )?([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text())
    assert sorted(listed) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def code_of(heading: str) -> str:
    """The first Python block below a heading of CONTRIBUTING.md."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split(f"## {heading}\n")[1]
    return section.split("```python\n")[1].split("```")[0]


def test_the_example_pass_does_what_it_says() -> None:
    from parax.compiler.ir.ops.arithmetic import Neg
    from parax.compiler.ir.ops.base import CATALOGUE
    from parax.compiler.ir.text import parse_graph, print_graph
    from parax.compiler.passes import base
    from parax.compiler.passes.rewrite import Rewriter

    names: dict[str, Any] = {**vars(base), "Rewriter": Rewriter, "Neg": Neg}
    exec(code_of("Add a pass"), names)
    before = "graph @g(%x: f32[N]) {\n  %1 = Neg(%x)\n  %2 = Neg(%1)\n  %3 = Relu(%2)\n  return %3\n}"
    graph = parse_graph(before)
    example = names["DoubleNegation"]()
    assert example.run(graph, Rewriter(graph))
    assert "%3 = Relu(%x)" in print_graph(graph)
    assert not example.run(graph, Rewriter(graph))
    assert ("", "Neg") in CATALOGUE


def test_the_example_operator_is_the_catalogues() -> None:
    from parax.compiler.ir.ops.base import lookup

    text = code_of("Add an operator")
    since = int(re.search(r"since=(\d+)", text)[1])  # type: ignore[index]
    operator = lookup("", "HardSigmoid")
    assert operator is not None
    assert operator.since == since
    defaults = {name: float(value) for name, value in re.findall(r"(\w+): Attr\[float\] = ([\d.]+)", text)}
    assert operator().attributes() == pytest.approx(defaults)
