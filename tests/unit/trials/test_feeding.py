"""Real images under load: what a call waits for is in its time, and told."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from inferometer.config import Study, parse
from inferometer.contracts import Session
from inferometer.data.feeder import Buffer, Feeder
from inferometer.errors import ConfigError
from inferometer.measure import Measurement, Segment, WarmUp
from inferometer.study.plan import plan_trials
from inferometer.study.resolve import resolve
from inferometer.study.run import run_study
from inferometer.trials.feeding import FedSession, bottleneck_of
from inferometer.trials.images import ImageInput
from tests.unit.study.watcher import Remembering

QUICK = {"max_s": 0.2, "warmup_max_s": 0.1}


class Slow:
    """A feeder whose every batch takes 20 ms, and a session that takes none."""

    def __init__(self) -> None:
        self.out: list[Buffer] = []
        self.in_flight, self.ordered = 1, False
        self.prepared: list[Any] = []
        self.images, self.workers = 3, 1

    def take(self) -> Buffer:
        time.sleep(0.02)
        self.out.append(Buffer(np.full((1, 1, 1, 1), len(self.out), np.float32)))
        return self.out[-1]

    def give_back(self, buffer: Buffer) -> None:
        self.out.remove(buffer)

    def alone(self, seconds: float) -> float | None:
        return 50.0 * seconds

    def prepare(self, slot: int, feeds: Any) -> None:
        time.sleep(0.01)
        self.prepared.append(feeds)

    def submit(self, slot: int) -> None:
        pass

    def wait(self, slot: int) -> None:
        pass


def test_the_shares_are_of_the_timed_calls_alone() -> None:
    slow = Slow()
    image = cast(ImageInput, SimpleNamespace(feeds=lambda images: {"x": images}))
    fed = FedSession(cast(Session, slow), cast(Feeder, slow), image)
    segments = []
    for calls in (5, 2, 3):  # the first is warm-up
        submitted, completed = [], []
        for _ in range(calls):
            submitted.append(time.monotonic_ns())
            fed.submit(0)
            fed.wait(0)
            completed.append(time.monotonic_ns())
        segments.append(Segment(np.array(submitted), np.array(completed)))
        time.sleep(0.05)  # pauses are nobody's
    assert len(slow.prepared) == 10
    assert len(slow.out) == 1  # a batch goes back when its slot's next call begins
    wait, hand = fed.shares(Measurement(WarmUp((segments[0],), True), tuple(segments[1:]), 1, 1))
    assert wait + hand == pytest.approx(1, abs=0.05)
    assert 0.5 < wait < 0.8
    assert fed.decoding_alone() == 75.0
    assert slow.out == []


@pytest.mark.parametrize(
    ("wait", "taken", "bound"),
    [
        (0.0, 0.0, "device"),
        (0.02, 0.04, "device"),
        (0.05, 0.0, "both"),
        (0.0, 0.05, "both"),
        (0.1, 0.5, "images"),
    ],
)
def test_what_bounds_the_rate(wait: float, taken: float, bound: str) -> None:
    assert bottleneck_of(wait, taken) == bound


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(6):
        Image.new("RGB", (16, 16), (number,) * 3).save(folder / f"{number}.jpg")
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


def test_a_study_that_names_no_images(mini: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"mini: input: images wants to know which: give images: \{data: DIR\}"
    ):
        resolve(study(mini), tmp_path)


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
