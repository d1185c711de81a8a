"""Bias correction: the mean shift of each layer's result through rounded weights, taken back in its bias.

The errors of a channel's weights do not cancel where its inputs are all positive, as behind a Relu: they move
its mean. With the mean of each input channel over the calibration images the shift is known beforehand,
and taking it back costs nothing at run time.

What saturation does to the mean of the activations is left alone. It comes from few images, and a constant
for all of them does harm: on EfficientNet-lite0 with KL thresholds, taking it back as well turned a gain of
0.9 dB at the logits into a loss of 1.1 dB.

Source: M. Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019,
section 4.2, for convolutions appendix B. There the means follow from BatchNormalization, here from images.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from inferometer.contracts import Session
from inferometer.errors import CalibrationError
from inferometer.models.graph import attribute, unused_name
from inferometer.quantize.passes import Batches, real_rows
from inferometer.quantize.qdq import QdqReader
from inferometer.quantize.simplify import drop_unused
from inferometer.quantize.sqnr import numbered_batches

__all__ = ["bias_shifts", "channel_means", "correctable_inputs", "shift_biases"]

_PART = 2**22  # weights at a time: in float64 a whole layer could take a gigabyte

Means = npt.NDArray[np.float64]


def correctable_inputs(prepared: ModelProto, quantized: ModelProto) -> tuple[str, ...]:
    """The tensors whose means `bias_shifts` needs: inputs of quantized layers with a bias, in graph order.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it.
    """
    return tuple(dict.fromkeys(node.input[0] for node in _layers(prepared, QdqReader(prepared, quantized))))


def channel_means(session: Session, batches: Batches, tensors: Iterable[str]) -> dict[str, Means]:
    """Mean of each channel (axis 1) over all images and positions. Memory does not grow with the images.

    Args:
        session: Of the float model with the tensors exposed.
        batches: The images; called once.
        tensors: From `correctable_inputs`; outputs or inputs of the session.

    Returns:
        By tensor ``[channels] float64``.

    Raises:
        CalibrationError: No image, or a tensor that the session does not give.
    """
    names = tuple(tensors)
    given = {item.name for item in (*session.outputs, *session.inputs)}
    missing = [name for name in names if name not in given]
    if missing:
        raise CalibrationError(f"the session does not give tensor {missing[0]!r}: load the exposed model")
    sums, counts = dict.fromkeys(names, np.zeros(())), dict.fromkeys(names, 0)
    for number, batch in numbered_batches(batches):
        values = {**batch.feeds, **session.infer(batch.feeds)}
        for name in names:
            rows = real_rows(values[name], name, batch, number)
            rows = rows.reshape(*rows.shape[:2], -1)
            sums[name] = sums[name] + rows.sum(axis=(0, 2), dtype=np.float64)
            counts[name] += rows.shape[0] * rows.shape[2]
    if not all(counts.values()):
        raise CalibrationError("there is no image to take means of: give at least one, better 100 or more")
    return {name: sums[name] / counts[name] for name in names}


def bias_shifts(
    prepared: ModelProto, quantized: ModelProto, means: Mapping[str, Means]
) -> dict[str, npt.NDArray[np.float32]]:
    """What rounded weights take from the mean of every output channel: (W - Wq) E[x].

    Of a Conv the borders are ignored: every kernel is taken to lie on the image wholly. A layer without a
    bias, and one left in float, has no shift.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it; its integer weights are taken as they stand.
        means: From `channel_means`.

    Returns:
        By node name ``[channels] float32``, to be added to the bias.

    Raises:
        CalibrationError: A mean is missing or of another number of channels.
    """
    reader = QdqReader(prepared, quantized)
    weights = {tensor.name: tensor for tensor in prepared.graph.initializer}
    return {
        node.name: _shift(node, weights[node.input[1]], reader, means) for node in _layers(prepared, reader)
    }


def shift_biases(prepared: ModelProto, shifts: Mapping[str, npt.NDArray[np.float32]]) -> ModelProto:
    """A copy of the float model with corrected biases: for `insert_qdq`, not to be run or compared in float.

    Args:
        prepared: The float model, prepared.
        shifts: From `bias_shifts`.

    Raises:
        CalibrationError: A shift's layer does not exist or has no stored bias of that many channels.
    """
    model = ModelProto()
    model.CopyFrom(prepared)
    nodes = {node.name: node for node in model.graph.node}
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    taken = set(stored) | {name for node in model.graph.node for name in (*node.input, *node.output)}
    for name, shift in shifts.items():
        node = nodes.get(name)
        old = stored.get(node.input[2]) if node is not None and len(node.input) > 2 else None
        if node is None or old is None:
            raise CalibrationError(f"no layer {name!r} has a stored bias: the shifts are another model's")
        bias = numpy_helper.to_array(old).astype(np.float64).reshape(-1)
        if bias.size not in (1, shift.size):
            raise CalibrationError(f"layer {name!r} has {bias.size} biases, but {shift.size} shifts")
        node.input[2] = unused_name(f"{node.input[2]}_corrected", taken)  # others may read the old one
        corrected = (bias + shift).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(corrected, node.input[2]))
    drop_unused(model.graph)
    return model


def _layers(prepared: ModelProto, reader: QdqReader) -> list[NodeProto]:
    """The layers whose shift can be known and taken back: quantized, with a stored bias."""
    stored = {tensor.name for tensor in prepared.graph.initializer}
    return [
        node
        for node in prepared.graph.node
        if node.op_type in ("Conv", "Gemm")
        and len(node.input) > 2
        and node.input[2] in stored
        and reader.runs_on_integers(node)
        and reader.stored(reader.nodes[node.name].input[1]) is not None
    ]


def _shift(
    node: NodeProto, weight: TensorProto, reader: QdqReader, means: Mapping[str, Means]
) -> npt.NDArray[np.float32]:
    exact = numpy_helper.to_array(weight)
    integers = reader.stored(reader.nodes[node.name].input[1])
    mean = means.get(node.input[0])
    if integers is None or integers.values.shape != exact.shape:
        raise CalibrationError(
            f"layer {node.name!r} has other weights in the QDQ model: it is another model's"
        )
    errors = _by_channel(node, exact, integers.real())
    groups = int(attribute(node, "group", 1)) if node.op_type == "Conv" else 1
    if mean is None or mean.size != errors.shape[1] * groups:
        raise CalibrationError(
            f"the means of tensor {node.input[0]!r}, which layer {node.name!r} reads, are missing or another "
            f"model's: take them on this one"
        )
    by_group = mean.reshape(groups, -1)
    group = np.arange(len(errors)) * groups // len(errors)
    step = max(1, _PART // max(1, errors.shape[1]))
    parts = [slice(start, start + step) for start in range(0, len(errors), step)]
    return np.concatenate([(errors[part] * by_group[group[part]]).sum(axis=1) for part in parts]).astype(
        np.float32
    )


def _by_channel(node: NodeProto, exact: npt.NDArray[np.float32], rounded: npt.NDArray[np.float32]) -> Means:
    """W - Wq, summed over the kernel: ``[out, in of the group] float64``."""
    errors = np.subtract(exact, rounded)  # neighbours: their difference loses nothing
    if node.op_type == "Conv":
        return np.asarray(errors.reshape(*errors.shape[:2], -1).sum(axis=2, dtype=np.float64))
    return np.asarray(errors if attribute(node, "transB", 0) else errors.T)
