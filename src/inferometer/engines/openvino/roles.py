"""What each layer of a compiled OpenVINO model is for: the model's own work, or what the runtime put between.

Nothing here imports OpenVINO: graphs are handed in. A layer notes the operators whose work it does
(``originalLayersNames``); what no operator of the model as read has a part in was inserted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from inferometer.contracts import Role
from inferometer.engines.openvino.layers import note

__all__ = ["joined", "roles"]

# Kinds of layers that change where or as what values lie, in the words of the CPU's and the GPU's plug-in.
_MOVES = {"reorder", "convert", "transpose", "permute", "reorder_data", "snippets"}
_QUANTIZES = {"fakequantize", "quantize"}
# Kinds that may be nothing else than a QuantizeLinear or DequantizeLinear, by the operators in them.
_ELEMENTWISE = {*_MOVES, "subgraph", "eltwise", "math"}
# Names that OpenVINO gives to the parts of a dequantization, of operators that it made itself.
_OWN_PART = re.compile(
    r"(Convert|Subtract|Multiply|FakeQuantize)_\d+|.*/Dequantization(Convert|Subtract|Multiply)"
)


def roles(compiled: Any, read: Any) -> dict[str, Role]:
    """The role of each layer, by its name.

    A layer quantizes if it is a FakeQuantize, or element by element and all operators in it belong to a
    QuantizeLinear or DequantizeLinear (one that also computes is ``compute``), or if it was inserted and
    changes between floats and integers. It reorders if it was inserted and does nothing else than copy,
    transpose or cast.

    Args:
        compiled: The runtime graph of the compiled model.
        read: The model from which it was compiled.
    """
    operators = {node.get_friendly_name() for node in read.get_ops() if node.get_type_name() != "Constant"}
    quantizing = _quantizing(read)
    return {
        node.get_friendly_name(): _role(node, operators, quantizing) for node in compiled.get_ordered_ops()
    }


def joined(timed: Any, compiled: Any) -> dict[str, str]:
    """Names in one runtime graph by those in another of the same model.

    OpenVINO numbers operators of its own anew each time it compiles, so that their names differ.
    """
    ours, theirs = timed.get_ordered_ops(), compiled.get_ordered_ops()
    names = [
        (one.get_friendly_name(), two.get_friendly_name()) for one, two in zip(ours, theirs, strict=False)
    ]
    kinds = [[note(node, "layerType") for node in nodes] for nodes in (ours, theirs)]
    known = {name for _, name in names}
    if kinds[0] != kinds[1] or any(one != two and one in known for one, two in names):
        return {one.get_friendly_name(): one.get_friendly_name() for one in ours}
    return dict(names)


def _role(node: Any, operators: set[str], quantizing: set[str]) -> Role:
    kind = note(node, "layerType").lower()
    if kind in _QUANTIZES:
        return "quantize"
    origins = [name for name in note(node, "originalLayersNames").split(",") if name]
    own = [name for name in origins if name in operators]
    if own:
        rest = [name for name in origins if name not in operators]
        quantizes = set(own) <= quantizing and all(_OWN_PART.fullmatch(name) for name in rest)
        return "quantize" if quantizes and kind in _ELEMENTWISE else "compute"
    given, result = _data_kinds(node)
    if kind in _MOVES or (kind == "subgraph" and given != result and _same_shape(node)):
        return "quantize" if _integer(given) != _integer(result) else "reorder"
    return "compute"


def _quantizing(read: Any) -> set[str]:
    """Operators of the model as read that quantize or dequantize, as the reader of ONNX builds them.

    QuantizeLinear becomes FakeQuantize and a Convert to integers; DequantizeLinear a Convert back, a Subtract
    and a Multiply. A cast between floats and integers belongs to neither and counts all the same.
    """
    found: set[str] = set()
    dequantized: set[str] = set()
    for node in read.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        sources = [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        if kind == "FakeQuantize":
            found.add(name)
        elif kind == "Convert":
            given, result = _type(node.inputs()[0]), _type(node.output(0))
            if _integer(given) != _integer(result):
                found.add(name)
                if sources[0] in found:  # back to floats from what was quantized here
                    dequantized.add(name)
        elif kind in ("Subtract", "Multiply") and sources[0] in dequantized:
            found.add(name)
            if kind == "Subtract":
                dequantized.add(name)
    return found


def _data_kinds(node: Any) -> tuple[str, str]:
    """Element types of the first input and the first output."""
    ports: Sequence[Any] = node.inputs()
    return (_type(ports[0]) if ports else "", _type(node.output(0)))


def _type(port: Any) -> str:
    return str(port.get_element_type().get_type_name())


def _integer(kind: str) -> bool:
    return kind.startswith(("u", "i"))


def _same_shape(node: Any) -> bool:
    """Whether the only input and the output have the same shape."""
    given, result = node.inputs(), node.output(0)
    return len(given) == 1 and bool(given[0].get_partial_shape() == result.get_partial_shape())
