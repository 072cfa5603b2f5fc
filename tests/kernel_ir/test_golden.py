"""The main kernels' text is what the files in golden/ say; see golden.py for how they are written anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_ir import golden
from kernel_ir.golden import LAYERS, Layer
from parax.compiler.kernel_ir.loops import print_functions
from parax.compiler.kernel_ir.parser import parse_functions
from parax.compiler.kernel_ir.verifier import verify_function

EACH = [(layer, target) for layer in LAYERS for target in layer.targets]
MOST_LINES = 1500


@pytest.mark.parametrize(("layer", "target"), EACH, ids=[f"{layer.name}.{target}" for layer, target in EACH])
def test_kernels_are_the_golden_ones(layer: Layer, target: str) -> None:
    found = golden.difference(golden.FOLDER / f"{layer.name}.{target}.txt",
                              print_functions(golden.functions_of(layer, target)))  # fmt: skip
    assert not found, f"`python -m kernel_ir.golden --write` in tests/ writes the files anew\n{found}"


def test_each_file_is_a_kernel_that_is_right() -> None:
    files = sorted(golden.FOLDER.glob("*.txt"))
    assert [f.name for f in files] == sorted(f"{layer.name}.{target}.txt" for layer, target in EACH)
    for file in files:
        text = file.read_text()
        assert text.count("\n") <= MOST_LINES
        functions = parse_functions(text)
        assert print_functions(list(functions.values())) == text
        for f in functions.values():
            verify_function(f)


def test_what_differs_is_shown_and_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    layer = next(layer for layer in LAYERS if layer.name == "reduce")
    monkeypatch.setattr(golden, "FOLDER", tmp_path / "golden")
    monkeypatch.setattr(golden, "LAYERS", (layer,))
    assert golden.main(["--write"]) == 0
    assert golden.main([]) == 0
    assert capsys.readouterr().out.endswith("nothing differs\n")
    (file,) = golden.FOLDER.glob("*.txt")
    kept = file.read_text()
    file.write_text(kept.replace("reduce_0", "reduce_1"))
    (golden.FOLDER / "old.txt").write_text("")
    assert golden.main([]) == 1
    printed = capsys.readouterr().out
    assert "-kernel @reduce_1(" in printed
    assert "+kernel @reduce_0(" in printed
    assert "old.txt: no kernel is kept there" in printed
    assert golden.main(["--write"]) == 0
    assert [f.read_text() for f in golden.FOLDER.glob("*.txt")] == [kept]
