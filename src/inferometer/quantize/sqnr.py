"""Where an INT8 loss arises: signal against quantization noise behind every layer.

Two errors are told apart. The *accumulated* one is what a layer's result really carries in the quantized
model, where everything before is quantized too. The *own* one is what the layer adds: its inputs are the
float model's, rounded to integers, and only its weights, its arithmetic and its result are quantized.
Neither says how much the logits suffer: for that see ``sensitivity``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from inferometer.contracts import Session
from inferometer.errors import CalibrationError
from inferometer.models.shapes import TensorFacts, infer_facts
from inferometer.quantize.graph import expose
from inferometer.quantize.passes import Batches, CalibrationBatch, real_rows
from inferometer.quantize.qdq import OpenSession, Pair, QdqReader, logits_of

__all__ = ["LayerSqnr", "Sqnr", "SqnrReport", "layer_sqnr", "numbered_batches", "sqnr_rows"]

_PIECE = 65536  # values at a time: their copies in float64 stay in the cache

_EXACT, _OWN = "/exact", "/own"


@dataclass(frozen=True)
class Sqnr:
    """Energies (sums of squares over all values of all images) of one tensor.

    Attributes:
        signal: Of the float model's values.
        noise: Of the differences from them.
    """

    signal: float
    noise: float

    @property
    def db(self) -> float | None:
        """10 log10(signal / noise), decibels.

        None when the ratio is no number: with ``noise`` 0 the tensors are equal, with ``signal`` 0 the float
        model's was zero throughout.
        """
        return 10 * math.log10(self.signal / self.noise) if self.signal > 0 and self.noise > 0 else None


@dataclass(frozen=True)
class LayerSqnr:
    """The noise behind one layer and the activation fused with it.

    Attributes:
        layer: Name of the node in the prepared model.
        op: Its operator.
        tensor: The compared tensor's name in the prepared model.
        accumulated: With all that comes before quantized as well.
        own: With exact inputs; None when it was not asked for.
    """

    layer: str
    op: str
    tensor: str
    accumulated: Sqnr
    own: Sqnr | None


@dataclass(frozen=True)
class SqnrReport:
    """Noise of a quantized model against its float model.

    Attributes:
        layers: In graph order.
        logits: Of the class scores, before a final Softmax.
        images: How many were seen.
        unmatched: Layers whose result the QDQ model does not name.
    """

    layers: tuple[LayerSqnr, ...]
    logits: Sqnr
    images: int
    unmatched: tuple[str, ...]


def layer_sqnr(
    prepared: ModelProto,
    quantized: ModelProto,
    open_session: OpenSession,
    batches: Batches,
    *,
    output: str | None = None,
    own: bool = True,
    on_progress: Callable[[int], None] | None = None,
) -> SqnrReport:
    """Compare every layer's result in the quantized model with the float model's.

    Tensors are matched by name; where the QDQ model quantizes one, the dequantized values are compared, so
    that integer kernels run. Two sessions are open at a time, three with ``own``; memory does not grow
    with the images.

    Args:
        prepared: The float model, prepared.
        quantized: A QDQ model made from it, by Inferometer or another quantizer.
        open_session: Opens both, on the engine whose arithmetic is asked about.
        batches: The images; called once.
        output: Which output leads to the class scores, when there are several.
        own: Whether each layer's own error is measured too.
        on_progress: Told how many images are done.

    Raises:
        CalibrationError: No image, no tensor in common, values that are not finite, or shapes that differ.
    """
    plan = _Plan(prepared, quantized, logits_of(prepared, output))
    with contextlib.ExitStack() as stack:
        exact = stack.enter_context(open_session(expose(prepared, plan.exact_tensors(own))))
        other = stack.enter_context(open_session(expose(quantized, plan.counterparts.values())))
        alone = stack.enter_context(open_session(plan.cut())) if own else None
        sums, images = _Sums(plan), 0
        for number, batch in numbered_batches(batches):
            sums.add(number, batch, exact, other, alone)
            images += batch.count
            if on_progress:
                on_progress(images)
    if images < 1:
        raise CalibrationError("there is no image to compare on: give at least one")
    return SqnrReport(
        layers=tuple(
            LayerSqnr(
                layer,
                plan.ops[layer],
                tensor,
                Sqnr(*sums.accumulated[tensor]),
                Sqnr(*sums.own[tensor]) if own else None,
            )
            for layer, tensor in plan.layers.items()
        ),
        logits=Sqnr(*sums.accumulated[plan.logits]),
        images=images,
        unmatched=plan.unmatched,
    )


def sqnr_rows(report: SqnrReport) -> list[dict[str, Any]]:
    """One flat row per layer, for tables and JSON; decibels are None where they are no number."""
    return [
        {
            "layer": item.layer,
            "op": item.op,
            "tensor": item.tensor,
            "sqnr_db": item.accumulated.db,
            "own_sqnr_db": None if item.own is None else item.own.db,
        }
        for item in report.layers
    ]


class _Plan:
    """Which tensors are compared, and the quantized model cut into single layers.

    Attributes:
        logits: The tensor of class scores.
        layers: By layer, the compared tensor of the float model.
        ops: By layer, its operator.
        unmatched: Layers without a counterpart.
        counterparts: By compared tensor, that of the QDQ model.
        own_outputs: By compared tensor, that of the cut model.
    """

    def __init__(self, prepared: ModelProto, quantized: ModelProto, logits: str) -> None:
        self._prepared = prepared
        self._inputs = {item.name for item in prepared.graph.input}
        self._reader = reader = QdqReader(prepared, quantized)
        nodes = {node.name: node for node in reader.layers()}
        settled = {layer: reader.settled(node) for layer, node in nodes.items()}
        places = {layer: reader.counterpart(settled[layer], node.output[0]) for layer, node in nodes.items()}
        self.logits = logits
        self.layers = {layer: settled[layer] for layer, place in places.items() if place is not None}
        self.ops = {layer: str(node.op_type) for layer, node in nodes.items()}
        self.unmatched = tuple(layer for layer, place in places.items() if place is None)
        self.counterparts = {settled[layer]: place for layer, place in places.items() if place is not None}
        place = reader.counterpart(logits)
        if place is None or not self.layers:
            missing = logits if place is None else next(iter(settled.values()), logits)
            raise CalibrationError(
                f"the QDQ model has no tensor {missing!r}: it was made from another model, or its quantizer "
                f"renames tensors"
            )
        self.counterparts[logits] = place
        self._cuts = tuple(pair for name, pair in reader.pairs.items() if name not in self._inputs)
        behind = {pair.output: pair.tensor + _OWN for pair in self._cuts}
        self.own_outputs = {
            tensor: behind.get(self.counterparts[tensor], self.counterparts[tensor])
            for tensor in self.layers.values()
        }

    def exact_tensors(self, own: bool) -> list[str]:
        """What the float model must give: the compared tensors, for ``own`` the cut ones too."""
        wanted = dict.fromkeys(self.counterparts)
        if own:
            wanted.update(dict.fromkeys(pair.tensor for pair in self._cuts))
        return list(wanted)

    def exact_input(self, tensor: str) -> str:
        """The input of the cut model that takes the exact values of ``tensor``."""
        return tensor + _EXACT

    def cut(self) -> ModelProto:
        """The quantized model in pieces: whatever reads a quantized tensor reads its exact values, rounded.

        The exact values are inputs. Behind what a piece computes stands the same pair as before, so that its
        result is rounded as well and engines find the integer kernels they found in the whole model.
        """
        model = ModelProto()
        model.CopyFrom(self._reader.model)
        facts = infer_facts(self._prepared, "the model")
        cuts = {pair.source: pair for pair in self._cuts}
        for node in model.graph.node:
            for position, name in enumerate(node.input):
                if name in cuts:
                    node.input[position] = self.exact_input(cuts[name].tensor)
        for pair in cuts.values():
            model.graph.input.append(_info(self.exact_input(pair.tensor), facts.get(pair.tensor)))
            model.graph.node.extend(_behind(pair))
        del model.graph.output[:]
        model.graph.output.extend(_info(name, facts.get(tensor)) for tensor, name in self.own_outputs.items())
        return model


def _info(name: str, known: TensorFacts | None) -> ValueInfoProto:
    """An input or output ``name`` with the shape of the float model's tensor."""
    if known is None or known.shape is None:
        raise CalibrationError(
            f"the shape of {name!r} is not known, so exact values cannot be fed: leave the own errors out"
        )
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, known.shape)


def _behind(pair: Pair) -> tuple[NodeProto, NodeProto]:
    """The pair once more, behind what was computed."""
    quantize, dequantize = NodeProto(), NodeProto()
    quantize.CopyFrom(pair.quantize)
    dequantize.CopyFrom(pair.dequantize)
    quantize.name, dequantize.name = f"{quantize.name}{_OWN}", f"{dequantize.name}{_OWN}"
    quantize.output[0] = f"{pair.tensor}{_OWN}_quantized"
    dequantize.input[0] = quantize.output[0]
    dequantize.output[0] = pair.tensor + _OWN
    return quantize, dequantize


def numbered_batches(batches: Batches) -> Iterator[tuple[int, CalibrationBatch]]:
    """The batches of one pass with their numbers, one after the other; broken images leave gaps."""
    for number, item in enumerate(batches()):
        batch = item() if callable(item) else item
        if batch is not None:
            yield number, batch


class _Sums:
    """Energies of all tensors, over the batches so far."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self.accumulated = {tensor: [0.0, 0.0] for tensor in plan.counterparts}
        self.own = {tensor: [0.0, 0.0] for tensor in plan.own_outputs}

    def add(
        self, number: int, batch: CalibrationBatch, exact: Session, other: Session, alone: Session | None
    ) -> None:
        """Add a batch: run it through every session."""
        truth = exact.infer(batch.feeds)
        results = other.infer(batch.feeds)
        found = {tensor: results[place] for tensor, place in self._plan.counterparts.items()}
        _compare(self.accumulated, truth, found, batch, number)
        if alone is None:
            return
        values = {**batch.feeds, **{self._plan.exact_input(name): array for name, array in truth.items()}}
        results = alone.infer({item.name: values[item.name] for item in alone.inputs})
        found = {tensor: results[place] for tensor, place in self._plan.own_outputs.items()}
        _compare(self.own, truth, found, batch, number)


def _compare(
    sums: Mapping[str, list[float]],
    truth: Mapping[str, npt.NDArray[Any]],
    found: Mapping[str, npt.NDArray[Any]],
    batch: CalibrationBatch,
    number: int,
) -> None:
    for tensor, values in found.items():
        exact = real_rows(truth[tensor], tensor, batch, number)
        other = real_rows(values, tensor, batch, number)
        if exact.shape != other.shape:
            raise CalibrationError(
                f"tensor {tensor!r} has shape {list(exact.shape)} in the float model and "
                f"{list(other.shape)} in the QDQ model: it is not the same tensor"
            )
        signal, noise = _energies(exact, other)
        if not math.isfinite(signal + noise):
            raise CalibrationError(
                f"tensor {tensor!r} is NaN or infinite in batch {number}: check the preprocessing"
            )
        sums[tensor][0] += signal
        sums[tensor][1] += noise


def _energies(exact: npt.NDArray[Any], other: npt.NDArray[Any]) -> tuple[float, float]:
    """Sums of squares, in float64, of the exact values and of the differences from them."""
    signal = noise = 0.0
    # Not by BLAS, whose threads would wait for cores that the engine's spinning ones hold.
    exact, other = exact.reshape(-1), other.reshape(-1)
    for start in range(0, exact.size, _PIECE):
        piece = exact[start : start + _PIECE].astype(np.float64)
        signal += float(np.einsum("i,i", piece, piece))
        piece -= other[start : start + _PIECE]
        noise += float(np.einsum("i,i", piece, piece))
    return signal, noise
