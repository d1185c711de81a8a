"""Ranks put together, from hand-made time stamps."""

from __future__ import annotations

import numpy as np
import pytest

from inferometer.joint import joint, joint_load_window, shifted
from inferometer.measure import Measurement, Segment, WarmUp

MS = 1_000_000


def rank(begin_ms: float, call_ms: float, calls: int, *, batch: int = 2, segments: int = 1) -> Measurement:
    """Calls of one length, one after another; segments 10 s apart."""
    made = []
    for number in range(segments):
        edges = (number * 10_000 + begin_ms + call_ms * np.arange(calls + 1)) * MS
        made.append(Segment(edges[:-1].astype(np.int64), edges[1:].astype(np.int64)))
    return Measurement(WarmUp((), True), tuple(made), batch, 1)


def test_two_equal_ranks_give_twice_the_rate_of_one() -> None:
    found = joint([rank(0, 10, 100), rank(0, 10, 100)])
    assert found.throughput.images_per_s == pytest.approx(400)
    assert found.rates == pytest.approx((200, 200))
    assert found.throughput.images == 400
    assert found.throughput.seconds == pytest.approx(1.0)
    assert found.skews_s == (0, 0)


def test_only_the_time_in_which_all_ran_counts() -> None:
    late_and_long = rank(200, 20, 100)  # from 0.2 s to 2.2 s; the other one from 0 to 1 s
    found = joint([rank(0, 10, 100), late_and_long])
    assert found.throughput.seconds == pytest.approx(0.8)
    assert found.rates == pytest.approx((200, 100))
    assert found.throughput.images_per_s == pytest.approx(300)
    assert found.skews_s == pytest.approx((0, 0.2))


def test_a_call_that_an_edge_cuts_counts_in_part() -> None:
    found = joint([rank(0, 100, 10), rank(50, 100, 10)])
    assert found.throughput.seconds == pytest.approx(0.95)
    assert found.throughput.images_per_s == pytest.approx(40)
    assert found.throughput.images == 38


def test_segments_are_matched_and_their_pauses_left_out() -> None:
    found = joint([rank(0, 10, 100, segments=3), rank(0, 10, 100, segments=3)])
    assert found.throughput.seconds == pytest.approx(3.0)
    assert found.throughput.images_per_s == pytest.approx(400)
    assert len(found.throughput.windows) == 21
    assert found.throughput.windows == pytest.approx([400] * 21)


def test_windows_are_never_shorter_than_a_call() -> None:
    found = joint([rank(0, 300, 4), rank(0, 300, 4)])
    assert len(found.throughput.windows) == 4
    assert found.throughput.ci95 is None


def test_several_requests_in_flight_count_by_whole_rounds() -> None:
    """Four calls done all at once every 40 ms: bursts must not make a rate of their own."""
    completed = np.repeat((40 + 40 * np.arange(10)) * MS, 4).astype(np.int64)
    bursts = Measurement(WarmUp((), True), (Segment(completed - 40 * MS, completed),), 1, 4)
    assert joint([bursts, bursts]).throughput.images_per_s == pytest.approx(200)


def test_ranks_that_never_ran_together_have_no_rate() -> None:
    with pytest.raises(ValueError, match="never ran at the same time"):
        joint([rank(0, 10, 10), rank(500, 10, 10)])


def test_another_hosts_clock_is_taken_back() -> None:
    ahead = shifted(rank(7_000, 10, 100), 7.0)
    assert joint([rank(0, 10, 100), ahead]).throughput.seconds == pytest.approx(1.0)


def test_power_is_read_while_all_ran_pauses_included() -> None:
    measured = [rank(0, 10, 100, segments=2), rank(200, 10, 100, segments=2)]
    window = joint_load_window(measured, joint(measured).throughput)
    assert (window.begin_ns, window.end_ns) == (200 * MS, 11_000 * MS)
    first, second = 80 + 100, 100 + 80  # calls of each that were done in it
    assert window.images == 2 * (first + second)
    assert window.images_per_s == pytest.approx(2 * (first + second) / 10.8)
