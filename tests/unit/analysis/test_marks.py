"""Which numbers are marked for not having run at the precision asked for."""

import pytest

from inferometer.analysis.marks import MARK, asked_shares, is_marked, ran_text, share_text, with_mark
from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import latency, record, throughput


def ran(share, precision="int8", batch=8, **fields):
    detail = None if share is None else {precision: share, "other": 1 - share}
    return record(
        precision=precision, batch=batch, throughput=throughput(9.0), precision_mac_share=detail, **fields
    )


def late(batch=8, **fields):
    return record("latency", precision="int8", batch=batch, latency_s=latency(0.01), **fields)


def shares(*records):
    return asked_shares(records, {one.id: 0 for one in records})


def test_a_known_share_under_the_limit_is_marked_and_an_unknown_one_is_not():
    assert [is_marked(share) for share in (0.0, 0.899, 0.9, 1.0, None)] == [True, True, False, False, False]
    assert (with_mark("INT8", 0.5), with_mark("INT8", None)) == (f"INT8 {MARK}", "INT8")
    assert (ran_text(0.84, "int8"), ran_text(None, "int8")) == ("84 % in INT8", "not known")


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"), (0.004, "0.4 %"), (0.84, "84 %"), (0.896, "89.6 %"), (0.8999, "89.99 %"), (0.9, "90 %"),
        (0.90001, "90 %"), (0.996, "99.6 %"), (1.0, "100 %"), (1e-7, "under 0.01 %"),
        (0.9 - 1e-7, "under 90 %"), (1 - 1e-7, "over 99.99 %"),
    ],
)  # fmt: skip
def test_rounding_never_reaches_the_limit_nothing_or_everything(share, text):
    assert share_text(share) == text


def test_latency_takes_the_share_of_the_throughput_trials_of_its_batch():
    one, other, asked = ran(0.5, batch=1), ran(0.8, batch=8), late(8)
    assert shares(one, other, asked)[asked.id] == 0.8


def test_without_its_batch_it_takes_the_least_of_all_batches():
    one, other, asked = ran(0.8, batch=1), ran(0.5, batch=8), late(2)
    assert shares(one, other, asked)[asked.id] == 0.5


def test_throughput_never_takes_the_share_of_another_batch():
    known, unknown = ran(0.5, batch=1), ran(None, batch=8)
    assert shares(known, unknown)[unknown.id] is None


def test_a_later_repeat_takes_the_share_of_the_first():
    first, second = ran(0.5), ran(None, repeat=1)
    assert shares(first, second)[second.id] == 0.5


@pytest.mark.parametrize(
    "fields",
    [
        {"trial_engine": "openvino"},
        {"config": {"options": {"threads": 1}}},
        {"config": {"engine_version": "9"}},
        {"calibration": {"source": "images", "table_sha256": "cd" * 32, "method": "kl", "images": 9}},
        {"trial_device": "cuda:0"},
    ],
)
def test_another_setup_shares_nothing(fields):
    other, asked = ran(0.5, **fields), late()
    assert shares(other, asked)[asked.id] is None


def test_what_did_not_end_ok_has_no_share():
    known = ran(0.5)
    lost = record("latency", precision="int8", batch=8, status="failed", reason="died")
    assert shares(known, lost)[lost.id] is None


def test_rows_of_every_kind_and_both_sides_of_a_ratio_carry_their_shares():
    base = record(batch=8, throughput=throughput(5.0), precision_mac_share={"tf32": 1.0})
    found = summarise([base, ran(0.5), late()], lambda _: None)
    assert [row.mac_share for row in found.throughput] == [0.0, 0.5]
    assert [row.mac_share for row in found.latency] == [0.5]
    (gain,) = found.speed_ups
    assert (gain.mac_share, gain.baseline_mac_share) == (0.5, 0.0)


def test_fp32_that_ran_as_tf32_is_cautioned_against_and_the_ratio_is_called_by_its_name():
    base = record(batch=8, throughput=throughput(5.0), precision_mac_share={"tf32": 0.97, "fp32": 0.03})
    found = summarise([base, ran(1.0)], lambda _: None)
    (caution,) = [line for line in found.cautions if "asked to run in FP32" in line]
    assert "only 3 % of its multiply-accumulates did (97 % ran in TF32)" in caution
    assert "marked \N{DAGGER}, are not those of FP32 alone" in caution
    assert "Only 3 % of those of FP32 ran in FP32: the ratio is not to it." in found.findings[0].sentence


def test_an_unknown_share_at_fp32_is_no_caution():
    found = summarise([record(throughput=throughput(5.0))], lambda _: None)
    assert not any("precision asked for" in line for line in found.cautions)


def test_the_caution_names_the_engine_where_there_are_several():
    found = summarise([ran(0.5), ran(1.0, trial_engine="openvino")], lambda _: None)
    (caution,) = [line for line in found.cautions if "asked to run" in line]
    assert caution.startswith("ResNet-50 on onnxruntime was asked to run in INT8, but only 50 %")
