"""How many images a calibration's forward passes take at once, so that they fit into a memory budget."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from onnx import ModelProto

from inferometer.models.shapes import infer_facts, with_batch_of_one

__all__ = ["ForwardPlan", "image_bytes", "plan_forward"]

LARGEST_BATCH = 4
"""Larger ones are no faster: a layer's values leave the cache before the statistics see them."""

# What an engine holds besides the observed tensors while one image runs, in units of the largest tensor: a
# layer's input and output in its own order of channels, and one on the way from there.
_WORKING_TENSORS = 3


@dataclass(frozen=True)
class ForwardPlan:
    """``in_flight`` requests of ``batch`` images each."""

    batch: int
    in_flight: int


def plan_forward(model: ModelProto, tensors: Collection[str], budget_bytes: int, cores: int) -> ForwardPlan:
    """Choose batch and requests; if not even one image fits, one it is.

    One request per core is fastest: no core waits for another inside a layer. Then the batch grows.

    Args:
        model: A prepared model.
        tensors: Those that are observed.
        budget_bytes: For the activations of all requests.
        cores: That may be used.
    """
    each = image_bytes(model, tensors)
    in_flight = max(1, min(cores, budget_bytes // each))
    return ForwardPlan(max(1, min(LARGEST_BATCH, budget_bytes // (in_flight * each))), in_flight)


def image_bytes(model: ModelProto, tensors: Collection[str]) -> int:
    """About how many bytes of activations one image takes with ``tensors`` exposed; at least 1."""
    facts = infer_facts(with_batch_of_one(model), "the model")
    made = [name for node in model.graph.node for name in node.output]
    sizes = {name: facts[name].size_bytes or 0 for name in made if name in facts}
    observed = sum(sizes.get(name, 0) for name in tensors)
    return max(1, observed + _WORKING_TENSORS * max(sizes.values(), default=0))
