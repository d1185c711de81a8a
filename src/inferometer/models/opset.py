"""Raising a model's operator set, with onnx's own converter."""

from __future__ import annotations

import onnx
from onnx import ModelProto, helper, version_converter

from inferometer.errors import ModelError
from inferometer.models.files import one_line
from inferometer.models.graph import all_nodes, is_standard, node_label, subgraphs
from inferometer.models.plain import plain
from inferometer.models.shapes import infer_facts, with_batch_of_one

__all__ = ["opset_of", "upgrade"]

_FAILURES = (
    RuntimeError,
    ValueError,
    onnx.checker.ValidationError,
    onnx.shape_inference.InferenceError,
    version_converter.ConvertError,
)


def opset_of(model: ModelProto) -> int | None:
    """Version of the standard operator set; None when the file does not import it."""
    return next((item.version for item in model.opset_import if is_standard(item.domain)), None)


def upgrade(model: ModelProto, opset: int) -> tuple[ModelProto, list[str]]:
    """The model in another, higher operator set: other words for the same results.

    Functions of its own are inlined and sparse weights stored like any others, where the set must be raised.

    Args:
        model: The model; left as it is.
        opset: The version wanted. A model that has it, or a higher one, is returned as a copy.

    Returns:
        The converted model and an empty list; or a copy of the model as it was, and a sentence for each node
        that could not be converted.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    version = opset_of(model)
    if version is None or version >= opset:
        return copy, []
    changed = _not_converted(model, version, opset)
    if changed:
        return copy, changed
    try:
        raised = version_converter.convert_version(plain(model), opset)
    except _FAILURES as error:
        return copy, _culprits(model, opset) or [_cleaned(error)]
    if version < 11:
        _keep_old_resizing(raised)
    return raised, []


def _not_converted(model: ModelProto, version: int, opset: int) -> list[str]:
    """Nodes that the converter (of onnx 1.23) leaves as they are, although their meaning has changed."""
    if not 18 <= version < 21 <= opset:
        return []
    return [
        f"node {node_label(node, index)!r} (GroupNormalization): its scale and bias are those of groups, "
        "which opset 21 has for channels"
        for index, node in enumerate(model.graph.node)
        if node.op_type == "GroupNormalization" and is_standard(node.domain)
    ]


def _keep_old_resizing(model: ModelProto) -> None:
    """Say of Resize where it looks, which the converter (of onnx 1.23) leaves to another default.

    Source: Resize of opset 10 and Upsample look at ``x / scale``, as ``asymmetric`` does, and round down.
    """
    for node in all_nodes(model.graph):
        if node.op_type == "Resize" and is_standard(node.domain):
            modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            kept = [item for item in node.attribute if item.name not in modes]
            del node.attribute[:]
            node.attribute.extend([*kept, *(helper.make_attribute(*item) for item in modes.items())])


def _culprits(model: ModelProto, opset: int) -> list[str]:
    """Which nodes cannot be converted, each tried in a model of its own."""
    flat = plain(model)
    try:
        facts = infer_facts(with_batch_of_one(flat), "the model")
    except ModelError:
        return []
    stored = {tensor.name: tensor for tensor in flat.graph.initializer}
    found = []
    for index, node in enumerate(flat.graph.node):
        if not is_standard(node.domain) or any(True for _ in subgraphs(node)):
            continue
        inputs = [name for name in dict.fromkeys(node.input) if name]
        outputs = [name for name in node.output if name]
        if any(name not in facts for name in (*inputs, *outputs)):
            continue
        infos = {
            name: helper.make_tensor_value_info(name, facts[name].data_type, facts[name].shape)
            for name in (*inputs, *outputs)
        }
        graph = helper.make_graph(
            [node], "one", [infos[name] for name in inputs], [infos[name] for name in outputs],
            [stored[name] for name in inputs if name in stored],
        )  # fmt: skip
        alone = helper.make_model(graph, opset_imports=flat.opset_import, ir_version=flat.ir_version)
        try:
            version_converter.convert_version(alone, opset)
        except _FAILURES as error:
            found.append(f"node {node_label(node, index)!r} ({node.op_type}): {_cleaned(error)}")
    return found


def _cleaned(error: Exception) -> str:
    """The converter's message without where in its source it stands."""
    text = one_line(error)
    return text.rsplit("failed: ", 1)[-1] if "Assertion" in text else text
