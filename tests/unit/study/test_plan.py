"""The matrix: order, identities, and what a trial's identity does and does not depend on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from PIL import Image

from inferometer.config import Study, parse
from inferometer.errors import ConfigError, EngineError
from inferometer.study.plan import Planned, plan_calibrations, plan_trials
from inferometer.study.resolve import resolve
from tests.contract.engines import classifier


@pytest.fixture
def other(tmp_path: Path) -> Path:
    path = tmp_path / "other.onnx"
    onnx.save(classifier(seed=1), path)
    return path


def planned(folder: Path, models: list[Any], **changes: Any) -> list[Planned]:
    content: dict[str, Any] = {"models": models, "engines": ["null"], "batches": [4, 1], "repeats": 3}
    return plan_trials(resolve(parse(Study, content | changes, "test"), folder), {})


def points(trials: list[Planned]) -> list[tuple[str, str, int | None, int]]:
    return [
        (item.spec.trial.model, item.spec.trial.kind, item.spec.trial.batch, item.spec.trial.repeat)
        for item in trials
    ]


def test_repeats_interleave_and_the_batches_of_a_series_ascend(
    mini: Path, other: Path, tmp_path: Path
) -> None:
    found = points(planned(tmp_path, [str(mini), str(other)], kinds=["throughput"]))
    assert [repeat for *_, repeat in found] == [0] * 4 + [1] * 4 + [2] * 4
    for start in range(0, 12, 2):
        (model_a, _, low, _), (model_b, _, high, _) = found[start : start + 2]
        assert (model_a, low, high) == (model_b, 1, 4)
    assert len(set(found)) == 12


def test_the_seed_orders_the_series(mini: Path, other: Path, tmp_path: Path) -> None:
    def order(seed: int) -> list[tuple[str, str, int | None, int]]:
        return points(planned(tmp_path, [str(mini), str(other)], seed=seed, repeats=8))

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1), key=str) == sorted(order(2), key=str)


def test_an_identity_holds_what_makes_a_trial_and_nothing_else(mini: Path, tmp_path: Path) -> None:
    def ids(**changes: Any) -> set[str]:
        return {item.spec.id for item in planned(tmp_path, [str(mini)], **changes)}

    base = ids()
    assert len(base) == 9
    assert ids(name="another") == base
    assert ids(limits={"trial_s": 5}) == base
    for change in (
        {"threads": 1},
        {"measure": {"max_s": 1}},
        {"seed": 3},
        {"isolation": "series"},
        {"precisions": ["fp16"]},
    ):
        assert not ids(**change) & base, change
    assert ids(batches=[1, 4, 8]) > base
    assert ids(repeats=2) < base


def test_accuracy_and_calibration_depend_on_seed_and_on_the_content_of_a_split_file(
    mini: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    images = tmp_path / "images"
    for number in range(5):
        (images / str(number)).mkdir(parents=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(images / str(number) / "a.png")
    preprocess = tmp_path / "p.yaml"
    preprocess.write_text("size: [16, 16]\nmean: [0, 0, 0]\nstd: [255, 255, 255]\n")
    split = tmp_path / "split.txt"

    def ids(seed: int, names: str, place: Path = split) -> tuple[str, str]:
        place.write_text(names)
        content = {
            "models": [{"model": str(mini), "preprocess": str(preprocess)}],
            "precisions": ["fp32", "int8"],
            "kinds": [],
            "seed": seed,
            "calibration": {"data": str(images), "split": str(place)},
            "accuracy": {"data": str(images), "images": 2},
        }
        resolved = resolve(parse(Study, content, "test"), tmp_path)
        return plan_calibrations(resolved)[0].spec.id, plan_trials(resolved, {})[0].spec.id

    first = ids(0, "0/a.png\n1/a.png\n")
    assert ids(0, "0/a.png\n1/a.png\n", tmp_path / "moved.txt") == first
    calibration, accuracy = ids(0, "0/a.png\n2/a.png\n")
    assert calibration != first[0]
    assert accuracy == first[1]
    assert ids(1, "0/a.png\n1/a.png\n")[1] != first[1]


def test_a_percentile_is_resolved_and_makes_the_calibration_another(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    images = tmp_path / "images"
    for number in range(2):
        (images / str(number)).mkdir(parents=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(images / str(number) / "a.png")
    preprocess = tmp_path / "p.yaml"
    preprocess.write_text("size: [16, 16]\nmean: [0, 0, 0]\nstd: [255, 255, 255]\n")

    def planned_with(**section: Any) -> tuple[float | None, str]:
        content = {
            "models": [{"model": str(mini), "preprocess": str(preprocess)}],
            "precisions": ["int8"],
            "kinds": [],
            "calibration": {"data": str(images), "images": 1, **section},
        }
        spec = plan_calibrations(resolve(parse(Study, content, "test"), tmp_path))[0].spec
        assert spec.calibration is not None
        return spec.calibration.percentile, spec.id

    usual = planned_with(method="percentile")
    assert usual[0] == 99.99
    assert planned_with(method="percentile", percentile=99.99) == usual
    other, identity = planned_with(method="percentile", percentile=99.9)
    assert other == 99.9
    assert identity != usual[1]
    assert planned_with(method="kl")[0] is planned_with(method="mse")[0] is None
    assert len({planned_with(method=name)[1] for name in ("kl", "mse", "minmax", "percentile")}) == 4


def test_a_model_is_its_content_not_its_path(mini: Path, tmp_path: Path) -> None:
    copy = tmp_path / "folder" / "renamed.onnx"
    copy.parent.mkdir()
    copy.write_bytes(mini.read_bytes())
    first = {item.spec.id for item in planned(tmp_path, [str(mini)])}
    assert {item.spec.id for item in planned(tmp_path, [str(copy)])} == first
    with pytest.raises(ConfigError, match="models 'mini' and 'renamed' are the same file"):
        planned(tmp_path, [str(mini), str(copy)])


def test_two_models_of_one_name_are_refused(mini: Path, other: Path, tmp_path: Path) -> None:
    entries = [str(mini), {"model": str(other), "name": "mini"}]
    with pytest.raises(ConfigError, match="two models are called 'mini'"):
        planned(tmp_path, entries)


def test_the_accuracy_of_random_weights_is_refused_with_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "images" / "0"
    folder.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    content = {"models": ["googlenet"], "kinds": [], "accuracy": {"data": str(folder.parent)}}
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    (only,) = plan_trials(resolve(parse(Study, content, "test"), tmp_path), {})
    assert only.refused == (
        "skipped",
        "the weights of this network are random: its accuracy means nothing (give --weights FILE)",
    )


def test_int8_without_a_calibration_is_a_fault_that_names_it(mini: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    trials = planned(tmp_path, [str(mini)], engines=["onnxruntime"], precisions=["int8"], repeats=1)
    assert {item.refused for item in trials} == {
        ("failed", "no calibration of mini: no engine of the study runs fp32")
    }


def test_each_float_model_is_calibrated_once_for_all_engines(mini: Path, other: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    content = {
        "models": [str(mini), {"model": str(other), "precisions": ["fp32"]}],
        "engines": ["null", "onnxruntime"],
        "precisions": ["fp32", "int8"],
    }
    resolved = resolve(parse(Study, content, "test"), tmp_path)
    (calibration,) = plan_calibrations(resolved)
    assert calibration.spec.trial.model == "mini"
    assert calibration.spec.trial.engine == "onnxruntime"
    assert calibration.spec.trial.input == "synthetic"
    only_null = content | {"engines": ["null"]}
    assert plan_calibrations(resolve(parse(Study, only_null, "test"), tmp_path)) == []


def test_a_device_that_is_not_here_leaves_the_other_engines_of_a_study(mini: Path, tmp_path: Path) -> None:
    engines = [{"engine": "null", "device": "cuda"}, "null"]
    content = {
        "models": [str(mini)],
        "engines": engines,
        "batches": [4],
        "kinds": ["throughput"],
        "repeats": 1,
    }
    found = plan_trials(resolve(parse(Study, content, "test"), tmp_path), {})
    assert sorted((one.spec.trial.device, one.refused) for one in found) == [
        ("cpu", None),
        ("cuda", ("unsupported", "null: there is no device 'cuda'; known are cpu")),
    ]
    with pytest.raises(EngineError, match=r"^null: there is no device 'cuda'; known are cpu$"):
        resolve(parse(Study, content | {"engines": engines[:1]}, "test"), tmp_path)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No launcher is asked: nothing is run here. Sixteen cores."""
    monkeypatch.setattr("inferometer.study.resolve.check_launcher", lambda template, ranks: None)
    monkeypatch.setattr("inferometer.study.resolve.usable_cores", lambda: 16)


def crews(trials: list[Planned]) -> list[tuple[int, int | None]]:
    return [(item.spec.trial.ranks, item.spec.trial.place) for item in trials]


@pytest.mark.usefixtures("launched")
def test_with_several_ranks_each_device_is_measured_alone_too(mini: Path, tmp_path: Path) -> None:
    found = planned(tmp_path, [str(mini)], ranks=[1, 2, 4], repeats=1, kinds=["throughput"], batches=[8])
    assert sorted(crews(found), key=str) == [(1, 0), (1, 1), (1, 2), (1, 3), (2, None), (4, None)]
    assert len({item.spec.id for item in found}) == 6
    assert {item.spec.options["threads"] for item in found} == {4}  # 16 cores among at most 4
    assert {item.spec.cores_per_rank for item in found} == {4}
    assert [item.spec.processes for item in found if item.spec.launched] == [
        ranks for ranks, place in crews(found) if place is None
    ]


@pytest.mark.usefixtures("launched")
def test_a_template_starts_every_trial_and_is_part_of_what_it_is(mini: Path, tmp_path: Path) -> None:
    words = {"template": "srun -n {ranks} {command}"}
    study = {"ranks": [2], "repeats": 1, "kinds": ["throughput"], "batches": [8]}
    found = planned(tmp_path, [str(mini)], launch=words, **study)
    assert {(*crew, item.spec.processes) for crew, item in zip(crews(found), found, strict=True)} == {
        (1, 0, 1), (1, 1, 2), (2, None, 2),
    }  # fmt: skip
    plain = planned(tmp_path, [str(mini)], **study)
    assert not {item.spec.id for item in found} & {item.spec.id for item in plain}


@pytest.mark.usefixtures("launched")
def test_one_rank_stays_what_it_was(mini: Path, tmp_path: Path) -> None:
    found = planned(tmp_path, [str(mini)], repeats=1)
    assert set(crews(found)) == {(1, None)}
    assert all(not item.spec.launched and item.spec.cores_per_rank is None for item in found)


@pytest.mark.usefixtures("launched")
@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"ranks": [17]}, "17 ranks want 17 cores, and there are 16"),
        ({"ranks": [1, 5], "threads": 4}, "5 ranks of 4 threads want 20 cores, and there are 16"),
    ],
)
def test_ranks_that_do_not_fit_are_refused(
    mini: Path, tmp_path: Path, changes: dict[str, Any], refusal: str
) -> None:
    with pytest.raises(ConfigError, match=refusal):
        planned(tmp_path, [str(mini)], **changes)
    assert planned(tmp_path, [str(mini)], launch={"oversubscribe": True}, **changes)
