"""Real images under load: what a call waits for is in its time, and told."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from inferometer.analysis.summary import summarise
from inferometer.config import Limits, MeasureSection, Study, parse
from inferometer.contracts import Session
from inferometer.data.feeder import Buffer, Feeder
from inferometer.data.imageset import ImageEntry
from inferometer.data.preprocess import PRESETS
from inferometer.data.source import FolderSource
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import ConfigError
from inferometer.measure import Measurement, Segment, WarmUp, run_segment
from inferometer.study.plan import plan_trials
from inferometer.study.resolve import resolve
from inferometer.study.run import run_study
from inferometer.trials.feeding import FedSession, bottleneck_of, fed
from inferometer.trials.images import ImageInput
from inferometer.trials.session import open_session
from inferometer.trials.spec import TrialSpec, identity_of
from tests.unit.study.watcher import Remembering

QUICK = {"max_s": 0.2, "warmup_max_s": 0.1}


class Slow:
    """A feeder whose batches take 20 ns each, and a session that takes 10 to get one, on their own clock."""

    def __init__(self) -> None:
        self.now_ns = 1000
        self.out: list[Buffer] = []
        self.in_flight, self.ordered = 1, False
        self.prepared: list[Any] = []
        self.images, self.workers = 3, 1

    def take(self) -> Buffer:
        self.now_ns += 20
        self.out.append(Buffer(np.full((1, 1, 1, 1), len(self.out), np.float32)))
        return self.out[-1]

    def give_back(self, buffer: Buffer) -> None:
        self.out.remove(buffer)

    def alone(self, seconds: float) -> float | None:
        return 50.0 * seconds

    def prepare(self, slot: int, feeds: Any) -> None:
        self.now_ns += 10
        self.prepared.append(feeds)

    def submit(self, slot: int) -> None:
        pass

    def wait(self, slot: int) -> None:
        pass


def test_the_shares_are_of_the_timed_calls_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    clock = SimpleNamespace(monotonic_ns=lambda: slow.now_ns)
    monkeypatch.setattr("inferometer.trials.feeding.time", clock)
    image = cast(ImageInput, SimpleNamespace(feeds=lambda images: {"x": images}))
    driven = FedSession(cast(Session, slow), cast(Feeder, slow), image)
    segments = []
    for calls, computing_ns in ((5, 500), (2, 10), (3, 10)):  # the first is warm-up
        submitted, completed = [], []
        for _ in range(calls):
            submitted.append(slow.now_ns)
            driven.submit(0)
            slow.now_ns += computing_ns
            driven.wait(0)
            completed.append(slow.now_ns)
        segments.append(Segment(np.array(submitted), np.array(completed)))
        slow.now_ns += 50  # pauses are nobody's
    assert len(slow.prepared) == 10
    assert len(slow.out) == 1  # a batch goes back when its slot's next call begins
    shares = driven.shares(Measurement(WarmUp((segments[0],), True), tuple(segments[1:]), 1, 1))
    assert shares == pytest.approx((0.5, 0.25))
    assert driven.decoding_alone() == 75.0
    assert slow.out == []


@pytest.mark.parametrize(
    ("wait", "busy", "bound"),
    [
        (0.0, 0.0, "device"),
        (0.02, 0.04, "device"),
        (0.05, 0.0, "both"),
        (0.0, 0.05, "both"),
        (0.1, 0.5, "images"),
        (0.1, 0.49, "both"),  # threads that could do twice as much wait for processors, not for a disk
        (0.1, None, "images"),
        (0.09, None, "both"),
        (0.02, None, "device"),
    ],
)
def test_what_bounds_the_rate(wait: float, busy: float | None, bound: str) -> None:
    assert bottleneck_of(wait, busy) == bound


class Reading:
    """A session whose calls take a moment, and that sees whether their input changes meanwhile."""

    def __init__(self, in_flight: int, *, ordered: bool) -> None:
        self.in_flight, self.ordered = in_flight, ordered
        self.placed: dict[int, tuple[Any, Any]] = {}
        self.seen: list[float] = []

    def prepare(self, slot: int, feeds: Any) -> None:
        self.placed[slot] = (feeds["x"], feeds["x"].copy())

    def submit(self, slot: int) -> None:
        self.seen += self.placed[slot][1][:, 0, 0, 0].tolist()

    def wait(self, slot: int) -> None:
        time.sleep(0.002)
        assert np.array_equal(*self.placed[slot])


@pytest.mark.parametrize("ordered", [True, False])
def test_slots_have_batches_of_their_own_while_their_calls_run(pictures: Path, ordered: bool) -> None:
    inner = Reading(3, ordered=ordered)
    image = cast(ImageInput, SimpleNamespace(feeds=lambda images: {"x": images}))
    raw = PRESETS["raw"].sized(16, 16)
    entries = [ImageEntry(f"{number}.jpg", -1) for number in range(6)]
    with Feeder(FolderSource(pictures), entries, raw, 2, workers=2, taken=3) as feeder:
        session = FedSession(cast(Session, inner), feeder, image)
        segment = run_segment(session, 3, seconds=0.0, min_calls=60)
    assert len(inner.seen) == 2 * segment.calls >= 120
    assert len(set(inner.seen)) == 6


def test_what_the_engine_is_given_are_the_pictures(mini: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    content = study(mini, engines=["onnxruntime"], images={"data": str(pictures)}, kinds=["throughput"])
    (spec,) = (
        one.spec
        for one in plan_trials(resolve(content, tmp_path), {})
        if one.spec.feed is not None and one.spec.trial.batch == 2
    )
    with open_session(spec, 2).session as session:
        alone = [_logits(session, pictures / f"{number}.jpg") for number in range(6)]
        found: list[int] = []
        with fed(spec, session, 2) as driven:
            for _ in range(9):
                driven.submit(0)
                driven.wait(0)
                for row in session.results(0)["logits"]:
                    found += [which for which, one in enumerate(alone) if np.allclose(row, one, rtol=1e-4)]
    assert len(found) == 18  # each row is that of one picture
    assert set(found) == set(range(6))
    assert not [one for one in threading.enumerate() if one.name.startswith("inferometer-images")]


def _logits(session: Session, path: Path) -> Any:
    pixels = np.asarray(Image.open(path), np.float32).transpose(2, 0, 1)
    return session.infer({"input": np.stack([pixels, pixels])})["logits"][0]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (16, 16), (40 * number,) * 3).save(folder / f"{number}.jpg")
    return folder


def study(model: Path, **changes: Any) -> Study:
    content = {
        "name": "fed",
        "models": [{"model": str(model), "preprocess": "raw"}],
        "engines": ["null"],
        "batches": [2, 4],
        "input": ["images", "synthetic"],
        "repeats": 1,
        "measure": QUICK,
        "isolation": "series",
    }
    return parse(Study, content | changes, "test")


def test_a_study_with_both_inputs(mini: Path, pictures: Path, tmp_path: Path) -> None:
    content = study(mini, images={"data": str(pictures), "workers": 2})
    records = run_study(content, tmp_path / "out", Remembering()).records
    found = [(one.trial.kind, one.trial.input, one.trial.batch, one.status) for one in records]
    assert found == [
        ("latency", "synthetic", 1, "ok"),
        ("throughput", "synthetic", 2, "ok"),
        ("throughput", "synthetic", 4, "ok"),
        ("throughput", "images", 2, "ok"),
        ("throughput", "images", 4, "ok"),
    ]
    for one in records:
        assert (one.feeding is not None) == (one.trial.input == "images")
        if one.feeding is not None:
            assert (one.feeding.images, one.feeding.workers) == (6, 2)
            assert one.feeding.bottleneck == "images"  # `null` does nothing
            assert one.feeding.wait_share > 0.1
            assert one.feeding.images_per_s is not None
            assert one.feeding.images_per_s > 0
    assert run_study(content, tmp_path / "out", Remembering()).run == 0


def test_a_model_that_computes_is_fed_while_it_is_timed(mini: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    content = study(
        mini, engines=["onnxruntime"], images={"data": str(pictures)}, kinds=["throughput"], batches=[2]
    )
    synthetic, images = run_study(content, tmp_path / "out", Remembering()).records
    assert (synthetic.status, images.status, synthetic.feeding) == ("ok", "ok", None)
    assert images.feeding is not None
    assert images.throughput is not None
    assert synthetic.throughput is not None
    assert images.feeding.workers == usable_cores()
    assert 0 < images.feeding.wait_share + images.feeding.prepare_share < 1
    (row,) = summarise((synthetic, images), lambda _: None).feeding
    assert (row.together, row.device) == (
        images.throughput.images_per_s,
        synthetic.throughput.images_per_s,
    )


def test_pictures_that_cannot_be_decoded_fail_the_trial_in_words(
    mini: Path, pictures: Path, tmp_path: Path
) -> None:
    for path in list(pictures.iterdir())[:3]:
        path.write_text("no picture")
    content = study(mini, images={"data": str(pictures)}, kinds=["throughput"], batches=[2])
    synthetic, images = run_study(content, tmp_path / "out", Remembering()).records
    assert synthetic.status == "ok"
    assert (images.status, images.error) == ("failed", "DataError")
    assert "of 6 images cannot be used" in (images.reason or "")


def test_the_images_of_the_accuracy_serve_if_no_others_are_named(
    mini: Path, pictures: Path, tmp_path: Path
) -> None:
    (pictures / "labels.csv").write_text(
        "file,class_index\n" + "".join(f"{number}.jpg,0\n" for number in range(6))
    )
    content = study(mini, accuracy={"data": str(pictures)}, kinds=["throughput"])
    planned = plan_trials(resolve(content, tmp_path), {})
    feeds = {one.spec.feed.data for one in planned if one.spec.feed is not None}
    assert feeds == {str(pictures)}


def test_without_preprocessing_the_trials_on_images_are_unsupported(
    mini: Path, pictures: Path, tmp_path: Path
) -> None:
    content = study(mini, models=[str(mini)], images={"data": str(pictures)}, kinds=["throughput"])
    planned = plan_trials(resolve(content, tmp_path), {})
    refused = {one.spec.trial.input: one.refused for one in planned}
    assert refused["synthetic"] is None
    assert refused["images"] == (
        "unsupported",
        "no preprocessing is given, so no image can be fed to the model",
    )


def test_a_model_of_something_else_is_not_fed_with_images(pictures: Path, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "words",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 7])],
    )
    onnx.save(helper.make_model(graph), tmp_path / "words.onnx")
    content = study(
        pictures,
        models=[str(tmp_path / "words.onnx")],
        images={"data": str(pictures)},
        kinds=["throughput"],
        batches=[2],
    )
    synthetic, images = plan_trials(resolve(content, tmp_path), {})
    assert synthetic.refused is None
    assert images.refused == ("unsupported", "the model takes no images to be fed with")


def test_a_study_that_names_no_images(mini: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"mini: input: images wants to know which: give images: \{data: DIR\}"
    ):
        resolve(study(mini), tmp_path)


@pytest.mark.parametrize(
    ("trial", "changes", "identity"),
    [
        ({"kind": "throughput", "batch": 4}, {}, "4068a18d71d2072e"),
        ({"kind": "latency", "batch": 1}, {}, "766cef1027bf95da"),
        ({"kind": "throughput", "batch": 4, "place": 1}, {"isolation": "series"}, "49c37513e7c4cb09"),
        ({"kind": "throughput", "batch": 4}, {"preprocess": None}, "f39070e6f94d9aad"),
    ],
)
def test_trials_on_synthetic_input_keep_the_identity_of_before_there_were_others(
    trial: dict[str, Any], changes: dict[str, Any], identity: str
) -> None:
    """Figures of the commit before: their stores must still be resumed."""
    common = {"study": "s", "model": "m", "engine": "null", "device": "cpu", "precision": "fp32"}
    content = {
        "id": "",
        "trial": common | {"copies": "included", "input": "synthetic", "repeat": 0} | trial,
        "folder": "f",
        "model_path": "m.onnx",
        "model": {"sha256": "0" * 64, "macs": 1, "parameters": 1},
        "quantized": False,
        "preprocess": PRESETS["torchvision"],
        "engine_version": "1",
        "options": {"threads": 1},
        "output": None,
        "seed": 0,
        "measure": MeasureSection(),
        "limits": Limits(),
        "isolation": "trial",
    }
    assert identity_of(TrialSpec.model_validate(content | changes)) == identity


def test_which_images_and_how_many_threads_are_part_of_the_identity(
    mini: Path, pictures: Path, tmp_path: Path
) -> None:
    def ids(**images: Any) -> dict[str, set[str]]:
        content = study(mini, images={"data": str(pictures), **images}, kinds=["throughput"], batches=[1])
        planned = plan_trials(resolve(content, tmp_path), {})
        return {one.spec.trial.input: {one.spec.id} for one in planned}

    two, three = ids(workers=2), ids(workers=3)
    assert two["synthetic"] == three["synthetic"]
    assert two["images"] != three["images"]
    (pictures / "more.jpg").write_bytes((pictures / "1.jpg").read_bytes())
    assert ids(workers=2)["images"] != two["images"]
    assert ids(workers=2)["synthetic"] == two["synthetic"]
