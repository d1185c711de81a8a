"""What OpenVINO's reader of ONNX files does not take, or takes wrongly: found out from the file itself.

Nothing here imports OpenVINO: graphs are handed in.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from onnx import ModelProto, TensorProto, inliner, numpy_helper

from inferometer.errors import ModelError
from inferometer.models.files import load
from inferometer.models.graph import all_tensors, true_inputs
from inferometer.models.opset import opset_of, upgrade

__all__ = ["misread", "readable", "unreadable", "without_functions"]

# Element types of OpenVINO that its reader takes wrongly from where files may hold them too: in fields of
# protobuf instead of ``raw_data``. Found by comparing results with those of onnx's reference (2026.4).
_RAW_ALONE = {
    "bf16": TensorProto.BFLOAT16,
    "f8e4m3": TensorProto.FLOAT8E4M3FN,
    "f8e5m2": TensorProto.FLOAT8E5M2,
    "u32": TensorProto.UINT32,
}


def misread(model: Path, network: Any) -> bool:
    """Whether the reader takes the file for another model, without any error.

    Until opset 13 Softmax normalises over all axes from the one it names on; at 11 and 12 the reader takes
    that one alone. Found by comparing results with those of onnxruntime (2026.4).

    Args:
        model: The file.
        network: What the reader made of it.
    """
    operators = network.get_ops()
    constants = [op for op in operators if op.get_type_name() == "Constant"]
    kinds = {op.get_output_element_type(0).get_type_name() for op in constants}
    softmax_inside = any(_softmax_inside(op) for op in operators)
    suspects = {number for name, number in _RAW_ALONE.items() if name in kinds}
    if not suspects and not softmax_inside:
        return False
    found = onnx.load(str(model), load_external_data=False)
    if softmax_inside and opset_of(found) in (11, 12):
        return True
    return any(tensor.data_type in suspects and _typed(tensor) for tensor in all_tensors(found))


def readable(model: Path) -> ModelProto:
    """The model of a file in the words that the reader takes right (see `misread`).

    Raises:
        ModelError: Its opset cannot be raised.
    """
    raised, failures = upgrade(load(model), 13)
    if failures:
        raise ModelError(
            f"{model}: openvino takes Softmax of opsets 11 and 12 wrongly, and the opset cannot be raised: "
            f"{'; '.join(failures)}"
        )
    for tensor in all_tensors(raised):
        if tensor.data_type in _RAW_ALONE.values() and _typed(tensor):
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    return raised


def _softmax_inside(op: Any) -> bool:
    """Whether an operator is a Softmax along an axis that is not the last."""
    if op.get_type_name() not in ("Softmax", "LogSoftmax"):
        return False
    rank = op.get_input_partial_shape(0).rank
    return bool(rank.is_dynamic or int(op.get_attributes()["axis"]) not in (-1, rank.get_length() - 1))


def _typed(tensor: TensorProto) -> bool:
    return len(tensor.int32_data) > 0 or len(tensor.uint64_data) > 0


def unreadable(model: Path) -> str | None:
    """What in a file, which the reader has refused, it cannot take; None when that is not known here."""
    try:
        found = load(model, weights=False)
    except ModelError:
        return None
    for info in true_inputs(found.graph):
        refusal = _refusal(info.name, info.type.WhichOneof("value"), info.type.tensor_type.elem_type)
        if refusal is not None:
            return refusal
    if found.graph.sparse_initializer:
        name = found.graph.sparse_initializer[0].values.name
        return f"openvino does not know sparse weights, such as {name!r}: store them as dense ones"
    return None


def _refusal(name: str, form: str | None, data_type: int) -> str | None:
    """Why an input can be fed nothing; None when it is an array of numbers."""
    end = "which nothing here can feed: give a model that takes arrays of numbers"
    if form == "tensor_type" and data_type == TensorProto.STRING:
        return f"input {name!r} holds strings, {end}"
    kinds = {"sequence_type": "a sequence", "optional_type": "optional", "map_type": "a map"}
    return f"input {name!r} is {kinds[form]}, {end}" if form in kinds else None


def without_functions(model: Path) -> ModelProto | None:
    """The model with its own functions inlined, since the reader knows none; None when it has none."""
    if not onnx.load(str(model), load_external_data=False).functions:
        return None
    return inliner.inline_local_functions(load(model))
