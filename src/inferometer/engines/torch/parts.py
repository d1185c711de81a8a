"""Batches whose tensors are too large for 32-bit offsets, in equal parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from onnx import ModelProto

from inferometer.contracts import TensorInfo
from inferometer.engines.torch.graph import Program, build_program
from inferometer.errors import ModelError, Unsupported
from inferometer.models.rebatch import set_batch

__all__ = ["LARGEST_TENSOR", "Parts", "in_equal_parts"]

LARGEST_TENSOR = 2**31 - 1
"""Elements up to which kernels count in 32 bits.

Source: PyTorch, aten/src/ATen/native/cudnn/Conv_v7.cpp, ``split_batch_dim_to_32bit_out``."""


@dataclass(frozen=True)
class Parts:
    """How a call goes over its batch.

    Attributes:
        count: Parts, one after another.
        program: Of one part.
        split: Which inputs are cut along their leading axis; the others go to each part whole.
    """

    count: int
    program: Program
    split: tuple[bool, ...]

    def first(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs of the first part."""
        return [
            tensor.narrow(0, 0, tensor.shape[0] // self.count) if cut else tensor
            for tensor, cut in zip(inputs, self.split, strict=True)
        ]


def in_equal_parts(model: ModelProto, whole: Program, batch: int, compute: torch.dtype, path: Path) -> Parts:
    """The fewest equal parts of which no tensor passes `LARGEST_TENSOR`; one where the batch does not.

    Args:
        model: With its batch.
        whole: Its program.
        batch: Of the call.
        compute: The type that it is computed in.
        path: For messages.

    Raises:
        Unsupported: The batch cannot be cut, as an image depends on others of its batch for example.
    """
    if whole.largest <= LARGEST_TENSOR:
        return Parts(1, whole, (False,) * len(whole.inputs))
    cause = f"{path}: at batch {batch} a tensor has {whole.largest} elements, more than {LARGEST_TENSOR}"
    for count in range(2, batch + 1):
        if batch % count or whole.largest > LARGEST_TENSOR * count:
            continue
        try:
            part = build_program(set_batch(model, batch // count), compute, path)
        except ModelError as error:
            raise Unsupported(f"{cause}, and its batch cannot be cut: {error}") from error
        if part.largest > LARGEST_TENSOR:
            continue
        split = tuple(_cut(a, b, count, cause) for a, b in zip(whole.inputs, part.inputs, strict=True))
        if not all(_cut(a, b, count, cause) for a, b in zip(whole.outputs, part.outputs, strict=True)):
            raise Unsupported(f"{cause}, and an output of it is not one row an image")
        return Parts(count, part, split)
    raise Unsupported(f"{cause}; give a smaller batch")


def _cut(whole: TensorInfo, part: TensorInfo, count: int, cause: str) -> bool:
    """Whether a tensor has the batch in front; False if it does not depend on it."""
    if whole.shape == part.shape:
        return False
    rows = None if not part.shape or part.shape[0] is None else part.shape[0] * count
    if not whole.shape or whole.shape != (rows, *part.shape[1:]):
        raise Unsupported(f"{cause}, and {whole.name!r} has its batch elsewhere than in front")
    return True
