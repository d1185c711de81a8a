"""What a thread for each request gains over one thread that drives them all, on OpenVINO.

    python benchmarks/engines/openvino_loop.py [--models NAME|FILE,...] [--efficientnet FILE]
        [--precisions fp32,int8] [--batches 1,8] [--threads N] [--pairs 25] [--seconds 0.8]

Needs the extra ``openvino``. In one process, each model is compiled twice with the same settings and driven
by turns, with as many requests: by Inferometer's loop, and by that of OpenVINO's ``benchmark_app``, which is
one thread that starts whichever request of an ``AsyncInferQueue`` is idle. Printed is the median of the
ratios, Inferometer over the tool's loop, and its 95 % interval.

It explains what `own_tools.py` reads: where calls take a millisecond or two, the one thread wakes up late on
cores that are all busy, and a request lies idle meanwhile.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import files
import openvino
from pairing import said, turns

from inferometer import registry
from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.measure import run_segment

MODELS = f"{files.TRAINED},resnet50,googlenet"
PIXELS = (0.0, 255.0)


def by_threads(session: Session) -> Callable[[float], float]:
    """Calls/s of Inferometer's loop, as a record counts them."""

    def rate(seconds: float) -> float:
        slots = session.in_flight
        edges = run_segment(session, slots, seconds, 3 * slots).edges(slots)
        return (len(edges) - 1) / (float(edges[-1] - edges[0]) * 1e-9)

    return rate


def by_queue(model: Path, session: Session, feeds: dict[str, Any]) -> Callable[[float], float]:
    """Calls/s as benchmark_app counts them: all that were begun, until the last is done."""
    core = openvino.Core()
    graph = core.read_model(str(model))
    graph.reshape({one.name: list(one.shape) for one in session.inputs})
    settled = session.settled
    config = {
        "NUM_STREAMS": str(settled["streams"]),
        "INFERENCE_NUM_THREADS": str(settled["threads"]),
        "INFERENCE_PRECISION_HINT": settled["inference_precision"],
    }
    compiled = core.compile_model(graph, "CPU", config)
    queue = openvino.AsyncInferQueue(compiled, session.in_flight)
    for request in queue:
        for port in compiled.inputs:
            request.get_tensor(port).data[:] = feeds[port.get_any_name()]

    def rate(seconds: float) -> float:
        begin, calls = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            queue.get_idle_request_id()
            queue.start_async()
            calls += 1
        queue.wait_all()
        return calls / (time.perf_counter() - begin)

    return rate


def ratios(model: Path, precision: str, batch: int, options: argparse.Namespace) -> list[float]:
    """Inferometer's loop over the tool's, by turns."""
    engine = registry.engine("openvino")
    with engine.load(model, "cpu", precision, batch, {"threads": options.threads}) as session:
        feeds = synthetic_feeds(session.inputs, seed=0, ranges={one.name: PIXELS for one in session.inputs})
        for slot in range(session.in_flight):
            session.prepare(slot, feeds)
        ways = by_threads(session), by_queue(model, session, feeds)
        for way in ways:
            way(options.seconds)
        found = []
        for pair in range(options.pairs):
            rates = [0.0, 0.0]
            for who in turns(pair):
                rates[who] = ways[who](options.seconds)
            found.append(rates[0] / rates[1])
        return found


def main() -> None:
    """Print one line per model, precision and batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=MODELS)
    parser.add_argument("--efficientnet", type=Path)
    parser.add_argument("--precisions", default="fp32,int8")
    parser.add_argument("--batches", default="1,8")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=25)
    parser.add_argument("--seconds", type=float, default=0.8)
    options = parser.parse_args()
    engine = registry.engine("openvino")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            model = files.model_file(name, options.efficientnet, Path(folder))
            for precision in options.precisions.split(","):
                file = files.int8_file(engine, model, Path(folder)) if precision == "int8" else model
                for batch in map(int, options.batches.split(",")):
                    found = ratios(file, precision, batch, options)
                    print(f"{model.stem} {precision} batch {batch}: {said(found)}", flush=True)


if __name__ == "__main__":
    main()
