"""Whether a file of weights fits a network, and if not, what exactly is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferometer.errors import ModelError
from inferometer.models.networks.catalogue import names
from inferometer.models.networks.likeness import check_nodes
from inferometer.models.networks.naming import Naming, namings
from inferometer.models.stored import FLOATS, Stored, WeightFile

__all__ = ["Fit", "fit"]

_NAMED = 5  # names of each fault; the rest is counted


@dataclass(frozen=True)
class Fit:
    """How a file fits a network.

    Attributes:
        naming: The names in the file.
        classes: Rows of its last layer.
        notes: What is done with it that a user should know, in words.
    """

    naming: Naming
    classes: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Faults:
    missing: list[str]
    surplus: list[str]
    shapes: list[str]
    types: list[str]

    def any(self) -> bool:
        return bool(self.missing or self.surplus or self.shapes or self.types)

    def __str__(self) -> str:
        parts = {
            "missing": self.missing,
            "surplus": self.surplus,
            "of another shape": self.shapes,
            "of a type that no weights have": self.types,
        }
        return "; ".join(f"{len(found)} {what} ({_some(found)})" for what, found in parts.items() if found)


def fit(name: str, file: WeightFile) -> Fit:
    """Match a file's tensors, by name and shape, to a network's; no value is read.

    Only the last layer may differ, in its number of classes: a network that was trained further on classes
    of its own.

    Raises:
        ModelError: It does not fit; the message names up to five tensors of each fault.
        ConfigError: No network has that name.
    """
    naming = _closest(namings(name), file.tensors)
    classes = _classes(naming, file.tensors)
    faults = _faults(naming, file.tensors, classes)
    if faults.any():
        hint = _what_it_is(file.tensors) or _whose_it_is(name, file.tensors)
        raise ModelError(
            f"{file.path}: does not fit {name} (with {naming.title} names): {faults}{hint}; wanted names and "
            f"shapes: inferometer models show {name} --tensors"
        )
    if file.nodes:
        check_nodes(name, naming, file)
    return Fit(naming, classes, (*file.notes, *_notes(naming, file.tensors, classes)))


def _closest(found: Sequence[Naming], tensors: Mapping[str, Stored]) -> Naming:
    """The naming of which the file holds the largest part, the first of several."""
    return max(found, key=lambda naming: len(naming.shapes.keys() & tensors.keys()) / len(naming.shapes))


def _classes(naming: Naming, tensors: Mapping[str, Stored]) -> int:
    """Rows of the last layer in the file, or of the network if that layer is not there or no such layer."""
    weight = naming.origins[naming.head].weight
    wanted = naming.shapes[weight]
    found = tensors[weight].shape if weight in tensors else wanted
    return found[0] if len(found) == 2 and found[0] > 0 and found[1] == wanted[1] else wanted[0]


def _faults(naming: Naming, tensors: Mapping[str, Stored], classes: int) -> _Faults:
    head = set(naming.origins[naming.head].names())
    wanted = {name: (classes, *shape[1:]) if name in head else shape for name, shape in naming.shapes.items()}
    both = [name for name in wanted if name in tensors]
    return _Faults(
        missing=[name for name in wanted if name not in tensors],
        surplus=[name for name in tensors if name not in wanted and not naming.without_need(name)],
        shapes=[
            f"{name}: wants {list(wanted[name])}, found {list(tensors[name].shape)}"
            for name in both
            if wanted[name] != tensors[name].shape
        ],
        types=[f"{name}: {tensors[name].dtype}" for name in both if tensors[name].dtype not in FLOATS],
    )


def _what_it_is(tensors: Mapping[str, Stored]) -> str:
    """What a file of other architectures holds that go by the same names; nothing if it cannot be told."""
    first = tensors.get("features.0.weight")
    if first is not None and first.shape == (64, 3, 11, 11):
        return (
            "; these are torchvision's weights of alexnet, which is another network (64 filters in conv1, no "
            "LRN, no groups): export it from PyTorch to an ONNX file"
        )
    if "inception3a.branch1.conv.weight" in tensors:
        return (
            "; these are torchvision's weights of googlenet, which is another network (with BatchNorm, and "
            "3x3 in place of 5x5): export it from PyTorch to an ONNX file"
        )
    if "features.1.running_mean" in tensors:
        return (
            "; these are weights of a VGG with BatchNorm (vgg16_bn and the like), which is another network: "
            "export it from PyTorch to an ONNX file"
        )
    return ""


def _whose_it_is(name: str, tensors: Mapping[str, Stored]) -> str:
    """Which of the other networks the file fits."""
    for other in names():
        for naming in namings(other) if other != name else ():
            if not _faults(naming, tensors, _classes(naming, tensors)).any():
                return f"; it fits {other}"
    return ""


def _notes(naming: Naming, tensors: Mapping[str, Stored], classes: int) -> list[str]:
    notes = []
    kinds = sorted({tensors[name].dtype for name in naming.shapes} - {"float32"})
    if kinds:
        notes.append(f"converted {' and '.join(kinds)} to float32")
    if any(origin.norm for origin in naming.origins.values()):
        notes.append("folded BatchNorm into the convolutions")
    if any(naming.is_auxiliary(name) for name in tensors):
        notes.append("left out the heads that only training uses")
    usual = naming.shapes[naming.origins[naming.head].weight][0]
    if classes != usual:
        notes.append(f"has {classes} classes, not {usual}")
    return notes


def _some(found: Sequence[str]) -> str:
    more = f", and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
