"""What several devices deliver together over the sum of what each delivers alone, with the watts of each.

    python benchmarks/scale/efficiency.py examples/gpu-scale.yaml [--out DIR]

The bar, for two GPUs: at least 0.99 in every row. ``--out`` keeps the records, and goes on with them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from inferometer.analysis.scaling_rows import ScalingRow
from inferometer.analysis.summary import summarise
from inferometer.cli.console import study_progress
from inferometer.config import load_study
from inferometer.errors import InferometerError
from inferometer.study.run import run_study

BAR = 0.99


def main() -> None:
    """Run the study and print one line a row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", type=Path)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder, study_progress() as watcher:
            done = run_study(load_study(asked.study), asked.out or Path(folder), watcher)
    except InferometerError as error:
        sys.exit(str(error))
    rows = summarise(done.records, lambda record: None).scaling
    for row in rows:
        print(said(row))
    known = [row.efficiency for row in rows if row.efficiency is not None]
    reached = sum(value >= BAR for value in known)
    print(f"{reached} of {len(rows)} rows at {BAR} or more")


def said(row: ScalingRow) -> str:
    """One row in words."""
    setup = row.setup
    where = f"{setup.model} {setup.engine} {setup.precision} batch {setup.batch}, {setup.ranks} ranks"
    if row.efficiency is None or row.alone_sum is None:
        return f"{where}: {row.rate:,.0f} images/s; no sum: {row.why_no_sum}"
    spread = f" ({row.interval[0]:.4f} to {row.interval[1]:.4f})" if row.interval else ""
    watts = ", ".join(f"{one.load_w:.0f} W" for one in row.ranks if one.load_w is not None)
    return (
        f"{where}: {row.rate:,.0f} of {row.alone_sum:,.0f} images/s: {row.efficiency:.4f}{spread}; "
        f"{row.verdict}" + (f"; {watts}" if watts else "")
    )


if __name__ == "__main__":
    main()
