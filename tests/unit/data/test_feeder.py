"""Batches without end: bounded, whole, and gone with their owner."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inferometer.data.feeder import Feeder
from inferometer.data.imageset import ImageEntry
from inferometer.data.preprocess import PRESETS
from inferometer.data.source import FolderSource
from inferometer.environment.placement import pinned
from inferometer.errors import DataError

RAW = PRESETS["raw"].sized(2, 3)


def images(folder: Path, count: int, bad: Sequence[int] = ()) -> list[ImageEntry]:
    """``count`` images whose pixels are their number; those in ``bad`` are text."""
    for number in range(count):
        path = folder / f"{number}.png"
        if number in bad:
            path.write_text("no image")
        else:
            Image.new("RGB", (3, 2), (number,) * 3).save(path)
    return [ImageEntry(f"{number}.png", -1) for number in range(count)]


def feeder(folder: Path, entries: Sequence[ImageEntry], batch: int = 4, workers: int = 3) -> Feeder:
    return Feeder(FolderSource(folder), entries, RAW, batch, workers=workers, taken=1)


def turn_over(one: Feeder, times: int) -> None:
    """Take batches and give them back at once."""
    for _ in range(times):
        one.give_back(one.take())


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("inferometer-images")]


@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (4, 3), (7, 2)])
def test_all_images_come_again_and_again_in_full_batches(tmp_path: Path, batch: int, workers: int) -> None:
    seen: list[float] = []
    with feeder(tmp_path, images(tmp_path, 5), batch, workers) as one:
        while len(seen) < 40:
            buffer = one.take()
            assert buffer.images.shape == (batch, 3, 2, 3)
            rows = buffer.images.reshape(batch, -1)
            assert (rows == rows[:, :1]).all()  # each row is one whole image
            seen += rows[:, 0].tolist()
            one.give_back(buffer)
        assert one.images == 5
    counts = np.bincount(np.array(seen, np.int64), minlength=5)
    # In order, up to what threads that run ahead of one another may swap.
    assert counts.min() >= counts.max() - 1 - workers
    assert not threads()


def test_a_batch_is_its_taker_s_until_it_is_given_back(tmp_path: Path) -> None:
    with feeder(tmp_path, images(tmp_path, 9), batch=2) as one:
        mine = one.take()
        before = mine.images.copy()
        for _ in range(20):
            other = one.take()
            assert other is not mine
            one.give_back(other)
        assert np.array_equal(mine.images, before)


def test_what_cannot_be_decoded_is_left_out(tmp_path: Path) -> None:
    with feeder(tmp_path, images(tmp_path, 60, bad=[0])) as one:
        turn_over(one, 40)
        assert one.images == 59
    assert not threads()


@pytest.mark.parametrize("bad", [[3, 7], range(60)])
def test_too_many_of_them_end_the_feeding_in_words(tmp_path: Path, bad: Sequence[int]) -> None:
    found = r"[\d]+ of 60 images cannot be used, such as .*holds text, not an image"
    with (
        pytest.raises(DataError, match=found),
        feeder(tmp_path, images(tmp_path, 60, bad=bad)) as one,
    ):
        turn_over(one, 100)
    assert not threads()


def test_everyone_who_waits_is_told(tmp_path: Path) -> None:
    """Slots wait in threads of their own: an error that reached one alone would leave the others waiting."""
    with feeder(tmp_path, images(tmp_path, 60, bad=[5, 6])) as one:
        for _ in range(2):
            with pytest.raises(DataError):
                turn_over(one, 100)


def test_images_of_different_sizes_are_refused(tmp_path: Path) -> None:
    entries = images(tmp_path, 3)
    Image.new("RGB", (30, 20)).save(tmp_path / "1.png")
    uncropped = RAW.model_copy(update={"size": None, "resize_exact": None, "crop": None})
    with (
        pytest.raises(DataError, match=r"different sizes cannot share a batch"),
        Feeder(FolderSource(tmp_path), entries, uncropped, 1, workers=1, taken=1) as one,
    ):
        turn_over(one, 5)


def test_the_threads_keep_to_the_processors_of_who_began(tmp_path: Path) -> None:
    """A rank is pinned to its own: its pictures must not be decoded on another's."""
    mine = min(os.sched_getaffinity(0))
    with pinned([mine]), feeder(tmp_path, images(tmp_path, 5)) as one:
        turn_over(one, 5)
        found = [os.sched_getaffinity(thread.native_id or 0) for thread in threads()]
    assert found == [{mine}] * 3


def test_an_interrupt_ends_the_threads(tmp_path: Path) -> None:
    def interrupted() -> None:
        with feeder(tmp_path, images(tmp_path, 5)) as one:
            turn_over(one, 2)
            assert len(threads()) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not threads()


def test_no_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no image is left to load"):
        feeder(tmp_path, [])


def test_decoding_alone_counts_images(tmp_path: Path) -> None:
    with feeder(tmp_path, images(tmp_path, 5)) as one:
        rate = one.alone(0.2)
    assert rate is not None
    assert rate > 10
