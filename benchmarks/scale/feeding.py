"""Real pictures under load: what the device does alone, what decoding does alone, and both together.

    python benchmarks/scale/feeding.py --data DIR [--model googlenet] [--batch 1,8] [--engine onnxruntime]

The data may also be named by INFEROMETER_TEST_DATA.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from inferometer.analysis.summary import summarise
from inferometer.cli.console import study_progress
from inferometer.config import Study, parse
from inferometer.study.run import run_study


def main() -> None:
    """Run one study with both inputs, and print a line for each batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=os.environ.get("INFEROMETER_TEST_DATA"))
    parser.add_argument("--model", default="googlenet")
    parser.add_argument("--batch", default="1,8")
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--device")
    asked = parser.parse_args()
    if asked.data is None:
        parser.error("--data DIR, or INFEROMETER_TEST_DATA, names the pictures")
    content = {
        "name": "feeding",
        "models": [asked.model],
        "engines": [{"engine": asked.engine, "device": asked.device}],
        "batches": [int(one) for one in asked.batch.split(",")],
        "input": ["synthetic", "images"],
        "images": {"data": asked.data},
        "kinds": ["throughput"],
        "measure": {"max_s": 6, "warmup_max_s": 3},
    }
    with tempfile.TemporaryDirectory() as folder, study_progress() as watcher:
        done = run_study(parse(Study, content, "feeding"), Path(folder), watcher)
    for row in summarise(done.records, lambda record: None).feeding:
        print(
            f"{row.setup.model} batch {row.setup.batch}: device alone {row.device or 0:,.1f}, decoding alone"
            f" {row.decode or 0:,.1f}, together {row.together:,.1f} images/s; bound by {row.bottleneck};"
            f" {row.wait_share:.1%} waiting, {row.prepare_share:.1%} handing over; {row.decoder}"
        )


if __name__ == "__main__":
    main()
