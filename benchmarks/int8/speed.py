"""INT8 speed of Inferometer's file beside each peer's, on the same engine, by interleaved pairs.

    sh benchmarks/int8/setup_peers.sh VENV
    python benchmarks/int8/speed.py --data DIR --peers-python VENV/bin/python
        [--models efficientnet_lite0,googlenet,resnet50,vgg16] [--engines onnxruntime,openvino]
        [--batch 8] [--images 8] [--pairs 20] [--slice 0.3] [--peers NAME,...] [--json FILE]

One process per comparison holds both files open and runs them by turns, A B, B A, A B, ..., one slice each,
after a call that warms up; the ratio of a pair compares neighbours in time, so a drifting machine cancels.
Printed is the median ratio, Inferometer over peer, and its 95 % interval by the sign test. All but the first
model have random weights, and few images choose the ranges: neither changes what runs, only the form of the
file does. The bar: at least 0.97 times each peer.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import children
import material
import runners

from inferometer.stats import median_interval

BAR = 0.97
MODELS = f"{material.TRAINED},googlenet,resnet50,vgg16"
# One method of each peer: the ranges do not change what runs.
PEERS = "onnxruntime minmax,nncf onnx,nncf openvino,neural-compressor minmax,modelopt entropy"


def pairs(job: str) -> None:
    """A child: rates of two files by turns."""
    import numpy as np

    engine, files, shape, number, seconds = json.loads(job)
    images = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    both = [runners.open_file(Path(file), engine) for file in files]
    for runner in (*both, *both):
        runner.rate(images, seconds)
    rates = []
    for turn in range(number):
        order = (0, 1) if turn % 2 == 0 else (1, 0)
        pair = [0.0, 0.0]
        for place in order:
            both[place].rate(images, 0.0)  # wakes its threads and fills the caches
            pair[place] = both[place].rate(images, seconds)
        rates.append(pair)
    print(json.dumps(rates))


class Comparisons:
    """The files of one model, and their comparisons."""

    def __init__(self, name: str, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.of = material.material(name, options.data, folder)
        self.root = options.data / "imagenet-sample"
        self.names = [entry.file for entry in material.halves(options.data)[0]][: options.images]

    def run(self) -> list[dict[str, Any]]:
        """One row per engine and peer."""
        ours = self._ours()
        theirs = {name: self._theirs(name) for name in self.options.peers}
        rows = []
        for engine in self.options.engines.split(","):
            for name, file in theirs.items():
                if name == "nncf openvino" and engine != "openvino":
                    continue
                row = {"model": self.of.name, "engine": engine, "peer": name}
                rows.append(row | self._compare(engine, ours[engine], file))
                print(f"{self.of.name} on {engine} against {name}: done", file=sys.stderr, flush=True)
        return rows

    def _ours(self) -> dict[str, Path | str]:
        files: dict[str, Path | str] = {}
        first = self.folder / "ours-onnxruntime.onnx"
        ran = material.calibrate(self.of, self.root, self.names, first)
        files["onnxruntime"] = ran.reason or first
        other = self.folder / "ours-openvino.onnx"
        again = ran if ran.reason else material.reform(self.of, first.with_suffix(".table.json"), other)
        files["openvino"] = again.reason or other
        return files

    def _theirs(self, name: str) -> Path | str:
        out = self.folder / f"{name.replace(' ', '-')}{'.xml' if name == 'nncf openvino' else '.onnx'}"
        ran = material.peer(name, self.of, [self.root / file for file in self.names], out, self.options)
        return ran.reason or out

    def _compare(self, engine: str, ours: Path | str, theirs: Path | str) -> dict[str, Any]:
        for whose, file in (("inferometer", ours), ("peer", theirs)):
            if isinstance(file, str):
                return {"reason": f"{whose}: {file}"}
        shape = [self.options.batch, *self.of.preprocessing.output_shape]  # type: ignore[misc]
        job = [engine, [str(ours), str(theirs)], shape, self.options.pairs, self.options.slice]
        ran = children.run([sys.executable, __file__, "pairs", json.dumps(job)])
        if ran.reason:
            return {"reason": ran.reason}
        ratios = [a / b for a, b in ran.answer]
        interval = median_interval(ratios)
        return {
            "reason": None,
            "ours_images_per_s": statistics.median(a for a, _ in ran.answer),
            "peer_images_per_s": statistics.median(b for _, b in ran.answer),
            "ratio": statistics.median(ratios),
            "ci95": interval and list(interval),
            "pairs": ran.answer,
        }


def show(rows: list[dict[str, Any]], batch: int) -> None:
    """Print the table."""
    columns = ["model", "engine", "peer", "ours/s", "peer/s", "ratio", "95 % interval", "fault"]
    lines = []
    for row in rows:
        figures = [""] * 4
        if row["reason"] is None:
            low, high = row["ci95"] or (math.nan, math.nan)
            figures = [f"{row['ours_images_per_s']:.1f}", f"{row['peer_images_per_s']:.1f}",
                       f"{row['ratio']:.3f}", f"{low:.3f} to {high:.3f}"]  # fmt: skip
        lines.append([row["model"], row["engine"], row["peer"], *figures, row["reason"] or ""])
    children.print_table(f"images/s at batch {batch}, and their ratio", columns, lines)


def bars(rows: list[dict[str, Any]]) -> list[tuple[str, bool | None]]:
    """Per model and engine, the peer that is fastest beside ours."""
    found: list[tuple[str, bool | None]] = []
    for model, engine in dict.fromkeys((row["model"], row["engine"]) for row in rows):
        own = [row for row in rows if (row["model"], row["engine"]) == (model, engine)]
        known = [row for row in own if row["reason"] is None]
        worst = min(known, key=lambda row: row["ratio"], default=None)
        text = (
            f"{worst['ratio']:.3f}x the best peer, {worst['peer']}" if worst else "no peer could be compared"
        )
        met = worst["ratio"] >= BAR if worst else None
        found.append((f"{model} on {engine}: {text} (bar: {BAR}x)", met))
    return found


def main() -> int:
    """Make the files, run the pairs, print the table and the bars."""
    if sys.argv[1:2] == ["pairs"]:
        pairs(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    material.add_options(parser)
    parser.set_defaults(peers=PEERS)
    parser.add_argument("--models", default=MODELS, help="%(default)s")
    parser.add_argument("--engines", default=",".join(runners.ENGINES), help="%(default)s")
    parser.add_argument("--batch", type=int, default=8, help="%(default)s")
    parser.add_argument("--images", type=int, default=8, help="that choose the ranges (%(default)s)")
    parser.add_argument("--pairs", type=int, default=20, help="%(default)s")
    parser.add_argument("--slice", type=float, default=0.3, help="seconds of one turn (%(default)s)")
    options = material.parse(parser)
    rows: list[dict[str, Any]] = []
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory(prefix="int8-speed-") as folder:
            rows += Comparisons(name, options, Path(folder)).run()
    show(rows, options.batch)
    found = bars(rows)
    children.write_json(
        options.json,
        {"benchmark": "speed", "cpu": material.cpu(), "batch": options.batch, "rows": rows,
         "bars": [{"bar": text, "met": met} for text, met in found]},
    )  # fmt: skip
    return children.print_bars(found)


if __name__ == "__main__":
    sys.exit(main())
