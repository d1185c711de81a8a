"""Decoding and preprocessing 500 ImageNet images on two cores: Inferometer's loader against a Pillow pool.

    INFEROMETER_TEST_DATA=DIR python benchmarks/images/decoding.py [--data DIR] [--rounds 8] [--workers 2]

``DIR`` holds ``models/efficientnet_lite0.onnx`` and ``imagenet-sample/`` (JPEGs and labels.csv). Three
passes take turns in one process: (a) a pool of threads with Pillow and NumPy, as one writes it by hand,
(b) ``decode: exact``, (c) ``decode: scaled``. Each round gives one ratio of times; printed are the median of
the ratios with its distribution-free interval of 95 % or more, and the top-1 of each way's batches.
The bars: at least 1.5 times the pool's rate, and a top-1 within 0.8 points of Pillow's.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import comb
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

from inferometer.data.imageset import ImageEntry
from inferometer.data.loader import ImageLoader
from inferometer.data.pixels import decoder_name
from inferometer.data.preprocess import PRESETS
from inferometer.data.source import FolderSource

BATCH = 25
LITE = PRESETS["efficientnet-lite"]
MEAN, STD = np.float32(127.0), np.float32(128.0)


def by_pillow(path: Path) -> np.ndarray:
    """One image for EfficientNet-lite: [3, 224, 224] float32."""
    with Image.open(path) as opened:
        image = opened.convert("RGB")
    short = min(image.size)
    width, height = (side * 256 // short for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - 224) // 2, (height - 224) // 2
    image = image.crop((left, top, left + 224, top + 224))
    pixels = (np.asarray(image, dtype=np.float32) - MEAN) / STD
    return pixels.transpose(2, 0, 1)


def pool(folder: Path, entries: list[ImageEntry], workers: int) -> Iterator[np.ndarray]:
    """Batches by Pillow in a pool of threads."""
    with ThreadPoolExecutor(workers) as threads:
        images = threads.map(by_pillow, [folder / entry.file for entry in entries])
        while batch := list(image for _, image in zip(range(BATCH), images)):  # noqa: B905, C400
            yield np.stack(batch)


def ours(folder: Path, entries: list[ImageEntry], workers: int, how: str) -> Iterator[np.ndarray]:
    """The same batches by Inferometer's loader, which also hashes each file."""
    preprocessing = LITE.model_copy(update={"decode": how})
    for batch in ImageLoader(FolderSource(folder), entries, preprocessing, BATCH, workers=workers):
        yield batch.images


def timed(batches: Callable[[], Iterator[np.ndarray]]) -> tuple[float, float]:
    """Seconds, and seconds of the processor, for one pass; batches are let go, as an inference loop would."""
    start, cpu = time.perf_counter(), time.process_time()
    for _ in batches():
        pass
    return time.perf_counter() - start, time.process_time() - cpu


def median_interval(ratios: list[float]) -> tuple[float, float, float]:
    """Median, and order statistics that hold it with 95 % or more (binomial; the extremes if too few)."""
    ordered, count = sorted(ratios), len(ratios)
    rank = 0
    while 2 * sum(comb(count, i) for i in range(rank + 2)) / 2**count <= 0.05:
        rank += 1
    return float(np.median(ordered)), ordered[rank], ordered[count - 1 - rank]


def top1(session: onnxruntime.InferenceSession, batches: Iterator[np.ndarray], labels: np.ndarray) -> float:
    """Share of images whose class comes first."""
    name = session.get_inputs()[0].name
    found = [session.run(None, {name: batch})[0].reshape(len(batch), -1).argmax(axis=1) for batch in batches]
    return float((np.concatenate(found) == labels).mean())


def main() -> int:
    """Print each figure and whether it meets its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("INFEROMETER_TEST_DATA"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give --data DIR or set INFEROMETER_TEST_DATA")
    folder = Path(arguments.data) / "imagenet-sample"
    with (folder / "labels.csv").open(newline="", encoding="utf-8") as listed:
        entries = [ImageEntry(row["file"], int(row["class_index"])) for row in csv.DictReader(listed)]
    labels = np.array([entry.class_index for entry in entries])
    ways: dict[str, Callable[[], Iterator[np.ndarray]]] = {
        "pillow": partial(pool, folder, entries, arguments.workers),
        "exact": partial(ours, folder, entries, arguments.workers, "exact"),
        "scaled": partial(ours, folder, entries, arguments.workers, "scaled"),
    }
    print(f"{len(entries)} images, {arguments.workers} threads, JPEGs by {decoder_name()}")

    session = onnxruntime.InferenceSession(str(Path(arguments.data) / "models" / "efficientnet_lite0.onnx"))
    scores = {name: top1(session, way(), labels) for name, way in ways.items()}  # warms everything up, too
    del session
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(arguments.rounds):
        order = list(ways)[:: 1 if turn % 2 == 0 else -1]
        for name in order:
            wall, busy = timed(ways[name])
            seconds[name].append(wall)
            cpu[name].append(busy)

    for name, used in cpu.items():
        print(f"{name}: {np.median(used) / len(entries) * 1e3:.2f} ms of one core per image")
    print(f"pillow: {len(entries) / np.median(seconds['pillow']):.0f} images/s, top-1 {scores['pillow']:.1%}")
    met = True
    for name in ("exact", "scaled"):
        ratios = [a / b for a, b in zip(seconds["pillow"], seconds[name], strict=True)]
        middle, low, high = median_interval(ratios)
        points = (scores[name] - scores["pillow"]) * 100
        passed = middle >= 1.5 and abs(points) <= 0.8
        met = met and passed
        print(
            f"{name}: {len(entries) / np.median(seconds[name]):.0f} images/s, {middle:.2f} times Pillow's "
            f"({low:.2f} to {high:.2f}; bar 1.5), top-1 {scores[name]:.1%}, {points:+.1f} points "
            f"(bar 0.8): {'PASS' if passed else 'FAIL'}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
