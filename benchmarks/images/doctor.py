"""Does ``inferometer doctor`` find what the sample model wants, and name what is wrong?

Four times on the same model and images: as they are; with the channels swapped, with normalisation missing,
with labels that are one too high. Prints what was found, and whether it is right.

    python benchmarks/images/doctor.py --data DIR

DIR (or INFEROMETER_TEST_DATA) holds ``models/efficientnet_lite0.onnx`` and ``imagenet-sample/``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from inferometer.data.preprocess import PRESETS


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("INFEROMETER_TEST_DATA"))
    parser.add_argument("--images", type=int, default=300)
    options = parser.parse_args()
    if options.data is None:
        parser.error("give --data DIR, or set INFEROMETER_TEST_DATA")
    model, images = options.data / "models/efficientnet_lite0.onnx", options.data / "imagenet-sample"
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        swapped = _written(place / "swapped.yaml", channels="BGR")
        bare = _written(place / "bare.yaml", mean=[0.0] * 3, std=[1.0] * 3)
        shifted = _shifted(images, place / "shifted")
        cases = {
            "as they are": (images, [], None),
            "channels swapped": (images, ["--preprocess", str(swapped)], "channels"),
            "normalisation missing": (images, ["--preprocess", str(bare)], "normalisation"),
            "labels shifted by one": (shifted, ["--preprocess", "efficientnet-lite"], "labels"),
        }
        right = 0
        for name, (data, words, fault) in cases.items():
            found = _asked(model, data, options.images, words)
            named = [one["aspect"] for one in found["faults"]]
            ok = found["preprocess"] == "efficientnet-lite" and named == ([fault] if fault else [])
            ok &= found["label_offset"] == (-1 if fault == "labels" else 0)
            right += ok
            print(f"{'PASS' if ok else 'FAIL'}  {name}: fits {found['preprocess']}, faults {named or 'none'}")
            for sentence in found["sentences"]:
                print(f"      {sentence}")
    print(f"{right} of {len(cases)} right")
    return 0 if right == len(cases) else 1


def _written(path: Path, **changes: object) -> Path:
    fields = {**PRESETS["efficientnet-lite"].model_dump(mode="json", exclude={"name"}), **changes}
    path.write_text(yaml.safe_dump({key: value for key, value in fields.items() if value is not None}))
    return path


def _shifted(images: Path, folder: Path) -> Path:
    """The same images by links, every label one higher."""
    folder.mkdir()
    with (images / "labels.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    lines = ["file,class_index"]
    for row in rows:
        (folder / row["file"]).symlink_to((images / row["file"]).resolve())
        lines.append(f"{row['file']},{int(row['class_index']) + 1}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder


def _asked(model: Path, data: Path, images: int, words: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "inferometer", "doctor", "--model", str(model), "--data", str(data)]
    ended = subprocess.run(
        [*command, "--images", str(images), "--json", *words], capture_output=True, text=True, check=False
    )
    if ended.returncode != 0:
        sys.exit(ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout)["fits"]
    return found


if __name__ == "__main__":
    sys.exit(main())
