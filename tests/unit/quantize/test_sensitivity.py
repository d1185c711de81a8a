import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto

from inferometer.contracts import QdqScheme
from inferometer.errors import CalibrationError
from inferometer.quantize.bias import shift_biases
from inferometer.quantize.graph import prepare
from inferometer.quantize.insert import insert_qdq
from inferometer.quantize.layout import layout_of
from inferometer.quantize.qdq import QdqReader
from inferometer.quantize.sensitivity import (
    LayerDamage,
    damage_rows,
    quantized_alone,
    quantized_layers,
    rank_layers,
)
from tests.unit.quantize.graphs import (
    NETS,
    SYMMETRIC,
    FakeSession,
    Net,
    OrtSession,
    alexnet,
    batches_of,
    googlenet,
    images,
    kernels,
    quantized,
    resnet,
    run,
    scheme,
    sqnr_db,
    table_of,
)

BATCH = 8


def on_onnxruntime(model: ModelProto) -> OrtSession:
    return OrtSession(model, BATCH)


def scores(*sheets: np.ndarray) -> Callable[[ModelProto], FakeSession]:
    """Opens sessions that give the sheets of logits in turn (the last again and again), by image number."""
    left = list(sheets)

    def open_session(model: ModelProto) -> FakeSession:
        sheet = left.pop(0) if len(left) > 1 else left[0]
        return FakeSession(
            BATCH, lambda feeds: {"logits": sheet[feeds["input"][:, 0].astype(int)]}, ["logits"]
        )

    return open_session


def numbered(count: int) -> np.ndarray:
    """Images that are only their number."""
    return np.arange(count, dtype=np.float32)[:, np.newaxis]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("changes", [{}, SYMMETRIC])
def test_a_layer_alone_is_what_the_inserter_writes_with_all_others_in_float(name: str, changes: dict) -> None:
    model = NETS[name]()
    prepared, other = quantized(model, **changes)
    layers = layout_of(prepared).layers
    assert quantized_layers(prepared, other) == layers
    x = images(8, 3)
    reads = Counter(name for node in prepared.graph.node for name in node.input)
    for node in prepared.graph.node:
        layer = node.name
        # The inserter quantizes no Add behind float layers, nor what only a quantized layer reads behind a
        # Gemm; and what it quantizes, every layer reads so, here only the one does.
        if layer not in layers or layer == "fc6/Gemm" or node.op_type == "Add" or reads[node.input[0]] > 1:
            continue
        alone = quantized_alone(prepared, other, layer)
        rest = frozenset(layers) - {layer}
        inserted = insert_qdq(prepared, table_of(model), scheme(**changes), float_layers=rest)
        if name == "googlenet":  # where Concat makes inputs share a scale only in the whole model
            assert np.abs(run(alone, x) - run(inserted, x)).max() < 0.1 * np.abs(run(model, x)).max()
        else:
            assert np.array_equal(run(alone, x), run(inserted, x))


def test_layers_are_told_in_every_form_of_qdq() -> None:
    net = Net()
    x = net.conv("input", "first", 3, 8)
    x = net.op("Mul", [x, net.op("Sigmoid", x, "gate")], "swish")
    y = net.op("LeakyRelu", net.conv(x, "second", 8, 8), "leaky", alpha=0.1)
    x = net.op("Add", [net.conv(y, "third", 8, 8), x], "sum")
    net.gemm(net.op("Flatten", net.op("GlobalAveragePool", x, "gap"), "flat"), "logits", 8, 10)
    model = net.model()
    weighted = ["first/Conv", "second/Conv", "third/Conv", "logits/Gemm"]
    elementwise = ["gate/Sigmoid", "swish/Mul", "leaky/LeakyRelu"]
    prepared, plain = quantized(model)
    assert set(quantized_layers(prepared, plain)) == {*weighted, *elementwise, "sum/Add"}
    fused = QdqScheme.fused_activations | {"LeakyRelu", "Sigmoid"}
    prepared, other = quantized(model, fused_activations=fused, fused_sum=True)
    assert set(quantized_layers(prepared, other)) == {*weighted, "sum/Add"}
    nodes = {node.name: node for node in prepared.graph.node}
    reader = QdqReader(prepared, other)
    assert [reader.settled(nodes[layer]) for layer in ("first/Conv", "second/Conv")] == ["swish", "leaky"]
    x = images(8, 3)
    for layer in quantized_layers(prepared, other):
        assert 25 < sqnr_db(run(model, x), run(quantized_alone(prepared, other, layer), x)) < 90


def test_only_the_one_layer_runs_on_integers(tmp_path: Path) -> None:
    prepared, other = quantized(resnet())
    before = prepared.SerializeToString(), other.SerializeToString()
    for layer, kernel in (("a1/Conv", "QLinearConv"), ("b.add/Add", "QLinearAdd"), ("logits/Gemm", "QGemm")):
        found = kernels(quantized_alone(prepared, other, layer), tmp_path)
        integer = {op: found[op] for op in ("QLinearConv", "QLinearAdd", "QGemm") if found[op]}
        assert integer == {kernel: 1}
    assert (prepared.SerializeToString(), other.SerializeToString()) == before


def test_damage_is_the_error_of_the_logits_over_their_energy() -> None:
    prepared, other = quantized(resnet())
    x = images(12, 3)
    ranking = rank_layers(prepared, other, on_onnxruntime, batches_of(x, BATCH))
    exact = run(prepared, x).astype(np.float64)
    assert len(ranking) == len(layout_of(prepared).layers)
    assert [item.damage for item in ranking] == sorted((item.damage for item in ranking), reverse=True)
    for item in ranking:
        found = run(quantized_alone(prepared, other, item.layer), x).astype(np.float64)
        noise, signal = np.square(found - exact).sum(axis=1), np.square(exact).sum(axis=1)
        assert item.damage == pytest.approx(noise.sum() / signal.sum(), rel=1e-4)
        assert item.per_image == pytest.approx(noise / signal.mean(), rel=1e-3)
        assert np.mean(item.per_image) == pytest.approx(item.damage)
        assert item.agreement == np.mean(found.argmax(axis=1) == exact.argmax(axis=1))
        assert item.images == 12
        assert item.sqnr_db == pytest.approx(-10 * np.log10(item.damage))


def test_the_layer_with_the_bad_scale_comes_first() -> None:
    model = resnet()
    prepared, table = prepare(model), table_of(model)
    ranges = dict(table.tensors)
    ranges["flat"] = ranges["gap"] = ranges["b.relu"].model_copy(update={"threshold": 0.05})
    ranges["b.relu"] = ranges["gap"]
    other = insert_qdq(prepared, table.model_copy(update={"tensors": ranges}), scheme())
    ranking = rank_layers(prepared, other, on_onnxruntime, batches_of(images(8, 3), BATCH))
    assert {item.layer for item in ranking[:2]} == {"b.add/Add", "logits/Gemm"}
    assert ranking[1].damage > 10 * ranking[2].damage


def test_the_standard_error_is_that_of_a_ratio() -> None:
    prepared, other = quantized(alexnet())
    rng = np.random.default_rng(2)
    exact = rng.standard_normal((400, 10)).astype(np.float32) * rng.uniform(1, 3, (400, 1)).astype(np.float32)
    noisy = exact + (0.1 * rng.standard_normal((400, 10))).astype(np.float32)
    layer = quantized_layers(prepared, other)[0]

    def damage(rows: np.ndarray) -> LayerDamage:
        return rank_layers(
            prepared,
            other,
            scores(exact[rows], noisy[rows]),
            batches_of(numbered(len(rows)), BATCH),
            layers=[layer],
        )[0]

    drawn = [damage(rng.choice(400, 100)).damage for _ in range(60)]
    stated = damage(np.arange(100)).standard_error
    assert stated == pytest.approx(np.std(drawn), rel=0.35)
    assert damage(np.arange(1)).standard_error is None
    noisy = exact * 1.5  # the same fraction on every image leaves no uncertainty
    assert damage(np.arange(20)).damage == pytest.approx(0.25)
    assert damage(np.arange(20)).standard_error == pytest.approx(0, abs=1e-6)


def test_equal_damages_keep_the_order_of_the_graph_and_none_has_no_decibels() -> None:
    prepared, other = quantized(resnet())
    sheet = np.eye(4, 10, dtype=np.float32)
    ranking = rank_layers(prepared, other, scores(sheet), batches_of(numbered(4), BATCH))
    assert tuple(item.layer for item in ranking) == layout_of(prepared).layers
    assert {(item.damage, item.standard_error, item.agreement, item.sqnr_db) for item in ranking} == {
        (0.0, 0.0, 1.0, None)
    }
    rows = damage_rows(ranking)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert rows[0] == {
        "layer": "stem/Conv", "op": "Conv", "damage": 0.0, "standard_error": 0.0, "sqnr_db": None,
        "agreement": 1.0, "images": 4,
    }  # fmt: skip


def test_one_session_is_open_at_a_time_and_the_float_model_runs_once() -> None:
    prepared, other = quantized(resnet())
    opened, sizes = {"now": 0, "ever": 0}, []

    @contextlib.contextmanager
    def open_session(model: ModelProto) -> Iterator[OrtSession]:
        assert opened["now"] == 0
        opened["now"] = 1
        opened["ever"] += 1
        sizes.append(len(model.graph.initializer))
        yield OrtSession(model, BATCH)
        opened["now"] = 0

    told: list[tuple[int, int]] = []
    wanted = ["logits/Gemm", "a.add/Add", "stem/Conv"]
    ranking = rank_layers(
        prepared,
        other,
        open_session,
        batches_of(images(8), BATCH),
        layers=wanted,
        on_progress=lambda done, of: told.append((done, of)),
    )
    assert {item.layer for item in ranking} == set(wanted)
    assert opened == {"now": 0, "ever": 4}
    # Nothing of one layer stays for the next. A pair stores four tensors, a weight three, a bias two.
    assert [size - sizes[0] for size in sizes] == [0, 8 + 3 + 2, 12, 4 + 3 + 2]
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_rows_that_fill_a_batch_do_not_count() -> None:
    prepared, other = quantized(alexnet())
    sheet = np.random.default_rng(0).standard_normal((11, 10)).astype(np.float32)
    ranking = rank_layers(prepared, other, scores(sheet, sheet + 1), batches_of(numbered(11), BATCH))
    assert ranking[0].images == 11
    assert ranking[0].damage == pytest.approx(110 / np.square(sheet).sum(), rel=1e-5)


def test_scores_are_compared_before_the_softmax() -> None:
    prepared, other = quantized(googlenet())
    x = images(8, 3)
    item = rank_layers(prepared, other, on_onnxruntime, batches_of(x, BATCH), layers=["logits/Gemm"])[0]

    def logits(model: ModelProto) -> np.ndarray:
        with_logits = ModelProto.FromString(model.SerializeToString())
        with_logits.graph.output[0].name = "logits"
        return run(with_logits, x).astype(np.float64)

    exact, found = logits(prepared), logits(quantized_alone(prepared, other, "logits/Gemm"))
    assert item.damage == pytest.approx(np.square(found - exact).sum() / np.square(exact).sum(), rel=1e-4)


def test_a_layer_alone_has_its_corrected_float_bias() -> None:
    model = resnet()
    prepared, rules = prepare(model), scheme(**SYMMETRIC)
    shifted = shift_biases(prepared, {"logits/Gemm": np.full(10, 0.5, np.float32)})
    plain = quantized_alone(prepared, insert_qdq(prepared, table_of(model), rules), "logits/Gemm")
    other = quantized_alone(prepared, insert_qdq(shifted, table_of(model), rules), "logits/Gemm")
    x = images(8)
    assert run(other, x) == pytest.approx(run(plain, x) + 0.5, abs=1e-5)


def test_layers_left_in_float_are_not_ranked() -> None:
    model = resnet()
    prepared = prepare(model)
    other = insert_qdq(prepared, table_of(model), scheme(), float_layers=frozenset({"a1/Conv"}))
    assert "a1/Conv" not in quantized_layers(prepared, other)


def test_faults_say_what_is_wrong() -> None:
    prepared, other = quantized(resnet())
    x = batches_of(images(8), BATCH)
    with pytest.raises(CalibrationError, match=r"no quantized layer is named 'a1/Conb'.*a1/Conv"):
        rank_layers(prepared, other, on_onnxruntime, x, layers=["a1/Conb"])
    with pytest.raises(CalibrationError, match=r"no quantized layer is named 'a1.relu/Relu'"):
        quantized_alone(prepared, other, "a1.relu/Relu")
    with pytest.raises(CalibrationError, match="made from another model"):
        quantized_layers(prepared, ModelProto())
    with pytest.raises(CalibrationError, match="no image"):
        rank_layers(prepared, other, on_onnxruntime, batches_of(images(0), BATCH))
    with pytest.raises(CalibrationError, match="zero on all 8 images"):
        rank_layers(prepared, other, scores(np.zeros((8, 10), np.float32)), batches_of(numbered(8), BATCH))
    sizes = [8, 7]
    with pytest.raises(CalibrationError, match="other images than the first"):
        rank_layers(
            prepared,
            other,
            on_onnxruntime,
            lambda: batches_of(images(sizes.pop(0)), BATCH)(),
            layers=["a1/Conv"],
        )
