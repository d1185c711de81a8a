"""How long a report of many records takes to open in Chromium, from the begin of the navigation.

The records are those of a stored study, each setup as four engines and three repeats would have it, with
latency beside throughput, rates and times varied. Printed: the file's size, and for each of several loads
when the browser had loaded it, when the charts in view were drawn (it is opened at its first chart), and
when all were, first the medians.

    python benchmarks/report/page_load.py [--records 2000] [--loads 5] [--store results/h200-torch]

The bar: the page loaded and the charts in view drawn within 2 s.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from itertools import islice, product
from pathlib import Path
from typing import Any

from inferometer.analysis.summary import summarise
from inferometer.records import Record
from inferometer.report.html import write_html
from inferometer.store import read_store

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.browser.chromium import BROWSER, MISSING, Browser  # noqa: E402

ENGINES = ("torch", "onnxruntime", "tensorrt", "openvino")
TIMES = (
    "(() => { const [nav] = performance.getEntriesByType('navigation');"
    " const at = (name) => performance.getEntriesByName(name)[0].startTime;"
    " return [nav.loadEventEnd, at('charts in view'), at('charts')]; })()"
)
SIDES = ("loaded", "charts in view drawn", "all charts drawn")


def main() -> None:
    """Write the page, open it, print the times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--store", type=Path, default=ROOT / "results" / "h200-torch")
    parser.add_argument("--keep", type=Path, help="write the page here")
    asked = parser.parse_args()
    if BROWSER is None:
        sys.exit(MISSING)
    records = varied(read_store(asked.store).records, asked.records)
    with tempfile.TemporaryDirectory() as folder:
        page = asked.keep or Path(folder) / "report.html"
        write_html(summarise(records, lambda _: None), records, page)
        print(f"{len(records)} records, {page.stat().st_size / 1e6:.1f} MB")
        loads = [load(page, Path(folder) / str(number)) for number in range(asked.loads)]
    for name, times in zip(SIDES, zip(*loads, strict=True), strict=True):
        print(f"{name}: {statistics.median(times):.2f} s ({', '.join(f'{one:.2f}' for one in times)})")


def load(page: Path, folder: Path) -> list[float]:
    """The times of one load in a browser of its own, in seconds."""
    with Browser(folder) as browser, browser.open(page, at="#throughput") as tab:
        return [one / 1e3 for one in tab.run(TIMES)]


def varied(stored: list[Record], number: int) -> list[Record]:
    """So many records: every setup of the store on four engines, as throughput and latency, in repeats."""
    noise = random.Random(0)
    done = [one for one in stored if one.status == "ok" and one.throughput is not None]
    every = (
        variant(one, engine, kind, repeat, noise)
        for repeat, kind, engine, one in product(range(100), ("throughput", "latency"), ENGINES, done)
    )
    return list(islice(every, number))


def variant(one: Record, engine: str, kind: str, repeat: int, noise: random.Random) -> Record:
    """The record as another engine and repeat would have it."""
    content: dict[str, Any] = json.loads(one.model_dump_json(by_alias=True))
    by = noise.uniform(0.97, 1.03) * (1 + 0.2 * ENGINES.index(engine))
    content["id"] = f"{one.id}-{engine}-{kind}-{repeat}"
    content["trial"] |= {"engine": engine, "kind": kind, "repeat": repeat}
    rates = content["throughput"]
    for name in ("images_per_s", "median_images_per_s"):
        rates[name] *= by
    rates["windows"] = [rate * by for rate in rates["windows"]]
    if kind == "latency":
        p50 = (one.trial.batch or 1) / rates["images_per_s"]
        spread = {"min": 0.97, "mean": 1.01, "p50": 1.0, "p90": 1.05, "p95": 1.09, "p99": 1.21, "max": 1.6}
        content["latency_s"] = {name: p50 * factor for name, factor in spread.items()} | {"n": 1000}
        content["throughput"] = None
    return Record.model_validate(content)


if __name__ == "__main__":
    main()
