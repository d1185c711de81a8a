from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from inferometer.contracts import TensorInfo
from inferometer.errors import CalibrationError
from inferometer.quantize.graph import expose, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.layout import layout_of
from inferometer.quantize.passes import CalibrationBatch
from inferometer.quantize.qdq import QdqReader, logits_of
from inferometer.quantize.sensitivity import quantized_alone
from inferometer.quantize.sqnr import Sqnr, SqnrReport, layer_sqnr, sqnr_rows
from tests.unit.quantize.graphs import (
    NETS,
    SYMMETRIC,
    FakeSession,
    alexnet,
    batches_of,
    googlenet,
    images,
    kernels,
    mobilenet,
    ort_session,
    resnet,
    scheme,
    sqnr_db,
    table_of,
)

BATCH = 8


class ManyInputs(FakeSession):
    """A model on onnxruntime with all of its inputs."""

    def __init__(self, model: ModelProto, batch: int = BATCH) -> None:
        session = ort_session(model)
        names = [item.name for item in session.get_outputs()]
        super().__init__(batch, lambda feeds: zip(names, session.run(names, feeds), strict=True), names)
        self.inputs = tuple(
            TensorInfo(item.name, (batch, *item.shape[1:]), "float32") for item in session.get_inputs()
        )


def quantized(model: ModelProto, **changes: Any) -> tuple[ModelProto, ModelProto]:
    prepared = prepare(model)
    return prepared, insert_qdq(prepared, table_of(model), scheme(**changes))


def report_of(prepared: ModelProto, other: ModelProto, count: int = 16, **options: Any) -> SqnrReport:
    return layer_sqnr(prepared, other, ManyInputs, batches_of(images(count, 3), BATCH), **options)


def values_of(model: ModelProto, tensor: str, count: int = 16) -> np.ndarray:
    session = ort_session(expose(model, [tensor]))
    return np.concatenate(
        [
            session.run([tensor], {"input": images(count, 3)[at : at + BATCH]})[0]
            for at in range(0, count, BATCH)
        ]
    )


@pytest.mark.parametrize("name", NETS)
def test_the_accumulated_error_is_that_of_the_whole_quantized_model(name: str) -> None:
    prepared, other = quantized(NETS[name]())
    report = report_of(prepared, other, own=False)
    pairs = QdqReader(prepared, other).pairs
    assert tuple(item.layer for item in report.layers) == layout_of(prepared).layers
    assert not report.unmatched
    for item in report.layers:
        there = pairs[item.tensor].output if item.tensor in pairs else item.tensor
        found = sqnr_db(values_of(prepared, item.tensor), values_of(other, there))
        assert item.accumulated.db == pytest.approx(found, abs=1e-4)
        assert item.own is None
    assert report.logits == report.layers[-1].accumulated
    assert report.images == 16


@pytest.mark.parametrize("name", NETS)
def test_the_own_error_is_that_of_the_layer_quantized_alone(name: str) -> None:
    prepared, other = quantized(NETS[name]())
    report = report_of(prepared, other)
    for item in report.layers:
        alone = quantized_alone(prepared, other, item.layer)
        pairs = [node for node in alone.graph.node if node.op_type == "QuantizeLinear"]
        behind = [node for node in pairs if node.input[0] == item.tensor]
        place = item.tensor
        if behind:
            place = next(n.output[0] for n in alone.graph.node if n.input[0] == behind[0].output[0])
        assert item.own is not None
        found = sqnr_db(values_of(prepared, item.tensor), values_of(alone, place))
        assert item.own.db == pytest.approx(found, abs=1e-4)
    first = report.layers[0]
    assert first.own == first.accumulated


def test_all_pieces_run_on_integers(tmp_path: Path) -> None:
    prepared, other = quantized(resnet())
    opened: list[ModelProto] = []

    def open_session(model: ModelProto) -> ManyInputs:
        opened.append(model)
        return ManyInputs(model)

    layer_sqnr(prepared, other, open_session, batches_of(images(8), BATCH))
    assert len(opened) == 3
    for model in opened[1:]:
        onnx.checker.check_model(model, full_check=True)
        found = kernels(model, tmp_path)
        assert (found["QLinearConv"], found["QLinearAdd"], found["QGemm"]) == (6, 2, 1)
        assert not {"Conv", "FusedConv", "Gemm", "Add"} & set(found)


def test_one_bad_scale_is_found_where_it_arises() -> None:
    model = resnet()
    prepared, table = prepare(model), table_of(model)
    ranges = dict(table.tensors)
    ranges["b1.relu"] = ranges["b1.relu"].model_copy(update={"threshold": ranges["b1.relu"].threshold / 20})
    other = insert_qdq(prepared, table.model_copy(update={"tensors": ranges}), scheme())
    rows = {row["layer"]: row for row in sqnr_rows(report_of(prepared, other))}
    # Both the layer that writes the saturated tensor and the one that reads it lose; no other does.
    worst = sorted(rows, key=lambda layer: rows[layer]["own_sqnr_db"])
    assert set(worst[:2]) == {"b1/Conv", "b2/Conv"}
    assert rows[worst[1]]["own_sqnr_db"] < 3 < 25 < rows[worst[2]]["own_sqnr_db"]
    assert rows["b2/Conv"]["sqnr_db"] < 6 < 25 < rows["a2/Conv"]["sqnr_db"]


def test_rows_that_fill_a_batch_do_not_count() -> None:
    prepared, other = quantized(resnet())
    ten = layer_sqnr(prepared, other, ManyInputs, batches_of(images(10, 3), BATCH))
    fives = layer_sqnr(prepared, other, lambda model: ManyInputs(model, 5), batches_of(images(10, 3), 5))
    assert ten.images == fives.images == 10
    for a, b in zip(ten.layers, fives.layers, strict=True):
        assert a.accumulated.signal == pytest.approx(b.accumulated.signal, rel=1e-6)
        assert a.accumulated.noise == pytest.approx(b.accumulated.noise, rel=1e-3)


def test_batches_may_be_made_late_and_come_out_empty() -> None:
    prepared, other = quantized(resnet())
    x, seen = images(8, 3), []

    def late() -> Iterator[Any]:
        yield lambda: None
        yield lambda: CalibrationBatch({"input": x}, 8, ())

    found = layer_sqnr(prepared, other, ManyInputs, late, own=False, on_progress=seen.append)
    assert found == layer_sqnr(prepared, other, ManyInputs, batches_of(x, BATCH), own=False)
    assert seen == [8]


def test_decibels_are_no_number_without_noise_or_without_signal() -> None:
    assert Sqnr(100.0, 1.0).db == pytest.approx(20)
    assert Sqnr(100.0, 0.0).db is None
    assert Sqnr(0.0, 1.0).db is None


def test_a_tensor_that_is_zero_throughout_has_no_noise() -> None:
    model = resnet()
    for item in model.graph.initializer:
        if item.name.startswith("stem."):
            item.CopyFrom(onnx.numpy_helper.from_array(0 * onnx.numpy_helper.to_array(item), item.name))
    prepared, other = quantized(model)
    assert report_of(prepared, other).layers[0].accumulated == Sqnr(0.0, 0.0)


def test_scores_are_compared_before_the_softmax() -> None:
    prepared, other = quantized(googlenet())
    report = report_of(prepared, other, own=False)
    assert logits_of(prepared) == "logits"
    exact, found = values_of(prepared, "logits"), values_of(other, "logits")
    assert report.logits.db == pytest.approx(sqnr_db(exact, found), abs=1e-4)


def test_an_activation_that_the_quantizer_dropped_is_matched_by_the_saturation_in_its_place() -> None:
    prepared, other = quantized(alexnet())
    # As other quantizers write it: what the layer writes is quantized, with the scale of the activation.
    relus = {node.output[0]: node.input[0] for node in other.graph.node if node.op_type == "Relu"}
    kept = [node for node in other.graph.node if node.op_type != "Relu"]
    dropped = ModelProto()
    dropped.CopyFrom(other)
    del dropped.graph.node[:]
    dropped.graph.node.extend(kept)
    for node in dropped.graph.node:
        for position, name in enumerate(node.input):
            if node.op_type == "QuantizeLinear":
                node.input[position] = relus.get(name, name)
    report, plain = report_of(prepared, dropped), report_of(prepared, other)
    # LRN reads relu1 in float: there the Relu is missed.
    assert Counter(item.tensor for item in report.layers) == Counter(item.tensor for item in plain.layers)
    for a, b in zip(report.layers, plain.layers, strict=True):
        assert (a.accumulated.db, a.own.db) == pytest.approx((b.accumulated.db, b.own.db), abs=1e-4)


def test_a_file_of_onnxruntimes_quantizer_is_matched_by_tensor(tmp_path: Path) -> None:
    quantization = pytest.importorskip("onnxruntime.quantization")
    prepared = prepare(mobilenet())
    onnx.save(prepared, tmp_path / "float.onnx")

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [{"input": images(8, seed)} for seed in (1, 2)]

        def get_next(self) -> Any:
            return self._left.pop() if self._left else None

    quantization.quantize_static(
        tmp_path / "float.onnx",
        tmp_path / "qdq.onnx",
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        reduce_range=True,
    )
    report = report_of(prepared, onnx.load(tmp_path / "qdq.onnx"))
    assert not report.unmatched
    for item in report.layers:
        assert item.accumulated.db > 20
        assert item.own.db > 20


def test_symmetric_files_are_read_too() -> None:
    prepared, other = quantized(resnet(), **SYMMETRIC)
    assert all(item.own.db > 20 for item in report_of(prepared, other).layers)


def test_layers_whose_result_has_no_name_in_the_other_model_are_listed() -> None:
    prepared, other = quantized(resnet())
    for node in other.graph.node:
        for names in (node.input, node.output):
            for position, name in enumerate(names):
                if name in ("a1.relu", "a1"):
                    names[position] = f"renamed.{name}"
    report = report_of(prepared, other, own=False)
    assert report.unmatched == ("a1/Conv",)
    assert "a1/Conv" not in {item.layer for item in report.layers}


def test_faults_say_what_is_wrong() -> None:
    prepared, other = quantized(resnet())
    with pytest.raises(CalibrationError, match="no image"):
        report_of(prepared, other, count=0)
    with pytest.raises(CalibrationError, match="made from another model"):
        report_of(prepared, quantized(alexnet())[1].__class__())
    with pytest.raises(CalibrationError, match="no output 'prob'; the model has logits"):
        report_of(prepared, other, output="prob")
    x = images(8)
    x[2, 0, 0, 0] = np.nan
    with pytest.raises(CalibrationError, match="NaN or infinite in batch 0"):
        layer_sqnr(prepared, other, ManyInputs, batches_of(x, BATCH))
