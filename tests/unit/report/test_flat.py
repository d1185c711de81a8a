"""CSV: raw numbers, stable columns, nothing that a spreadsheet would run."""

import csv
import io

from inferometer.report.tables import csv_text
from tests.unit.report.sample_records import record, throughput


def read(records):
    return list(csv.DictReader(io.StringIO(csv_text(records))))


def test_one_line_per_record_and_every_number_raw(records):
    rows = read(records)
    assert len(rows) == len(records) == 76
    for row, one in zip(rows, records, strict=True):
        assert (row["id"], row["model"], row["status"]) == (one.id, one.trial.model, one.status)
        if one.throughput:
            assert float(row["throughput_images_per_s"]) == one.throughput.images_per_s
            assert float(row["throughput_ci95_lo"]) == one.throughput.ci95[0]
            assert row["throughput_warmup_steady"] == "true"
        if one.latency_s:
            assert float(row["latency_s_p99"]) == one.latency_s.p99
        if one.accuracy:
            assert float(row["accuracy_top1"]) == one.accuracy.top1


def test_what_is_absent_is_empty_and_zero_is_zero(records):
    row = read([record(throughput=throughput(5.0), precision_mac_share={"fp32": 1.0, "int8": 0.0})])[0]
    assert row["latency_s_p50"] == row["mac_share_bf16"] == row["reason"] == ""
    assert row["mac_share_int8"] == "0.0"


def test_options_and_session_tell_the_rows_of_one_engine_apart():
    config = {"options": {"provider": "openvino", "threads": 2}, "engine_version": "1.32.0 with 1.8.1"}
    row = read([record(throughput=throughput(5.0), config=config, session={"threads": 2}, compile_s=1.5)])[0]
    assert row["options"] == '{"provider":"openvino","threads":2}'
    assert (row["session"], row["engine_version"]) == ('{"threads":2}', "1.32.0 with 1.8.1")
    assert row["compile_s"] == "1.5"


def test_columns_are_the_same_whatever_the_records(records):
    header = csv_text([]).splitlines()[0]
    assert csv_text(records).splitlines()[0] == header
    assert header.startswith("schema,id,time,kind,study,model,engine,device,precision,batch,")
    assert len(set(header.split(","))) == len(header.split(","))


def test_text_is_quoted_and_never_a_formula():
    row = read([record(model='=HYPERLINK("x"),\n"y"', status="failed", reason="-1+2")])[0]
    assert row["model"] == '\'=HYPERLINK("x"),\n"y"'
    assert row["reason"] == "'-1+2"
