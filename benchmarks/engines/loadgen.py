"""MLPerf's LoadGen against Inferometer's own loop, on one session: offline samples/s and images/s.

    python benchmarks/engines/loadgen.py [--model resnet50] [--engine onnxruntime] [--batch 8] [--pairs 20]

Interleaved pairs over one session with the same slots and feeds, each side first in turn; the ratio of a pair
compares neighbours in time, so that a drifting machine cancels. LoadGen's figure is its own, on its own clock
(measured with MLPerf's LoadGen; not an MLPerf result), from the first sample issued to the last answered;
Inferometer's leaves out the filling and draining of the pipeline. Before that, the same with a session that
sleeps for 20 ms a call: what LoadGen itself costs, whatever else the machine does.
The bar: the median ratio is within 3 % of 1.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pairing import said, turns

from inferometer import registry
from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.engines.null import NullSession
from inferometer.measure import Measurement, WarmUp, run_segment, throughput_of, warm_up
from inferometer.models import networks
from inferometer.records import LoadGenResult
from inferometer.trials.loadgen import ask


def own_rate(session: Session, batch: int, seconds: float) -> float:
    """Images/s by Inferometer's loop."""
    slots = session.in_flight
    segment = run_segment(session, slots, seconds, min_calls=2 * slots + 1)
    return throughput_of(Measurement(WarmUp((), True), (segment,), batch, slots)).images_per_s


def by_loadgen(session: Session, batch: int, seconds: float, rate: float) -> LoadGenResult:
    """What LoadGen says, expecting ``rate`` images/s."""
    with tempfile.TemporaryDirectory() as folder:
        return ask(session, batch, "offline", seconds, rate / batch, Path(folder))


class SleepingSession(NullSession):
    """Calls of 20 ms that take no processor."""

    def submit(self, slot: int) -> None:
        """Begin to sleep."""
        self._until = time.monotonic() + 0.02

    def wait(self, slot: int) -> None:
        """Sleep on."""
        time.sleep(max(0.0, self._until - time.monotonic()))


def pair(session: Session, batch: int, seconds: float, number: int) -> tuple[float, LoadGenResult]:
    """Both sides, the first in turn."""
    if turns(number) == (0, 1):
        own = own_rate(session, batch, seconds)
        return own, by_loadgen(session, batch, seconds, own)
    other = by_loadgen(session, batch, seconds, own_rate(session, batch, seconds / 4))
    return own_rate(session, batch, seconds), other


def main() -> None:
    """Run the pairs and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="resnet50", help="a built-in network, or an ONNX file")
    parser.add_argument("--engine", default="onnxruntime")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each side of a pair")
    parser.add_argument("--threads", type=int, help="of the engine; default: its own")
    asked = parser.parse_args()
    engine = registry.engine(asked.engine)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(asked.model)
        if asked.model in networks.names():
            model = Path(folder) / f"{asked.model}.onnx"
            networks.export(asked.model, model)
        costs = []
        sleeping = SleepingSession(model, asked.batch)
        for number in range(asked.pairs):
            own, other = pair(sleeping, asked.batch, asked.seconds, number)
            costs.append((other.samples_per_s or 0.0) / own)
        print(f"calls that sleep for 20 ms: {said(costs)}")
        ratios = []
        options = {"threads": asked.threads} if asked.threads else {}
        with engine.load(model, engine.devices()[0].name, "fp32", asked.batch, options) as session:
            feeds = synthetic_feeds(session.inputs, 0)
            for slot in range(session.in_flight):
                session.prepare(slot, feeds)
            warm_up(session, session.in_flight, asked.seconds)
            print(f"{engine.name} {engine.version}, {session.in_flight} in flight, batch {asked.batch}")
            for number in range(asked.pairs):
                own, other = pair(session, asked.batch, asked.seconds, number)
                rate = other.samples_per_s or 0.0
                ratios.append(rate / own)
                valid = "VALID" if other.result_valid else f"INVALID: {other.invalid_reason}"
                print(
                    f"pair {number + 1:2}: ours {own:9.2f} images/s  LoadGen {rate:9.2f} samples/s  "
                    f"{ratios[-1]:.4f}  {valid}"
                )
    print(f"median ratio: {said(ratios)} (bar: 0.97 to 1.03)")


if __name__ == "__main__":
    main()
