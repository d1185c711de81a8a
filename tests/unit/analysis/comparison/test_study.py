"""The 2017 study by itself: its question answered from its figures, and differently from other figures."""

import pytest

from inferometer.analysis.comparison.compare import compare
from tests.unit.analysis.comparison.sample_sources import DELL, dell

ALEXNET = "tesla-p4: {1: 0.52, 2: 1.05, 3: 1.56, 4: 2.09}"
OF_ONE = "the images/s of one tesla-p40 (AlexNet INT8, batch 128)"
PER_WATT = "1: 1.2, 32: 13.3, 64: 14.7, 128: 14.1, 256: 15.3"


def sentences(found, about):
    return [one.sentence for one in found.findings if one.about == about]


def test_its_accelerators_are_compared_along_the_axis():
    found = compare([dell()])
    assert (found.axis, found.subjects, found.baseline) == ("device", ("tesla-p40", "tesla-p4"), "tesla-p40")
    (verdict,) = found.verdicts
    assert verdict.comparability.likeness == "comparable along the axis"
    assert {"driver", "copies", "calibration images"} <= set(verdict.comparability.unknown)


def test_what_one_p4_gives_and_whether_that_agrees_with_the_specifications():
    speed = sentences(compare([dell()]), "speed")
    assert speed[0] == (
        "One tesla-p4 gives 0.52 of the images/s of one tesla-p40 (AlexNet INT8, batch 128); that agrees with"
        " the specifications, by the ratio of INT8 peak (0.47) and of memory bandwidth (0.55)."
    )
    assert any("One tesla-p4 gives 0.52 of" in one and "GoogLeNet" in one for one in speed)
    assert any(one.startswith("4 x tesla-p4 give 0.70 of the images/s of 3 x tesla-p40") for one in speed)


def test_scaling_is_linear():
    scaling = sentences(compare([dell()]), "scaling")
    assert len(scaling) == 4
    assert all(" scales linearly, within " in one for one in scaling)
    assert scaling[1].startswith("tesla-p4 scales linearly, within 1.0 %: 4 of them give 4.02 times")


def test_images_per_watt_where_both_are_near_their_best():
    power = sentences(compare([dell()]), "power")
    told = next(one for one in power if " and up " in one)
    assert told.startswith("tesla-p4 gives 1.42 to 1.60 times the images/s/W of tesla-p40 at batch 64 and up")
    assert "of INT8 peak over TDP the specifications give 1.56" in told
    assert "tesla-p4 is most efficient at batch 256: 15.3 times" in " ".join(power)


def test_where_memory_ended():
    assert sentences(compare([dell()]), "memory") == [
        "tesla-p4 ran out of memory at batch 2,048; batch 1,024 still ran (AlexNet INT8)."
    ]


def test_every_finding_names_the_figures_that_it_rests_on():
    for one in compare([dell()]).findings:
        assert one.record_ids
        assert all(name.startswith(f"{DELL}: figures / figure_") for name in one.record_ids)


@pytest.mark.parametrize(
    ("old", "new", "about", "expected"),
    [
        (ALEXNET, "tesla-p4: {1: 0.40, 2: 0.80, 3: 1.20, 4: 1.60}", "speed",
         f"One tesla-p4 gives 0.40 of {OF_ONE}; that is less than"),
        (ALEXNET, "tesla-p4: {1: 0.80, 2: 1.60, 3: 2.40, 4: 3.20}", "speed",
         f"One tesla-p4 gives 0.80 of {OF_ONE}; that is more than"),
        (ALEXNET, "tesla-p4: {1: 0.52, 2: 1.00, 3: 1.40, 4: 1.66}", "scaling",
         "tesla-p4 scales less than linearly, 20.2 % off at most: 4 of them give 3.19 times"),
        (PER_WATT, "1: 1.2, 32: 13.3, 64: 10.0, 128: 14.1, 256: 15.3", "power",
         "tesla-p4 gives 1.42 to 1.57 times the images/s/W of tesla-p40 at batch 128 and up"),
        ("1024: 15.2, 2048: out_of_memory", "1024: out_of_memory, 2048: out_of_memory", "memory",
         "tesla-p4 ran out of memory at batch 1,024; batch 512 still ran"),
    ],
)  # fmt: skip
def test_other_figures_give_other_findings(old, new, about, expected):
    assert not any(one.startswith(expected) for one in sentences(compare([dell()]), about))
    assert any(one.startswith(expected) for one in sentences(compare([dell((old, new))]), about))


def test_other_specifications_give_another_judgement():
    other = dell(("memory_bandwidth_gb_s: 192", "memory_bandwidth_gb_s: 150"))
    assert "more than the specifications let expect" in sentences(compare([other]), "speed")[0]


def test_prices_are_of_one_device_and_count_them():
    found = compare([dell()], prices={"tesla-p40": 5700.0, "tesla-p4": 2000.0})
    priced = {
        (one.own.count, one.base.count): one
        for one in found.ratios
        if one.per == "price" and one.own.model == "alexnet"
    }
    assert priced[1, 1].ratio == pytest.approx(0.52 / 2000 * 5700)
    assert priced[4, 3].ratio == pytest.approx(2.09 / 2.99 * (3 * 5700) / (4 * 2000))
    assert priced[4, 3].prices == (8000.0, 17100.0)


def test_multiples_and_absolute_figures_are_not_held_against_each_other():
    ours, theirs = dell(), dell()
    found = compare([ours, type(theirs)("again", tuple(
        type(one)(**{**vars(one), "source": "again", "relative_to": None}) for one in theirs.points
    ), study=theirs.study)])  # fmt: skip
    refused = [one for one in found.ratios if one.own.source == "again"]
    assert refused
    assert all(one.ratio is None and one.verdict == "not comparable" for one in refused)
    assert all(one.comparability.refusing[0].name == "kind of figure" for one in refused)
