import hashlib
import io
import os
import threading
import time

import numpy as np
import pytest
from PIL import Image

from inferometer.data import loader as module
from inferometer.data import source
from inferometer.data.imageset import ImageEntry
from inferometer.data.loader import ImageLoader
from inferometer.data.preprocess import PRESETS, Preprocessing
from inferometer.data.source import FolderSource
from inferometer.errors import ConfigError, DataError

RAW = PRESETS["raw"].sized(2, 3)


def png(value, size=(3, 2)):
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


def images(folder, count, bad=()):
    """``count`` images whose pixels are their number; those in ``bad`` are text."""
    entries = []
    for i in range(count):
        (folder / f"{i}.png").write_bytes(b"no image" if i in bad else png(i))
        entries.append(ImageEntry(f"{i}.png", i * 2))
    return entries


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("inferometer-images")]


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_keep_order_values_labels_and_hashes(tmp_path, workers):
    entries = images(tmp_path, 11)[::-1]
    batches = list(ImageLoader(FolderSource(tmp_path), entries, RAW, 4, workers=workers))
    assert [batch.images.shape for batch in batches] == [(4, 3, 2, 3), (4, 3, 2, 3), (3, 3, 2, 3)]
    assert all(batch.images.dtype == np.float32 and batch.labels.dtype == np.int64 for batch in batches)
    numbers = np.concatenate([batch.images[:, 0, 0, 0] for batch in batches])
    assert numbers.tolist() == list(range(10, -1, -1))
    assert np.concatenate([batch.labels for batch in batches]).tolist() == list(range(20, -1, -2))
    assert [name for batch in batches for name in batch.files] == [f"{i}.png" for i in range(10, -1, -1)]
    assert batches[0].hashes[1] == hashlib.sha256((tmp_path / "9.png").read_bytes()).hexdigest()
    assert not threads()


def test_it_can_be_passed_over_again_and_tells_its_progress(tmp_path):
    done = []
    loader = ImageLoader(
        FolderSource(tmp_path), images(tmp_path, 5, bad={2}), RAW, 2, on_progress=done.append
    )
    first, second = list(loader), list(loader)
    assert [batch.files for batch in first] == [("0.png", "1.png"), ("3.png", "4.png")]
    assert [batch.files for batch in second] == [batch.files for batch in first]
    assert all(np.array_equal(a.images, b.images) for a, b in zip(first, second, strict=True))
    assert done == [1, 2, 3, 4, 5] * 2
    assert [image.file for image in loader.skipped] == ["2.png"]


def test_broken_images_are_counted_named_and_skipped(tmp_path):
    entries = images(tmp_path, 60, bad={3})
    (tmp_path / "9.png").unlink()
    (tmp_path / "20.png").write_bytes(png(20, size=(4, 4)))
    loader = ImageLoader(FolderSource(tmp_path), entries, RAW, 8, workers=2, max_bad=0.05)  # 3 of 60
    assert sum(len(batch.labels) for batch in loader) == 57
    reasons = {image.file: image.reason for image in loader.skipped}
    assert list(reasons) == ["3.png", "9.png", "20.png"]
    assert reasons["3.png"].startswith("holds text, not an image")
    assert reasons["9.png"] == "no such file or directory"
    assert reasons["20.png"].startswith("the image is 4x4")


@pytest.mark.parametrize(
    ("count", "bad", "limit", "sound"),
    [
        (10, 1, 0.02, True),  # one is always tolerated
        (10, 2, 0.02, False),
        (150, 3, 0.02, True),
        (150, 4, 0.02, False),
        (10, 0, 0, True),
        (10, 1, 0, False),
        (10, 5, 5, True),
        (10, 6, 5, False),
    ],
)
def test_the_limit(tmp_path, count, bad, limit, sound):
    loader = ImageLoader(
        FolderSource(tmp_path), images(tmp_path, count, bad=range(bad)), RAW, 16, max_bad=limit
    )
    if sound:
        assert sum(len(batch.labels) for batch in loader) == count - bad
    else:
        with pytest.raises(DataError, match=f"of {count} images cannot be used, at most"):
            list(loader)
    assert not threads()


def test_the_error_names_the_first_broken_images(tmp_path):
    loader = ImageLoader(
        FolderSource(tmp_path), images(tmp_path, 30, bad=range(4, 30)), RAW, 2, workers=3, max_bad=6
    )
    with pytest.raises(DataError) as caught:
        list(loader)
    message = str(caught.value)
    assert message.startswith(
        f"{tmp_path}: 7 of 30 images cannot be used, at most 6 may be skipped: 4.png: holds text"
    )
    assert "8.png" in message
    assert "9.png" not in message
    assert message.endswith("; and 2 more: mend or remove them")


def test_a_set_of_broken_images_alone_is_an_error(tmp_path):
    with pytest.raises(
        DataError, match=r"1 of 1 images cannot be used, none can be used: 0\.png: holds text"
    ):
        list(ImageLoader(FolderSource(tmp_path), images(tmp_path, 1, bad={0}), RAW, 2))


def test_special_and_oversized_files_are_skipped(tmp_path, monkeypatch):
    entries = images(tmp_path, 3)
    (tmp_path / "0.png").unlink()
    os.mkfifo(tmp_path / "0.png")  # reading it would wait for ever
    loader = ImageLoader(FolderSource(tmp_path), entries, RAW, 2)
    list(loader)
    assert [(image.file, image.reason) for image in loader.skipped] == [("0.png", "is no ordinary file")]
    monkeypatch.setattr(source, "MAX_FILE_BYTES", 10)
    with pytest.raises(DataError, match="bytes, more than 10"):
        list(loader)


def test_sizes_that_cannot_share_a_batch(tmp_path):
    entries = images(tmp_path, 2)
    (tmp_path / "1.png").write_bytes(png(1, size=(5, 4)))
    with pytest.raises(DataError, match=r"0\.png gives \[3, 2, 3\], 1\.png gives \[3, 4, 5\]"):
        list(ImageLoader(FolderSource(tmp_path), entries, PRESETS["raw"], 2))


def test_grayscale(tmp_path):
    gray = Preprocessing(channels="L", mean=(0,), std=(1,), layout="NHWC").sized(2, 3)
    (batch,) = ImageLoader(FolderSource(tmp_path), images(tmp_path, 2), gray, 4)
    assert batch.images.shape == (2, 2, 3, 1)
    assert batch.images[1].max() == 1.0


def test_no_more_than_a_batch_is_decoded_ahead(tmp_path, monkeypatch):
    decoded = []
    real = module.pixels_of

    def counting(data, name, channels):
        decoded.append(name)
        return real(data, name, channels)

    monkeypatch.setattr(module, "pixels_of", counting)
    passing = iter(ImageLoader(FolderSource(tmp_path), images(tmp_path, 50), RAW, 4, workers=2))
    next(passing)
    time.sleep(0.2)
    assert len(decoded) <= 4 + 4 + 2
    passing.close()
    assert len(decoded) <= 4 + 4 + 2


def test_a_consumer_that_stops_early_ends_the_threads(tmp_path):
    entries = images(tmp_path, 40)
    for batch in ImageLoader(FolderSource(tmp_path), entries, RAW, 2, workers=2):
        assert batch.files == ("0.png", "1.png")
        assert threads()
        break
    assert not threads()

    def interrupt(done):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(ImageLoader(FolderSource(tmp_path), entries, RAW, 2, workers=2, on_progress=interrupt))
    assert not threads()


def test_a_fault_that_is_no_images_is_not_skipped(tmp_path):
    with pytest.raises(ConfigError, match="not known"):
        list(ImageLoader(FolderSource(tmp_path), images(tmp_path, 3), PRESETS["caffe"], 2))


def test_bad_arguments(tmp_path):
    entries = images(tmp_path, 1)
    for arguments in ({"batch": 0}, {"batch": 1, "workers": 0}, {"batch": 1, "max_bad": -1}):
        with pytest.raises(ConfigError, match="wants 1, 1 and 0 or more"):
            ImageLoader(FolderSource(tmp_path), entries, RAW, **arguments)
    with pytest.raises(DataError, match="no image is left"):
        ImageLoader(FolderSource(tmp_path), [], RAW, 1)


def test_deferred_batches_may_be_made_in_any_order(tmp_path):
    loader = ImageLoader(FolderSource(tmp_path), images(tmp_path, 60, bad={3}), RAW, 4)
    made = [make() for make in reversed(list(loader.deferred()))][::-1]
    assert [batch.files for batch in made[:2]] == [
        ("0.png", "1.png", "2.png"),
        ("4.png", "5.png", "6.png", "7.png"),
    ]
    assert np.concatenate([batch.images[:, 0, 0, 0] for batch in made]).tolist() == [
        number for number in range(60) if number != 3
    ]
    assert [image.file for image in loader.skipped] == ["3.png"]


def test_of_a_deferred_batch_nothing_may_be_left_and_too_many_broken_images_are_an_error(tmp_path):
    entries = images(tmp_path, 6, bad={2, 3})
    first, second, third = ImageLoader(FolderSource(tmp_path), entries, RAW, 2, max_bad=2).deferred()
    assert (first().files, second(), third().files) == (("0.png", "1.png"), None, ("4.png", "5.png"))
    with pytest.raises(DataError, match="2 of 6 images cannot be used"):
        [make() for make in ImageLoader(FolderSource(tmp_path), entries, RAW, 2, max_bad=1).deferred()]


def test_deferred_images_of_different_sizes_are_an_error(tmp_path):
    entries = images(tmp_path, 4)
    (tmp_path / "3.png").write_bytes(png(3, size=(4, 4)))
    loose = Preprocessing(name="loose", mean=(0, 0, 0), std=(1, 1, 1))
    with pytest.raises(DataError, match="images of different sizes"):
        [make() for make in ImageLoader(FolderSource(tmp_path), entries, loose, 2).deferred()]


def test_kept_pixels_are_not_read_again_and_room_is_not_exceeded(tmp_path):
    loader = ImageLoader(
        FolderSource(tmp_path), images(tmp_path, 4), RAW, 4, keep_bytes=2 * 18 + 17
    )  # 3 x 2 x 3 each
    first = [make() for make in loader.deferred()]
    (tmp_path / "0.png").write_bytes(png(100))
    (tmp_path / "3.png").write_bytes(png(200))
    again = [make() for make in loader.deferred()]
    assert first[0].images[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    assert again[0].images[:, 0, 0, 0].tolist() == [0, 1, 2, 200]
    assert again[0].hashes[:3] == first[0].hashes[:3]
