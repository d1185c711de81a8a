"""Whether Inferometer's images/s are those of each engine's own tool, by interleaved pairs.

    python benchmarks/engines/own_tools.py --engine openvino|onnxruntime [--models NAME|FILE,...]
        [--efficientnet FILE] [--precisions fp32,int8] [--batch 1] [--threads N] [--pairs 10] [--seconds 5]
        [--json FILE]

Needs the extra of that engine. Each pair measures the same model file, batch, threads and requests twice, one
after the other, and gives a ratio, Inferometer over tool; the order is swapped from pair to pair, so that a
machine that drifts favours neither. Printed are all ratios, their median and its 95 % interval by the sign
test. The bar: the median is within 2 % of 1.

- OpenVINO: ``benchmark_app`` of the installed package against ``measure_throughput``, each in a process of
  its own. The tool gets the streams, threads, requests and precision that Inferometer's session settled on,
  and a pair counts only if it says that it ran with the same. Its input is read as float32 (``-ip f32``; left
  alone, it feeds images as bytes and adds a cast). Both are fed random numbers from 0 to 255. The tool warms
  up by one call and counts the time until its last requests have drained: at most one call in ``--seconds``,
  so take more seconds for batches that take long.
- onnxruntime: ``InferenceSession.run`` in a bare loop, on a session with the same options, against
  ``measure_throughput``, both in one process; a new process for each two pairs, in which the other session is
  opened first, since where weights come to lie in memory makes a difference of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import files
from pairing import said, turns

from inferometer import registry
from inferometer.config import MeasureSection
from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.measure import measure_throughput, throughput_of
from inferometer.stats import median_interval

BAR = 0.02
MODELS = f"{files.TRAINED},resnet50,googlenet"
WARM_S = 1.0
NEVER = 1e-9  # an interval that no measurement reaches: it takes all of its time
PIXELS = (0.0, 255.0)  # what benchmark_app feeds where it is given no input
PAIRS_PER_PROCESS = 2
# What benchmark_app prints of the compiled model, by our words for it in a session's ``settled``.
TOLD = {
    "threads": "INFERENCE_NUM_THREADS",
    "streams": "NUM_STREAMS",
    "cpu_pinning": "ENABLE_CPU_PINNING",
    "hyper_threading": "ENABLE_HYPER_THREADING",
    "execution_mode": "EXECUTION_MODE_HINT",
    "runtime_requirements": "RUNTIME_REQUIREMENTS",
}


def fed(job: dict[str, Any]) -> Session:
    """A session of Inferometer's with all slots prepared."""
    options = {"threads": job["threads"], **job["options"]}
    session = registry.engine(job["engine"]).load(
        Path(job["file"]), "cpu", job["precision"], job["batch"], options
    )
    ranges = {tensor.name: PIXELS for tensor in session.inputs}
    for slot in range(session.in_flight):
        session.prepare(slot, synthetic_feeds(session.inputs, seed=0, ranges=ranges))
    return session


def our_rate(session: Session, batch: int, seconds: float) -> float:
    """Images/s as a record says it."""
    settings = MeasureSection(max_s=seconds, interval=NEVER, warmup_max_s=WARM_S)
    return throughput_of(measure_throughput(session, batch, settings)).images_per_s


def child_ours(job: dict[str, Any]) -> dict[str, Any]:
    """A process that measures by Inferometer: its rate, and how its session ran."""
    with fed(job) as session:
        settled = {**session.settled, "slots": session.in_flight}
        return {"rate": our_rate(session, job["batch"], job["seconds"]), "settled": settled}


def child_onnxruntime(job: dict[str, Any]) -> list[list[float]]:
    """A process that measures two pairs of [ours, bare loop] on two sessions of onnxruntime."""
    import onnxruntime

    def opened() -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = job["threads"], 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        return onnxruntime.InferenceSession(job["file"], options, providers=["CPUExecutionProvider"])

    bare = opened() if job["first"] else None
    with fed(job) as ours:
        bare = bare or opened()
        ranges = {tensor.name: PIXELS for tensor in ours.inputs}
        feeds = synthetic_feeds(ours.inputs, seed=0, ranges=ranges)

        def bare_rate(seconds: float) -> float:
            begin, calls = time.perf_counter(), 0
            while (elapsed := time.perf_counter() - begin) < seconds or not calls:
                bare.run(None, feeds)
                calls += 1
            return calls * job["batch"] / elapsed

        rates = []
        for pair in range(job["pairs"]):
            found = [0.0, 0.0]
            for who in turns(pair + job["first"]):
                if who == 0:
                    found[0] = our_rate(ours, job["batch"], job["seconds"])
                else:
                    bare_rate(WARM_S / 2)
                    found[1] = bare_rate(job["seconds"])
            rates.append(found)
    return rates


def spawned(child: str, job: dict[str, Any]) -> Any:
    """What a child process of this script answers."""
    done = subprocess.run(
        [sys.executable, __file__, child, json.dumps(job)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{job['file']}: the process failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def benchmark_app(job: dict[str, Any], settled: dict[str, Any], folder: Path) -> float:
    """Images/s that OpenVINO's tool reports, run as ``settled`` says."""
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = shutil.which("benchmark_app", path=beside)
    if command is None:
        raise SystemExit("there is no benchmark_app: it comes with the package openvino")
    latency = settled["performance_hint"] == "LATENCY"
    words = [
        command, "-m", job["file"], "-d", "CPU", "-b", str(job["batch"]), "-ip", "f32",
        "-hint", "none", "-api", "sync" if latency else "async",
        "-nstreams", str(settled["streams"]), "-nthreads", str(settled["threads"]),
        *([] if latency else ["-nireq", str(settled["slots"])]),
        "-infer_precision", settled["inference_precision"], "-t", str(max(1, round(job["seconds"]))),
    ]  # fmt: skip
    # CI: so that the package reports nothing to its vendor.
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "CI": "true"}
    )
    rate = re.search(r"Throughput:\s+([0-9.]+) FPS", done.stdout)
    if done.returncode != 0 or rate is None:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    for ours, theirs in TOLD.items():
        told = re.search(rf"^\[ INFO \]\s+{theirs}: (.*)$", done.stdout, re.MULTILINE)
        ran = None if told is None else told[1].split(".")[-1] if "Mode." in told[1] else told[1]
        if ours in settled and ran != str(settled[ours]):
            raise SystemExit(f"no fair pair: {ours} is {settled[ours]} here and {ran} in benchmark_app")
    return float(rate[1])


def pairs_openvino(job: dict[str, Any], number: int, folder: Path) -> tuple[list[list[float]], Any]:
    """Pairs of [ours, benchmark_app], each in a process of its own, and how both ran."""
    settled = spawned("ours", {**job, "seconds": 0.2})["settled"]
    rates = []
    for pair in range(number):
        found = [0.0, 0.0]
        for who in turns(pair):
            found[who] = spawned("ours", job)["rate"] if who == 0 else benchmark_app(job, settled, folder)
        rates.append(found)
    return rates, settled


def pairs_onnxruntime(job: dict[str, Any], number: int, folder: Path) -> tuple[list[list[float]], Any]:
    """Pairs of [ours, bare loop], two to a process."""
    rates: list[list[float]] = []
    while len(rates) < number:
        turn = len(rates) // PAIRS_PER_PROCESS % 2
        pairs = min(PAIRS_PER_PROCESS, number - len(rates))
        rates += spawned("onnxruntime", {**job, "pairs": pairs, "first": turn})
    return rates, {"threads": job["threads"], "slots": 1}


def case(name: str, precision: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """One line of the answer."""
    engine = registry.engine(options.engine)
    file = files.model_file(name, options.efficientnet, folder)
    if precision == "int8":
        file = files.int8_file(engine, file, folder)
    job = {
        "engine": options.engine, "file": str(file), "precision": precision, "batch": options.batch,
        "threads": options.threads, "seconds": options.seconds,
        "options": {"in_flight": 1} if options.latency else {},
    }  # fmt: skip
    measured = pairs_openvino if options.engine == "openvino" else pairs_onnxruntime
    rates, settled = measured(job, options.pairs, folder)
    ratios = [ours / theirs for ours, theirs in rates]
    median = statistics.median(ratios)
    interval = median_interval(ratios)
    print(f"{options.engine} {file.stem} {precision} batch {options.batch}: {said(ratios)}", flush=True)
    print("   " + " ".join(f"{ratio:.3f}" for ratio in ratios), flush=True)
    return {
        "model": name, "precision": precision, "batch": options.batch, "settled": settled,
        "rates_images_per_s": rates, "ratios": ratios, "median": median, "ci95": interval,
        "within_bar": abs(median - 1) <= BAR,
    }  # fmt: skip


def main() -> int:
    """Run all cases; 1 when a median is beyond the bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", choices=["openvino", "onnxruntime"], required=True)
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--efficientnet", type=Path)
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--latency", action="store_true", help="one request at a time, on all threads")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            for precision in options.precisions.split(","):
                rows.append(case(name, precision, options, Path(folder)))
    if options.json:
        about = {"engine": options.engine, "version": registry.engine(options.engine).version}
        machine = {"cpu": cpu_facts()[0].model, "cores": usable_cores()}
        options.json.write_text(json.dumps({**about, **machine, "cases": rows}, indent=1) + "\n", "utf-8")
    return 0 if all(row["within_bar"] for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] in (["ours"], ["onnxruntime"]):
        child = child_ours if sys.argv[1] == "ours" else child_onnxruntime
        print(json.dumps(child(json.loads(sys.argv[2]))))
        sys.exit(0)
    sys.exit(main())
