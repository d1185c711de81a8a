"""Processors for ranks, from made-up topologies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inferometer.environment.placement import core_sets, listed, pinned


def topology(root: Path, places: dict[int, tuple[int, int, int]]) -> Path:
    """Processor to memory node, package and core."""
    for processor, (node, package, core) in places.items():
        folder = root / f"sys/devices/system/cpu/cpu{processor}"
        (folder / "topology").mkdir(parents=True)
        (folder / f"node{node}").mkdir()
        (folder / "topology/physical_package_id").write_text(f"{package}\n")
        (folder / "topology/core_id").write_text(f"{core}\n")
    return root


def test_threads_of_a_core_stay_together(tmp_path: Path) -> None:
    root = topology(tmp_path, {0: (0, 0, 0), 1: (0, 0, 1), 2: (0, 0, 0), 3: (0, 0, 1)})
    assert core_sets(2, range(4), root) == [[0, 2], [1, 3]]
    assert core_sets(1, range(4), root) == [[0], [2], [1], [3]]


def test_a_set_keeps_to_its_memory_node(tmp_path: Path) -> None:
    """Two nodes of three, numbered in turns: sets of two, and the two that are left over."""
    root = topology(tmp_path, {number: (number % 2, number % 2, number // 2) for number in range(6)})
    assert core_sets(2, range(6), root) == [[0, 2], [1, 3], [4, 5]]
    assert core_sets(3, range(6), root) == [[0, 2, 4], [1, 3, 5]]
    assert core_sets(4, range(6), root) == [[0, 2, 4, 1]]


def test_sets_are_disjoint_and_hold_only_what_is_allowed(tmp_path: Path) -> None:
    sets = core_sets(3, [1, 5, 6, 7, 9, 11, 12], tmp_path)
    assert sets == [[1, 5, 6], [7, 9, 11]]
    assert core_sets(8, [1, 2], tmp_path) == []


def test_pinning_ends_with_its_block() -> None:
    before = os.sched_getaffinity(0)
    with pinned([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
    with pinned(None):
        assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(
    ("processors", "text"), [([0], "0"), ([0, 1, 2, 3, 8], "0-3,8"), ([5, 3, 4, 9, 10], "3-5,9-10"), ([], "")]
)
def test_processors_read_as_linux_lists_them(processors: list[int], text: str) -> None:
    assert listed(processors) == text
