from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from inferometer.quantize.graph import expose, prepare
from inferometer.quantize.signs import non_negative_tensors
from tests.unit.quantize.graphs import NETS, images, ort_session


def one_node(op: str, inputs: list[str], constants: dict[str, Any], **attributes: Any) -> ModelProto:
    """``input`` of any sign, ``positive`` behind a Relu of it, and ``op`` that writes ``out``."""
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    nodes = [
        helper.make_node("Relu", ["input"], ["positive"]),
        helper.make_node(op, inputs, ["out"], **attributes),
    ]
    return helper.make_model(helper.make_graph(nodes, "one", [], [], stored))


@pytest.mark.parametrize("name", sorted(NETS))
def test_what_is_proven_holds_on_real_runs(name: str) -> None:
    model = prepare(NETS[name]())
    made = [output for node in model.graph.node for output in node.output]
    session = ort_session(expose(model, made), fuse=False)
    names = [item.name for item in session.get_outputs()]
    values = dict(zip(names, session.run(names, {"input": images(8)}), strict=True))
    proven = non_negative_tensors(model)
    assert all(values[tensor].min() >= 0 for tensor in made if tensor in proven)
    # And little is missed: what is left out of these networks does take negative values.
    assert all(values[tensor].min() < 0 for tensor in made if tensor not in proven)


def test_relus_pooling_concat_and_reshapes_are_followed() -> None:
    found = non_negative_tensors(prepare(NETS["googlenet"]()))
    assert {"relu1", "pool1", "norm1", "norm2", "pool2", "concat", "branch.pool", "gap", "flat"} <= found
    assert {"prob"} <= found
    assert found.isdisjoint({"input", "conv1", "conv2", "logits"})


def test_a_residual_sum_with_a_signed_branch_is_not_proven() -> None:
    found = non_negative_tensors(prepare(NETS["resnet"]()))
    assert "a.add" not in found
    assert "a.relu" in found


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "proven"),
    [
        ("Add", ["positive", "one"], {}, True),
        ("Add", ["positive", "minus"], {}, False),
        ("Sum", ["positive", "one", "input"], {}, False),
        ("Mul", ["one", "positive"], {}, True),
        ("Mul", ["minus", "positive"], {}, False),
        ("Mul", ["input", "input"], {}, True),
        ("Mul", ["input", "positive"], {}, False),
        ("Sub", ["positive", "one"], {}, False),
        ("Div", ["positive", "one"], {}, True),
        ("Max", ["input", "one"], {}, True),
        ("Max", ["input", "minus"], {}, False),
        ("Min", ["input", "one"], {}, False),
        ("Min", ["positive", "one"], {}, True),
        ("Concat", ["positive", "positive"], {"axis": 1}, True),
        ("Concat", ["positive", "input"], {"axis": 1}, False),
        ("Relu", ["input"], {}, True),
        ("Abs", ["input"], {}, True),
        ("Sigmoid", ["input"], {}, True),
        ("Tanh", ["input"], {}, False),
        ("LeakyRelu", ["input"], {}, False),
        ("HardSwish", ["input"], {}, False),
        ("Neg", ["positive"], {}, False),
        ("Clip", ["input", "zero", "one"], {}, True),
        ("Clip", ["input", "zero"], {}, True),
        ("Clip", ["input", "minus", "one"], {}, False),
        ("Clip", ["input", "", "one"], {}, False),
        ("Clip", ["input", "positive"], {}, False),
        ("Clip", ["positive", "minus", "one"], {}, True),
        ("Clip", ["positive", "", "minus"], {}, False),
        ("Clip", ["input", "zero", "minus"], {}, False),
        ("Pad", ["positive", "pads"], {}, True),
        ("Pad", ["positive", "pads", "zero"], {}, True),
        ("Pad", ["positive", "pads", "minus"], {}, False),
        ("Resize", ["positive", "", "one"], {"mode": "linear"}, True),
        ("Resize", ["positive", "", "one"], {"mode": "cubic"}, False),
        ("LRN", ["positive"], {"size": 3}, True),
        ("LRN", ["positive"], {"size": 3, "bias": -1.0}, False),
        ("LRN", ["input"], {"size": 3}, False),
        ("Transpose", ["positive"], {}, True),
        ("Transpose", ["input"], {}, False),
        ("Reshape", ["positive", "pads"], {}, True),
    ],
)
def test_one_operator(op: str, inputs: list[str], attributes: dict[str, Any], proven: bool) -> None:
    constants = {"zero": np.float32(0), "one": np.float32(1), "minus": np.float32(-1), "pads": [0, -1]}
    found = non_negative_tensors(one_node(op, inputs, constants, **attributes))
    assert ("out" in found) == proven
    assert found.isdisjoint({"input", "minus", "pads", ""})


def test_an_operator_of_another_domain_proves_nothing() -> None:
    model = one_node("Relu", ["input"], {}, domain="com.example")
    assert non_negative_tensors(model) == {"positive"}
