"""LoadGen's figures: in tables of their own, in the page and in CSV, and nowhere else."""

import csv
import io
from dataclasses import asdict

import pytest

from inferometer.analysis.summary import summarise
from inferometer.cli.console import print_findings
from inferometer.report.html import page
from inferometer.report.tables import csv_text, result_tables, table_of
from tests.unit.report.sample_records import latency, record, study, throughput


def result(scenario="offline", rate=100.0, p90=0.02, valid=True, **fields):
    offline = scenario == "offline"
    by_name = dict.fromkeys(("min", "mean", "p50", "p90", "p95", "p99", "max"), p90)
    return {
        "scenario": scenario,
        "samples_per_s": rate if offline else None,
        "latency_s": None if offline else by_name,
        "p90_estimate_s": None if offline else p90,
        "result_valid": valid,
        "constraints": {"min_duration": valid, "min_queries": True, "early_stopping": True},
        "invalid_reason": None if valid else "not met: min duration (Decrease the expected latency)",
        "version": "6.0.17",
        "min_duration_s": 10.0,
        "queries": 1 if offline else 500,
        "samples": 1350 if offline else 500,
    } | fields


def by_loadgen(scenario="offline", batch=8, repeat=0, status="ok", precision="fp32", **fields):
    found = result(scenario, **fields) if status == "ok" else None
    return record(
        "loadgen", "resnet50", precision, batch, repeat, status=status, loadgen=found,
        reason=None if status == "ok" else "the device is full", config={"loadgen": {"scenario": scenario}},
        id=f"{scenario}-{batch}-{repeat}-{precision}", time="2026-03-14T09:30:00Z",
    )  # fmt: skip


def summary_of(*records):
    return summarise(records, lambda _: None)


def texts(table):
    return [dict(zip((c.name for c in table.columns), (cell.text for cell in row), strict=True))
            for row in table.rows]  # fmt: skip


def test_offline_shows_the_median_of_the_repeats_and_every_one() -> None:
    rates = (90.0, 120.0, 100.0)
    summary = summary_of(*(by_loadgen(repeat=n, rate=rate) for n, rate in enumerate(rates)))
    table = table_of(summary, "loadgen-offline")
    assert table.title == "LoadGen, offline (not an MLPerf result)"
    (row,) = texts(table)
    assert (row["Rate"], row["Samples"], row["LoadGen says"]) == ("100", "4,050", "VALID")
    assert row["Repeats"] == "90.0 · 120 · 100"
    assert "not an MLPerf result" in table.note
    assert "LoadGen 6.0.17, on LoadGen's clock" in table.note
    assert table_of(summary, "loadgen-single-stream") is None


def test_a_single_stream_shows_the_90th_percentile_in_milliseconds() -> None:
    (row,) = texts(table_of(summary_of(by_loadgen("single-stream", 1)), "loadgen-single-stream"))
    assert (row["p90"], row["Calls"]) == ("20.0", "500")
    few = result("single-stream")["latency_s"] | {"p90": None}
    summary = summary_of(by_loadgen("single-stream", 1, latency_s=few))
    assert texts(table_of(summary, "loadgen-single-stream"))[0]["p90"] == "too few"


def test_an_invalid_run_is_named_with_loadgens_reason() -> None:
    table = table_of(summary_of(by_loadgen(), by_loadgen(repeat=1, valid=False)), "loadgen-offline")
    assert texts(table)[0]["LoadGen says"] == "INVALID (1 of 2)"
    assert table.rows[0][-1].tone == "bad"
    assert "not met: min duration (Decrease the expected latency)." in table.note
    alone = table_of(summary_of(by_loadgen(valid=False)), "loadgen-offline")
    assert texts(alone)[0]["LoadGen says"] == "INVALID"


def test_scenarios_are_never_pooled_and_what_did_not_run_says_so() -> None:
    summary = summary_of(
        by_loadgen(batch=1), by_loadgen("single-stream", 1), by_loadgen(batch=512, status="out_of_memory")
    )
    assert [(row.scenario, row.setup.batch, row.runs, row.setup.variant) for row in summary.loadgen] == [
        ("offline", 1, 1, ()),
        ("offline", 512, 0, ()),
        ("single-stream", 1, 1, ()),
    ]
    rows = texts(table_of(summary, "loadgen-offline"))
    assert (rows[1]["Rate"], rows[1]["LoadGen says"]) == ("out of memory", "–")
    assert [one.kind for one in summary.not_measured] == ["loadgen"]


def test_a_low_share_of_the_arithmetic_is_marked() -> None:
    ran = record(
        "throughput", "resnet50", "int8", 8, throughput=throughput(50.0),
        precision_mac_share={"fp32": 0.8, "int8": 0.2}, calibration=None,
    )  # fmt: skip
    one = by_loadgen(precision="int8").model_copy(update={"calibration": None})
    table = table_of(summary_of(ran, one), "loadgen-offline")
    assert texts(table)[0]["Precision"] == "INT8 †"
    assert "†: less than 90 %" in table.note


@pytest.mark.parametrize("scenario", ["offline", "single-stream"])
def test_no_other_figure_changes_with_loadgens_trials(scenario) -> None:
    records, top5 = study()
    alone = summarise(records, top5)
    both = summarise([*records, by_loadgen(scenario, 1)], top5)
    before, after = asdict(alone), asdict(both)
    *rest, own = (one.replace("Of 77 trials", "Of 76 trials") for one in after["cautions"])
    assert own == "1 LoadGen row rests on one repeat."
    after["cautions"] = tuple(rest)
    for name in before.keys() - {"trials", "statuses", "loadgen", "machines", "calibrations"}:
        assert before[name] == after[name], name
    assert len(both.loadgen) == 1
    assert [table.id for table in result_tables(both)] == [
        *(table.id for table in result_tables(alone) if table.id != "not-measured"),
        f"loadgen-{scenario}",
        "not-measured",
    ]


def test_the_page_has_the_table_under_its_title() -> None:
    records = [by_loadgen(), record("latency", batch=1, latency_s=latency(0.01))]
    text = page(summary_of(*records), records)
    assert "<h2 id='loadgen-offline-title'>LoadGen, offline (not an MLPerf result)</h2>" in text


def test_csv_has_every_figure_raw_and_the_clock() -> None:
    records = [by_loadgen(rate=96215.5), by_loadgen("single-stream", 1), record(throughput=throughput(5.0))]
    offline, single, other = csv.DictReader(io.StringIO(csv_text(records)))
    assert (offline["kind"], offline["loadgen_samples_per_s"]) == ("loadgen", "96215.5")
    assert (offline["loadgen_clock"], offline["throughput_images_per_s"]) == ("loadgen", "")
    assert (single["loadgen_latency_s_p90"], single["loadgen_result_valid"]) == ("0.02", "true")
    assert other["loadgen_clock"] == other["loadgen_samples_per_s"] == ""


def test_a_study_of_loadgen_alone_is_not_said_to_have_no_number(capsys) -> None:
    records = [by_loadgen()]
    text = "LoadGen alone gave numbers: see its tables."
    print_findings(summary_of(*records))
    assert f"- {text}\n" in capsys.readouterr().out
    assert text in page(summary_of(*records), records)
    lost = [by_loadgen(status="failed")]
    print_findings(summary_of(*lost))
    assert "- No trial gave a number.\n" in capsys.readouterr().out
    assert "No trial gave a number." in page(summary_of(*lost), lost)


def test_runs_that_loadgen_calls_invalid_are_a_caution_with_what_to_do() -> None:
    summary = summary_of(by_loadgen(repeat=0), by_loadgen(repeat=1, valid=False), by_loadgen(batch=16))
    told = [one for one in summary.cautions if "LoadGen" in one]
    assert told == [
        "LoadGen calls 1 of 3 runs INVALID (not met: min duration (Decrease the expected latency)): give it"
        " more time by measure.max_s in the study.",
        "1 LoadGen row rests on one repeat.",
    ]
