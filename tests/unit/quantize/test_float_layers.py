from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, numpy_helper

from inferometer.quantize.float_layers import keep_in_float
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.layout import layout_of
from tests.unit.quantize.graphs import (
    SYMMETRIC,
    Net,
    images,
    kernels,
    mobilenet,
    resnet,
    run,
    scheme,
    sqnr_db,
    table_of,
)

FLOAT = {"Conv", "FusedConv", "Gemm", "FusedGemm"}


def with_wide_depthwise() -> ModelProto:
    """A mobilenet whose depthwise channels differ in size: one scale for all weights would ruin the small."""
    model = mobilenet()
    for item in model.graph.initializer:
        if item.name == "dw.weight":
            factors = np.logspace(-1.5, 1.5, 16, dtype=np.float32).reshape(-1, 1, 1, 1)
            item.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(item) * factors, item.name))
    return model


def test_onnxruntime_leaves_float_layers_between_quantized_ones_alone(tmp_path: Path) -> None:
    model = with_wide_depthwise()
    table, x = table_of(model), images(16, 2)
    mixed = insert_qdq(model, table, scheme(), float_layers=frozenset({"dw/Conv", "dw2/Conv"}))
    onnx.checker.check_model(mixed, full_check=True)
    found = kernels(mixed, tmp_path)
    assert sum(found[op] for op in FLOAT) == 2
    assert found["QLinearConv"] == 4
    # The integer kernels round otherwise than the simulation, but the float layers do not fall behind it.
    assert sqnr_db(run(model, x), run(mixed, x)) > sqnr_db(run(model, x), run(mixed, x, fuse=False)) - 1


@pytest.mark.parametrize("trans_b", [0, 1])
def test_a_float_gemm_between_quantized_ones_too(trans_b: int, tmp_path: Path) -> None:
    net = Net()
    x = net.pool(net.relu(net.conv("input", "conv", 3, 8, strides=[2, 2]), "conv.relu"), "pool")
    x = net.relu(net.gemm(net.op("Flatten", x, "flat"), "fc", 8 * 36, 16, trans_b=trans_b), "fc.relu")
    net.gemm(x, "logits", 16, 10)
    model = net.model()
    mixed = insert_qdq(model, table_of(model), scheme(), float_layers=frozenset({"fc/Gemm"}))
    onnx.checker.check_model(mixed, full_check=True)
    found = kernels(mixed, tmp_path)
    assert (found["QLinearConv"], found["QGemm"]) == (1, 1)
    assert sum(found[op] for op in FLOAT) == 1
    assert sqnr_db(run(model, images(8)), run(mixed, images(8))) > 25


def test_every_value_stays_the_same() -> None:
    model = resnet()
    layers = frozenset({"a1/Conv", "b.skip/Conv", "logits/Gemm"})
    plain = insert_qdq(model, table_of(model), scheme(bias="float"), float_layers=layers)
    guarded = ModelProto.FromString(plain.SerializeToString())
    keep_in_float(guarded, layers)
    assert len(guarded.graph.initializer) > len(plain.graph.initializer)
    x = images(8)
    assert np.array_equal(run(plain, x, fuse=False), run(guarded, x, fuse=False))


def test_quantized_layers_and_those_that_read_the_input_are_not_touched() -> None:
    model = resnet()
    mixed = insert_qdq(model, table_of(model), scheme(), float_layers=frozenset({"stem/Conv"}))
    before = mixed.SerializeToString()
    keep_in_float(mixed, layout_of(prepare(model)).layers)
    assert mixed.SerializeToString() == before


def test_a_form_with_float_biases_gets_no_scale_per_channel() -> None:
    model = resnet()
    mixed = insert_qdq(
        model, table_of(model), scheme(**SYMMETRIC), float_layers=frozenset({"a1/Conv", "b2/Conv"})
    )
    sizes = {item.name: item.dims for item in mixed.graph.initializer}
    weights = {node.output[0] for node in mixed.graph.node if node.input[0] in sizes}
    for node in mixed.graph.node:
        if node.op_type == "DequantizeLinear" and node.output[0] not in weights:
            assert not sizes[node.input[1]]
