from pathlib import Path
from typing import Any

import pytest

from inferometer import registry
from inferometer.engines.null import NullEngine
from inferometer.records import Trial
from inferometer.trials.session import open_session
from inferometer.trials.spec import TrialSpec


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("throughput", {"threads": 2, "in_flight": 3}),
        ("latency", {"threads": 2, "in_flight": 1}),
        ("accuracy", {"threads": 2, "in_flight": 1}),
    ],
)
def test_only_throughput_trials_keep_several_requests_under_way(
    kind: Any, expected: dict[str, int], mini: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    class Listening(NullEngine):
        def load(self, *arguments: Any) -> Any:
            seen.append(dict(arguments[-1]))
            return super().load(*arguments)

    monkeypatch.setattr(registry, "engine", lambda _: Listening())
    trial = Trial(kind=kind, study="s", model="mini", engine="null", device="cpu", precision="fp32", batch=2)
    spec = TrialSpec.model_construct(
        trial=trial, model_path=str(mini), quantized=False, options={"threads": 2, "in_flight": 3}
    )
    with open_session(spec, 2).session as session:
        assert session.inputs[0].shape == (2, 3, 16, 16)
    assert seen == [expected]
