"""Power in tables, charts, traces, page, pictures and CSV."""

import csv
import io
import json
import re

import numpy as np
import pytest
import vl_convert
from PIL import Image

from inferometer.analysis.summary import summarise
from inferometer.errors import StoreError
from inferometer.report.charts import charts
from inferometer.report.html import page
from inferometer.report.png import write_pngs
from inferometer.report.power_trace import Traces, read_trace, trace_chart, traces_of
from inferometer.report.tables import csv_text, result_tables, table_of
from tests.unit.report.power_records import (
    SECOND,
    figure,
    held,
    metered,
    power_study,
    result,
    with_trace,
    without_ratio,
)

DASH = "\N{EN DASH}"


def summary_of(*records):
    return summarise(records, lambda _: None)


def texts(table):
    names = [column.name for column in table.columns]
    return [dict(zip(names, (cell.text for cell in row), strict=True)) for row in table.rows]


def rows_with(chart, key):
    found = [row for rows in chart.chart.to_dict()["datasets"].values() for row in rows if key in row]
    return list({json.dumps(row, sort_keys=True): row for row in found}.values())


@pytest.fixture(scope="module")
def studied():
    return summarise(power_study(), lambda _: None)


def test_the_tables_stand_among_the_results(studied):
    assert [table.id for table in result_tables(studied)] == [
        "throughput", "speedup", "power", "power-relative", "power-watts", "power-read",
    ]  # fmt: skip
    for table in result_tables(studied):
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_per_watt_cells_have_text_and_raw_value():
    table = table_of(summary_of(metered(result(560.0, 8000.0))), "power")
    (row,) = texts(table)
    assert (row["Per watt"], row["95 % interval"], row["Energy"]) == ("14.3", "14.2 to 14.4 *", "0.0700")
    assert (row["Net"], row["Load"], row["Idle"], row["Rate"]) == ("560", "638", "78.0", "8,000")
    assert (row["Repeats"], row["Per watt of load"]) == ("1", "12.5")
    raw = dict(zip((one.name for one in table.columns), (cell.raw for cell in table.rows[0]), strict=True))
    assert raw["Per watt"] == 8000 / 560
    assert "Power of GPU board, by nvml." in table.note
    assert "since an idle that repeats share errs alike in all of them" in table.note
    assert "* a trial's own interval" in table.note


def test_what_is_missing_is_a_dash_or_words_with_the_reason_and_never_0():
    lost = dict.fromkeys(("idle_bare_w", "net_w", "images_per_s_per_w", "j_per_image"))
    records = [
        metered(without_ratio()),
        metered(result(**lost, missing={"net_w": "another process held the GPU"}), batch=32),
        metered(batch=1, missing={"power": "nvml: no driver"}),
    ]
    table = table_of(summary_of(*records), "power")
    by_batch = {row["Batch"]: row for row in texts(table)}
    assert (by_batch["128"]["Per watt"], by_batch["128"]["Net"]) == ("none", "3.10")
    assert (by_batch["32"]["Per watt"], by_batch["32"]["Net"], by_batch["32"]["Load"]) == (DASH, DASH, "638")
    assert (by_batch["1"]["Per watt"], by_batch["1"]["Load"], by_batch["1"]["Repeats"]) == (
        "not measured", DASH, "0 of 1",
    )  # fmt: skip
    for reason in ("net power of 3.1 W is within", "another process held the GPU", "nvml: no driver"):
        assert reason in table.note
    assert all(cell.raw != 0 for row in table.rows for cell in row if cell.text in (DASH, "none"))


def test_watts_tell_what_held_the_clocks_and_what_was_read_is_audited():
    beside = ({"semantics": "average over 1 s", "load_w": 600.0, "disagreement": -0.05},)
    one = result(
        conditions=held(0.98, 0.004),
        beside=beside,
        drift_w=-3.2,
        load=figure(638.0, 2.0, flags=("a gap of 2 s",)),
    )
    summary = summary_of(metered(one))
    (watts,) = texts(table_of(summary, "power-watts"))
    assert (watts["Capped"], watts["Slowed"], watts["Limit"]) == ("98 %", "0.4 %", "700")
    assert (watts["Idle, loaded"], watts["95 % interval"]) == ("118", "556 to 564")
    assert (watts["Temperature"], watts["Clock"]) == ("41 to 63", "1,600 to 1,980")
    read = table_of(summary, "power-read")
    (row,) = texts(read)
    assert (row["Meter"], row["Boundary"], row["Parts"]) == ("nvml", "GPU board", "GPU-1f3a")
    assert (row["How"], row["Readings"], row["Distinct"]) == ("counter since driver load", "10.0", "590")
    assert (row["Scale error"], row["Drift"], row["Apart"]) == (
        "5 %",
        "\N{MINUS SIGN}3.2",
        "\N{MINUS SIGN}5.0 %",
    )
    assert "Flags: a gap of 2 s." in read.note
    silent = result(conditions=(), gain_error=None, beside=(), idle_loaded_w=None)
    (watts,) = texts(table_of(summary_of(metered(silent)), "power-watts"))
    assert (watts["Capped"], watts["Slowed"], watts["Idle, loaded"]) == (DASH, DASH, DASH)


def test_several_boundaries_have_a_column_and_panels_of_their_own():
    server = result(700.0, idle=300.0, boundary="server input", meter="redfish")
    summary = summary_of(metered(result(), server))
    assert [row["Boundary"] for row in texts(table_of(summary, "power"))] == ["GPU board", "server input"]
    drawn = {chart.id: chart for chart in charts(summary)}
    assert [panel["title"] for panel in drawn["power"].chart.to_dict()["concat"]] == [
        "ResNet-50, GPU board", "ResNet-50, server input",
    ]  # fmt: skip


def test_the_ratio_to_fp32_in_table_and_bars(studied):
    first = texts(table_of(studied, "power-relative"))[2]
    assert (first["Precision"], first["Over FP32"], first["Verdict"]) == ("FP16", "3.10×", "more per watt")
    chart = {one.id: one for one in charts(studied)}["power-relative"]
    values = {
        (row["panel"], row["precision"], row["batch"]): row["value"] for row in rows_with(chart, "value")
    }
    gains = studied.power_gains
    assert values == {
        (studied.names[one.setup.model], one.setup.precision.upper(), one.setup.batch): one.ratio
        for one in gains
    }
    alone = [one for one in power_study(1) if one.trial.precision != "fp32"]
    assert "power-relative" not in {one.id for one in charts(summary_of(*alone))}


def test_per_watt_lines_have_every_value_and_cross_what_has_none():
    summary = summary_of(metered(result(), batch=32), metered(without_ratio()))
    chart = {one.id: one for one in charts(summary)}["power"]
    ((value,), (absent,)) = rows_with(chart, "value"), rows_with(chart, "absent")
    assert (value["batch"], value["value"], value["lo"]) == (32, 8000 / 560, 8000 / 564)
    assert (absent["batch"], absent["text"]) == (128, "no ratio")
    assert "A cross marks a batch without a ratio" in chart.caption


def test_watts_are_idle_and_net_on_each_other():
    lost = {"idle_bare_w": None, "net_w": None, "idle_loaded_w": None}
    summary = summary_of(metered(result()), metered(result(**lost), batch=32))
    chart = {one.id: one for one in charts(summary)}["power-watts"]
    by_batch = {row["batch"]: row for row in rows_with(chart, "load")}
    split = by_batch[128]
    assert (split["load"], split["idle"], split["idle_loaded"]) == (638.0, 78.0, 118.0)
    assert (split["lo"], split["hi"]) == (634.0, 642.0)
    assert "idle" not in by_batch[32]
    assert "Pale bars are load alone" in chart.caption


def test_every_chart_of_power_compiles_without_a_warning(studied, tmp_path, capfd):
    drawn = [one.chart for one in charts(studied) if one.id.startswith("power")]
    assert len(drawn) == 3
    drawn.append(trace_chart(read_trace(tmp_path, with_trace(tmp_path, metered(result())))))
    for chart in drawn:
        assert vl_convert.vegalite_to_vega(chart.to_dict(), show_warnings=True)["marks"]
    assert "WARN" not in "".join(capfd.readouterr())


def test_the_lines_of_a_trace_tell_values_and_bear_names_of_their_own(tmp_path):
    chart = trace_chart(read_trace(tmp_path, with_trace(tmp_path, metered(result())))).to_dict()
    told = [row for rows in chart["datasets"].values() for row in rows if "text" in row]
    names = {
        "GPU board, counter since driver load": "W",
        "GPU board, instantaneous": "W",
        "GPU board, instantaneous, temperature": "\N{DEGREE SIGN}C",
    }
    for name, unit in names.items():
        own = [row for row in told if row["series"] == name]
        assert 20 < len(own) <= 80
        assert all(row["text"].endswith(f" {unit}") for row in own)
        assert [float(row["text"].split()[0]) for row in own] == pytest.approx(
            [row["value"] for row in own], rel=0.01
        )
    assert {row["series"] for row in told} == set(names)


def test_a_trace_is_in_seconds_from_the_load_with_its_windows(tmp_path):
    trace = read_trace(tmp_path, with_trace(tmp_path, metered(result())), {"resnet50": "ResNet-50"})
    assert trace.title == "ResNet-50, FP32, batch 128, repeat 1 (tensorrt, cuda:0)"
    assert trace.windows == (
        ("idle", -40.0, -10.0), ("idle, model loaded", -8.0, -2.0), ("load", 0.0, 60.0),
        ("idle", 70.0, 100.0),
    )  # fmt: skip
    counter, power = trace.watts
    assert (counter.name, counter.primary) == ("GPU board, counter since driver load", True)
    assert (power.name, power.primary) == ("GPU board, instantaneous", False)
    assert max(len(counter.values), len(power.values)) <= 400
    for line in (counter, power):
        inside = [value for second, value in zip(line.seconds, line.values, strict=True) if 3 < second < 57]
        assert np.mean(inside) == pytest.approx(688.0, abs=1.0)
        idle = [value for second, value in zip(line.seconds, line.values, strict=True) if -40 < second < -12]
        assert idle == pytest.approx([78.0] * len(idle), abs=0.1)
    (warm,) = trace.temperatures
    assert (warm.values[0], max(warm.values)) == (35.0, 55.0)


def test_a_counters_trace_keeps_the_energy(tmp_path):
    """Readings between a counter's steps give no zero and no double power."""
    trace = read_trace(tmp_path, with_trace(tmp_path, metered(result()), period_s=0.02))
    counter = trace.watts[0]
    assert min(counter.values) > 77.0
    assert max(counter.values) < 700.0
    length = counter.seconds[1] - counter.seconds[0]
    joules = 60 * 688.0 + 10 * 118.0 + (144 - 70) * 78.0
    assert sum(counter.values) * length == pytest.approx(joules, rel=0.01)


def test_a_clock_that_started_long_ago_moves_nothing(tmp_path):
    origin = 90 * 24 * 3600 * SECOND
    one = metered(result())
    load = one.load_window.model_copy(update={"begin_ns": origin, "end_ns": origin + 60 * SECOND})
    moved = with_trace(tmp_path, one.model_copy(update={"load_window": load}), origin_ns=origin)
    assert read_trace(tmp_path, moved).watts[0].seconds[0] == pytest.approx(-41.5, abs=0.5)


def test_no_more_than_twelve_traces_first_repeats_first(tmp_path):
    records = [with_trace(tmp_path, one, period_s=1.0) for one in power_study(2)[8:27]]
    found = traces_of(records, tmp_path)
    assert (len(found.drawn), found.others, found.gone) == (12, len(records) - 12, 0)
    assert found.note == "Besides: 7 more trials with power readings, not drawn."
    assert found.drawn[-1].title.endswith("repeat 2 (tensorrt, cuda:0)")
    assert [one.title.split("repeat ")[1][0] for one in found.drawn[:10]] == ["1"] * 10


def test_a_trace_that_is_gone_is_told_and_one_that_changed_is_refused(tmp_path):
    one = with_trace(tmp_path, metered(result()))
    file = tmp_path / one.sidecars[0].path
    file.write_bytes(b"changed")
    with pytest.raises(StoreError, match="SHA-256 differs"):
        traces_of([one], tmp_path)
    file.unlink()
    found = traces_of([one], tmp_path)
    assert (found.drawn, found.gone) == ((), 1)
    assert found.note == "Besides: 1 trial whose file of power readings is not there."
    assert read_trace(tmp_path, metered(result())) is None


def test_the_page_has_charts_tables_and_traces(tmp_path):
    records = [with_trace(tmp_path, metered(result()))]
    summary = summary_of(*records)
    text = page(summary, records, traces_of(records, tmp_path))
    for name in ("power", "power-watts", "power-read", "power-traces"):
        assert f"<section id='{name}'" in text
        assert f"<a href='#{name}'>" in text
    assert "id='chart-power-trace-1'" in text
    assert "<small>images/s/W</small>" in text
    block = json.loads(re.search(r"id='charts'>(.*?)</script>", text, re.DOTALL)[1])
    assert [one["id"] for one in block] == ["throughput", "power", "power-watts", "power-trace-1"]
    without = page(summary, records)
    assert "power-traces" not in without
    assert "id='chart-power'" in without


def test_traces_become_pictures(tmp_path):
    records = [with_trace(tmp_path, metered(result(), repeat=n), period_s=1.0) for n in range(2)]
    traces = traces_of(records, tmp_path)
    paths = write_pngs(summary_of(*records), tmp_path / "png", traces.drawn)
    assert [one.name for one in paths] == [
        "throughput.png", "power.png", "power-watts.png", "power-trace-1.png", "power-trace-2.png",
    ]  # fmt: skip
    with Image.open(io.BytesIO(paths[-1].read_bytes())) as picture:
        assert 1300 < picture.width < 1700
        assert 900 < picture.height < 1400
    assert Traces().note is None


def test_csv_has_the_first_boundary_flat_and_the_others_as_json():
    server = result(700.0, idle=300.0, boundary="server input", meter="redfish")
    records = [metered(result(), server), metered(batch=1, missing={"power": "nvml: no driver"})]
    both, none = csv.DictReader(io.StringIO(csv_text(records)))
    assert (both["power_boundary"], both["power_load_w"], both["power_net_w"]) == (
        "GPU board",
        "638.0",
        "560.0",
    )
    assert float(both["power_images_per_s_per_w"]) == 8000 / 560
    assert float(both["power_images_per_s_per_w_ci95_lo"]) == 8000 / 564
    assert (both["power_load_rate_hz"], both["power_idle_before_samples"]) == ("10.0", "600")
    assert json.loads(both["power_parts"]) == ["GPU-1f3a"]
    assert json.loads(both["power_conditions"])[0]["name"] == "power limit reached"
    (other,) = json.loads(both["power_other_boundaries"])
    assert (other["boundary"], other["load_w"]) == ("server input", 1000.0)
    assert both["load_window_images"] == str(60 * 8000)
    assert (none["power_absent"], none["power_load_w"], none["power_boundary"]) == ("nvml: no driver", "", "")
    assert both["power_absent"] == both["power_facts"] == ""
