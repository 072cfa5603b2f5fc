"""`parax train`: a job from its template to a trained model, and every way in which one does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

import parax
from commanding import run_here
from parax.compiler.training.groups import ParameterGroup
from parax.compiler.training.job import TEMPLATE, read_job
from train.small_models import CLASSES, WIDTH, classifier


def arrays(seed: int, rows: int = 200) -> dict[str, np.ndarray]:
    x = np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)
    return {"x": x, "labels": x[:, :CLASSES].argmax(1)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model, data, and the job of the template with a test and fewer rows a step."""
    onnx.save(classifier(), tmp_path / "model.onnx")
    np.savez(tmp_path / "train.npz", **arrays(0))
    np.savez(tmp_path / "test.npz", **arrays(1))
    assert run_here("main", ["train", "--init", str(tmp_path / "job.toml")]).returncode == 0
    change(tmp_path, "# test = {", "test = {")
    change(tmp_path, "batch = 64", "batch = 20")
    return tmp_path


def change(folder: Path, old: str, new: str) -> None:
    text = (folder / "job.toml").read_text()
    assert old in text
    (folder / "job.toml").write_text(text.replace(old, new, 1))


def train(folder: Path, *more: str) -> dict:
    done = run_here("main", ["train", str(folder / "job.toml"), "--format", "json", *more])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_job_trains_and_goes_on(folder: Path) -> None:
    found = train(folder)
    assert found["epochs"] == 10 and found["steps"] == 100 and found["accuracy"] > 0.9
    test = arrays(1)
    (y,) = onnxruntime.InferenceSession(folder / "trained.onnx").run(None, {"x": test["x"]})
    assert (y.argmax(1) == test["labels"]).mean() == pytest.approx(found["accuracy"], abs=0.006)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert len(lines) == 110 and lines[0]["step"] == 1 and "evaluation" in lines[-1]
    change(folder, "epochs = 10", "epochs = 11")
    assert train(folder)["steps"] == 110  # of one more epoch
    assert train(folder, "--resume", "never")["steps"] == 110
    assert len((folder / "log.jsonl").read_text().splitlines()) == 121


def test_a_job_says_how_instances_exchange(folder: Path) -> None:
    change(folder, 'name = "fixed"', 'name = "gradient-server"\noversubscribe = true')
    change(folder, "# accumulate = 4", "accumulate = 2")
    change(folder, "# instances = 2", "instances = 3\nshards = 2")
    found = train(folder)
    assert found["accuracy"] > 0.9 and found["exchange"] == "gradient-server" and found["cores_lost"] >= 0
    assert found["read_bytes"] > found["written_bytes"] > 0 and found["update_ms"] > 0
    logged = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    assert logged["exchange"] == {name: found[name] for name in logged["exchange"]}


def test_memory_is_predicted_and_measured(folder: Path) -> None:
    change(folder, '# max_memory = "8GiB"', 'max_memory = "100%"')
    done = run_here("main", ["train", str(folder / "job.toml")])
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "of memory predicted" in line]
    assert len(told) == 2 and "measured" not in told[0] and "measured" in told[1]
    last = json.loads((folder / "log.jsonl").read_text().splitlines()[-1])
    assert last["memory"]["weights"] > 0 and last["memory"]["measured"] > 0


def test_too_little_memory_is_refused(folder: Path) -> None:
    change(folder, '# max_memory = "8GiB"', 'max_memory = "2KB"')
    done = run_here("main", ["train", str(folder / "job.toml")])
    assert done.returncode == 6 and "needs more memory than it may take" in done.stderr
    assert not (folder / "trained.onnx").exists()


def test_the_template_is_a_job(folder: Path) -> None:
    job = read_job(folder / "job.toml")
    assert job.optimizer.lr == 0.1 and job.train.batch == 20 and job.checkpoints is not None
    lines = TEMPLATE.splitlines()
    uncommented = "\n".join(s.removeprefix("# ") if " = " in s or s.startswith("# [") else s for s in lines)
    (folder / "all.toml").write_text(uncommented)
    every = read_job(folder / "all.toml")
    assert every.clip_norm == 1.0 and every.schedule.warmup == 0 and every.model.frozen == ("embedding*",)
    assert every.head == parax.Head(10) and every.data.transforms[0]["kind"] == "normalise"
    assert every.groups == (ParameterGroup(max_rank=1, weight_decay=0.0),) and every.train.ema == 0.999


def test_a_job_may_have_groups_and_an_average(folder: Path) -> None:
    change(folder, "[schedule]", '[[groups]]\npatterns = ["b*"]\nlr_scale = 0\n[schedule]')
    change(folder, "batch = 20", "batch = 20\nema = 0.99")
    found = train(folder)
    test = arrays(1)
    (y,) = onnxruntime.InferenceSession(folder / "trained.onnx").run(None, {"x": test["x"]})
    assert (y.argmax(1) == test["labels"]).mean() == pytest.approx(found["accuracy"], abs=0.006)
    before, after = ({t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
                     for model in (classifier(), onnx.load(folder / "trained.onnx")))  # fmt: skip
    assert {name for name in before if np.array_equal(before[name], after[name])} == {"b1", "b2"}


@pytest.mark.parametrize(
    "old, new, code, message",
    [
        ("momentum =", "momentun =", 2, "did you mean momentum?"),
        ("[train]", "[trian]", 2, "did you mean train?"),
        ("epochs = 10", "", 2, "epochs = …"),
        ("epochs = 10", 'epochs = "ten"', 2, "a whole number"),
        ("lr = 0.1", "lr = -0.1", 2, "out of range"),
        ("lr = 0.1", "lr = 1e30", 5, "not finite"),
        ('name = "sgd"', 'name = "sdg"', 2, "no such optimizer"),
        ('name = "softmax_cross_entropy"', 'name = "softmax"', 2, "softmax_cross_entropy"),
        ('name = "fixed"', 'name = "fixxed"', 2, "no such exchange"),
        ('shape = "constant"', 'shape = "constnat"', 2, "no such schedule"),
        ('path = "model.onnx"', 'path = "other.onnx"', 2, "other.onnx"),
        ('path = "train.npz"', 'path = "other.npz"', 2, "other.npz"),
        ('train = { kind', 'train = { knd', 2, "no such kind"),
        ('output = "trained.onnx"', 'output = "no/trained.onnx"', 2, "no such folder"),
        ("batch = 20", "batch = 201", 2, "without a batch"),
        ("[model]", "[model", 2, "no TOML"),
        ("[schedule]", "[[groups]]\nlr_scale = -1\n[schedule]", 2, "out of range"),
        ("[schedule]", "[groups]\nlr_scale = 1\n[schedule]", 2, "not a list of tables"),
        ("# workers = 0", 'workers = "many"', 2, '"auto"'),
        ("# loaders =", 'loaders = "fibres" #', 2, "threads or processes"),
        ("# transforms = [{", 'transforms = [{ kind = "blur" }] # [{', 2, "crop"),
        ("# transforms = [{", 'transforms = [{ kind = "flip", probabilty = 1 }] # [{', 2, "did you mean probability?"),
        ("# transforms = [{", 'transforms = [{ kind = "crop", size = [1, 2, 3] }] # [{', 2, "transforms[0].size"),
        ("# transforms = [{", 'transforms = [{ kind = "crop", size = 4 }] # [{', 2, "a transform of images"),
        ("# weights =", 'weights = "none.safetensors" #', 2, "no such file"),
        ("# [head]", "[head]\nclasses = 0 #", 2, "head.classes"),
        ("# [head]", '[head]\nclasses = 3\ninit = "zeros" #', 2, "head.init"),
        ("# report =", 'report = "no/report.html" #', 2, "no such folder"),
        ('# frozen = ["embedding*"]', 'frozen = ["*"]', 4, "nothing can be trained"),
    ],
)
def test_what_does_not_fit(folder: Path, old: str, new: str, code: int, message: str) -> None:
    change(folder, old, new)
    done = run_here("main", ["train", str(folder / "job.toml")])
    assert done.returncode == code and message in done.stderr, done.stderr
    assert not (folder / "trained.onnx").exists()


def test_files_that_do_not_fit(folder: Path) -> None:
    job = str(folder / "job.toml")
    assert run_here("main", ["train", "--init", job]).returncode == 2  # there is one
    labels = arrays(0)["labels"].copy()
    labels[3] = CLASSES
    np.savez(folder / "train.npz", x=arrays(0)["x"], labels=labels)
    assert run_here("main", ["train", job]).returncode == 2
    (folder / "train.npz").write_bytes(b"PK nonsense")
    assert run_here("main", ["train", job]).returncode == 4
    assert run_here("main", ["train", str(folder / "none.toml")]).returncode == 2


def records(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def told(folder: Path) -> list[dict]:
    """The records without what is measured."""
    measured = {"rows_per_second", "exchange", "memory"}
    return [{key: value for key, value in record.items() if key not in measured} for record in records(folder)]


def test_what_a_killed_training_noted_is_noted_once(folder: Path) -> None:
    change(folder, "# every = 0", "every = 3")
    train(folder)
    whole = told(folder)
    last, *_ = sorted((folder / "checkpoints").glob("step-*"))  # as if it had been killed a little later
    for path in (folder / "checkpoints").glob("step-*"):
        if path != last:
            path.unlink()
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"step": 101, "lo')
    train(folder)
    assert told(folder) == whole
    (folder / "log.jsonl").write_text("no log\n")
    done = run_here("main", ["train", str(folder / "job.toml")])
    assert done.returncode == 2 and "not the log of a training" in done.stderr


def test_without_checkpoints_it_begins_again(folder: Path) -> None:
    change(folder, '[checkpoints]\nfolder = "checkpoints"', "")
    assert train(folder)["steps"] == train(folder)["steps"] == 100
    assert len(records(folder)) == 110


def test_a_report_and_events_have_the_curves(folder: Path) -> None:
    pytest.importorskip("altair", reason="altair is an extra: pip install 'parax[report]'")
    pytest.importorskip("tensorboardX", reason="tensorboardX is an extra: pip install 'parax[tensorboard]'")
    change(folder, "# report =", "report =")
    change(folder, "# tensorboard =", "tensorboard =")
    found = train(folder)
    page = (folder / "report.html").read_text()
    assert "100 steps, 10 evaluations" in page and f"{found['accuracy']:.6g}" in page
    assert all(f"<h2>{name}</h2>" in page for name in ("Loss", "Accuracy", "Learning rate", "Gradient", "Speed"))
    body = page.rsplit("</head>", 1)[1]
    assert "src=" not in body and "href=" not in body  # it needs no network
    curves = events(folder / "runs")
    noted = records(folder)
    assert curves["train/loss"] == [(r["step"], pytest.approx(r["loss"])) for r in noted if "loss" in r]
    tests = [(r["step"], pytest.approx(r["evaluation"]["accuracy"])) for r in noted if "evaluation" in r]
    assert curves["test/accuracy"] == tests and set(curves) >= {"train/rate", "train/norm", "test/loss"}


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Curves of the event files of a folder: records of a length, its checksum, an Event and its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, list[tuple[int, float]]] = {}
    for path in folder.iterdir():
        content = path.read_bytes()
        while content:
            length = int.from_bytes(content[:8], "little")
            event, content = Event.FromString(content[12 : 12 + length]), content[16 + length :]
            for value in event.summary.value:
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_a_training_that_fails_leaves_its_report(folder: Path) -> None:
    pytest.importorskip("altair", reason="altair is an extra: pip install 'parax[report]'")
    change(folder, "# report =", "report =")
    change(folder, "lr = 0.1", "lr = 1e30")
    assert run_here("main", ["train", str(folder / "job.toml")]).returncode == 5
    assert "steps, 0 evaluations" in (folder / "report.html").read_text()


def test_a_new_head_and_weights_of_a_file(folder: Path) -> None:
    with parax.Trainer(folder / "model.onnx") as trainer:
        trainer.save(folder / "start.safetensors")
    change(folder, "# weights =", "weights =")
    change(folder, "# [head]", "[head]")
    change(folder, "# classes = 10", "classes = 5")
    change(folder, "# alone = false", "alone = true")
    train(folder)
    old, new = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(folder / name).graph.initializer}
        for name in ("model.onnx", "trained.onnx")
    )
    assert new["w2"].shape == (5, 8) and new["b2"].shape == (5,)
    for name in ("w1", "b1"):
        np.testing.assert_array_equal(new[name], old[name])


def test_transforms_and_workers_that_are_found(folder: Path) -> None:
    change(folder, "# workers = 0", 'workers = "auto" # 0')
    change(folder, "# transforms =", "transforms =")
    change(folder, "mean = 0.5, std = 0.25", "mean = 0.0, std = 1.0")
    done = run_here("main", ["train", str(folder / "job.toml"), "--format", "json"])
    assert done.returncode == 0 and "loader workers (was 1)" in done.stderr, done.stderr
    assert json.loads(done.stdout)["accuracy"] > 0.9
    change(folder, "std = 1.0", "std = 1e6")  # of the test, too
    change(folder, "epochs = 10", "epochs = 1")
    assert train(folder, "--resume", "never")["accuracy"] < 0.9
