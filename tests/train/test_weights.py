"""Weights by name: from and to safetensors and PyTorch's state dicts, and every way in which a file does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from safetensors.numpy import load_file, save_file

import parax
from parax.compiler.trainer import Trainer
from parax.runtime.train.weights import read_weights, write_weights
from train.small_models import CLASSES, HIDDEN, WIDTH, classifier

SHAPES = {"w1": (WIDTH, HIDDEN), "b1": (HIDDEN,), "w2": (CLASSES, HIDDEN), "b2": (CLASSES,)}


def drawn(seed: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def scores(arrays: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    hidden = np.maximum(x.astype(np.float64) @ arrays["w1"] + arrays["b1"], 0)
    raised = np.exp(hidden @ arrays["w2"].T + arrays["b2"])
    return raised / raised.sum(1, keepdims=True)


def exported(trainer: Trainer, path: Path, x: np.ndarray) -> np.ndarray:
    trainer.export(path)
    (y,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    return y


@pytest.mark.parametrize("at_first", [True, False])
@pytest.mark.parametrize("frozen", [(), ("w1",)])
def test_weights_of_a_file_are_those_of_the_model(tmp_path: Path, at_first: bool, frozen: tuple[str, ...]) -> None:
    arrays, x = drawn(), np.random.default_rng(0).standard_normal((5, WIDTH)).astype(np.float32)
    if frozen and not at_first:  # a file may name constants of the compiled code again
        (first,) = (t for t in classifier().graph.initializer if t.name == "w1")
        arrays["w1"] = onnx.numpy_helper.to_array(first)
    save_file(arrays, tmp_path / "w.safetensors")
    with Trainer(classifier(), frozen=frozen, weights=tmp_path / "w.safetensors" if at_first else None) as own:
        if not at_first:
            assert own.load(tmp_path / "w.safetensors") == ((), ())
        np.testing.assert_allclose(exported(own, tmp_path / "m.onnx", x), scores(arrays, x), rtol=1e-5, atol=1e-6)
        own.save(tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert set(again) == set(SHAPES)
    for name, array in arrays.items():
        np.testing.assert_array_equal(again[name], array)


def test_training_goes_on_from_them(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((32, WIDTH)).astype(np.float32)
    batch = {"x": x, "labels": x[:, :CLASSES].argmax(1)}
    with Trainer(classifier(), batch=32, shards=2) as first, Trainer(classifier(), batch=32, shards=2) as second:
        first.step(batch)
        first.save(tmp_path / "w.safetensors")
        second.load(tmp_path / "w.safetensors")
        assert first.step(batch) == second.step(batch)


def test_a_moving_average_begins_anew_at_them(tmp_path: Path) -> None:
    arrays, x = drawn(), np.random.default_rng(0).standard_normal((5, WIDTH)).astype(np.float32)
    save_file(arrays, tmp_path / "w.safetensors")
    with Trainer(classifier(), ema=0.9) as own:
        own.load(tmp_path / "w.safetensors")
        own.export(tmp_path / "m.onnx", average=True)
    (y,) = onnxruntime.InferenceSession(tmp_path / "m.onnx").run(None, {"x": x})
    np.testing.assert_allclose(y, scores(arrays, x), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_is_a_file_of_weights(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((32, WIDTH)).astype(np.float32)
    with Trainer(classifier(), optimizer=parax.Adam(), batch=32) as own:
        own.fit({"x": x, "labels": x[:, :CLASSES].argmax(1)}, checkpoints=tmp_path)
        with Trainer(classifier(), weights=tmp_path / "best.safetensors") as other:
            for name, array in own.parameters.items():
                np.testing.assert_array_equal(other.parameters[name], array)


@pytest.mark.parametrize("at_first", [True, False])
def test_what_does_not_fit_is_said(tmp_path: Path, at_first: bool) -> None:
    path = tmp_path / "w.safetensors"
    own = Trainer(classifier(), frozen=["b1"])

    def load() -> None:
        if at_first:
            Trainer(classifier(), weights=path)
        else:
            own.load(path)

    with own:
        before = own.parameters
        arrays = {**drawn(), "b1": np.asarray(dict(_initial())["b1"])}
        for change, message in (
            ({"w2": None}, r"missing; expected w2"),
            ({"w3": np.zeros(2, np.float32)}, r"does not have; found w3"),
            ({"w1": np.zeros((HIDDEN, WIDTH), np.float32)}, r"'w1'.*another shape; expected \[6, 8\]; found \[8, 6\]"),
        ):
            given = {name: array for name, array in {**arrays, **change}.items() if array is not None}
            save_file(given, path)
            with pytest.raises(parax.InvalidInput, match=message):
                load()
        save_file({"w9": np.zeros(2, np.float32)}, path)
        with pytest.raises(parax.InvalidInput, match=r"w9|missing"):
            load()
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(parax.InvalidData, match="damaged"):
            load()
        path.unlink()
        with pytest.raises(parax.UsageError, match="no such file"):
            load()
        for name, array in before.items():
            np.testing.assert_array_equal(own.parameters[name], array)


def _initial() -> list[tuple[str, np.ndarray]]:
    return [(t.name, onnx.numpy_helper.to_array(t)) for t in classifier().graph.initializer]


def test_not_strict_takes_what_there_is(tmp_path: Path) -> None:
    arrays = {"w1": drawn()["w1"], "other": np.zeros(3, np.float32)}
    save_file(arrays, tmp_path / "w.safetensors")
    with Trainer(classifier()) as own:
        before = own.parameters
        assert own.load(tmp_path / "w.safetensors", strict=False) == (("b1", "b2", "w2"), ("other",))
        np.testing.assert_array_equal(own.parameters["w1"], arrays["w1"])
        np.testing.assert_array_equal(own.parameters["w2"], before["w2"])


def test_a_frozen_weight_of_another_value_is_refused(tmp_path: Path) -> None:
    save_file(drawn(), tmp_path / "w.safetensors")
    with Trainer(classifier(), frozen=["w1"]) as own, pytest.raises(parax.InvalidInput, match=r"'w1'.*not trained"):
        own.load(tmp_path / "w.safetensors")


def test_element_types(tmp_path: Path) -> None:
    x = np.array([[0.5, -3.0, 1e-3], [np.inf, np.nan, 2.0]])
    save_file({"half": x.astype(np.float16), "double": x, "count": np.arange(3)}, tmp_path / "w.safetensors")
    found = read_weights(tmp_path / "w.safetensors")
    assert set(found) == {"half", "double"} and all(array.dtype == np.float32 for array in found.values())
    np.testing.assert_array_equal(found["half"], x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(found["double"], x.astype(np.float32))


def test_bf16_and_state_dicts(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra: pip install 'parax[torch]'")
    tensors = {"a": torch.randn(2, 3), "b": torch.randn(4).to(torch.bfloat16), "n": torch.tensor(3)}
    from safetensors.torch import save_file as save_torch

    save_torch(tensors, tmp_path / "w.safetensors")
    torch.save(tensors, tmp_path / "w.pt")
    torch.save({"epoch": 3, "state_dict": tensors}, tmp_path / "more.pth")
    for name in ("w.safetensors", "w.pt", "more.pth"):
        found = read_weights(tmp_path / name)
        assert set(found) == {"a", "b"}
        np.testing.assert_array_equal(found["b"], tensors["b"].float().numpy())
    write_weights(tmp_path / "ours.pt", found)
    ours = torch.load(tmp_path / "ours.pt", weights_only=True)
    assert torch.equal(ours["a"], tensors["a"])


def test_a_file_that_would_run_code_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is an extra: pip install 'parax[torch]'")
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "broken.pt").write_bytes(b"PK\x03\x04 nonsense")
    for name in ("module.pt", "list.pt", "broken.pt"):
        with pytest.raises(parax.InvalidData, match="state dict"):
            read_weights(tmp_path / name)
    for name in ("weights.txt", "weights"):
        with pytest.raises(parax.UsageError, match="by its ending"):
            read_weights(tmp_path / name)
