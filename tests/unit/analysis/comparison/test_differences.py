"""Like for like or not: what differs, how much it could do, and what is not known."""

import math

import pytest

from inferometer.analysis.comparison.compare import compare
from tests.unit.analysis.comparison.sample_sources import CONFIG, dell, elsewhere, store, trials
from tests.unit.report.sample_records import ENVIRONMENT, probe, record, throughput
from tests.unit.report.scaling_records import rank_result


def pair(*, axis="store", base=None, **own):
    """What is said of a store whose trials differ from the baseline's in ``own``."""
    found = compare([store("a", trials(**(base or {}))), store("b", trials(**own))], axis)
    return found.verdicts[0].comparability


def test_the_same_again_is_like_for_like():
    found = pair()
    assert (found.likeness, found.differences, found.refused) == ("like for like", (), 0)


@pytest.mark.parametrize(
    ("fields", "name", "own", "base", "bound"),
    [
        ({"config_options": {"threads": 1}}, "threads", "1", "2", 1.0),
        ({"config_options": {"threads": 2, "provider": "openvino"}}, "option provider", "openvino",
         "not given", 2.0),
        ({"trial_input": "images"}, "input", "images", "synthetic", 9.0),
        ({"trial_copies": "excluded"}, "copies", "excluded", "included", 1.0),
        ({"trial_engine": "openvino"}, "engine", "openvino", "onnxruntime", 9.0),
        ({"model": "googlenet", "trial_model": "resnet50"}, "model file", "1a" * 6, "3c" * 6, math.inf),
        ({"environment": elsewhere()}, "machine", None, None, math.inf),
        ({"precision_mac_share": {"int8": 0.4}}, "share of the MACs at the precision", "40.0 %",
         "100.0 %", 1.8),
    ],
)  # fmt: skip
def test_what_makes_another_measurement_is_named(fields, name, own, base, bound):
    found = pair(**fields)
    if name.startswith("share"):
        assert found.likeness == "comparable, but marked"
        one = found.marking[0]
    else:
        assert found.likeness == "not comparable"
        one = found.refusing[0]
    assert one.name == name
    assert one.bound == pytest.approx(bound)
    if own is not None:
        assert (one.own, one.base) == (own, base)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"config_engine_version": "1.21.0"}, "engine version"),
        ({"config_isolation": "series"}, "isolation"),
        ({"config_measure": {"max_s": 9.0}}, "max_s"),
        ({"environment": ENVIRONMENT | {"libraries": {"inferometer": "0.2"}},
          "base": {"environment": ENVIRONMENT | {"libraries": {"inferometer": "0.1"}}}}, "harness version"),
        ({"calibration": {"source": "images", "method": "kl", "images": 50, "table_sha256": "cd" * 32}},
         "calibration images"),
    ],
)  # fmt: skip
def test_what_could_move_a_number_a_little_marks_it(fields, name):
    found = pair(**fields)
    assert found.likeness == "comparable, but marked"
    assert name in [one.name for one in found.marking]
    assert found.refusing == ()
    assert all(0 < one.bound < 1 for one in found.marking)


def test_differences_are_ranked_by_what_they_could_do():
    found = pair(config_options={"threads": 1}, config_engine_version="1.21", config_isolation="series")
    assert [one.name for one in found.differences] == ["threads", "engine version", "isolation"]


def test_preprocessing_bears_on_no_rate_of_synthetic_input():
    other = {"config_preprocess": {"name": "raw", "crop": 224}}
    assert pair(**other).likeness == "like for like"
    images = {"trial_input": "images"}
    found = pair(base=images, **images, **other)
    assert [one.name for one in found.refusing] == ["preprocessing, name"]


def test_the_axis_asked_for_does_no_harm_and_brings_its_own_with_it():
    other = {"environment": elsewhere(model="EPYC", int8_dot=False) | {"usable_cores": 8}}
    found = pair(axis="machine", **other)
    assert found.likeness == "comparable along the axis"
    along = {one.name for one in found.differences}
    assert {"machine", "CPU", "cores usable", "INT8 dot product in hardware (VNNI)"} <= along
    engine = pair(axis="engine", trial_engine="openvino", config_engine_version="2026.4")
    assert engine.likeness == "comparable along the axis"


def test_threads_come_with_a_machine_only_where_they_are_all_its_cores():
    own = {"environment": elsewhere() | {"usable_cores": 8}, "config_options": {"threads": 8}}
    base = {"environment": ENVIRONMENT | {"usable_cores": 2}}
    assert pair(axis="machine", base=base, **own).likeness == "comparable along the axis"
    found = pair(axis="machine", base=base, **(own | {"config_options": {"threads": 4}}))
    assert [one.name for one in found.refusing] == ["threads"]


def test_a_processor_without_vnni_matters_to_int8_alone():
    slow = {"environment": elsewhere(int8_dot=False)}
    names = [one.name for one in pair(axis="machine", **slow).differences]
    assert any("VNNI" in name for name in names)
    names = [one.name for one in pair(axis="machine", base={"precision": "fp32"}, precision="fp32",
                                      **slow).differences]  # fmt: skip
    assert not any("VNNI" in name for name in names)


def test_what_is_not_known_is_listed_and_not_taken_to_be_equal():
    config = {name: value for name, value in CONFIG.items() if name != "engine_version"}
    a = store("a", trials())
    b = store("b", [one.model_copy(update={"config": config}) for one in trials()])
    found = compare([a, b], "store").verdicts[0].comparability
    assert "engine_version" in found.unknown
    assert found.differences == ()
    assert (
        "engine_version" not in compare([a, store("b", trials())], "store").verdicts[0].comparability.unknown
    )


def test_a_study_leaves_most_things_unknown():
    unknown = compare([dell()]).verdicts[0].comparability.unknown
    assert {"driver", "GPU clock, Hz", "power limit, W", "copies", "input", "isolation", "threads"} <= set(
        unknown
    )


def test_clocks_and_power_limits_are_bounded_by_their_quotient():
    def gpu(limit_w):
        gpus = [{"name": "Tesla P4", "uuid": "GPU-1", "driver": "580", "power_limit_w": limit_w}]
        fields = {"trial_device": "cuda:0", "environment": ENVIRONMENT | {"gpus": gpus}}
        return [record(throughput=throughput(100.0 + place), repeat=place, **fields) for place in range(3)]

    found = compare([store("a", gpu(75.0)), store("b", gpu(50.0))], "store").verdicts[0].comparability
    one = next(one for one in found.marking if one.name == "power limit")
    assert (one.own, one.base) == ("50.0", "75.0")
    assert one.bound == pytest.approx(0.5)


def test_a_power_limit_is_that_of_the_gpu_that_ran():
    """A host's GPUs may have limits of their own: the first one's is not that of all."""
    gpus = [{"name": "Tesla P4", "uuid": f"GPU-{place}", "driver": "580", "power_limit_w": limit_w}
            for place, limit_w in enumerate((75.0, 50.0))]  # fmt: skip

    def on(place, told):
        ranks = (rank_result(place),) if told else ()
        fields = {"trial_device": f"cuda:{place}", "environment": ENVIRONMENT | {"gpus": gpus}}
        return [record(throughput=throughput(100.0 + one), repeat=one, ranks=ranks, **fields)
                for one in range(3)]  # fmt: skip

    known = compare([store("a", on(0, True)), store("b", on(1, True))], "store").verdicts[0].comparability
    assert ("power limit", "50.0", "75.0") in [(one.name, one.own, one.base) for one in known.marking]
    silent = compare([store("a", on(0, False)), store("b", on(1, False))], "store").verdicts[0].comparability
    assert "power limit, W" in silent.unknown


def test_an_option_is_what_it_came_to_given_or_not():
    auto = {"config_options": {"threads": 2, "mode": "auto"}}
    assert pair(**auto, session={"mode": "compile"}).refusing[0].text == (
        "option mode: compile against not given (up to 200 %)"
    )
    asked_alike = pair(base={**auto, "session": {"mode": "eager"}}, **auto, session={"mode": "compile"})
    assert asked_alike.likeness == "like for like"
    alike = pair(base={"session": {"mode": "compile"}}, **auto, session={"mode": "compile"})
    assert alike.likeness == "like for like"
    eager = pair(base={"session": {"mode": "eager"}}, **auto, session={"mode": "compile"})
    assert eager.refusing[0].text == "option mode: compile against eager (up to 200 %)"


def test_memory_copying_beyond_its_limit_marks_a_pair():
    found = pair(probe=probe(copy=9.5e9 * 1.73))
    assert [one.text for one in found.marking] == [
        "memory copying probe: 16.4 GB/s against 9.50 GB/s (up to 73 %)"
    ]
    assert pair(probe=probe(copy=9.5e9 * 1.3)).likeness == "like for like"
