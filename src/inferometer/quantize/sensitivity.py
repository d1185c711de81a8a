"""Which layers INT8 damages most: each quantized alone, the logits compared with the float model's.

No labels are needed, so the calibration images serve. A layer quantized alone has its inputs, its weights
and its result in integers as in the quantized model, with the very same scales; all else stays in float. So
a tensor that saturates counts against the layer that writes it and against the one that reads it, and
only both in float would spare it. Damages add up to that of the whole only roughly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, helper

from inferometer.accuracy import agreement, top_k
from inferometer.errors import CalibrationError, nearest
from inferometer.models.graph import unused_name
from inferometer.models.shapes import infer_facts
from inferometer.quantize.passes import Batches, CalibrationBatch, StageTimes, real_rows, run_pass
from inferometer.quantize.qdq import OpenSession, QdqReader, logits_of

__all__ = ["LayerDamage", "damage_rows", "quantized_alone", "quantized_layers", "rank_layers"]


@dataclass(frozen=True)
class LayerDamage:
    """What one layer does to the logits when it alone is quantized.

    Attributes:
        layer: Name of the node in the prepared model.
        op: Its operator.
        damage: Energy (sum of squares) of the logits' error over that of the float logits, all images.
        standard_error: Of ``damage`` as an estimate for all such images; None for a single image.
        agreement: Fraction of images whose first class is the float model's.
        images: How many were seen.
        per_image: The error energy of each image over the mean energy of the float logits, so that the mean
            of these is ``damage``; in the same order for every layer, so that layers compare in pairs.
    """

    layer: str
    op: str
    damage: float
    standard_error: float | None
    agreement: float
    images: int
    per_image: tuple[float, ...]

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of the logits, decibels; None without any noise."""
        return -10 * math.log10(self.damage) if self.damage > 0 else None


def quantized_layers(prepared: ModelProto, quantized: ModelProto) -> tuple[str, ...]:
    """Names of the layers that run on integers in ``quantized``, in the order of the float graph.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it.

    Raises:
        CalibrationError: There is none whose name both have.
    """
    reader = QdqReader(prepared, quantized)
    found = tuple(node.name for node in prepared.graph.node if reader.runs_on_integers(node))
    if not found:
        raise CalibrationError(
            "no layer of the QDQ model has the name of a layer of the float model: it was made from another "
            "model, or its quantizer renames nodes"
        )
    return found


def quantized_alone(prepared: ModelProto, quantized: ModelProto, layer: str) -> ModelProto:
    """The float model with one layer as it is in the quantized model.

    Args:
        prepared: The float model, prepared; it is left as it was.
        quantized: A QDQ model made from it.
        layer: One of `quantized_layers`.

    Raises:
        CalibrationError: It is none of them.
    """
    _check([layer], quantized_layers(prepared, quantized))
    return _Splice(prepared, quantized).alone(layer)


def rank_layers(
    prepared: ModelProto,
    quantized: ModelProto,
    open_session: OpenSession,
    batches: Batches,
    *,
    layers: Sequence[str] | None = None,
    output: str | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[LayerDamage, ...]:
    """Rank layers by the damage each does when quantized alone.

    One session is open at a time. Memory grows with the images only by their logits.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it, as `insert_qdq` gives it.
        open_session: Opens the models, on the engine whose arithmetic is asked about. It must be done with
            the model when it returns: the next layer's is written over it.
        batches: The images; called once per layer and once for the float model.
        layers: Which to rank; None for all that are quantized.
        output: Which output leads to the class scores, when there are several.
        on_progress: Told (layers done, layers in all).

    Returns:
        The most damaging first; layers that do equal damage in the order of the graph.

    Raises:
        CalibrationError: No image, an unknown layer, other images in a later pass, or float logits that are
            zero on all images.
    """
    known = quantized_layers(prepared, quantized)
    wanted = known if layers is None else tuple(name for name in known if name in set(layers))
    _check(layers or (), known)
    logits = logits_of(prepared, output)
    splice = _Splice(prepared, quantized, logits)
    exact = _run(splice.model, open_session, batches, logits)
    if not exact:
        raise CalibrationError("there is no image to rank layers on: give at least one, better 100 or more")
    signal = _energies(exact)
    if not signal.sum() > 0:
        raise CalibrationError(
            f"{logits!r} is zero on all {len(signal)} images: there is nothing to compare with"
        )
    best = np.concatenate([top_k(values, 1)[:, 0] for values in exact.values()])
    found = []
    for done, layer in enumerate(wanted, start=1):
        other = _run(splice.alone(layer), open_session, batches, logits)
        if {number: len(values) for number, values in other.items()} != {n: len(v) for n, v in exact.items()}:
            raise CalibrationError("a later pass gave other images than the first: rank the layers again")
        noise = _energies({number: other[number] - exact[number] for number in exact})
        same = np.concatenate([top_k(other[number], 1)[:, 0] for number in exact])
        found.append(_damage(layer, splice.op(layer), signal, noise, agreement(best, same)))
        if on_progress:
            on_progress(done, len(wanted))
    return tuple(sorted(found, key=lambda item: -item.damage))  # a stable sort


def damage_rows(ranking: Sequence[LayerDamage]) -> list[dict[str, Any]]:
    """One flat row per layer, in the order given, for tables and JSON."""
    return [
        {
            "layer": item.layer,
            "op": item.op,
            "damage": item.damage,
            "standard_error": item.standard_error,
            "sqnr_db": item.sqnr_db,
            "agreement": item.agreement,
            "images": item.images,
        }
        for item in ranking
    ]


def _check(layers: Sequence[str], known: Sequence[str]) -> None:
    for layer in layers:
        if layer not in known:
            raise CalibrationError(f"no quantized layer is named {layer!r}{nearest(layer, known)}")


def _damage(
    layer: str, op: str, signal: npt.NDArray[np.float64], noise: npt.NDArray[np.float64], same: float
) -> LayerDamage:
    """A ratio of two sums over images, and its standard error.

    Source: W. G. Cochran, Sampling Techniques, 3rd ed. (1977), section 6.4: the variance of a ratio of means
    from the residuals noise - ratio * signal.
    """
    images = len(signal)
    ratio = float(noise.sum() / signal.sum())
    residuals = noise - ratio * signal
    error = None
    if images > 1:
        error = float(np.sqrt(np.square(residuals).sum() * images / (images - 1)) / signal.sum())
    return LayerDamage(layer, op, ratio, error, same, images, tuple((noise / signal.mean()).tolist()))


Logits = Mapping[int, npt.NDArray[np.float32]]


def _run(model: ModelProto, open_session: OpenSession, batches: Batches, logits: str) -> Logits:
    """The logits of all images, ``[images, classes]`` by number of the batch, in that order."""
    found: dict[int, npt.NDArray[np.float32]] = {}

    def keep(slot: int, batch: CalibrationBatch, number: int, values: Mapping[str, npt.NDArray[Any]]) -> None:
        rows = real_rows(values[logits], logits, batch, number)
        found[number] = rows.reshape(batch.count, -1).copy()  # the slot's next batch overwrites it

    with open_session(model) as session:
        run_pass(session, batches, keep, StageTimes())
    return dict(sorted(found.items()))


def _energies(values: Logits) -> npt.NDArray[np.float64]:
    """The sum of squares of each image: ``[images] float64``."""
    return np.concatenate([np.square(each, dtype=np.float64).sum(axis=1) for each in values.values()])


class _Splice:
    """One copy of the float model, in which one layer at a time is replaced by its quantized form.

    Weights are not copied again for every layer: of half a gigabyte, that alone would take a second.
    """

    def __init__(self, prepared: ModelProto, quantized: ModelProto, logits: str | None = None) -> None:
        self.model = ModelProto()
        self.model.CopyFrom(prepared)
        graph = self.model.graph
        if logits is not None and logits not in {item.name for item in graph.output}:
            known = infer_facts(prepared, "the model").get(logits)
            shape = known.shape if known else None
            graph.output.append(helper.make_tensor_value_info(logits, TensorProto.FLOAT, shape))
        self._nodes = [_copy(node) for node in graph.node]
        self._by_name = {node.name: node for node in self._nodes}
        self._stored = len(graph.initializer)
        names = {name for node in self._nodes for name in (*node.input, *node.output, node.name)}
        self._names = names | {item.name for item in (*graph.input, *graph.output, *graph.initializer)}
        self._reader = QdqReader(prepared, quantized)

    def op(self, layer: str) -> str:
        """The operator of ``layer``."""
        return str(self._by_name[layer].op_type)

    def alone(self, layer: str) -> ModelProto:
        """`model` with ``layer`` quantized: the same object each time."""
        graph = self.model.graph
        del graph.initializer[self._stored :]
        self._taken = set(self._names)
        nodes: list[NodeProto] = []
        settled = self._reader.settled(self._by_name[layer])
        pair = self._reader.pairs.get(settled)
        rounded = None
        for original in self._nodes:
            node = _copy(original)
            if node.name == layer:
                nodes += self._inputs(node)
            elif rounded is not None:
                _replace_inputs(node, settled, rounded)
            nodes.append(node)
            if pair is not None and pair.tensor in node.output:
                both = self._pair(pair.quantize, pair.dequantize, pair.tensor)
                nodes += both
                rounded = both[-1].output[0]
        del graph.node[:]
        graph.node.extend(nodes)
        return self.model

    def _inputs(self, node: NodeProto) -> Iterator[NodeProto]:
        """What dequantizes the inputs of a layer; ``node`` is made to read it."""
        quantized = self._reader.nodes[node.name]
        for position, name in enumerate(quantized.input):
            dequantize = self._reader.dequantizer(name)
            if dequantize is None:
                if name in self._reader.constants:  # a float bias, which may have been corrected
                    node.input[position] = self._store(name)
                continue
            quantize = self._reader.quantizer(dequantize)
            if quantize is None:
                both = [self._dequantize(dequantize, self._store(dequantize.input[0]))]
            else:
                both = self._pair(quantize, dequantize, node.input[position])
            yield from both
            node.input[position] = both[-1].output[0]

    def _pair(self, quantize: NodeProto, dequantize: NodeProto, source: str) -> list[NodeProto]:
        first = self._renamed(quantize)
        first.input[0] = source
        return [first, self._dequantize(dequantize, first.output[0])]

    def _dequantize(self, dequantize: NodeProto, source: str) -> NodeProto:
        node = self._renamed(dequantize)
        node.input[0] = source
        return node

    def _renamed(self, original: NodeProto) -> NodeProto:
        """A copy with an own name, own output, and own copies of scale and zero point."""
        node = _copy(original)
        node.name = unused_name(f"{original.name}/alone", self._taken)
        node.output[0] = unused_name(f"{original.output[0]}/alone", self._taken)
        for position, name in enumerate(original.input):
            if position and name:
                node.input[position] = self._store(name)
        return node

    def _store(self, name: str) -> str:
        stored = self.model.graph.initializer.add()
        stored.CopyFrom(self._reader.constants[name])
        stored.name = unused_name(f"{name}/alone", self._taken)
        return str(stored.name)


def _copy(node: NodeProto) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    return copy


def _replace_inputs(node: NodeProto, old: str, new: str) -> None:
    for position, name in enumerate(node.input):
        if name == old:
            node.input[position] = new
