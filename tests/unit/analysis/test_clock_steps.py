"""The wall clock may be set while a study runs: no figure rests on when a record says that it was made."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import study


def test_times_that_go_backwards_change_no_result() -> None:
    records, top5 = study()
    start = datetime(2026, 1, 2, tzinfo=UTC)
    backwards = [
        record.model_copy(update={"time": (start - timedelta(hours=place)).isoformat()})
        for place, record in enumerate(records)
    ]
    as_ever, found = summarise(records, top5), summarise(backwards, top5)
    last = (start - timedelta(hours=len(records) - 1)).isoformat()
    assert (found.started, found.ended) == (last, start.isoformat())
    assert replace(found, started=as_ever.started, ended=as_ever.ended) == as_ever
