"""How often the gate errs: on pairs resampled from recorded repeats, and live.

    python benchmarks/gate/error_rates.py                # resamples benchmarks/gate/repeats.json
    python benchmarks/gate/error_rates.py --record 200   # records 200 identical and 200 slower repeats first
    python benchmarks/gate/error_rates.py --live 20      # 20 pairs in turns, a side of every other one slower

The bars, over 2000 pairs: ``fail`` on identical ones and ``pass`` on ones 10 % slower each with an exact 95 %
upper bound under 5 %, and at most 20 % of either ``inconclusive``. Each repeat is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from inferometer.analysis.gate import gate
from inferometer.cli.console import study_progress
from inferometer.config import Study, parse
from inferometer.demo.assets import extract
from inferometer.environment.inventory import inventory
from inferometer.records import Record, Throughput, Trial
from inferometer.stats import share_upper
from inferometer.study.run import run_study

HERE = Path(__file__).parent
KEPT = HERE / "repeats.json"
ALLOWED, SLOWER, PAIRS = 0.03, 0.10, 2000


def main() -> None:
    """Do what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=int, metavar="REPEATS")
    parser.add_argument("--live", type=int, metavar="PAIRS")
    parser.add_argument("--repeats", type=int, default=8, help="of each side of a live pair")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        site = installed(Path(scratch) / "site")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        sys.path.insert(0, str(site))
        if asked.record:
            record(asked.record, Path(scratch))
        if asked.live:
            live(asked.live, asked.repeats, Path(scratch))
        else:
            resample()


def installed(folder: Path) -> Path:
    """The engine ``slowed``, as pip would install it."""
    info = folder / "slowed-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "slowed.py").write_text((HERE / "slowed.py").read_text())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: slowed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[inferometer.engines]\nslowed = slowed:SlowedEngine\n")
    return folder


def point(scratch: Path, repeats: int) -> Study:
    """One point: a small network, one thread, half a second."""
    model = extract(scratch / "demo").model
    content = {
        "name": "gate",
        "models": [str(model)],
        "engines": ["slowed"],
        "batches": [32],
        "kinds": ["throughput"],
        "threads": 1,
        "repeats": repeats,
        "measure": {"max_s": 0.5, "warmup_max_s": 0.3},
    }
    return parse(Study, content, "gate")


def in_turns(folders: Sequence[tuple[Path, float]], repeats: int, scratch: Path) -> None:
    """One repeat more in each store, in turns, until each has so many."""
    for count in range(1, repeats + 1):
        for folder, slower in folders if count % 2 else folders[::-1]:
            os.environ["INFEROMETER_SLOWED"] = str(slower)
            with study_progress(quiet=True) as watcher:
                run_study(point(scratch, count), folder, watcher)


def rates(folder: Path, repeats: int, scratch: Path) -> tuple[Record, ...]:
    """A store's records, which are all there."""
    with study_progress(quiet=True) as watcher:
        return run_study(point(scratch, repeats), folder, watcher).records


def record(repeats: int, scratch: Path) -> None:
    """Record identical and slower repeats in turns, and keep their rates."""
    folders = {"identical": (scratch / "identical", 0.0), "slower": (scratch / "slower", SLOWER)}
    in_turns(list(folders.values()), repeats, scratch)
    machine = inventory().model_dump(mode="json")
    kept: dict[str, object] = {
        name: [one.throughput.images_per_s for one in rates(folder, repeats, scratch) if one.throughput]
        for name, (folder, _) in folders.items()
    }
    kept["cpu"] = machine["cpu"]["model"]
    KEPT.write_text(json.dumps(kept, indent=1) + "\n")


def resample() -> None:
    """Draw pairs from what was recorded, without putting back, and print how they were judged."""
    kept = json.loads(KEPT.read_text())
    same, slow = kept["identical"], kept["slower"]
    print(f"{len(same)} identical and {len(slow)} slower repeats, {kept['cpu']}; allowed {ALLOWED:.0%}")
    for repeats in (3, 5, 8, 12, 16, 24, 32):
        chance = random.Random(repeats)
        drawn = [chance.sample(same, 2 * repeats) for _ in range(PAIRS)]
        alike = Counter(judged(one[:repeats], one[repeats:]) for one in drawn)
        unlike = Counter(judged(one[:repeats], chance.sample(slow, repeats)) for one in drawn)
        print(f"{repeats:2} repeats: identical: {said(alike, 'fail')};", end=" ")
        print(f"{SLOWER:.0%} slower: {said(unlike, 'pass')}")


def said(counts: Counter[str], error: str) -> str:
    """How often it erred, with the exact bound, and was inconclusive."""
    bound, unknown = share_upper(counts[error], PAIRS), counts["inconclusive"] / PAIRS
    return f"{error} {counts[error]} (upper bound {bound:.2%}), inconclusive {unknown:.1%}"


def judged(base: Sequence[float], new: Sequence[float]) -> str:
    """The verdict on two sides' rates."""
    return gate(made(base), made(new), ALLOWED).verdict


def made(values: Sequence[float]) -> list[Record]:
    """Records with these rates and nothing else that counts."""
    found = []
    for repeat, value in enumerate(values):
        trial = Trial.model_construct(
            kind="throughput", study="gate", model="digits", engine="slowed", device="cpu", precision="fp32",
            batch=32, ranks=1, place=None, copies="included", input="synthetic", repeat=repeat,
        )  # fmt: skip
        rate = Throughput.model_construct(images_per_s=value)
        fields = {
            name: field.get_default(call_default_factory=True) for name, field in Record.model_fields.items()
        }
        fields |= {"id": str(repeat), "time": "", "trial": trial, "status": "ok", "throughput": rate}
        found.append(Record.model_construct(**fields))
    return found


def live(pairs: int, repeats: int, scratch: Path) -> None:
    """Measure pairs in turns, the second of every other one slower, and judge each as the command does."""
    counts: dict[float, Counter[str]] = {0.0: Counter(), SLOWER: Counter()}
    for number in range(pairs):
        slower = SLOWER if number % 2 else 0.0
        folders = [(scratch / f"{number}-base", 0.0), (scratch / f"{number}-new", slower)]
        in_turns(folders, repeats, scratch)
        base, new = (rates(folder, repeats, scratch) for folder, _ in folders)
        found = gate(base, new, ALLOWED)
        counts[slower][found.verdict] += 1
        print(
            f"pair {number}: {slower:.0%} slower: {found.verdict} ({found.points[0].reason or ''})",
            flush=True,
        )
    for slower, found_counts in counts.items():
        print(f"{slower:.0%} slower, {repeats} repeats a side: {dict(found_counts)}")


if __name__ == "__main__":
    main()
