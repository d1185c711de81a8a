"""Every model of the corpus runs right, or is refused with the sentence that says why: on each engine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx.reference import ReferenceEvaluator

pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")

from inferometer import registry
from inferometer.data.synthetic import synthetic_feeds
from inferometer.errors import InferometerError, MissingExtra, ModelError
from inferometer.models import describe, load, save, set_batch
from inferometer.models.fix import fix_shapes
from inferometer.models.form import form_of
from inferometer.models.opset import upgrade
from inferometer.quantize.calibrate import CalibrationBatch, calibrate
from inferometer.quantize.graph import expose, observed_tensors, prepare
from inferometer.quantize.insert import insert_qdq
from tests.corpus import inputs, outputs
from tests.corpus.building import CASES, Case
from tests.corpus.opsets import network_of

assert {inputs, outputs}  # which register their models

Arrays = dict[str, np.ndarray]
LATEST = onnx.defs.onnx_opset_version()


def test_the_corpus_is_large() -> None:
    assert len(CASES) >= 40


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def path(case: Case, tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    found.write_bytes(case.build().SerializeToString())
    return found


def engine_named(name: str) -> Any:
    try:
        return registry.engine(name)
    except MissingExtra as error:
        pytest.skip(str(error))


def ran(
    path: Path, engine: str, batch: int, case: Case, feeds: Arrays | None = None
) -> tuple[Arrays, Arrays]:
    """Feeds and outputs of the second of two calls, which must agree."""
    with engine_named(engine).load(path, "cpu", "fp32", batch, {"threads": 1}) as session:
        fed = feeds or synthetic_feeds(session.inputs, 3, None, case.ranges or None)
        first, second = session.infer(fed), session.infer(fed)
        infos = {tensor.name: tensor for tensor in session.outputs}
        assert tuple(session.skipped) == case.skipped
    assert set(first) == set(infos)
    for name, values in second.items():
        np.testing.assert_array_equal(values, first[name])
        assert values.dtype == np.dtype(infos[name].dtype)
        known = infos[name].shape
        assert not known or [b for a, b in zip(known, values.shape, strict=True) if a not in (None, b)] == []
    return fed, second


def close(found: Arrays, wanted: Arrays, case: Case) -> None:
    for name, values in found.items():
        expected = np.asarray(wanted[name], np.float64)
        assert values.shape == expected.shape, name
        scale = max(1.0, float(np.abs(expected).max(initial=0)))
        assert np.abs(values.astype(np.float64) - expected).max(initial=0) <= case.tolerance * scale, name


def changed(path: Path, case: Case, batch: int | None) -> ModelProto:
    """The model as it is run: open axes fixed, at its batch."""
    model = load(path)
    if case.shapes:
        model = fix_shapes(model, case.shapes)
    return model if case.batch is not None else set_batch(model, batch)


def test_it_is_described(case: Case, path: Path) -> None:
    summary = describe(path)
    for name, wanted in case.described.items():
        assert getattr(summary, name) == wanted, name
    assert [item.name for item in summary.outputs] == [item.name for item in load(path).graph.output]
    json.dumps({row.name: row.reason for row in summary.layers})


def test_its_batch_can_be_set_or_the_reason_is_told(case: Case, path: Path) -> None:
    model = load(path)
    if case.shapes:
        model = fix_shapes(model, case.shapes)
    for batch in (None, 7, 1):
        if case.batch is None:
            free = set_batch(model, batch)
            onnx.checker.check_model(free)
            assert describe(free).batch == batch
        elif batch != describe(path).batch:
            with pytest.raises(ModelError, match=case.batch):
                set_batch(model, batch)


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_it_runs_or_is_refused_with_the_reason(case: Case, path: Path, tmp_path: Path, engine: str) -> None:
    engine_named(engine)
    refusal = getattr(case, engine)
    for batch in case.batches:
        file = tmp_path / f"{batch}.onnx"
        save(changed(path, case, batch), file)
        if refusal is not None:
            with pytest.raises(InferometerError, match=refusal) as caught:
                ran(file, engine, batch, case)
            assert caught.value.exit_code in (3, 5)
            assert "\n" not in str(caught.value)
            assert str(caught.value).startswith(str(file))
            continue
        feeds, found = ran(file, engine, batch, case)
        if engine == "openvino" and case.onnxruntime is None:
            close(found, ran(file, "onnxruntime", batch, case, feeds)[1], case)
        elif case.reference:
            names = [item.name for item in load(file).graph.output]
            close(found, dict(zip(names, ReferenceEvaluator(load(file)).run(None, feeds), strict=True)), case)


AT_OTHER_BATCHES = [
    name for name, one in CASES.items() if one.onnxruntime is None and one.batch is None and one.rows
]


@pytest.mark.parametrize("case", AT_OTHER_BATCHES, indirect=True)
def test_each_row_is_what_it_is_alone(case: Case, path: Path, tmp_path: Path) -> None:
    original = describe(path).batch or 1
    file, symbolic = tmp_path / "many.onnx", tmp_path / "symbolic.onnx"
    many = 4 * original
    save(changed(path, case, many), file)
    save(changed(path, case, None), symbolic)
    feeds, together = ran(file, "onnxruntime", many, case)
    close(ran(symbolic, "onnxruntime", many, case, feeds)[1], together, case)
    save(changed(path, case, original), file)
    parts = []
    for start in range(0, many, original):
        some = {
            name: array[start : start + original] if array.ndim and len(array) == many else array
            for name, array in feeds.items()
        }
        parts.append(ran(file, "onnxruntime", original, case, some)[1])
    for name in case.rowwise or together:
        close({name: np.concatenate([part[name] for part in parts])}, together, case)


@pytest.mark.parametrize("case", [name for name, one in CASES.items() if one.quantized != ""], indirect=True)
def test_it_is_quantized_or_the_reason_is_told(case: Case, path: Path, tmp_path: Path) -> None:
    model = load(path)
    if case.quantized is not None:
        with pytest.raises(InferometerError, match=case.quantized):
            observed_tensors(prepare(model))
        return
    prepared = prepare(fix_shapes(model, case.shapes) if case.shapes else model)
    tensors = observed_tensors(prepared)
    exposed, batch = tmp_path / "exposed.onnx", describe(prepared).batch or 4
    save(expose(prepared, tensors), exposed)
    ort = engine_named("onnxruntime")
    with ort.load(exposed, "cpu", "fp32", batch, {"threads": 1}) as session:
        feeds = synthetic_feeds(session.inputs, 3, None, case.ranges or None)
        batches = [CalibrationBatch(feeds, batch, tuple("abcdefgh"[:batch]))]
        table = calibrate(
            session, lambda: iter([lambda one=one: one for one in batches]), tensors, method="minmax",
            model_sha256="0" * 64, source="synthetic",
        )  # fmt: skip
        wanted = session.infer(feeds)
    for name in ("onnxruntime", "openvino"):
        try:
            engine = registry.engine(name)
        except MissingExtra:
            continue
        quantized = insert_qdq(prepared, table, engine.qdq_scheme("cpu", {}))
        assert form_of(quantized) == "qdq"
        onnx.checker.check_model(quantized, full_check=True)
        file = tmp_path / f"{name}.onnx"
        save(quantized, file)
        with engine.load(file, "cpu", "int8", batch, {"threads": 1}) as session:
            found = session.infer(feeds)
        for output in load(path).graph.output:
            if output.name in found and output.type.tensor_type.elem_type != TensorProto.INT64:
                a, b = found[output.name].ravel(), wanted[output.name].ravel()
                assert float(a @ b) >= 0.98 * float(np.linalg.norm(a) * np.linalg.norm(b)), output.name


# Operator sets


@pytest.mark.parametrize("opset", range(7, LATEST + 1))
def test_every_opset_runs_can_be_raised_and_quantized(opset: int, tmp_path: Path) -> None:
    model, file = network_of(opset), tmp_path / "model.onnx"
    file.write_bytes(model.SerializeToString())
    case = Case(lambda: model, tolerance=1e-5)
    assert describe(file).opset == opset
    feeds, found = ran(file, "onnxruntime", 2, case)
    for target in sorted({13, 17, 21, LATEST}):
        raised, failures = upgrade(load(file), target)
        assert failures == []
        assert raised.opset_import[0].version == max(opset, target)
        save(raised, tmp_path / "raised.onnx")
        close(ran(tmp_path / "raised.onnx", "onnxruntime", 2, case, feeds)[1], found, case)
    save(prepare(load(file)), tmp_path / "prepared.onnx")
    close(ran(tmp_path / "prepared.onnx", "onnxruntime", 2, case, feeds)[1], found, case)
    save(set_batch(load(file), 2), tmp_path / "two.onnx")
    close(ran(tmp_path / "two.onnx", "onnxruntime", 2, case, feeds)[1], found, case)


@pytest.mark.parametrize("opset", range(7, 24))
def test_every_opset_means_the_same_to_both_engines(opset: int, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(network_of(opset).SerializeToString())
    case = Case(lambda: network_of(opset), tolerance=1e-4)
    engine_named("openvino")
    feeds, found = ran(file, "onnxruntime", 2, case)
    close(ran(file, "openvino", 2, case, feeds)[1], found, case)
    seven = tmp_path / "seven.onnx"
    seven.write_bytes(network_of(7).SerializeToString())
    close(found, ran(seven, "onnxruntime", 2, case, feeds)[1], case)


@pytest.mark.parametrize("engine", ["onnxruntime", "null"])
def test_an_opset_from_the_future_is_refused_without_a_traceback(tmp_path: Path, engine: str) -> None:
    future = network_of(13)
    future.opset_import[0].version = 99
    file = tmp_path / "model.onnx"
    file.write_bytes(future.SerializeToString())
    with pytest.raises(ModelError, match=r"unsupported opset 99, at most .* upgrade onnx"):
        describe(file)
    with pytest.raises(InferometerError, match=r"opset"):
        engine_named(engine).load(file, "cpu", "fp32", 1, {"threads": 1})


# The command line


def bench(path: Path, *words: str) -> tuple[int, Any, str]:
    done = subprocess.run(
        [
            sys.executable, "-m", "inferometer", "bench", str(path), "--seconds", "0.3", "--repeats", "1",
            "--batch", "1,2", "--json", "--out", str(path.parent / "out"), *words,
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def statuses(document: Any, kind: str) -> dict[int, str]:
    return {
        record["trial"]["batch"]: record["status"]
        for record in document["records"]
        if record["trial"]["kind"] == kind
    }


THROUGH_THE_COMMAND = (
    "bytes_in_nhwc", "names_with_spaces_and_other_alphabets", "made_for_four_images", "scores_as_maps",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", THROUGH_THE_COMMAND)
def test_the_command_measures_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CASES[name].build().SerializeToString())
    code, document, errors = bench(path)
    assert (code, errors) == (0, "")
    assert statuses(document, "throughput") == {1: "ok", 2: "ok"}


@pytest.mark.slow
def test_the_command_measures_an_input_of_unknown_rank_once_its_shape_is_given(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CASES["not_even_the_rank_known"].build().SerializeToString())
    _, document, errors = bench(path)
    assert statuses(document, "throughput") == {1: "unsupported", 2: "unsupported"}
    assert "input 'x' has no known rank" in errors
    code, document, errors = bench(path, "--input-shape", "x=3", "--out", str(tmp_path / "shaped"))
    assert (code, errors) == (0, "")
    assert statuses(document, "throughput") == {1: "ok", 2: "ok"}


@pytest.mark.slow
def test_the_command_measures_no_batch_that_a_model_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CASES["a_sum_over_the_batch"].build().SerializeToString())
    _, document, _ = bench(path)
    found = statuses(document, "throughput")
    assert found[1] == "ok"
    assert found.get(2) != "ok"


@pytest.mark.slow
def test_the_command_says_that_strings_cannot_be_fed(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(CASES["strings_as_input"].build().SerializeToString())
    _, document, errors = bench(path)
    assert statuses(document, "throughput") == {1: "unsupported", 2: "unsupported"}
    assert "input 'x' holds strings" in errors
