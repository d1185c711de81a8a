"""What measuring costs: images/s through Inferometer's loop against a bare loop over the same session.

    python benchmarks/overhead.py [--model googlenet] [--batch 1] [--pairs 20] [--seconds 1.0]

Interleaved pairs over one onnxruntime session; the ratio of a pair compares neighbours in time, so a
drifting machine cancels. Also prints the cost per call of the loop itself, with the null engine.
The bar: the median ratio is within 2 % of 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from inferometer.config import MeasureSection
from inferometer.data.synthetic import synthetic_feeds
from inferometer.engines.null import NullEngine
from inferometer.engines.onnxruntime.engine import OnnxRuntimeEngine, OnnxRuntimeSession
from inferometer.measure import Measurement, WarmUp, measure_throughput, run_segment, throughput_of
from inferometer.models import networks


def bare_rate(session: OnnxRuntimeSession, batch: int, seconds: float) -> float:
    """Images/s of the loop that anyone would write."""
    raw = session.raw
    names = [tensor.name for tensor in session.outputs]
    feeds = synthetic_feeds(session.inputs, seed=0)
    begin = time.perf_counter()
    calls = 0
    while (elapsed := time.perf_counter() - begin) < seconds:
        raw.run(names, feeds)
        calls += 1
    return calls * batch / elapsed


def our_rate(session: OnnxRuntimeSession, batch: int, seconds: float) -> float:
    """Images/s as a record would say it."""
    segment = run_segment(session, 1, seconds)
    return throughput_of(Measurement(WarmUp((), True), (segment,), batch, 1)).images_per_s


def null_cost_s(model: Path) -> float:
    """Seconds per call of the loop around an engine that does nothing."""
    with NullEngine().load(model, "cpu", "fp32", 1, {}) as session:
        session.prepare(0, synthetic_feeds(session.inputs, seed=0))
        measured = measure_throughput(session, 1, MeasureSection(max_s=1.0, warmup_max_s=0.5))
    return 1.0 / throughput_of(measured).images_per_s


def main() -> int:
    """Run the pairs and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="googlenet", help="a built-in network or an ONNX file")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(arguments.model)
        if arguments.model in networks.names():
            model = Path(folder) / "model.onnx"
            networks.export(arguments.model, model)
        print(f"null engine: {null_cost_s(model) * 1e9:.0f} ns per call")
        session = OnnxRuntimeEngine().load(model, "cpu", "fp32", arguments.batch, {})
        assert isinstance(session, OnnxRuntimeSession)
        ratios = []
        with session:
            session.prepare(0, synthetic_feeds(session.inputs, seed=0))
            bare_rate(session, arguments.batch, 1.0)
            for pair in range(arguments.pairs):
                first_bare = pair % 2 == 0
                order = (bare_rate, our_rate) if first_bare else (our_rate, bare_rate)
                one, two = (run(session, arguments.batch, arguments.seconds) for run in order)
                bare, ours = (one, two) if first_bare else (two, one)
                ratios.append(ours / bare)
                print(f"pair {pair + 1:2}: bare {bare:8.2f}  ours {ours:8.2f} images/s  {ratios[-1]:.4f}")
    median = statistics.median(ratios)
    print(f"median ratio of {len(ratios)} pairs: {median:.4f} (bar: 0.98 to 1.02)")
    return 0 if 0.98 <= median <= 1.02 else 1


if __name__ == "__main__":
    sys.exit(main())
