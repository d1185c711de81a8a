"""The kernels inside a part of a model that the provider OpenVINO has compiled, by the profile that it adds.

With ``PERF_COUNT`` the plug-in writes one event for each of its kernels, with its kind, its implementation
and its time.

Source: the profiles that onnxruntime-ep-openvino 1.8.1 writes.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence

from onnx import ModelProto, inliner

from inferometer.contracts import ExecutedLayer, Role
from inferometer.engines.onnxruntime.layers import Event, is_opaque
from inferometer.errors import ModelError
from inferometer.models.graph import all_nodes, subgraphs
from inferometer.models.macs import node_macs
from inferometer.models.shapes import batch_of, infer_facts, with_batch_of_one

__all__ = ["inner_kernels", "inner_layers", "inner_name", "inner_role", "inner_times", "macs_by_name"]

# The last part of an implementation's name is the type of its first input (``jit_avx512_f32``).
# Source: NodeDesc::getPrimitiveDescriptorType of OpenVINO's CPU plug-in.
_RAN_IN = {"f32": "fp32", "f16": "fp16", "bf16": "bf16", "i8": "int8", "u8": "int8"}
_MULTIPLYING = {
    "Convolution", "GroupConvolution", "Deconvolution", "MatMul", "FullyConnected",
    "ConvolutionBackpropData", "GroupConvolutionBackpropData", "FullyConnectedQuantized",
    "FullyConnectedQuantizedLegacy", "FullyConnectedCompressed",
}  # fmt: skip
# What DequantizeLinear becomes where no integer kernel takes it in.
_OF_CONVERSIONS = {"Convert", "Subtract", "Multiply", "Eltwise"}
_PREFIX = "OV::"
# What its transformations append to the name of a node that they take apart.
_APPENDED = ("/DequantizationMultiply", "/WithoutBiases")


def inner_kernels(trace: Sequence[Event], nodes: Sequence[Event]) -> dict[int, Sequence[Event]]:
    """The events of the kernels inside compiled nodes, by the place of the node's own event in ``nodes``.

    Those of one call of one node share a number, and begin when the node does: the node's name, which they
    note too, is at times that of something else. A kernel of less than a microsecond may be left out.
    """
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in trace:
        arguments = event.get("args", {})
        if event.get("cat") == "Kernel" and arguments.get("ov_status") == "EXECUTED":
            groups[str(arguments["ort_correlation_id"])].append(event)
    begins = sorted((event["ts"], place) for place, event in enumerate(nodes) if is_opaque(event))
    found: dict[int, Sequence[Event]] = {}
    for group in groups.values():
        after = bisect.bisect_right(begins, (group[0]["ts"], len(nodes)))
        if after:
            found[begins[after - 1][1]] = group
    return found


def inner_times(calls: Mapping[int, Sequence[Event]]) -> list[tuple[str, str, Role, float]]:
    """Name, kind, role and mean seconds of the kernels inside a node, of all its calls but the first.

    The durations of a call are means over all calls so far (whole microseconds, cut off), so those of the
    first call are taken out of those of the last.

    Args:
        calls: The events of each call, by its number from 1 on.
    """
    first, last = min(calls), max(calls)
    before = {} if first == last else _so_far(calls[first], first)
    taken = last - first or last
    kinds = {inner_name(event): (_kind(event), inner_role(event)) for event in calls[last]}
    return [
        (name, *kinds[name], max(0.0, seconds - before.get(name, 0.0)) / taken)
        for name, seconds in _so_far(calls[last], last).items()
    ]


def inner_layers(
    kernels: Sequence[Event], macs: Mapping[str, int] | None, elsewhere: int | None
) -> tuple[ExecutedLayer, ...]:
    """What ran inside, one layer per kernel.

    A kernel's MACs are those of the model's node that it is called after. Unless all of them together are
    what the model has, they are None throughout: some kernel then does the work of a node that it does not
    name.

    Args:
        kernels: The events of one call.
        macs: The model's, by names of its nodes (see `macs_by_name`); None when they cannot be told.
        elsewhere: Those that other providers' kernels did; None when they cannot be told.
    """
    counted = [_macs(kernel, macs or {}) for kernel in kernels]
    total = None if macs is None else macs[""]
    if elsewhere is None or total is None or sum(counted) + elsewhere != total:
        counted_or_not: list[int | None] = [None] * len(kernels)
    else:
        counted_or_not = list(counted)
    return tuple(
        ExecutedLayer(inner_name(kernel), _kind(kernel), _precision(kernel), count, None)
        for kernel, count in zip(kernels, counted_or_not, strict=True)
    )


def inner_name(kernel: Event) -> str:
    """OpenVINO's name of a kernel."""
    return str(kernel["name"]).removeprefix(_PREFIX)


def inner_role(kernel: Event) -> Role:
    """What a kernel is for, by its kind and the name that it has from the model's own node."""
    kind = _kind(kernel)
    converting = "quantizelinear" in inner_name(kernel).lower() and kind in _OF_CONVERSIONS
    if kind == "FakeQuantize" or converting:
        return "quantize"
    if kind == "Convert":
        return "quantize" if _precision(kernel) == "int8" else "reorder"
    return "reorder" if kind == "Reorder" else "compute"


def macs_by_name(model: ModelProto, batch: int) -> dict[str, int] | None:
    """A model's multiply-accumulates by the names of its nodes and of their outputs; the total under ``""``.

    None when those of one node cannot be told.
    """
    flat = with_batch_of_one(model)
    if flat.functions:
        flat = inliner.inline_local_functions(flat)
    try:
        facts = infer_facts(flat, "the model")
    except ModelError:
        return None
    times = batch if batch_of(model) is None else 1
    found: dict[str, int] = {"": 0}
    for node in flat.graph.node:
        count, _ = node_macs(node, facts)
        if count is None or any(True for body in subgraphs(node) for _ in all_nodes(body)):
            return None
        found[""] += count * times
        if count:
            found |= dict.fromkeys((name for name in (node.name, *node.output) if name), count * times)
    return found


def _so_far(kernels: Sequence[Event], calls: int) -> dict[str, float]:
    """Seconds of all calls up to the one that these are of, by name; the trace is in microseconds."""
    found: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        found[inner_name(kernel)] += calls * kernel["dur"] * 1e-6
    return found


def _macs(kernel: Event, macs: Mapping[str, int]) -> int:
    name = inner_name(kernel)
    for end in _APPENDED:
        name = name.removesuffix(end)
    return macs.get(name, 0) if name and _kind(kernel) in _MULTIPLYING else 0


def _kind(kernel: Event) -> str:
    return str(kernel["args"].get("ov_node_type", "unknown"))


def _precision(kernel: Event) -> str:
    return _RAN_IN.get(str(kernel["args"].get("ov_exec_type", "")).rsplit("_", 1)[-1].lower(), "other")
