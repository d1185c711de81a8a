import numpy as np
import pytest
from onnx import ModelProto, numpy_helper

from inferometer.errors import CalibrationError
from inferometer.models.graph import attribute
from inferometer.quantize.bias import bias_shifts, channel_means, correctable_inputs, shift_biases
from inferometer.quantize.graph import expose, prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.qdq import QdqReader
from tests.unit.quantize.graphs import (
    NETS,
    SYMMETRIC,
    FakeSession,
    Net,
    OrtSession,
    alexnet,
    batches_of,
    images,
    mobilenet,
    ort_session,
    quantized,
    resnet,
    run,
    scheme,
    sqnr_db,
    table_of,
)

BATCH = 8


def means_of(prepared: ModelProto, other: ModelProto, count: int = 24) -> dict[str, np.ndarray]:
    names = correctable_inputs(prepared, other)
    return channel_means(OrtSession(expose(prepared, names), BATCH), batches_of(images(count), BATCH), names)


def stored(model: ModelProto) -> dict[str, np.ndarray]:
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("changes", [{}, SYMMETRIC, {"weight_per_channel": False}])
def test_the_shift_is_the_weights_error_times_the_mean_input(name: str, changes: dict) -> None:
    prepared, other = quantized(NETS[name](), **changes)
    rng = np.random.default_rng(3)
    reader, weights = QdqReader(prepared, other), stored(prepared)
    layers = [node for node in prepared.graph.node if node.op_type in ("Conv", "Gemm")]
    means = {}
    for node in layers:
        weight = weights[node.input[1]]
        inputs = weight.shape[1] * attribute(node, "group", 1)
        if node.op_type == "Gemm":
            inputs = weight.shape[1 if attribute(node, "transB", 0) else 0]
        means[node.input[0]] = rng.standard_normal(inputs)
    shifts = bias_shifts(prepared, other, means)
    assert list(shifts) == [node.name for node in layers]
    assert correctable_inputs(prepared, other) == tuple(dict.fromkeys(node.input[0] for node in layers))
    for node in layers:
        integers = reader.stored(reader.nodes[node.name].input[1])
        assert integers is not None
        lost = weights[node.input[1]].astype(np.float64) - integers.real()
        mean, groups = means[node.input[0]], attribute(node, "group", 1)
        if node.op_type == "Gemm":
            expected = lost @ mean if attribute(node, "transB", 0) else mean @ lost
        else:
            per_group = len(lost) // groups
            expected = [
                sum(
                    kernel.sum() * mean[output // per_group * len(kernels) + place]
                    for place, kernel in enumerate(kernels)
                )
                for output, kernels in enumerate(lost)
            ]
        assert shifts[node.name].dtype == np.float32
        assert shifts[node.name] == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_means_are_those_of_the_images_alone() -> None:
    prepared, other = quantized(resnet())
    found = means_of(prepared, other, count=13)
    assert list(found) == ["input", "pool", "a1.relu", "a.relu", "b1.relu", "flat"]
    names = list(found)[1:]
    values = ort_session(expose(prepared, names)).run(names, {"input": images(13)})
    for name, exact in (("input", images(13)), *zip(names, values, strict=True)):
        axes = tuple(axis for axis in range(exact.ndim) if axis != 1)
        assert found[name] == pytest.approx(exact.mean(axis=axes, dtype=np.float64), rel=1e-5)


def test_correction_brings_the_mean_of_a_result_back() -> None:
    net = Net()  # without borders the mean shift is known exactly but for the kernel's place on the image
    x = net.relu(net.conv("input", "first", 3, 16, pads=[0] * 4), "first.relu")
    x = net.conv(x, "second", 16, 12, pads=[0] * 4)
    x = net.op("Flatten", net.op("GlobalAveragePool", net.relu(x, "second.relu"), "gap"), "flat")
    net.gemm(x, "logits", 12, 10)
    model = net.model()
    prepared, other = quantized(model)
    shifts = bias_shifts(prepared, other, means_of(prepared, other))
    corrected = insert_qdq(shift_biases(prepared, shifts), table_of(model), scheme())

    def mean(of: ModelProto) -> np.ndarray:
        values = ort_session(expose(of, ["second"]), fuse=False).run(["second"], {"input": images(24)})[0]
        return np.asarray(values.mean(axis=(0, 2, 3), dtype=np.float64))

    before, after = np.abs(mean(other) - mean(prepared)), np.abs(mean(corrected) - mean(prepared))
    assert after.max() < 0.25 * before.max()


def test_the_logits_gain_where_weights_are_coarse() -> None:
    model = mobilenet()
    prepared, other = quantized(model, weight_per_channel=False)
    shifts = bias_shifts(prepared, other, means_of(prepared, other))
    corrected = insert_qdq(shift_biases(prepared, shifts), table_of(model), scheme(weight_per_channel=False))
    x = images(32, 9)
    exact = run(prepared, x)
    assert sqnr_db(exact, run(corrected, x)) > sqnr_db(exact, run(other, x)) + 0.5


def test_a_bias_that_layers_share_is_corrected_for_each() -> None:
    model = resnet()
    for node in model.graph.node:
        if node.name == "a2/Conv":
            node.input[2] = "a1.bias"
    prepared = prepare(model)
    before = prepared.SerializeToString()
    ones = np.ones(16, np.float32)
    corrected = shift_biases(prepared, {"a1/Conv": ones, "a2/Conv": 2 * ones})
    assert prepared.SerializeToString() == before
    values, bias = stored(corrected), stored(prepared)["a1.bias"]
    nodes = {node.name: node for node in corrected.graph.node}
    assert values[nodes["a1/Conv"].input[2]] == pytest.approx(bias + 1)
    assert values[nodes["a2/Conv"].input[2]] == pytest.approx(bias + 2)
    assert "a1.bias" not in values


def test_float_layers_and_layers_without_a_bias_have_no_shift() -> None:
    net = Net()
    x = net.relu(net.conv("input", "bare", 3, 8, bias=False), "bare.relu")
    x = net.relu(net.conv(x, "kept", 8, 8), "kept.relu")
    x = net.op("Flatten", net.op("GlobalAveragePool", net.conv(x, "last", 8, 8), "gap"), "flat")
    net.gemm(x, "logits", 8, 10)
    model = net.model()
    prepared = prepare(model)
    other = insert_qdq(prepared, table_of(model), scheme(), float_layers=frozenset({"kept/Conv"}))
    assert list(bias_shifts(prepared, other, means_of(prepared, other))) == ["last/Conv", "logits/Gemm"]


def test_faults_say_what_is_wrong() -> None:
    prepared, other = quantized(alexnet())
    names = correctable_inputs(prepared, other)
    session = OrtSession(expose(prepared, names), BATCH)
    with pytest.raises(CalibrationError, match="no image"):
        channel_means(session, batches_of(images(0), BATCH), names)
    with pytest.raises(CalibrationError, match="does not give tensor 'pool1'"):
        channel_means(FakeSession(BATCH, dict, ["input"]), batches_of(images(8), BATCH), ["pool1"])
    means = means_of(prepared, other)
    with pytest.raises(CalibrationError, match=r"means of tensor 'pool1'.*'conv2/Conv'"):
        bias_shifts(prepared, other, {**means, "pool1": means["pool1"][1:]})
    with pytest.raises(CalibrationError, match="no layer 'conv9' has a stored bias"):
        shift_biases(prepared, {"conv9": np.ones(4, np.float32)})
    with pytest.raises(CalibrationError, match="16 biases, but 4 shifts"):
        shift_biases(prepared, {"conv1/Conv": np.ones(4, np.float32)})
