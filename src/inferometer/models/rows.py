"""Whether each image's result is what it is alone: following the batch axis through a graph.

The shapes at two batches tell where the batch is: an axis whose length differs is it, or holds it. An
operator that computes along such an axis (a sum, a softmax, a slice, a pooling) makes the images depend on
each other, or takes some of them for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from onnx import NodeProto, TensorProto, numpy_helper

from inferometer.models.graph import attribute, is_standard, subgraphs
from inferometer.models.shapes import TensorFacts, full_shape

__all__ = ["growing_axes", "mixing"]

_Facts = Mapping[str, TensorFacts]


@dataclass(frozen=True)
class _View:
    """A node and what is known around it.

    Attributes:
        node: The node.
        facts: Shapes at each of the two batches.
        probes: Those batches.
        constants: Stored tensors by name.
        opset: Of standard ONNX.
    """

    node: NodeProto
    facts: Sequence[_Facts]
    probes: Sequence[int]
    constants: Mapping[str, TensorProto]
    opset: int

    def growing(self, position: int) -> tuple[int, ...]:
        """Axes of an input that grow with the batch; none for what is absent or unknown."""
        if position >= len(self.node.input) or not self.node.input[position]:
            return ()
        return growing_axes(self.node.input[position], self.facts) or ()

    def rank(self, position: int = 0) -> int:
        """Number of axes of an input; 0 when unknown."""
        return len(full_shape(self.node.input[position], self.facts[0]) or ())

    def axes(self, name: str, position: int) -> list[int] | None:
        """A list of axes, from an attribute or a stored input, none below 0; None when not given."""
        given = attribute(self.node, name, None)
        if given is None and len(self.node.input) > position and self.node.input[position]:
            stored = self.constants.get(self.node.input[position])
            if stored is None:
                return list(range(self.rank()))  # computed: any axis might be meant
            given = [int(axis) for axis in numpy_helper.to_array(stored).ravel()]
        if given is None:
            return None
        listed = [given] if isinstance(given, int) else list(given)
        return [axis % self.rank() if self.rank() else axis for axis in listed]

    def axis(self, default: int) -> list[int]:
        """The attribute ``axis`` as a list of one."""
        return self.axes("axis", len(self.node.input)) or [default % self.rank() if self.rank() else default]


def growing_axes(name: str, facts: Sequence[_Facts]) -> tuple[int, ...] | None:
    """Axes of a tensor whose lengths differ between the batches of ``facts``; None when that is unknown."""
    shapes = [full_shape(name, item) for item in facts]
    first = shapes[0]
    if first is None or any(shape is None or len(shape) != len(first) for shape in shapes):
        return None
    return tuple(
        axis for axis, size in enumerate(first) if any(shape and shape[axis] != size for shape in shapes)
    )


def mixing(
    node: NodeProto,
    facts: Sequence[_Facts],
    probes: Sequence[int],
    constants: Mapping[str, TensorProto],
    opset: int,
) -> str | None:
    """Why a node does not treat each image by itself; None when nothing speaks against it.

    Args:
        node: The node.
        facts: The graph's shapes at each of two batches.
        probes: Those batches.
        constants: Stored tensors by name.
        opset: Version of the standard operator set.
    """
    view = _View(node, facts, probes, constants, opset)
    if not any(view.growing(position) for position in range(len(node.input))):
        return None
    if any(True for _ in subgraphs(node)):
        return "its inside may join the images of a batch"
    reason = _RULES[node.op_type](view) if is_standard(node.domain) and node.op_type in _RULES else None
    return reason or _odd_output(view)


def _odd_output(view: _View) -> str | None:
    """Two axes that grow are pairs of images; one that is no multiple of the batch holds part of them."""
    for name in view.node.output:
        axes = (growing_axes(name, view.facts) or ()) if name else ()
        if len(axes) > 1:
            return "its result has the batch on two axes, so that it pairs the images"
        for axis in axes:
            sizes = [(full_shape(name, item) or ())[axis] for item in view.facts]
            rates = {size / probe for size, probe in zip(sizes, view.probes, strict=True)}
            if len(rates) > 1 or not rates.pop().is_integer():
                return f"its result has {sizes} rows at the batches {list(view.probes)}"
    return None


def _along(view: _View, axes: Sequence[int], what: str) -> str | None:
    hit = sorted(set(axes) & set(view.growing(0)))
    return f"it {what} along axis {hit[0]}, which holds the batch" if hit else None


def _reduce(view: _View) -> str | None:
    axes = view.axes("axes", 1)
    if not axes:
        if attribute(view.node, "noop_with_empty_axes", 0):
            return None
        axes = list(range(view.rank()))
    return _along(view, axes, "reduces")


def _softmax(view: _View) -> str | None:
    if view.opset >= 13:
        return _along(view, view.axis(-1), "normalises")
    # Source: the ONNX operator's versions 1 and 11: the input is a matrix whose rows begin at ``axis``.
    return _along(view, range(view.axis(1)[0], view.rank()), "normalises")


def _by_axis(default: int, what: str) -> Callable[[_View], str | None]:
    return lambda view: _along(view, view.axis(default), what)


def _by_axes(name: str, position: int, default: Sequence[int], what: str) -> Callable[[_View], str | None]:
    def rule(view: _View) -> str | None:
        axes = view.axes(name, position)
        return _along(view, default if axes is None else axes, what)

    return rule


def _from_axis(first: int, what: str) -> Callable[[_View], str | None]:
    """Computes along all axes from ``first`` on, such as the channels and sides of a convolution."""
    return lambda view: _along(view, range(first, view.rank()), what)


def _layer_norm(view: _View) -> str | None:
    return _along(view, range(view.axis(-1)[0], view.rank()), "normalises")


def _concat(view: _View) -> str | None:
    axis = view.axis(0)[0]
    if any(axis in view.growing(position) for position in range(len(view.node.input))):
        return f"it joins along axis {axis}, which holds the batch"
    return None


def _keeps_length(view: _View) -> str | None:
    """Along the batch nothing may be cut, repeated, padded or interpolated."""
    grown = view.growing(0)
    for item in view.facts:
        before, after = full_shape(view.node.input[0], item), full_shape(view.node.output[0], item)
        if before is None or after is None or len(before) != len(after):
            continue
        changed = [axis for axis in grown if before[axis] != after[axis]]
        if changed:
            return f"it changes the length of axis {changed[0]}, which holds the batch"
    return None


def _slice(view: _View) -> str | None:
    steps = view.constants.get(view.node.input[4]) if len(view.node.input) > 4 else None
    if steps is not None and any(int(step) < 0 for step in numpy_helper.to_array(steps).ravel()):
        return _along(view, view.axes("axes", 3) or range(view.rank()), "turns round")
    return _keeps_length(view)


def _contracts(view: _View, left: int, right: int) -> str | None:
    for position, axis in ((0, left), (1, right)):
        grown = view.growing(position)
        if grown and axis % view.rank(position) in grown:
            hit = axis % view.rank(position)
            return f"it sums along axis {hit} of its input {position}, which holds the batch"
    return None


def _matmul(view: _View) -> str | None:
    return _contracts(view, -1, -2 if view.rank(1) > 1 else 0)


def _gemm(view: _View) -> str | None:
    turned = bool(attribute(view.node, "transA", 0)), bool(attribute(view.node, "transB", 0))
    return _contracts(view, 0 if turned[0] else 1, 1 if turned[1] else 0)


def _einsum(view: _View) -> str | None:
    equation = attribute(view.node, "equation", b"").decode().replace(" ", "")
    terms, _, result = equation.partition("->")
    if "." in equation or not result:
        return "where its formula has the batch cannot be told"
    for position, term in enumerate(terms.split(",")):
        for axis in view.growing(position):
            if term[axis] not in result:
                return f"it sums along {term[axis]!r}, which holds the batch"
    return None


def _recurrent(view: _View) -> str | None:
    swapped = bool(attribute(view.node, "layout", 0))
    images = 0 if swapped else 1
    if (1 - images) in view.growing(0):
        return f"it steps along axis {1 - images}, so that what looks like the batch is time"
    for position in (5, 6):  # the initial states, of the shape [directions, batch, hidden]
        name = view.node.input[position] if len(view.node.input) > position else ""
        grown = growing_axes(name, view.facts) if name else (images,)
        if grown is not None and view.growing(0) and grown != (0 if swapped else 1,):
            return f"its initial state {name!r} is made for one batch"
    return None


def _gather(view: _View) -> str | None:
    return _along(view, view.axis(0), "picks")


def _gather_nd(view: _View) -> str | None:
    kept = int(attribute(view.node, "batch_dims", 0))
    return _along(view, range(kept, view.rank()), "picks")


def _batch_norm(view: _View) -> str | None:
    training = attribute(view.node, "training_mode", 0) or any(view.node.output[1:])
    return "it normalises by the images of the batch (training mode)" if training else None


def _one_range(view: _View) -> str | None:
    return "it chooses one range for all images of a call" if view.growing(0) else None


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_POOLS = ("AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")

_RULES: dict[str, Callable[[_View], str | None]] = {
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
    **dict.fromkeys(_POOLS, _from_axis(2, "pools")),
    **dict.fromkeys(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"), _from_axis(1, "convolves")),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _softmax),
    **dict.fromkeys(("MatMul", "MatMulInteger"), _matmul),
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent),
    **dict.fromkeys(("Tile", "Resize", "Upsample", "Pad", "CenterCropPad"), _keeps_length),
    **dict.fromkeys(("GatherElements", "ScatterElements", "Scatter"), _by_axis(0, "picks")),
    **dict.fromkeys(("InstanceNormalization", "GroupNormalization"), _from_axis(1, "normalises")),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), _layer_norm),
    **dict.fromkeys(("ArgMax", "ArgMin"), _by_axis(0, "searches")),
    "BatchNormalization": _batch_norm,
    "Concat": _concat,
    "CumSum": _by_axes("axis", 1, (0,), "adds up"),
    "DynamicQuantizeLinear": _one_range,
    "Einsum": _einsum,
    "Gather": _gather,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "LRN": _from_axis(1, "normalises"),
    "LpNormalization": _by_axis(-1, "normalises"),
    "MeanVarianceNormalization": _by_axes("axes", 99, (0, 2, 3), "normalises"),
    "ScatterND": _from_axis(0, "overwrites"),
    "Slice": _slice,
    "Split": _by_axis(0, "splits"),
    "TopK": _by_axis(-1, "searches"),
}
