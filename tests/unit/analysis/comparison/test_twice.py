"""The same study run twice in turns on this machine, and once with half the threads: what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from inferometer.analysis.comparison.compare import Comparison, compare
from inferometer.analysis.comparison.points import store_source
from inferometer.config import Study, parse
from inferometer.demo import extract
from inferometer.store import read_per_image, read_store
from inferometer.study.run import run_study
from tests.unit.study.watcher import Remembering

pytestmark = pytest.mark.slow

REPEATS = 3


def study(model: Path, repeats: int, threads: int) -> Study:
    content = {
        "name": "twice",
        "models": [str(model)],
        "engines": ["onnxruntime"],
        "batches": [1, 8],
        "kinds": ["throughput", "latency"],
        "threads": threads,
        "repeats": repeats,
        "measure": {"max_s": 0.3, "warmup_max_s": 0.2},
    }
    return parse(Study, content, "the test's study")


def run_in_turns(model: Path, folders: Sequence[tuple[Path, int]]) -> None:
    """One repeat more in each folder, in turns, each with its threads."""
    for count in range(1, REPEATS + 1):
        for folder, threads in folders if count % 2 else folders[::-1]:
            run_study(study(model, count, threads), folder, Remembering())


def compared(*folders: Path) -> Comparison:
    return compare(
        [store_source(one.name, read_store(one).records, partial(read_per_image, one)) for one in folders]
    )


def test_the_same_study_twice_is_never_called_different(tmp_path: Path) -> None:
    """One family of 20 may be called different by chance: who gets that twice in a row has found a fault."""
    model = extract(tmp_path / "demo").model
    called: set[str] = set()
    for attempt in ("first", "second"):
        a, b = tmp_path / attempt / "a", tmp_path / attempt / "b"
        run_in_turns(model, [(a, 1), (b, 1)])
        found = compared(a, b)
        assert (found.axis, len(found.ratios)) == ("store", 4)  # rates and medians at two batches
        assert not any(row.comparability.refusing for row in found.ratios)
        assert {row.own.runs for row in found.ratios} == {REPEATS}
        called = {row.verdict for row in found.ratios} & {"faster", "slower"}
        if not called:
            return
    assert not called


def test_half_the_threads_are_not_comparable_and_named_as_the_cause(tmp_path: Path) -> None:
    model = extract(tmp_path / "demo").model
    a, b = tmp_path / "a", tmp_path / "b"
    run_in_turns(model, [(a, 2), (b, 1)])
    found = compared(a, b)
    assert len(found.ratios) == 4
    assert {row.verdict for row in found.ratios} == {"not comparable"}
    assert {one.text for row in found.ratios for one in row.comparability.refusing} == {
        "threads: 1 against 2 (up to 100 %)"
    }
