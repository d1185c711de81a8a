"""``explain``: from a study that was really run, and what it says when there is nothing to explain."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import yaml

from inferometer.store import open_store
from tests.unit.cli.command import inferometer
from tests.unit.report.sample_records import record, throughput


def store_of(folder: Path, *records: object) -> Path:
    with open_store(folder, "demo") as store:
        for one in records:
            store.append(one)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_a_study_of_two_precisions_is_explained_from_its_folder_alone(capsys, mini, tmp_path, engine):
    pytest.importorskip(engine, reason=f"the library of the engine {engine} is not installed")
    folder = tmp_path / "study"
    study = {
        "name": "tiny", "models": [str(mini)], "engines": [{"engine": engine}],
        "precisions": ["fp32", "int8"],
        "batches": [1, 4], "repeats": 1, "kinds": ["throughput"], "isolation": "series",
        "measure": {"max_s": 0.2, "warmup_max_s": 0.2},
    }  # fmt: skip
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    ran = inferometer(capsys, "run", tmp_path / "study.yaml", "--out", folder)
    assert ran.code == 0, ran.err
    ended = inferometer(
        capsys, "explain", folder, "--json", "--html", tmp_path / "x.html", "--png", tmp_path / "x.png"
    )
    assert ended.code == 0, ended.err
    (one,) = ended.document["explanations"]
    assert (one["engine"], one["precision"], one["baseline"], one["batch"]) == (engine, "int8", "fp32", 4)
    assert [at["batch"] for at in one["batches"]] == [1, 4]
    # Both layers that multiply, the convolution and the product, are found on both sides.
    multiplying = [pair for pair in one["pairs"] if pair["macs"]]
    assert {pair["own_precision"] for pair in multiplying} == {"int8"}
    assert {pair["base_precision"] for pair in multiplying} == {"fp32"}
    assert not [part for part in one["parts"] if part["part"] in ("unknown", "unmatched")]
    for side, key in (("base", "base_s"), ("own", "own_s")):
        assert sum(part[key] for part in one["parts"]) == pytest.approx(one[side]["profile_s"])
    assert (tmp_path / "x.html").read_text(encoding="utf-8").endswith("</html>\n")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    shown = inferometer(capsys, "explain", folder)
    assert one["headlines"][0] in shown.out
    assert "a call, measured" in shown.out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    both = [record(precision=one, throughput=throughput(9.0)) for one in ("fp32", "int8")]
    return store_of(tmp_path / "study", *both)


def test_without_profiles_the_verdict_is_told_and_what_is_missing(capsys, folder, tmp_path):
    ended = inferometer(capsys, "explain", folder, "--png", tmp_path / "x.png")
    assert ended.code == 0
    assert "No times of layers for INT8 at batch 1: what ran was not kept with its trials." in ended.out
    assert "x.png is not written: there are no times of layers to draw" in ended.err
    assert not (tmp_path / "x.png").exists()


def test_a_model_is_known_by_both_its_names(capsys, folder):
    for name in ("resnet50", "ResNet-50"):
        assert (
            len(inferometer(capsys, "explain", folder, "--model", name, "--json").document["explanations"])
            == 1
        )


def test_an_unknown_model_is_refused_with_the_nearest(capsys, folder):
    ended = inferometer(capsys, "explain", folder, "--model", "resnet5")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "inferometer: --model: the study has no 'resnet5'; did you mean 'resnet50'?\n"


def test_no_store_ends_with_8(capsys, tmp_path):
    ended = inferometer(capsys, "explain", tmp_path / "nothing")
    assert ended.code == 8
    assert "no records there" in ended.err


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"{", "no layers"), (b'{"executed": [], "profile": [{"name": "a"}]}', "no layers of a trial: KeyError"),
     (b'{"executed": [], "profile": [{"seconds": 1e999}]}', "no layers: 1e999 is no number"),
     (b'{"executed": [], "profile": [{"seconds": NaN}]}', "no layers: NaN is no number")],
)  # fmt: skip
def test_damaged_layers_end_with_8(capsys, tmp_path, content, text):
    place = tmp_path / "study"
    name = "sidecars/x.layers.json"
    side = [{"path": name, "sha256": hashlib.sha256(content).hexdigest()}]
    store_of(
        place,
        record(throughput=throughput(9.0), sidecars=side),
        record(precision="int8", throughput=throughput(9.0)),
    )
    (place / name).write_bytes(content)
    ended = inferometer(capsys, "explain", place)
    assert ended.code == 8
    assert text in ended.err
    assert ended.err.count("\n") == 1


def test_missing_layers_are_said_and_all_else_is_explained(capsys, tmp_path):
    side = [{"path": "sidecars/x.layers.json", "sha256": "0" * 64}]
    place = store_of(
        tmp_path / "study",
        record(throughput=throughput(9.0), sidecars=side),
        record(precision="int8", throughput=throughput(9.0)),
    )
    ended = inferometer(capsys, "explain", place)
    assert (ended.code, ended.err) == (0, "")
    assert (
        "No times of layers for FP32 at batch 1: sidecars/x.layers.json is missing from the study's folder."
        in ended.out
    )


def test_a_name_cannot_command_the_terminal_or_start_a_line(capsys, tmp_path):
    odd = {"model": "a\x1b[2Jb\nc"}
    both = [
        record(precision=one, throughput=throughput(9.0), trial_model=odd["model"])
        for one in ("fp32", "int8")
    ]
    ended = inferometer(capsys, "explain", store_of(tmp_path / "study", *both))
    assert ended.out.startswith("a\N{REPLACEMENT CHARACTER}[2Jb c on onnxruntime, cpu: INT8")
    assert "\x1b" not in ended.out


def test_the_mark_is_explained_without_tables_too(capsys, tmp_path):
    low = [
        record(throughput=throughput(9.0)),
        record(precision="int8", throughput=throughput(9.0), precision_mac_share={"fp32": 1.0}),
    ]
    ended = inferometer(capsys, "explain", store_of(tmp_path / "study", *low))
    assert "INT8 \N{DAGGER} against FP32" in ended.out
    assert ended.out.count("less than 90 % of the multiply-accumulates ran at the precision asked for.") == 1


def test_a_program_is_told_the_machine(capsys, folder):
    (one,) = inferometer(capsys, "explain", folder, "--json").document["explanations"]
    assert one["machine"] == 1


def test_changed_layers_are_refused(capsys, tmp_path):
    place = tmp_path / "study"
    side = [{"path": "sidecars/x.layers.json", "sha256": "0" * 64}]
    store_of(
        place,
        record(throughput=throughput(9.0), sidecars=side),
        record(precision="int8", throughput=throughput(9.0)),
    )
    (place / "sidecars/x.layers.json").write_text(json.dumps({"executed": [], "profile": None}))
    ended = inferometer(capsys, "explain", place)
    assert ended.code == 8
    assert "SHA-256 differs" in ended.err


def test_a_single_precision_and_an_empty_store_say_so(capsys, tmp_path):
    one = store_of(tmp_path / "one", record(throughput=throughput(9.0)))
    assert "only FP32 gave a rate" in inferometer(capsys, "explain", one).out
    none = store_of(tmp_path / "none", record(status="failed", reason="died"))
    assert "No throughput trial gave a rate." in inferometer(capsys, "explain", none).out
    document = inferometer(capsys, "explain", none, "--json").document
    assert document == {"explanations": [], "not_compared": [], "written": []}


def test_what_is_read_is_never_written_over(capsys, folder):
    before = (folder / "records.jsonl").read_bytes()
    for option in ("--html", "--png"):
        ended = inferometer(capsys, "explain", folder, option, folder / "records.jsonl")
        assert ended.code == 2
    assert (folder / "records.jsonl").read_bytes() == before


def test_eighty_columns_hold_every_line(capsys, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = inferometer(capsys, "explain", folder)
    assert max(map(len, ended.out.splitlines())) <= 80
