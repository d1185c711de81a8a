"""The layers of a trial as its sidecar tells them, and which layers of two trials are the same one.

A runtime names its layers anew when it fuses them, and differently at each precision. Two are taken for the
same where their names agree but for what runtimes add, and their multiply-accumulates (MACs); what is left
is paired by operator, MACs and order. What cannot be paired so stays apart: nothing is guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from inferometer.errors import StoreError

__all__ = ["Layer", "PairedLayers", "base_name", "family", "layers_of", "paired"]

Role = Literal["compute", "reorder", "quantize"]

# What runtimes append when they rewrite a node: ONNX Runtime's blocked channels (NchwcTransformer) and fused
# QDQ groups ("token"), OpenVINO's split of bias and scale from a convolution.
_SUFFIX = re.compile(r"(_nchwc|_token_\d+|_quant|/WithoutBiases|/DequantizationMultiply)$")
# What a layer may take; sums and ratios of such times are finite. Source: chosen, far beyond any clock.
_LEAST_S, _MOST_S = 1e-12, 1e9
_CONVOLUTION = re.compile(r"conv(?!ert)")
_PRODUCT = re.compile(r"gemm|matmul|fullyconnected|innerproduct|addmm|(?<!quantize)linear$")


@dataclass(frozen=True)
class Layer:
    """One layer of a profile.

    Attributes:
        name: The runtime's.
        op: The runtime's word for its operator.
        seconds: In one call.
        role: What it is for; None in a sidecar that was written before roles were.
        macs: Multiply-accumulates of one call; None when not known.
        precision: Of its arithmetic; None when not known.
        read_as: The runtime's name for it where its MACs and precision were read back; None when not.
        by_order: Whether that was found by the order of layers rather than by the name.
    """

    name: str
    op: str
    seconds: float
    role: Role | None
    macs: int | None
    precision: str | None
    read_as: str | None = None
    by_order: bool = False

    @property
    def key(self) -> str:
        """What the layer is called but for what runtimes add."""
        return base_name(self.read_as or self.name)

    @property
    def multiplies(self) -> bool:
        """Whether it is known to have MACs."""
        return bool(self.macs)


@dataclass(frozen=True)
class PairedLayers:
    """The same layer at two precisions; ``by`` says how they were found to be.

    ``order``: by their order among the layers that multiply, or among those of one operator with as many
    MACs: the sums are sure, each pair is likely.
    """

    base: Layer
    own: Layer
    by: Literal["name", "order"]


@dataclass(frozen=True)
class _Ran:
    name: str
    op: str
    precision: str
    macs: int | None


def layers_of(content: Any, where: str) -> tuple[Layer, ...] | None:
    """The profile in a sidecar, each layer with the MACs and the precision that were read back for it.

    Args:
        content: The sidecar's JSON.
        where: Which one it is, for messages.

    Returns:
        The layers in the order of execution; None when the trial took no profile, or its engine has none.

    Raises:
        StoreError: It is not of the form that trials write.
    """
    try:
        profile = content["profile"]
        if not profile:
            return None
        timed = [_timed(one) for one in profile]
        ran = [_read_back(one) for one in content["executed"]]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise StoreError(f"{where}: no layers of a trial: {type(error).__name__}: {error}") from error
    return _joined(timed, ran)


def base_name(name: str) -> str:
    """A layer's name without what runtimes append to it."""
    while (short := _SUFFIX.sub("", name)) not in (name, ""):
        name = short
    return name


def family(op: str) -> str:
    """``convolution``, ``product`` of matrices, or the operator itself."""
    small = op.lower()
    if _CONVOLUTION.search(small):
        return "convolution"
    return "product" if _PRODUCT.search(small) else op


def paired(base: Sequence[Layer], own: Sequence[Layer]) -> tuple[PairedLayers, ...]:
    """The layers that are the same in two profiles, in the order of ``own``.

    Layers that reorder or quantize belong to one profile, and are never paired.
    """
    left = [layer for layer in base if layer.role in (None, "compute")]
    right = [layer for layer in own if layer.role in (None, "compute")]
    found = {
        id(one): PairedLayers(other, one, "order" if other.by_order or one.by_order else "name")
        for other, one in _unique_pairs(left, right, lambda layer: layer.key)
        if _alike(other, one)
    }
    taken = {id(pair.base) for pair in found.values()}
    groups = [
        _grouped([layer for layer in side if layer.multiplies and id(layer) not in used])
        for side, used in ((left, taken), (right, set(found)))
    ]
    for kind, members in groups[1].items():
        others = groups[0].get(kind, [])
        if len(others) == len(members):
            for other, one in zip(others, members, strict=True):
                found[id(one)] = PairedLayers(other, one, "order")
    return tuple(found[id(layer)] for layer in own if id(layer) in found)


def _timed(one: Mapping[str, Any]) -> Layer:
    role = one.get("role")
    if role not in (None, "compute", "reorder", "quantize"):
        raise ValueError(f"unknown role {role!r}")
    seconds = float(one["seconds"])
    if seconds != 0 and not _LEAST_S <= seconds <= _MOST_S:
        raise ValueError(f"{seconds} seconds")
    return Layer(str(one["name"]), str(one["op"]), seconds, role, None, None)


def _read_back(one: Mapping[str, Any]) -> _Ran:
    macs = None if one["macs"] is None else int(one["macs"])
    if macs is not None and macs < 0:
        raise ValueError(f"{macs} multiply-accumulates")
    return _Ran(str(one["name"]), str(one["op"]), str(one["precision"]), macs)


def _joined(timed: Sequence[Layer], ran: Sequence[_Ran]) -> tuple[Layer, ...]:
    """Give each timed layer what is known of it.

    Both lists are of one model, but a runtime may call its layers differently in them. A timed layer for
    which nothing was read back has no MACs if all MACs that were read back are those of other timed layers.
    """
    of: dict[int, _Ran] = {}
    by_both = {(one.name, one.op): one for one in ran}
    for place, layer in enumerate(timed):
        if (layer.name, layer.op) in by_both:
            of[place] = by_both[layer.name, layer.op]
    places = {id(layer): place for place, layer in enumerate(timed)}
    known = {id(one) for one in of.values()}
    open_layers = [layer for place, layer in enumerate(timed) if place not in of]
    open_ran = [one for one in ran if id(one) not in known]
    for layer, one in _unique_pairs(open_layers, open_ran, lambda item: base_name(item.name)):
        of[places[id(layer)]] = one
    of |= _by_place(timed, ran, of)
    mapped = {id(one) for one in of.values()}
    all_told = bool(ran) and all(one.macs is not None for one in ran)
    complete = all_told and all(id(one) in mapped for one in ran if one.macs)

    def told(place: int, layer: Layer) -> Layer:
        if place in of:
            one = of[place]
            named = base_name(one.name) == base_name(layer.name)
            return replace(
                layer, macs=one.macs, precision=one.precision, read_as=one.name, by_order=not named
            )
        return replace(layer, macs=0 if complete else None)

    return tuple(told(place, layer) for place, layer in enumerate(timed))


def _by_place(timed: Sequence[Layer], ran: Sequence[_Ran], of: Mapping[int, _Ran]) -> dict[int, _Ran]:
    """The layers that multiply, one by one in order, where nothing speaks against it.

    There must be as many of them in both lists, of the same families, and those that agree by name must
    stand at the same place.
    """
    multiplying = [one for one in ran if one.macs]
    candidates = [
        place
        for place, layer in enumerate(timed)
        if layer.role in (None, "compute") and family(layer.op) in ("convolution", "product")
    ]
    if len(multiplying) != len(candidates):
        return {}
    pairs = list(zip(candidates, multiplying, strict=True))
    if any(place in of and of[place] is not one for place, one in pairs):
        return {}
    if any(family(timed[place].op) != family(one.op) for place, one in pairs):
        return {}
    return dict(pairs)


def _unique_pairs(left: Sequence[Any], right: Sequence[Any], key: Callable[[Any], str]) -> list[Any]:
    """Pairs of items whose key is the same and stands once on either side."""
    sides: list[dict[str, list[Any]]] = [defaultdict(list), defaultdict(list)]
    for side, items in zip(sides, (left, right), strict=True):
        for item in items:
            side[key(item)].append(item)
    first, second = sides
    return [
        (first[name][0], items[0])
        for name, items in second.items()
        if len(items) == 1 and len(first.get(name, [])) == 1
    ]


def _alike(base: Layer, own: Layer) -> bool:
    """Whether nothing that is known speaks against two layers of one name being the same."""
    if base.macs is not None and own.macs is not None:
        return base.macs == own.macs
    return family(base.op) == family(own.op)


def _grouped(layers: Sequence[Layer]) -> dict[Hashable, list[Layer]]:
    found: dict[Hashable, list[Layer]] = defaultdict(list)
    for layer in layers:
        found[family(layer.op), layer.macs].append(layer)
    return found
