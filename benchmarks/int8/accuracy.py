"""INT8 accuracy of Inferometer's methods beside its peers', cross-fitted: every image is scored once.

    sh benchmarks/int8/setup_peers.sh VENV
    python benchmarks/int8/accuracy.py --data DIR --peers-python VENV/bin/python
        [--methods kl,percentile,mse,minmax] [--images 500] [--peers NAME,...] [--json FILE]

The images at even positions choose the ranges and those at odd positions are scored, then the reverse, so
that all images give paired scores and none is scored by a model that it calibrated. Every file is scored on
onnxruntime's CPU provider; those of Inferometer (in OpenVINO's form) and of nncf on OpenVINO too, where
layers left in float run in f32. Per file, against FP32 on the same engine:

    error      mean over images of ||logits - fp32|| / ||fp32||
    SQNR       10 log10(sum fp32^2 / sum (logits - fp32)^2), dB
    agree      images with the same first class as FP32
    d top-1    paired difference in points, Tango's 95 % interval, exact McNemar p

Then Inferometer's default, ``--method``, against the peer with the best top-1. The bar: the lower end of
that interval is at least -1.5 points. Without VNNI 8-bit weights saturate in onnxruntime's kernels, so all
take 7 bits there.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import children
import material
import numpy as np
import peers
import runners

from inferometer.accuracy import PairedDifference, agreement, hits, paired_difference, top_k
from inferometer.data.loader import ImageLoader
from inferometer.data.source import FolderSource

BAR = -0.015
BATCH = 25
FP32 = "fp32"


def score(job: str) -> None:
    """A child: the logits of one file on one engine, so that a crash is one row's."""
    engine, file, images, out = json.loads(job)
    pixels = np.load(images, mmap_mode="r")
    runner = runners.open_file(Path(file), engine)
    logits = [
        runner.logits(np.ascontiguousarray(pixels[at : at + BATCH])) for at in range(0, len(pixels), BATCH)
    ]
    np.save(out, np.concatenate(logits))
    print(json.dumps({}))


class Folds:
    """Both halves: calibrate on one, score on the other."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.of = material.material(options.model, options.data, folder)
        self.root = options.data / "imagenet-sample"
        even, odd = (half[: options.images // 2] for half in material.halves(options.data))
        self.folds = ((even, odd), (odd, even))
        self.labels = np.array([entry.class_index for _, scored in self.folds for entry in scored])
        for number, (_, scored) in enumerate(self.folds):
            loader = ImageLoader(
                FolderSource(self.root), scored, self.of.preprocessing, BATCH, workers=2, max_bad=0
            )
            np.save(self._pixels(number), np.concatenate([some.images for some in loader]))
        self._check_peers_decoder(odd[0].file)
        self.logits: dict[tuple[str, str], np.ndarray] = {}
        self.faults: dict[tuple[str, str], str] = {}
        self.versions: dict[str, Any] = {}

    def _pixels(self, number: int) -> Path:
        return self.folder / f"pixels-{number}.npy"

    def _check_peers_decoder(self, file: str) -> None:
        theirs = peers.load_image(str(self.root / file), self.of.preprocessing.model_dump(mode="json"))
        if not np.array_equal(theirs, np.load(self._pixels(0), mmap_mode="r")[0]):
            raise SystemExit("peers.py decodes images in another way than Inferometer: mend load_image")

    def run(self) -> None:
        """Everything into ``logits`` and ``faults``, by (name, engine)."""
        for engine in runners.ENGINES:
            self._score(FP32, engine, [self.of.model, self.of.model])
        for method in self.options.methods.split(","):
            self._ours(method)
        for name in self.options.peers:
            native = name == "nncf openvino"
            files: list[Path | str] = []
            for number, (chosen, _) in enumerate(self.folds):
                out = self._file(name, number, ".xml" if native else ".onnx")
                images = [self.root / entry.file for entry in chosen]
                ran = material.peer(name, self.of, images, out, self.options)
                files.append(ran.reason or out)
                if ran.reason is None:
                    self.versions[name] = ran.answer["versions"] | {"images": ran.answer["images"]}
            if not native:
                self._score(name, "onnxruntime", files)
            if name.startswith("nncf"):
                self._score(name, "openvino", files)

    def _ours(self, method: str) -> None:
        name, files, others = f"inferometer {method}", [], []
        for number, (chosen, _) in enumerate(self.folds):
            out, other = self._file(name, number, ".onnx"), self._file(f"{name} openvino", number, ".onnx")
            ran = material.calibrate(self.of, self.root, [entry.file for entry in chosen], out, method=method)
            files.append(ran.reason or out)
            again = ran if ran.reason else material.reform(self.of, out.with_suffix(".table.json"), other)
            others.append(again.reason or other)
        self._score(name, "onnxruntime", files)
        self._score(name, "openvino", others)

    def _file(self, name: str, number: int, suffix: str) -> Path:
        return self.folder / f"{name.replace(' ', '-')}-{number}{suffix}"

    def _score(self, name: str, engine: str, files: list[Any]) -> None:
        """Score both folds' files; a file may be the reason why it is none."""
        parts = []
        for number, file in enumerate(files):
            out = self.folder / "logits.npy"
            fault = file if isinstance(file, str) else None
            if fault is None:
                job = json.dumps([engine, str(file), str(self._pixels(number)), str(out)])
                fault = children.run([sys.executable, __file__, "score", job]).reason
            if fault is not None:
                self.faults[name, engine] = fault
                break
            parts.append(np.load(out))
        else:
            self.logits[name, engine] = np.concatenate(parts)
        print(f"{name} on {engine}: {self.faults.get((name, engine), 'scored')}", file=sys.stderr, flush=True)


def row(logits: np.ndarray, reference: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """All figures of one file against FP32."""
    top, wanted = top_k(logits, 5), top_k(reference, 5)
    off, size = logits.astype(np.float64) - reference, reference.astype(np.float64)
    noise = float((off**2).sum())
    pair = paired_difference(hits(wanted, labels, 1), hits(top, labels, 1))
    return {
        "top1": float(hits(top, labels, 1).mean()),
        "top5": float(hits(top, labels, 5).mean()),
        "error": float((np.linalg.norm(off, axis=1) / np.linalg.norm(size, axis=1)).mean()),
        "sqnr_db": 10 * float(np.log10((size**2).sum() / noise)) if noise else None,
        "agreement": agreement(top[:, 0], wanted[:, 0]),
        "to_fp32": difference(pair),
    }


def difference(pair: PairedDifference) -> dict[str, Any]:
    """A paired difference for JSON."""
    return {"delta": pair.delta, "ci95": list(pair.ci95), "p": pair.p, "only_a": pair.only_a,
            "only_b": pair.only_b, "images": pair.n}  # fmt: skip


def points(found: dict[str, Any]) -> str:
    """A paired difference for people."""
    low, high = found["ci95"]
    return f"{found['delta'] * 100:+.1f} [{low * 100:+.1f}, {high * 100:+.1f}] p {found['p']:.2f}"


def compare(folds: Folds, rows: dict[str, dict[str, dict[str, Any]]], method: str) -> list[dict[str, Any]]:
    """Ours against the best peer on each engine."""
    found = []
    for engine, scored in rows.items():
        others = [name for name in scored if name.split()[0] not in (FP32, "inferometer")]
        ours = f"inferometer {method}"
        if not others or ours not in scored:
            found.append({"engine": engine, "ours": ours, "peer": None, "difference": None})
            continue
        best = max(others, key=lambda name: (scored[name]["top1"], scored[name]["agreement"]))
        a, b = (hits(top_k(folds.logits[name, engine], 1), folds.labels, 1) for name in (best, ours))
        found.append(
            {"engine": engine, "ours": ours, "peer": best, "difference": difference(paired_difference(a, b))}
        )
    return found


def show(engine: str, rows: dict[str, dict[str, Any]], faults: dict[str, str]) -> None:
    """Print one engine's table."""
    columns = ["", "top-1 %", "top-5 %", "error", "SQNR dB", "agree %", "d top-1 to FP32, points", "fault"]
    lines = []
    for name, one in rows.items():
        sqnr = "" if one["sqnr_db"] is None else f"{one['sqnr_db']:.1f}"
        figures = [f"{one['top1'] * 100:.1f}", f"{one['top5'] * 100:.1f}", f"{one['error']:.4f}", sqnr]
        lines.append([name, *figures, f"{one['agreement'] * 100:.1f}", points(one["to_fp32"]), ""])
    lines += [[name, *[""] * 6, reason] for name, reason in faults.items()]
    children.print_table(f"on {engine}", columns, lines)


def main() -> int:
    """Run both folds, print the tables and the bars."""
    if sys.argv[1:2] == ["score"]:
        score(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    material.add_options(parser)
    parser.add_argument("--methods", default="kl,percentile,mse,minmax", help="of Inferometer (%(default)s)")
    parser.add_argument("--method", default="kl", help="the one that is held to the bar (%(default)s)")
    parser.add_argument("--images", type=int, default=500, help="in both halves together (%(default)s)")
    parser.add_argument("--model", default=material.TRAINED, help=argparse.SUPPRESS)
    options = material.parse(parser)
    with tempfile.TemporaryDirectory(prefix="int8-accuracy-") as folder:
        folds = Folds(options, Path(folder))
        folds.run()
    rows: dict[str, dict[str, dict[str, Any]]] = {engine: {} for engine in runners.ENGINES}
    for (name, engine), logits in folds.logits.items():
        if (FP32, engine) in folds.logits:
            rows[engine][name] = row(logits, folds.logits[FP32, engine], folds.labels)
    if not material.vnni():
        print("this CPU has no 8-bit dot product: weights have 7 bits, which costs all of them accuracy")
    for engine, scored in rows.items():
        show(engine, scored, {name: why for (name, where), why in folds.faults.items() if where == engine})
    found = compare(folds, rows, options.method)
    bars = [
        (f"{one['engine']}: {one['ours']} - {one['peer'] or 'best peer'} = "
         f"{points(one['difference']) if one['difference'] else '?'} (bar: lower end {BAR * 100:+.1f})",
         one["difference"]["ci95"][0] >= BAR if one["difference"] else None)
        for one in found
    ]  # fmt: skip
    children.write_json(
        options.json,
        {"benchmark": "accuracy", "model": options.model, "cpu": material.cpu(), "images": len(folds.labels),
         "rows": rows, "faults": {" on ".join(key): why for key, why in folds.faults.items()},
         "versions": folds.versions, "to_best_peer": found},
    )  # fmt: skip
    return children.print_bars(bars)


if __name__ == "__main__":
    sys.exit(main())
