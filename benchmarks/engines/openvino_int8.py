"""INT8 and BF16 against true FP32 on OpenVINO's CPU plug-in, by interleaved rounds.

    python benchmarks/engines/openvino_int8.py [--model resnet50] [--batch 16] [--rounds 10] [--seconds 2]
        [--threads N] [--float f32|bf16] [--in-flight N] [--json FILE]

One process holds the same model at fp32 (INFERENCE_PRECISION_HINT f32; left alone, OpenVINO computes in bf16
where the CPU can), at bf16 where OpenVINO lists it, and at int8 in Inferometer's form of QDQ. Each round
measures all of them, in an order that is turned around each time, and gives a ratio to fp32. Printed are the
median ratios and their 95 % intervals by the sign test, the share of multiply-accumulates by the precision
that ran, and what each session settled on. The bar on a CPU with VNNI: INT8 at least 2.5 times FP32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import files
from pairing import said, turns

from inferometer import registry
from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.measure import Measurement, WarmUp, run_segment, throughput_of, warm_up
from inferometer.stats import median_interval
from inferometer.trials.speed import mac_share

BAR = 2.5
WARM_S = 5.0


def opened(options: argparse.Namespace, folder: Path, stack: ExitStack) -> dict[str, Session]:
    """Warm sessions by precision, fp32 first."""
    engine = registry.engine("openvino")
    model = files.model_file(options.model, options.efficientnet, folder)
    own: dict[str, Any] = {"threads": options.threads}
    if options.in_flight:
        own["in_flight"] = options.in_flight
    sessions = {}
    for precision in ("fp32", "bf16", "int8"):
        reason = engine.precisions("cpu", {"float": options.float} if precision == "int8" else {})[precision]
        if reason is not None:
            print(f"{precision}: not measured: {reason}")
            continue
        file = files.int8_file(engine, model, folder) if precision == "int8" else model
        more = {"float": options.float} if precision == "int8" else {}
        session = stack.enter_context(engine.load(file, "cpu", precision, options.batch, {**own, **more}))
        for slot in range(session.in_flight):
            session.prepare(slot, synthetic_feeds(session.inputs, seed=0))
        warm_up(session, session.in_flight, WARM_S)
        sessions[precision] = session
    return sessions


def rate(session: Session, batch: int, seconds: float) -> float:
    """Images/s, after a call that wakes the threads."""
    run_segment(session, session.in_flight, 0.0)
    segment = run_segment(session, session.in_flight, seconds, 2 * session.in_flight + 1)
    return throughput_of(Measurement(WarmUp((), True), (segment,), batch, session.in_flight)).images_per_s


def main() -> int:
    """Run the rounds and print the figures; 1 when INT8 is under the bar on a CPU with VNNI."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--model", default="resnet50", help="a built-in network, efficientnet_lite0, or a file"
    )
    parser.add_argument("--efficientnet", type=Path)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--float", choices=["f32", "bf16", "f16"], default="f32")
    parser.add_argument(
        "--in-flight", type=int, help="1: one request on all threads; default: OpenVINO's own"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rates: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sessions = opened(options, Path(folder), stack)
        for number in range(options.rounds):
            names = list(sessions) if turns(number)[0] == 0 else list(sessions)[::-1]
            for name in names:
                rates.setdefault(name, []).append(rate(sessions[name], options.batch, options.seconds))
        about = {
            name: {
                "mac_share": mac_share(session.executed()),
                "settled": {**session.settled, "slots": session.in_flight},
                "images_per_s": statistics.median(rates[name]),
            }
            for name, session in sessions.items()
        }
    ratios = {
        name: [one / base for one, base in zip(found, rates["fp32"], strict=True)]
        for name, found in rates.items()
        if name != "fp32"
    }
    for name, found in about.items():
        print(f"{name}: {found['images_per_s']:.1f} images/s, ran {found['mac_share']}, {found['settled']}")
    for name, values in ratios.items():
        print(f"{options.model} batch {options.batch}: {name} / fp32 {said(values)}")
    if options.json:
        answer = {
            "cpu": cpu_facts()[0].model, "int8_dot": cpu_facts()[0].int8_dot, "cores": usable_cores(),
            "model": options.model, "batch": options.batch, "sessions": about, "rates_images_per_s": rates,
            "ratios": {
                name: {"all": values, "median": statistics.median(values), "ci95": median_interval(values)}
                for name, values in ratios.items()
            },
        }  # fmt: skip
        options.json.write_text(json.dumps(answer, indent=1) + "\n", "utf-8")
    short = "int8" in ratios and statistics.median(ratios["int8"]) < BAR
    return 1 if short and cpu_facts()[0].int8_dot else 0


if __name__ == "__main__":
    sys.exit(main())
