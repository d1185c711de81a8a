"""ONNX's operators that move, cut, join and reduce tensors in PyTorch's words.

Every shape is known when the model is loaded, so that what ONNX computes with small tensors of whole numbers
(target shapes, axes, paddings) is plain numbers here.

Source: onnx/docs/Operators.md and Changelog.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from inferometer.engines.torch.node import Node, Operation, Unmapped, operator

__all__: list[str] = []


@operator("Flatten", attributes=("axis",))
def _flatten(node: Node) -> Operation:
    shape = node.shape()
    axis = int(node.attr("axis", 1))
    if not -len(shape) <= axis <= len(shape):
        raise Unmapped(f"axis {axis} of a tensor with {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    target = (math.prod(shape[:axis]), math.prod(shape[axis:]))
    return Operation(lambda x: x.reshape(target))


@operator("Reshape", attributes=("shape", "allowzero", "consumed_inputs"))
def _reshape(node: Node) -> Operation:
    source = node.shape()
    wanted = node.numbers(1, "shape")
    if wanted is None:
        raise Unmapped("it has no target shape")
    keep = not node.attr("allowzero", 0)
    target = [source[place] if side == 0 and keep else side for place, side in enumerate(wanted)]
    if -1 in target:
        rest = math.prod(side for side in target if side != -1)
        if rest == 0 or math.prod(source) % rest:
            raise Unmapped(f"{list(source)} does not fit the target shape {list(wanted)}")
        target[target.index(-1)] = math.prod(source) // rest
    if math.prod(target) != math.prod(source):
        raise Unmapped(f"{list(source)} does not fit the target shape {list(wanted)}")
    return Operation(lambda x: x.reshape(target))


@operator("Shape", attributes=("start", "end"))
def _shape(node: Node) -> Operation:
    """A stored value, as all shapes are known; from operator set 15 on also of some axes alone."""
    sides = node.shape()[node.attr("start", 0) : node.attr("end")]
    return Operation(lambda: torch.tensor(sides, dtype=torch.int64), ())


@operator("Squeeze", "Unsqueeze", attributes=("axes",))
def _squeeze(node: Node) -> Operation:
    source, axes = node.shape(), node.numbers(1, "axes")
    if node.proto.op_type == "Squeeze":
        gone = {node.axis(axis, len(source)) for axis in axes} if axes is not None else None
        if gone is None:
            gone = {place for place, side in enumerate(source) if side == 1}
        if any(source[place] != 1 for place in gone):
            raise Unmapped(f"axes {sorted(gone)} of {list(source)} are not all of length 1")
        target = [side for place, side in enumerate(source) if place not in gone]
    else:
        if axes is None:
            raise Unmapped("it has no axes")
        rank = len(source) + len(axes)
        added = {node.axis(axis, rank) for axis in axes}
        sides = iter(source)
        target = [1 if place in added else next(sides) for place in range(rank)]
    return Operation(lambda x: x.reshape(target))


@operator("Transpose", attributes=("perm",))
def _transpose(node: Node) -> Operation:
    order = node.ints("perm", list(reversed(range(len(node.shape())))))
    return Operation(lambda x: x.permute(order))


@operator("Expand")
def _expand(node: Node) -> Operation:
    wanted = node.numbers(1, "shape")
    if wanted is None:
        raise Unmapped("it has no target shape")
    target = np.broadcast_shapes(node.shape(), wanted)
    return Operation(lambda x: x.expand(target))


@operator("Tile")
def _tile(node: Node) -> Operation:
    repeats = node.numbers(1, "repeats")
    if node.opset < 6 or repeats is None:
        raise Unmapped("it tiles as operator sets before 6 do")
    return Operation(lambda x: x.repeat(repeats))


@operator("Concat", attributes=("axis",))
def _concat(node: Node) -> Operation:
    axis = node.axis(int(node.attr("axis", 1)), len(node.shape()))
    return Operation(lambda *tensors: torch.cat(tensors, axis), node.present, fresh=True)


@operator("Split", attributes=("axis", "split", "num_outputs"))
def _split(node: Node) -> Operation:
    shape = node.shape()
    axis = node.axis(int(node.attr("axis", 0)), len(shape))
    sizes = node.numbers(1, "split")
    count = len(node.proto.output)
    if sizes is None:
        if node.attr("num_outputs", count) != count:
            raise Unmapped("num_outputs is not the number of its outputs")
        chunk = -(-shape[axis] // count)
        if node.opset < 18 and shape[axis] % count:
            raise Unmapped("its axis does not divide into equal parts")
        sizes = tuple(min(chunk, shape[axis] - chunk * place) for place in range(count))
    if sum(sizes) != shape[axis] or min(sizes) < 0 or len(sizes) != count:
        raise Unmapped(f"parts {list(sizes)} of an axis of {shape[axis]}")
    parts = list(sizes)
    return Operation(lambda x: torch.split(x, parts, axis))


@operator("Slice", attributes=("starts", "ends", "axes"))
def _slice(node: Node) -> Operation:
    shape = node.shape()
    starts, ends = node.numbers(1, "starts"), node.numbers(2, "ends")
    if starts is None or ends is None:
        raise Unmapped("it has no starts or ends")
    axes = node.numbers(3, "axes") or tuple(range(len(starts)))
    steps = node.numbers(4, "steps") or (1,) * len(starts)
    if min(steps) < 1:
        raise Unmapped("it goes backwards")
    cuts = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = node.axis(axis, len(shape))
        cuts[place] = slice(*slice(start, end, step).indices(shape[place]))
    index = tuple(cuts)
    return Operation(lambda x: x[index])


@operator("Gather", attributes=("axis",))
def _gather(node: Node) -> Operation:
    shape = node.shape()
    axis = node.axis(int(node.attr("axis", 0)), len(shape))
    indices = node.value(1)
    if indices is None or np.any((indices < -shape[axis]) | (indices >= shape[axis])):
        raise Unmapped("an index of it lies outside")
    if indices.ndim == 0:
        place = int(indices) % shape[axis]
        return Operation(lambda x: x.select(axis, place))
    places = torch.from_numpy(np.ascontiguousarray(indices.reshape(-1) % shape[axis], np.int64))
    target = (*shape[:axis], *indices.shape, *shape[axis + 1 :])
    return Operation(lambda x, at: x.index_select(axis, at).reshape(target), extras=(places,))


_REDUCTIONS: dict[str, Any] = {
    "ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax, "ReduceMin": torch.amin,
    "ReduceL2": lambda x, axes, keep: torch.linalg.vector_norm(x, 2, axes, keep),
    "ReduceL1": lambda x, axes, keep: torch.linalg.vector_norm(x, 1, axes, keep),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keep),
    "ReduceLogSumExp": torch.logsumexp,
}  # fmt: skip


@operator(*_REDUCTIONS, attributes=("axes", "keepdims", "noop_with_empty_axes"))
def _reduce(node: Node) -> Operation:
    node.need_floats()
    function, rank = _REDUCTIONS[node.proto.op_type], len(node.shape())
    given = node.numbers(1, "axes") or ()
    if not given and node.attr("noop_with_empty_axes", 0):
        raise Unmapped("noop_with_empty_axes without axes")
    axes = tuple(node.axis(axis, rank) for axis in given) or tuple(range(rank))
    keep = bool(node.attr("keepdims", 1))
    if not axes:
        raise Unmapped("it reduces a scalar")
    return Operation(lambda x: function(x, axes, keep))


@operator("Pad", attributes=("mode", "pads", "value"))
def _pad(node: Node) -> Operation:
    mode, rank = node.attr("mode", "constant"), len(node.shape())
    if mode != "constant":
        raise Unmapped(f"mode {mode}")
    pads = node.numbers(1, "pads")
    if pads is None:
        raise Unmapped("it has no pads")
    value = node.scalar(2, 0.0) if node.has(2) else float(node.attr("value", 0.0))
    axes = node.numbers(3, "axes") if node.has(3) else tuple(range(rank))
    places = [node.axis(axis, rank) for axis in axes or ()]
    if len(pads) != 2 * len(places):
        raise Unmapped(f"{len(pads)} pads for {len(places)} axes")
    sides = {place: (pads[at], pads[at + len(places)]) for at, place in enumerate(places)}
    padding = [number for place in reversed(range(rank)) for number in sides.get(place, (0, 0))]
    if not node.dtype().is_floating_point and value != int(value):
        raise Unmapped("it pads whole numbers with a fraction")
    fill = value if node.dtype().is_floating_point else int(value)
    return Operation(lambda x: functional.pad(x, padding, value=fill))


@operator("Upsample", attributes=("mode", "scales"))
@operator(
    "Resize",
    attributes=("mode", "coordinate_transformation_mode", "nearest_mode", "antialias",
                "cubic_coeff_a", "extrapolation_value", "exclude_outside"),
)  # fmt: skip
def _resize(node: Node) -> Operation:
    """Nearest for whole factors, and linear: of images, along height and width alone."""
    node.need_floats()
    source, target = node.shape(), node.output_shape()
    if len(source) != 4 or source[:2] != target[:2]:
        raise Unmapped("it resizes other axes than height and width")
    if node.attr("antialias", 0):
        raise Unmapped("antialias 1")
    old = node.proto.op_type == "Upsample" or node.opset < 11
    where = "asymmetric" if old else node.attr("coordinate_transformation_mode", "half_pixel")
    size, mode = target[2:], node.attr("mode", "nearest")
    factors = [after / before for before, after in zip(source[2:], size, strict=True)]
    given = _scales(node)
    if given is not None and any(abs(a - b) > 1e-6 for a, b in zip(given[-2:], factors, strict=True)):
        raise Unmapped("its scales do not give whole sizes")
    if mode == "nearest":
        rounding = "floor" if old else node.attr("nearest_mode", "round_prefer_floor")
        whole = all(factor >= 1 and factor == int(factor) for factor in factors)
        # With a whole factor each value is repeated, wherever its centre is taken to be but on the corners.
        exact = (where == "asymmetric" and rounding == "floor") or (
            where in ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
            and rounding in ("round_prefer_floor", "round_prefer_ceil")
            and 1 not in size
        )
        if not (whole and exact):
            raise Unmapped(f"nearest with {where}, {rounding} and the factors {factors}")
        return Operation(lambda x: functional.interpolate(x, size, mode="nearest"))
    if mode in ("linear", "bilinear"):
        if where == "align_corners" and 1 not in size:
            return Operation(lambda x: functional.interpolate(x, size, mode="bilinear", align_corners=True))
        if where in ("half_pixel", "pytorch_half_pixel") and 1 not in size:
            return Operation(lambda x: functional.interpolate(x, size, mode="bilinear", align_corners=False))
    raise Unmapped(f"mode {mode} with {where}")


def _scales(node: Node) -> Sequence[float] | None:
    """The scales that the node gives, one per axis; None where it gives sizes."""
    place = 2 if node.proto.op_type == "Resize" and node.opset >= 11 else 1
    if node.has(place):
        found = node.value(place)
        return [float(scale) for scale in found] if found is not None and found.size else None
    listed = node.attr("scales")
    return None if listed is None else [float(scale) for scale in listed]
