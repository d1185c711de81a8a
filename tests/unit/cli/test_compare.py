"""``compare``: names, axes, prices, exit codes, and what it prints and writes."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from inferometer.store import open_store
from tests.unit.analysis.comparison.sample_sources import DELL, elsewhere, trials
from tests.unit.cli.command import inferometer

STEADY = (100.0, 101.0, 99.0)


def store(folder: Path, *groups) -> str:
    with open_store(folder, "demo") as opened:
        for group in groups:
            for one in group:
                opened.append(one)
    return str(folder)


def test_the_verdict_on_likeness_comes_first_then_findings_then_tables(capsys):
    ended = inferometer(capsys, "compare", "dell-2017-07")
    assert (ended.code, ended.err) == (0, "")
    titles = ["Is it like for like?", "What was found", "What differs from tesla-p40", "Ratios to tesla-p40",
              "Scaling: several devices", "By batch: images/s/W"]  # fmt: skip
    places = [ended.out.index(title) for title in titles]
    assert places == sorted(places)
    assert "One tesla-p4 gives 0.52 of the images/s of one tesla-p40" in ended.out
    assert "tesla-p4 ran out of memory at batch 2,048" in ended.out


def test_multiples_of_several_figures_say_of_which(capsys):
    lines = inferometer(capsys, "compare", "dell-2017-07").out.splitlines()
    alexnet = [line for line in lines if line.startswith("tesla-p4  AlexNet")]
    rows = [line for line in alexnet if "images/s/W" in line and " 1.42× " in line]
    assert [line.partition("(of ")[2].partition(")")[0] for line in rows] == [
        "1 tesla-p40, batch 128", "1 tesla-p40, batch 1",
    ]  # fmt: skip


def test_json_is_one_document_with_the_evidence(capsys):
    found = inferometer(capsys, "compare", "dell-2017-07", "--json").document
    assert (found["axis"], found["baseline"], found["written"]) == ("device", "tesla-p40", [])
    assert found["comparability"][0]["likeness"] == "comparable along the axis"
    first = found["findings"][0]
    assert all(name.startswith(f"{DELL}: figures / ") for name in first["record_ids"])
    ratio = next(one for one in found["ratios"] if one["per"] == "server")
    assert (ratio["own"]["count"], ratio["base"]["count"]) == (4, 3)
    bounds = [one["bound"] for one in found["comparability"][0]["differences"]]
    assert bounds == [None]  # another device: without limit


def test_two_stores_of_one_machine_are_compared_as_stores(capsys, tmp_path):
    a, b = store(tmp_path / "june", trials(STEADY)), store(tmp_path / "july", trials((150.0, 151.0, 149.0)))
    found = inferometer(capsys, "compare", a, b, "--json").document
    assert (found["axis"], found["subjects"]) == ("store", ["june", "july"])
    assert [one["verdict"] for one in found["ratios"]] == ["faster"]
    turned = inferometer(capsys, "compare", a, b, "--json", "--baseline", "july").document
    assert [one["verdict"] for one in turned["ratios"]] == ["slower"]


def test_folders_of_one_name_keep_what_tells_them_apart(capsys, tmp_path):
    a, b = store(tmp_path / "mon" / "out", trials(STEADY)), store(tmp_path / "tue" / "out", trials(STEADY))
    assert inferometer(capsys, "compare", a, b, "--json").document["subjects"] == [a, b]


def test_half_the_threads_are_named_as_the_cause_and_a_verdict_exits_0(capsys, tmp_path):
    a = store(tmp_path / "a", trials(STEADY))
    b = store(tmp_path / "b", trials((50.0, 51.0, 49.0), config_options={"threads": 1}))
    ended = inferometer(capsys, "compare", a, b)
    assert ended.code == 0
    assert "b against a: not comparable: threads: 1 against 2 (up to 100 %)." in ended.out


def test_engines_are_refused_with_a_hint_unless_asked_for(capsys, tmp_path):
    a = store(tmp_path / "a", trials(STEADY))
    b = store(tmp_path / "b", trials((200.0, 201.0, 199.0), trial_engine="openvino"))
    assert "Ask for --by engine." in inferometer(capsys, "compare", a, b).out
    asked = inferometer(capsys, "compare", a, b, "--by", "engine")
    assert "openvino gives 2.00" in asked.out


def test_a_store_stands_beside_a_study_with_what_is_not_known(capsys, tmp_path):
    a = store(tmp_path / "mine", trials(STEADY, batch=128, trial_engine="tensorrt"))
    ended = inferometer(capsys, "compare", "nvidia-2017", a, "--by", "machine")
    assert "Not known, and so not taken to be equal" in ended.out


def test_csv_has_a_line_for_each_ratio(capsys, tmp_path):
    a, b = store(tmp_path / "a", trials(STEADY)), store(tmp_path / "b", trials(environment=elsewhere()))
    path = tmp_path / "ratios.csv"
    ended = inferometer(capsys, "compare", a, b, "--csv", path)
    assert (ended.code, ended.err.strip()) == (0, f"wrote {path}")
    (line,) = csv.DictReader(io.StringIO(path.read_text()))
    assert (line["subject"], line["baseline"], line["metric"]) == ("b", "a", "images_per_s")
    assert float(line["ratio"]) == pytest.approx(1.0)
    assert len(line["evidence"].split()) == 3


def test_prices_are_taken_by_subject(capsys):
    words = ("compare", "dell-2017-07", "--price", "tesla-p40=5700", "--price", "tesla-p4=2000")
    found = inferometer(capsys, *words, "--json").document
    priced = [one for one in found["ratios"] if one["per"] == "price"]
    assert priced[0]["ratio"] == pytest.approx(0.52 * 5700 / 2000)
    assert "for the same money" in inferometer(capsys, *words).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("dell-2017-7",), 2, "neither a study's folder nor a published study"),
        (("dell-2017",), 2, "may be any of"),
        (("dell-2017-07", "--by", "month"), 2, "--by: there is no 'month'"),
        (("dell-2017-07", "--by", "engine"), 2, "nothing to compare by engine"),
        (("dell-2017-07", "--baseline", "p400"), 2, "known are tesla-p4, tesla-p40"),
        (("dell-2017-07", "--baseline", "p4"), 2, "may be any of"),
        (("dell-2017-07", "--price", "p40"), 2, "--price: 'p40' is no price: write for example p4=2000"),
        (("dell-2017-07", "--price", "tesla-p4=1e308"), 2, "'tesla-p4=1e308' is no price"),
        (("dell-2017-07", "--price", f"tesla-p4={'9' * 300}"), 2, "is no price"),
        (("dell-2017-07", "--price", f"tesla-p4=0.{'0' * 300}1"), 2, "is no price"),
        (("dell-2017-07", "--price", "p100=5"), 2, "--price: there is no 'p100'"),
        (("dell-2017-07", "--price", "tesla-p4=0"), 2, "'tesla-p4=0' is no price"),
        (("dell-2017-07", "--price", "tesla-p4=1", "--price", "tesla-p4=2"), 2, "tesla-p4 has two prices"),
        (("dell-2017-07", "--price", "tesla-p4=2000"), 2, "add --price tesla-p40=NUMBER"),
        (("dell-2017-07", "--price", "tesla-p40=5700"), 2, "add --price tesla-p4=NUMBER"),
        (("dell-2017-07", "dell-2017-07"), 2, "is named twice"),
        (("dell-2017-07", "dell-2017-07-p40"), 2, "is named twice"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(capsys, words, code, said):
    ended = inferometer(capsys, "compare", *words)
    assert (ended.code, ended.out) == (code, "")
    assert len(ended.err.splitlines()) == 1
    assert said in ended.err


def test_a_broken_store_exits_8_and_is_not_written_over(capsys, tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    assert inferometer(capsys, "compare", broken, "dell-2017-07").code == 8
    a = store(tmp_path / "a", trials(STEADY))
    ended = inferometer(capsys, "compare", a, "dell-2017-07", "--csv", f"{a}/records.jsonl")
    assert (ended.code, "would overwrite what is read" in ended.err) == (2, True)


def test_machines_of_one_kind_are_told_by_what_tells_them_apart(capsys, tmp_path):
    def one(key, rates, precision):
        return trials(rates, precision=precision, environment=elsewhere() | {"machine_key": key * 8})

    groups = [one("aa", STEADY, "fp32"), one("bb", (150.0, 151.0, 149.0), "fp16")]
    several = store(tmp_path / "several", *groups, one("cc", STEADY, "fp32"), one("dd", STEADY, "fp16"))
    text = " ".join(inferometer(capsys, "compare", several, "--by", "precision").out.split())
    assert "machine: bbbbbb against aaaaaa" in text or "machine: dddddd against cccccc" in text
    first = text.partition("What was found")[0]
    assert first.count("machine: ") == 1
    lone = store(tmp_path / "lone", trials(STEADY, precision="fp32"))
    subjects = inferometer(capsys, "compare", lone, several, "--json").document["subjects"]
    assert subjects == [
        "lone",
        "several [aaaaaa]",
        "several [bbbbbb]",
        "several [cccccc]",
        "several [dddddd]",
    ]


def test_a_store_may_be_given_by_its_records_and_not_twice(capsys, tmp_path):
    a, b = store(tmp_path / "a", trials(STEADY)), store(tmp_path / "b", trials((150.0, 151.0, 149.0)))
    ended = inferometer(capsys, "compare", a, f"{b}/records.jsonl", "--json")
    assert ended.document["subjects"] == ["a", "b"]
    ended = inferometer(capsys, "compare", a, f"{a}/records.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert "is named twice" in ended.err


def test_where_no_one_axis_makes_two_alike_the_way_out_is_named(capsys, tmp_path):
    def of(name, device, engine, **more):
        records = [
            one.model_copy(
                update={"trial": one.trial.model_copy(update={"device": device, "engine": engine})}
            )
            for one in trials(STEADY, **more)
        ]
        return store(tmp_path / name, records)

    here, other = of("here", "cpu", "onnxruntime"), of("other", "cpu", "openvino")
    text = " ".join(inferometer(capsys, "compare", here, other).out.split())
    assert "Ask for --by engine." in text
    there = of("there", "cpu", "openvino", environment=elsewhere())
    text = " ".join(inferometer(capsys, "compare", here, there).out.split())
    assert "They differ by machine and engine at once: inferometer choose weighs whole setups." in text
    assert "Ask for" not in text
