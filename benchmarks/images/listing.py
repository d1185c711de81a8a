"""What a large image set costs before and while it is read: time to the first batch, and memory.

    python benchmarks/images/listing.py               # 100 000 images, twice
    python benchmarks/images/listing.py --images 5000

Two sets are made in a temporary folder, of hard links to a few small JPEGs: one folder per class (1000 of
them), and a flat ILSVRC2012 folder with val.txt. Each is opened in a fresh process and read once. The bars:

* the first batch of 25 within 5 s of the start of the process, imports and listing included;
* between the first 1000 images and the last, resident memory grows by less than 20 MB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

BATCH = 25
FIRST_BATCH_S = 5.0
GROWTH_BYTES = 20 * 1024**2
LINKS = 1000  # to one file: a file system allows a few ten thousand


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(read_once(arguments.child)))
        return 0
    passed = True
    with tempfile.TemporaryDirectory(prefix="inferometer-listing-") as scratch:
        for kind in (make_folders, make_flat):
            folder = kind(Path(scratch), arguments.images)
            command = [sys.executable, __file__, "--child", str(folder)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            passed &= show(kind.__name__.removeprefix("make_"), json.loads(done.stdout))
    return 0 if passed else 1


def read_once(folder: str) -> dict[str, float]:
    """Time to list and to the first batch, seconds; resident memory, bytes, along one pass."""
    import psutil

    from inferometer.data.imageset import open_set, ordered
    from inferometer.data.loader import ImageLoader
    from inferometer.data.preprocess import Preprocessing
    from inferometer.environment.cgroup import usable_cores

    how = Preprocessing(
        name="small", resize_short=36, crop=32, mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375)
    )
    own = psutil.Process()
    resident = own.memory_info
    listing = time.perf_counter()
    images = open_set(folder)
    found: dict[str, float] = {"images": len(images.entries), "listing_s": time.perf_counter() - listing}
    loader = ImageLoader(images.source, ordered(images, 0), how, BATCH, workers=usable_cores())
    marks = {"10 %": 0.1, "50 %": 0.5, "100 %": 1.0}
    done = 0
    for batch in loader:
        done += len(batch.labels)
        if "first_batch_s" not in found:
            found |= {"first_batch_s": time.time() - own.create_time(), "rss first batch": resident().rss}
        if done >= min(1000, len(images.entries)) and "rss 1000 images" not in found:
            found["rss 1000 images"] = resident().rss
        for name, share in list(marks.items()):
            if done >= share * len(images.entries):
                found[f"rss {name}"] = resident().rss
                del marks[name]
    found["pass_s"] = time.time() - own.create_time()
    return found


def show(name: str, found: dict[str, float]) -> bool:
    """Print the figures of one set; whether both bars are met."""
    whole = f"{found['images']} images, listed in {found['listing_s']:.2f} s, read in {found['pass_s']:.0f} s"
    print(f"{name}: {whole}")
    for key, value in found.items():
        if key.startswith("rss"):
            print(f"  {key}: {value / 1024**2:.1f} MB")
    growth = found["rss 100 %"] - found["rss 1000 images"]
    bars = {
        f"first batch after {found['first_batch_s']:.2f} s (bar: {FIRST_BATCH_S} s)": found["first_batch_s"]
        < FIRST_BATCH_S,
        f"memory grows by {growth / 1024**2:.1f} MB (bar: {GROWTH_BYTES / 1024**2:.0f} MB)": growth
        < GROWTH_BYTES,
    }
    for what, met in bars.items():
        print(f"  {'PASS' if met else 'FAIL'}: {what}")
    return all(bars.values())


def make_folders(scratch: Path, count: int) -> Path:
    """One folder per class of ILSVRC2012."""
    from inferometer.data.ilsvrc2012 import wnids

    root = scratch / "folders"
    for wnid in wnids():
        (root / wnid).mkdir(parents=True)
    link(scratch, (root / wnids()[number % 1000] / f"{number:06d}.JPEG" for number in range(count)))
    return root


def make_flat(scratch: Path, count: int) -> Path:
    """Named like the validation images, with true labels for the first of them."""
    from inferometer.data.ilsvrc2012 import FIRST_CLASSES

    root = scratch / "flat"
    root.mkdir()
    names = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, count + 1)]
    link(scratch, (root / name for name in names))
    labels = [*FIRST_CLASSES, *(number % 1000 for number in range(count))]
    lines = [f"{name} {label}\n" for name, label in zip(names, labels, strict=False)]
    (root / "val.txt").write_text("".join(lines))
    return root


def link(scratch: Path, paths: Iterable[Path]) -> None:
    """Hard links to small JPEGs of noise, a new one for every ``LINKS`` of them."""
    import numpy as np
    from PIL import Image

    source = scratch
    for number, path in enumerate(paths):
        if number % LINKS == 0:
            source = scratch / f"{path.parent.parent.name}-{path.parent.name}-{number}.jpg"
            noise = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(noise).save(source, quality=90)
        os.link(source, path)


if __name__ == "__main__":
    sys.exit(main())
