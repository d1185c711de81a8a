"""Which setup meets a need: by hand, and what is not known meets nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from inferometer.analysis.choose import choose, sentence
from inferometer.analysis.choose_rows import Choice, Need, Source
from inferometer.analysis.summary import summarise
from inferometer.errors import ConfigError
from inferometer.records import Record
from tests.unit.report.power_records import result
from tests.unit.report.sample_records import record, throughput


def rates(values: Sequence[float], **fields: Any) -> list[Record]:
    return [record(repeat=repeat, throughput=throughput(one), **fields) for repeat, one in enumerate(values)]


def source(*records: Record, name: str = "a") -> Source:
    settings = {one.id: (one.trial.copies, one.trial.input) for one in records}
    return Source(name, summarise(records, lambda one: None), settings)


def chosen(sources: Source | Sequence[Source], p99: dict[str, float] | None = None, **need: Any) -> Choice:
    several = [sources] if isinstance(sources, Source) else list(sources)
    prices = need.pop("prices", {})
    return choose(several, Need(**need), [(p99 or {}).get] * len(several), prices)


def test_so_many_devices_as_the_lower_end_of_the_interval_wants() -> None:
    steady, noisy = [100.0, 100.0, 100.0], [80.0, 120.0, 100.0]
    assert chosen(source(*rates(steady)), images_per_s=300).candidates[0].units == 3
    assert chosen(source(*rates(steady)), images_per_s=301).candidates[0].units == 4
    found = chosen(source(*rates(noisy)), images_per_s=300).candidates[0]
    assert found.units is not None
    assert found.units > 4
    assert "times as many devices: linear is assumed" in found.cautions[-1]


def test_the_fewest_devices_win_unless_a_price_is_given() -> None:
    fast, slow = source(*rates([100.0] * 2), name="fast"), source(*rates([60.0] * 2), name="slow")
    assert chosen([fast, slow], images_per_s=100).best is not None
    best = chosen([fast, slow], images_per_s=100).best
    assert best is not None
    assert (best.source, best.units) == ("fast", 1)
    best = chosen([fast, slow], images_per_s=100, prices={"fast": 10.0, "slow": 4.0}).best
    assert best is not None
    assert (best.source, best.units) == ("slow", 2)


def test_a_latency_that_is_not_known_meets_nothing() -> None:
    one, eight = rates([50.0] * 2), rates([90.0] * 2, batch=8)
    known = {each.id: 0.02 for each in one}
    found = chosen(source(*one, *eight), known, images_per_s=90, p99_s=0.03)
    assert [(each.setup.batch, each.verdict) for each in found.candidates] == [(1, "meets"), (8, "not known")]
    found = chosen(source(*eight), {}, p99_s=0.03)
    assert (found.verdict, found.best) == ("not known", None)
    assert sentence(found).startswith("It cannot be told: a: onnxruntime cpu FP32 batch 8, 1 device")


def test_the_worst_repeat_s_latency_counts_and_all_have_to_tell_it() -> None:
    one = rates([50.0] * 2)
    assert chosen(source(*one), {one[0].id: 0.01, one[1].id: 0.05}, p99_s=0.03).verdict == "fails"
    assert chosen(source(*one), {one[0].id: 0.01}, p99_s=0.03).verdict == "not known"


def test_none_that_meets_the_need_and_what_limits_the_nearest() -> None:
    one = rates([50.0] * 2)
    found = chosen(source(*one), {each.id: 0.06 for each in one}, p99_s=0.03)
    assert (found.verdict, found.best) == ("fails", None)
    assert sentence(found) == (
        "None meets the need. Nearest comes a: onnxruntime cpu FP32 batch 1, 1 device"
        f" ({found.candidates[0].machine}): it fails by p99 (60.0 ms, 2 times what is allowed)."
    )


def test_watts_are_of_all_devices_and_joules_by_the_cautious_end() -> None:
    one = result(net=150.0, rate=100.0, idle=50.0)
    records = [
        record(repeat=repeat, throughput=throughput(100.0), power=[one], config={"power": {"min_s": 60}})
        for repeat in range(2)
    ]
    (found,) = chosen(source(*records), images_per_s=200, watts=400).candidates
    assert (found.units, found.verdict) == (2, "meets")
    assert chosen(source(*records), images_per_s=200, watts=399).verdict == "fails"
    assert found.j_per_image == pytest.approx(1.5)
    most = found.most_j_per_image
    assert most is not None
    assert most > 1.5
    assert chosen(source(*records), j_per_image=most).verdict == "meets"
    assert chosen(source(*records), j_per_image=(1.5 + most) / 2).verdict == "not known"
    assert chosen(source(*records), j_per_image=1.4).verdict == "fails"


def test_one_is_beaten_only_by_what_tells_all_that_it_tells() -> None:
    one, eight, many = rates([50.0] * 2), rates([90.0] * 2, batch=8), rates([95.0] * 2, batch=64)
    known = {each.id: 0.02 for each in one} | {each.id: 0.01 for each in eight}
    found = {
        each.setup.batch: each.beaten_by for each in chosen(source(*one, *eight, *many), known).candidates
    }
    assert found[1] == "a: onnxruntime cpu FP32 batch 8"
    assert found[8] is None
    assert found[64] is None


def test_what_is_not_like_a_server_is_told() -> None:
    (found,) = chosen(source(*rates([50.0], trial_device="cuda:0", trial_copies="excluded"))).candidates
    assert found.cautions == (
        "copies to and from the device are not in it",
        "synthetic input: decoding pictures is not in it",
        "one repeat: how far others would differ is not known",
    )


def test_several_models_want_a_name() -> None:
    two = source(*rates([50.0]), *rates([60.0], model="alexnet"))
    with pytest.raises(ConfigError, match="give --model, one of resnet50, alexnet"):
        chosen(two)
    with pytest.raises(ConfigError, match="there is no 'vgg'; known are resnet50, alexnet"):
        chosen(two, model="vgg")
    assert chosen(two, model="alexnet").candidates[0].images_per_s == 60.0
