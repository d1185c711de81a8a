"""FP32 and INT8 accuracy of EfficientNet-lite0 on 500 ImageNet images, by the commands a user would type.

    INFEROMETER_TEST_DATA=DIR python benchmarks/sample_accuracy.py [--data DIR] [--method kl]

``DIR`` holds ``models/efficientnet_lite0.onnx`` and ``imagenet-sample/`` (JPEGs and labels.csv).
The bars: FP32 top-1 88.6 +- 0.8 %, top-5 97.4 +- 0.8 % on all images; INT8, calibrated on the even
half, at most 1.5 points under FP32 on the other half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def inferometer(*words: str) -> Any:
    """The JSON document that a command prints."""
    command = [sys.executable, "-m", "inferometer", *words, "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def main() -> int:
    """Print each figure and whether it meets its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("INFEROMETER_TEST_DATA"))
    parser.add_argument("--method", default="kl")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("give --data DIR or set INFEROMETER_TEST_DATA")
    model = str(Path(arguments.data) / "models" / "efficientnet_lite0.onnx")
    images = ["--data", str(Path(arguments.data) / "imagenet-sample"), "--preprocess", "efficientnet-lite"]
    whole = inferometer("accuracy", model, *images)["models"][0]
    print(f"FP32 on {whole['images']} images: top-1 {whole['top1']:.1%}, top-5 {whole['top5']:.1%}")
    met = abs(whole["top1"] - 0.886) <= 0.008 and abs(whole["top5"] - 0.974) <= 0.008
    with tempfile.TemporaryDirectory() as folder:
        quantized = str(Path(folder) / "int8.onnx")
        options = ["--images", "250", "--split", "even", "--method", arguments.method]
        facts = inferometer("calibrate", model, *images, *options, "--out", quantized)
        pair = inferometer("accuracy", model, quantized, *images)
    for row in pair["models"]:
        scores = f"top-1 {row['top1']:.1%}, top-5 {row['top5']:.1%}"
        print(f"{row['precision']} on the {row['images']} others: {scores}")
    top1 = next(row for row in pair["difference"] if row["metric"] == "top1")
    low, high = top1["ci95"]
    print(
        f"INT8 ({facts['method']}, {facts['weight_bits']}-bit weights) - FP32: {top1['delta'] * 100:+.1f} "
        f"points, 95 % interval {low * 100:+.1f} to {high * 100:+.1f}, {top1['verdict']} (bar: at least -1.5)"
    )
    return 0 if met and top1["delta"] >= -0.015 else 1


if __name__ == "__main__":
    sys.exit(main())
