"""A model with its tensors in float16, by ONNX Runtime's own converter.

The runtime computes in the types that a file has; there is no option to compute a float32 file in float16.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from onnx import ModelProto, TensorProto

from inferometer.errors import Unsupported, brief
from inferometer.models.files import load
from inferometer.models.form import float_type

__all__ = ["float16_form"]

_LARGEST = float(np.finfo(np.float16).max)
_SMALL_BYTES = 1024


def float16_form(model: Path) -> bytes | None:
    """The model in float16, its inputs and outputs as they were; None for a file that is in float16 itself.

    Weights beyond float16's range are cut off at its largest number, as the converter does with small ones.

    Raises:
        ModelError: The file is no valid model.
        Unsupported: The converter does not take it.
    """
    source = load(model)
    if float_type(source) == "float16":
        return None
    search = list(sys.path)
    try:
        # Its package puts its own folder onto the search path, with modules of everyday names in it.
        from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16
    except ImportError as error:
        raise Unsupported(f"{model}: this onnxruntime has no converter to float16: {brief(error)}") from error
    finally:
        sys.path[:] = search
    _convert_large_weights(source, frozenset(DEFAULT_OP_BLOCK_LIST))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one for each weight that is cut off or too small
            converted = convert_float_to_float16(source, keep_io_types=True)
        return bytes(converted.SerializeToString())
    except (AssertionError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise Unsupported(f"{model}: onnxruntime's converter to float16 fails: {brief(error)}") from error


def _convert_large_weights(model: ModelProto, staying: frozenset[str]) -> None:
    """Convert large weights at once, but for those of operators that stay in float32.

    The converter would take a minute over those of VGG-19.
    """
    left = {name for node in model.graph.node if node.op_type in staying for name in node.input}
    for tensor in model.graph.initializer:
        large = tensor.data_type == TensorProto.FLOAT and len(tensor.raw_data) > _SMALL_BYTES
        if large and tensor.name not in left:
            values = np.clip(np.frombuffer(tensor.raw_data, "<f4"), -_LARGEST, _LARGEST)
            tensor.data_type = TensorProto.FLOAT16
            tensor.raw_data = values.astype("<f2").tobytes()
