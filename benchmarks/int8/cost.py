"""What a calibration costs, in time and memory: Inferometer's beside those of its peers.

    sh benchmarks/int8/setup_peers.sh VENV
    python benchmarks/int8/cost.py --data DIR --peers-python VENV/bin/python [--model efficientnet_lite0]
        [--images 250] [--rounds 2] [--repeat-images 20] [--memory 12] [--peers NAME,...] [--json FILE]

Each calibration is a process of its own, on the same images and preprocessing (Pillow), and each round runs
all of them in turn, every second round backwards, so that a drifting machine meets all alike; figures are
medians over rounds. A peer that keeps every activation stops reading when memory runs short: the column
``images`` says after how many. ``calibrate s`` is the time from the first image to the last threshold,
decoding included, and ``ms/image`` that over the images; ``total s`` is the whole process: start, imports,
reading the model and, for Inferometer, writing the quantized file too.
``peak MB`` is the sum over the processes of a command, ``largest MB`` that of the largest of them.

Two base lines run with them. ``forward``: a bare onnxruntime process, three calls at batch 25.
``two passes``: decode the images and run the model with the observed tensors exposed, twice, at the batch
that the calibrator chooses, and do nothing with the results; either with as many requests at once as the
calibrator, each image decoded once, or one after the other. The faster of the two counts.

The bars, of ``calibrate s``: 10 times faster per image than onnxruntime's entropy calibrator, and at most 1.4
times the two passes. Of memory: at most 400 MB above the bare forward, for ``--repeat-images`` times as many
images too.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

BASE_BATCH = 25
SPEED_BAR, PASSES_BAR, MEMORY_BAR_MB = 10.0, 1.4, 400.0
OURS, FORWARD = "inferometer kl", "base: forward, batch 25"
PASSES = {"base: two passes, requests": "requests", "base: two passes, infer": "infer"}


def forward(model: str, batch: int) -> None:
    """A child: three calls of a bare session."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    feed = np.random.default_rng(0).standard_normal((batch, *wanted.shape[1:]), dtype=np.float32)
    for _ in range(3):
        session.run(None, {wanted.name: feed})
    print(json.dumps({}))


def two_passes(model: str, preset: str, root: str, listed: str, kind: str) -> None:
    """A child: what a calibration must do whatever its statistics cost.

    kind: ``requests``, as many requests and as large as the calibrator's, by its own passes with nothing to
    visit, each image decoded once; ``infer``, one request of that batch at a time, decoded by the loader.
    """
    from inferometer import registry
    from inferometer.config import CalibrationSection
    from inferometer.data.imageset import named, open_set
    from inferometer.data.loader import ImageLoader
    from inferometer.data.preprocess import load
    from inferometer.environment.cgroup import usable_cores
    from inferometer.models.files import load as load_model
    from inferometer.models.files import save
    from inferometer.quantize.graph import expose, observed_tensors, prepare
    from inferometer.quantize.passes import CalibrationBatch, StageTimes, run_pass
    from inferometer.trials.accuracy import padded
    from inferometer.trials.forward import plan_forward

    images = open_set(root)
    entries = named(images, Path(listed).read_text(encoding="utf-8").split())
    prepared = prepare(load_model(Path(model)))
    tensors, cores = observed_tensors(prepared), usable_cores()
    budget = CalibrationSection(data=root).memory_bytes
    plan = plan_forward(prepared, tensors, budget, cores)
    options = {"in_flight": plan.in_flight} if kind == "requests" else {}
    with tempfile.TemporaryDirectory() as folder:
        exposed = Path(folder) / "exposed.onnx"
        save(expose(prepared, tensors), exposed)
        with registry.engine("onnxruntime").load(exposed, "cpu", "fp32", plan.batch, options) as session:
            (wanted,) = session.inputs
            how = load(preset).for_input(wanted.shape)

            def made(decode: Any) -> CalibrationBatch:
                some = decode()
                feeds = {wanted.name: padded(some.images, plan.batch)}
                return CalibrationBatch(feeds, len(some.labels), some.hashes)

            begin = time.perf_counter()
            if kind == "requests":
                kept = ImageLoader(images.source, entries, how, plan.batch, keep_bytes=budget)
                for _ in range(2):
                    batches = [partial(made, decode) for decode in kept.deferred()]
                    run_pass(session, lambda: iter(batches), lambda *batch: None, StageTimes())  # noqa: B023
            else:
                loader = ImageLoader(images.source, entries, how, plan.batch, workers=cores)
                for _ in range(2):
                    for loaded in loader:
                        session.infer({wanted.name: padded(loaded.images, plan.batch)})
            seconds = time.perf_counter() - begin
    print(json.dumps({"images": len(entries), "forward_batch": plan.batch, "calibrate_s": seconds}))


def repeated(root: Path, names: list[str], times: int, folder: Path) -> list[str]:
    """``times`` as many images in ``folder``: copies under other names, each with other bytes at its end."""
    lines, made = ["file,class_index"], []
    for copy in range(times):
        for name in names:
            file = folder / f"{copy:03d}_{name}"
            shutil.copyfile(root / name, file)
            file.chmod(0o644)
            with file.open("ab") as stream:
                stream.write(f"copy {copy}".encode())  # after the end of the image, where decoders stop
            lines.append(f"{file.name},0")
            made.append(file.name)
    (folder / "labels.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return made


class Rounds:
    """The rows, run round by round."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        import material

        self.options, self.folder, self.kit = options, folder, material
        self.of = material.material(options.model, options.data, folder)
        self.root = options.data / "imagenet-sample"
        self.names = [entry.file for entry in material.halves(options.data)[0]][: options.images]
        self.rows: dict[str, list[dict[str, Any]]] = {}

    def run(self) -> dict[str, list[dict[str, Any]]]:
        """All rounds; the rows by name, with one entry per round."""
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            OURS: lambda: self._ours(self.root, self.names),
            **{name: partial(self._passes, kind) for name, kind in PASSES.items()},
            FORWARD: self._forward,
            **{name: partial(self._peer, name) for name in self.options.peers},
        }
        for number in range(self.options.rounds):
            for name in steps if number % 2 == 0 else reversed(steps):
                self._keep(name, steps[name]())
        if self.options.repeat_images > 1:
            copies = self.folder / "copies"
            copies.mkdir()
            names = repeated(self.root, self.names, self.options.repeat_images, copies)
            self._keep(f"{OURS}, {len(names)} images", self._ours(copies, names))
        return self.rows

    def _keep(self, name: str, row: dict[str, Any]) -> None:
        self.rows.setdefault(name, []).append(row)
        figures = f"{row['total_s']:.1f} s, {row['peak_mb']:.0f} MB"
        print(f"{name}: {row['reason'] or figures}", file=sys.stderr, flush=True)

    def _ours(self, root: Path, names: list[str]) -> dict[str, Any]:
        ran = self.kit.calibrate(self.of, root, names, self.folder / "ours.onnx")
        row = _row(ran)
        if ran.reason is None:
            row["calibrate_s"] = row["stages_s"]["wall"]
            row["ms_per_image"] = row["calibrate_s"] / row["images"] * 1e3
            if row["images"] != len(names):
                row["reason"] = f"used {row['images']} of {len(names)} images"
        return row

    def _passes(self, kind: str) -> dict[str, Any]:
        listed = self.folder / "passes.txt"
        listed.write_text("\n".join(self.names), encoding="utf-8")
        words = [str(self.of.model), self.of.preset, str(self.root), str(listed), kind]
        return _row(self.kit.run([sys.executable, __file__, "two-passes", *words]))

    def _forward(self) -> dict[str, Any]:
        return _row(self.kit.run([sys.executable, __file__, "forward", str(self.of.model), str(BASE_BATCH)]))

    def _peer(self, name: str) -> dict[str, Any]:
        images = [self.root / file for file in self.names]
        ran = self.kit.peer(name, self.of, images, None, self.options, self.options.peer_batch)
        row = _row(ran)
        if ran.reason is None:
            row["ms_per_image"] = ran.answer["calibrate_s"] / ran.answer["images"] * 1e3
        return row


def _row(ran: Any) -> dict[str, Any]:
    answer = ran.answer if isinstance(ran.answer, dict) else {}
    kept = (
        "images",
        "calibrate_s",
        "decode_s",
        "versions",
        "forward_batch",
        "threads",
        "stages_s",
    )
    row = {"total_s": ran.wall_s, "peak_mb": ran.peak_mb, "reason": ran.reason}
    row |= {"largest_mb": ran.largest_mb}
    return row | {key: answer[key] for key in kept if key in answer}


def median(rows: list[dict[str, Any]] | None, key: str) -> float | None:
    """Of the rounds that gave the figure; None when none did, or one failed."""
    values = [row[key] for row in rows or () if row["reason"] is None and key in row]
    return statistics.median(values) if values else None


def show(rows: dict[str, list[dict[str, Any]]], title: str) -> None:
    """Print the medians."""
    from children import print_table

    keys = ("images", "total_s", "calibrate_s", "ms_per_image", "peak_mb", "largest_mb")
    ours = median(rows.get(OURS), "ms_per_image")
    lines = []
    for name, rounds in rows.items():
        values = [median(rounds, key) for key in keys]
        each = values[keys.index("ms_per_image")]
        ratio = f"{each / ours:.2f}" if each and ours else ""
        cells = ["" if value is None else f"{value:.{1 if key.endswith('s') and key != 'images' else 0}f}"
                 for key, value in zip(keys, values, strict=True)]  # fmt: skip
        reason = next((row["reason"] for row in rounds if row["reason"]), "")
        lines.append([name, *cells, ratio, reason])
    columns = [
        "",
        "images",
        "total s",
        "calibrate s",
        "ms/image",
        "peak MB",
        "largest MB",
        "x ours",
        "fault",
    ]
    print_table(title, columns, lines)


def bars(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, bool | None]]:
    """Each bar with its figure."""
    ours, entropy = (
        median(rows[OURS], "ms_per_image"),
        median(rows.get("onnxruntime entropy"), "ms_per_image"),
    )
    faster = entropy / ours if ours and entropy else None
    total = median(rows[OURS], "calibrate_s")
    passes = [value for name in PASSES if (value := median(rows[name], "calibrate_s"))]
    more = total / min(passes) if total and passes else None
    found = [
        (f"{_text(faster, 'x')} onnxruntime's entropy calibrator per image (bar: {SPEED_BAR:.0f}x)",
         None if faster is None else faster >= SPEED_BAR),
        (f"{_text(more, 'x')} the time of the two passes (bar: {PASSES_BAR}x)",
         None if more is None else more <= PASSES_BAR),
    ]  # fmt: skip
    base = median(rows[FORWARD], "peak_mb")
    for name in (key for key in rows if key.startswith(OURS)):
        peak = median(rows[name], "peak_mb")
        above = peak - base if peak and base else None
        text = f"{name}: {_text(above, ' MB')} above the bare forward (bar: {MEMORY_BAR_MB:.0f} MB)"
        found.append((text, None if above is None else above <= MEMORY_BAR_MB))
    return found


def _text(value: float | None, unit: str) -> str:
    return "?" if value is None else f"{value:.0f}{unit}" if value >= 100 else f"{value:.2f}{unit}"


def main() -> int:
    """Run the rounds, print the table and the bars."""
    if sys.argv[1:2] == ["forward"]:
        forward(sys.argv[2], int(sys.argv[3]))
        return 0
    if sys.argv[1:2] == ["two-passes"]:
        two_passes(*sys.argv[2:7])
        return 0
    import children
    import material

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    material.add_options(parser)
    parser.add_argument("--model", default=material.TRAINED, help="or a built-in network, such as resnet50")
    parser.add_argument("--images", type=int, default=250, help="of the even positions (%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="%(default)s")
    parser.add_argument("--repeat-images", type=int, default=1, help="also so many times the images, alone")
    parser.add_argument("--peer-batch", type=int, default=1, help="images per call of a peer (%(default)s)")
    options = material.parse(parser)
    with tempfile.TemporaryDirectory(prefix="int8-cost-") as folder:
        rounds = Rounds(options, Path(folder))
        rows = rounds.run()
    show(rows, f"{options.model}, medians of {options.rounds} rounds")
    found = bars(rows)
    children.write_json(
        options.json,
        {"benchmark": "cost", "model": options.model, "cpu": material.cpu(), "rounds": options.rounds,
         "rows": rows, "bars": [{"bar": text, "met": met} for text, met in found]},
    )  # fmt: skip
    return children.print_bars(found)


if __name__ == "__main__":
    sys.exit(main())
