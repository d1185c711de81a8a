"""The outcome of a trial from those of its ranks: what the parent cannot read or write ends the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from inferometer.errors import StoreError
from inferometer.records import Outcome, RankResult, Sidecar
from inferometer.study.joining import joined
from inferometer.trials.spec import TrialSpec
from tests.unit.test_worker import spec

__all__ = ["spec"]


def test_what_ranks_wrote_and_is_not_there_is_no_outcome(spec: TrialSpec, tmp_path: Path) -> None:
    two = spec.model_copy(update={"trial": spec.trial.model_copy(update={"ranks": 2})})
    unknown = dict.fromkeys(set(RankResult.model_fields) - {"rank", "host", "device"})
    ranks = [
        Outcome(
            status="ok",
            sidecars=(Sidecar(path=f"sidecars/{rank}.stamps.npz", sha256="0" * 64),),
            ranks=(
                RankResult.model_validate(
                    {
                        **unknown,
                        "rank": rank,
                        "host": "a",
                        "device": "cpu",
                        "clock_offset_s": 0.0,
                        "clock_u_s": 0.0,
                    }
                ),
            ),
        )
        for rank in range(2)
    ]
    with pytest.raises(StoreError, match=r"0.stamps.npz: a record names it, but: No such file"):
        joined(two, ranks)
