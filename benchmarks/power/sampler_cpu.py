"""What the sampler costs: its own processor time as a share of one core, at the meters' own rates.

    python benchmarks/power/sampler_cpu.py --meter nvml [--option KEY=VALUE ...] [--seconds 60]

The bar: under 1 %. Start-up is not in it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from inferometer.cli.options import options_of
from inferometer.meters.readings import TAIL
from inferometer.meters.sampler import MeterJob
from inferometer.study.sampling import Sampler


def main() -> None:
    """Print the share, and how many readings it bought."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--meter", action="append", required=True)
    parser.add_argument("--option", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    jobs = [MeterJob(meter=name, options=dict(options_of(asked.option))) for name in asked.meter]
    with tempfile.TemporaryDirectory() as folder:
        with Sampler(jobs, Path(folder)) as sampler:
            begin = time.monotonic()
            time.sleep(asked.seconds)
            seconds = time.monotonic() - begin
            sampler.readings.refresh()
            head = sampler.readings.head
            counts = [len(sampler.readings.values(place)) for place in range(len(head.channels))]
        cpu_s = json.loads((Path(folder) / TAIL).read_text())["cpu_s"]
    print(f"{cpu_s / seconds:.2%} of one core ({cpu_s:.3f} s in {seconds:.1f} s), {sum(counts)} readings:")
    for one, count in zip(head.channels, counts, strict=True):
        print(
            f"  {count / seconds:6.2f} a second  {one.meter}: {one.channel.quantity}, {one.channel.semantics}"
        )


if __name__ == "__main__":
    main()
