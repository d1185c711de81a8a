from pathlib import Path

import pytest

from inferometer.config import Study, duration_s, load_study, parse, read_yaml
from inferometer.errors import ConfigError


def study_file(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_short_and_long_entries_mean_the_same(tmp_path: Path) -> None:
    study = load_study(
        study_file(
            tmp_path,
            "models: [googlenet, {model: ./m.onnx, preprocess: caffe}]\n"
            "engines: [onnxruntime, {engine: 'null', device: cpu}]\n",
        )
    )
    assert [entry.model for entry in study.models] == ["googlenet", str(tmp_path / "m.onnx")]
    assert study.models[1].preprocess == "caffe"
    assert [entry.engine for entry in study.engines] == ["onnxruntime", "null"]
    assert (study.repeats, study.batches, study.limits.trial_s) == (3, (1, 8, 32), 600.0)


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    study = load_study(
        study_file(
            tmp_path,
            "models: [alexnet]\n"
            "calibration: {data: images/val, split: names.txt}\n"
            "accuracy: {data: /data/val}\n",
        )
    )
    assert study.calibration is not None
    assert study.accuracy is not None
    assert study.calibration.data == str(tmp_path / "images/val")
    assert study.calibration.split == str(tmp_path / "names.txt")
    assert study.accuracy.data == "/data/val"
    assert study.models[0].model == "alexnet"


def test_meters_are_written_short_or_with_options_and_files_of_theirs_start_at_the_study(
    tmp_path: Path,
) -> None:
    replay = "{meter: replay, options: {file: watts.csv, unit: W}}"
    meters = f"[nvml, {replay}, {{meter: redfish, options: {{ca_file: /ca.pem}}}}]"
    study = load_study(study_file(tmp_path, f"models: [alexnet]\npower: {{meters: {meters}}}\n"))
    assert study.power is not None
    assert [(one.meter, one.options) for one in study.power.meters] == [
        ("nvml", {}),
        ("replay", {"file": str(tmp_path / "watts.csv"), "unit": "W"}),
        ("redfish", {"ca_file": "/ca.pem"}),
    ]
    assert (study.power.idle_s, study.power.min_s, study.power.idle_loaded_s) == (30.0, 60.0, 10.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("models: [a]\nbatchs: [1]\n", "unknown key 'batchs'; did you mean 'batches'?"),
        ("models: [a]\nmeasure: {intervall: 0.1}\n", "did you mean 'interval'?"),
        ("models: [a]\nprecisions: [int7]\n", "'int7' is not known; did you mean 'int8'?"),
        ("models: [a]\nname: a/b\n", "name: wants letters, digits and . _ - alone (got 'a/b')"),
        ('models: [a]\nname: "a\\n"\n', "name: wants letters"),
        ("models: [a]\nbatches: [0]\n", "batches.0: input should be greater than or equal to 1 (got 0)"),
        ("models: [a]\nbatches: [-4]\n", "got -4"),
        ("models: [a]\nbatches: [many]\n", "batches.0: input should be a valid integer (got 'many')"),
        ("models: [a]\nbatches: [1.5]\n", "got 1.5"),
        ("models: [a]\nbatches: [8, 8]\n", "an entry stands twice"),
        ("models: [a]\nbatches: []\n", "at least 1 item"),
        ("models: []\n", "at least 1 item"),
        ("batches: [1]\n", "'models' is missing"),
        ("models: [a]\nranks: [1, 1]\n", "an entry stands twice"),
        ("models: [a]\ninput: [images, images]\n", "an entry stands twice"),
        ("models: [a]\ninput: pictures\n", "synthetic"),
        ("models: [a]\ninput: images\ncopies: excluded\n", "pictures have to get to the device"),
        ("models: [a]\nimages: {data: d}\n", "serves input: images alone"),
        ("models: [a]\nranks: [0]\n", "ranks.0"),
        ("models: [a]\nlaunch: {template: srun -n {ranks}}\n", "launch"),
        ('models: [a]\nlaunch: {template: "srun -n {ranks} x"}\n', "wants {command} as a word of its own"),
        ('models: [a]\nlaunch: {template: "srun {command}"}\n', "wants {ranks}, the number of ranks"),
        ("models: [a]\nlaunch: {oversubscibe: true}\n", "did you mean 'oversubscribe'?"),
        ("models: [a]\npower: {meters: []}\n", "power.meters: tuple should have at least 1 item"),
        ("models: [a]\npower: {idle_s: 30}\n", "'power.meters' is missing"),
        ("models: [a]\npower: {meters: nvml}\n", "power.meters: wants a list, such as [nvml]"),
        (
            "models: [a]\npower: {meters: [nvml], idle: 3}\n",
            "unknown key 'power.idle'; did you mean 'idle_s'?",
        ),
        (
            "models: [a]\npower: {meters: [nvml], min_s: 0}\n",
            "power.min_s: input should be greater than or equal",
        ),
        ("models: [a]\nkinds: [latency]\npower: {meters: [nvml]}\n", "add throughput to kinds"),
        ("models: [a]\npower: {meters: [nvml, nvml]}\n", "nvml stands twice, and would count twice"),
        ("models: [a]\npower: {meters: [nvml], min_s: 900}\n", "raise the limit"),
        ("models: [a]\nname: a/b\n", "name:"),
        ("models: [a]\nmodels: [b]\n", "the key 'models' stands twice"),
        ("- a\n", "wants a mapping"),
        ("models: googlenet\n", "models: wants a list, such as [googlenet]"),
        ("models: [a]\nmeasure: 3\n", "measure: wants a mapping"),
        ("models: [a]\nrepeats: 1000000000\n", "repeats:"),
        ("models: [a]\nengines: [{engine: null, options: {threads: 2020-01-01}}]\n", "engines.0"),
        ("models: [a\n", "not YAML"),
        ("models: [a]\nmeasure: {interval: .nan}\n", "measure.interval"),
    ],
)
def test_faults_are_one_line_that_names_them(tmp_path: Path, text: str, expected: str) -> None:
    path = study_file(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load_study(path)
    message = str(caught.value)
    assert expected in message
    assert message.startswith(str(path))
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_one_wrong_entry_is_one_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_study(study_file(tmp_path, "models: [a]\nbatches: [0]\n"))
    assert str(caught.value).endswith(
        "study.yaml: batches.0: input should be greater than or equal to 1 (got 0)"
    )


def test_aliases_and_merges_work_and_cannot_explode(tmp_path: Path) -> None:
    merged = "base: &b {max_s: 3}\n"
    path = study_file(tmp_path, f"{merged}x: {{<<: *b, interval: 0.1}}\n")
    assert read_yaml(path)["x"] == {"max_s": 3, "interval": 0.1}
    levels = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]\n" for n in range(1, 10))
    path = study_file(tmp_path, f"l0: &l0 [x]\n{levels}")
    with pytest.raises(ConfigError, match="more than 100000 entries"):
        read_yaml(path)
    path = study_file(tmp_path, "models: " + "[" * 3000 + "]" * 3000)
    with pytest.raises(ConfigError, match="nested too deep"):
        read_yaml(path)


def test_missing_and_binary_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load_study(tmp_path / "none.yaml")
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(ConfigError, match="not YAML"):
        load_study(path)


def test_a_study_is_frozen() -> None:
    study = parse(Study, {"models": ["a"]}, "here")
    with pytest.raises(ValueError, match="frozen"):
        study.repeats = 5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("9m", 540), ("1.5h", 5400), (" 2 m", 120)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3s", "9 minutes", "m", "1e3"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ConfigError, match="is no duration"):
        duration_s(text)


def test_one_input_or_both_and_where_the_pictures_lie(tmp_path: Path) -> None:
    text = "models: [alexnet]\ninput: images\nimages: {data: ./val, labels: val.txt}\n"
    study = load_study(study_file(tmp_path, text))
    assert study.input == ("images",)
    assert study.images is not None
    assert (study.images.data, study.images.labels) == (str(tmp_path / "val"), str(tmp_path / "val.txt"))
    assert parse(Study, {"models": ["alexnet"]}, "x").input == ("synthetic",)
