"""The module that runs a program's steps on one device in one type of floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from inferometer.contracts import TensorInfo
from inferometer.engines.torch.graph import Program, Step
from inferometer.errors import Unsupported

__all__ = ["Network", "torch_dtype"]

_LARGEST = {torch.float16: 65504.0}  # Source: IEEE 754-2019, binary16


def torch_dtype(name: str) -> torch.dtype:
    """PyTorch's type of NumPy's name, which are spelt alike."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


class _Runner(torch.nn.Module):
    """One step with its stored tensors. ``places`` are those of the others among the network's values."""

    def __init__(self, step: Step, places: dict[str, int], tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.step = step
        self.function = step.operation.function
        self.sources: list[int | str] = []
        for position, name in enumerate(step.inputs):
            if name in tensors:
                self.register_buffer(f"stored{position}", tensors[name], persistent=False)
                self.sources.append(f"stored{position}")
            else:
                self.sources.append(places[name])
        self.targets = [places[name] if name else -1 for name in step.outputs]
        self.spent: list[int] = []

    def operands(self, values: list[Any]) -> list[Any]:
        """What the step's function takes."""
        return [
            values[source] if isinstance(source, int) else getattr(self, source) for source in self.sources
        ]

    def forward(self, values: list[Any]) -> None:
        """Take what the step needs from ``values`` and put there what it gives."""
        result = self.function(*self.operands(values))
        for place in self.spent:
            values[place] = None
        if isinstance(result, tuple | list):
            for place, tensor in zip(self.targets, result, strict=False):
                if place >= 0:
                    values[place] = tensor
        else:
            values[self.targets[0]] = result


class Network(torch.nn.Module):
    """All steps in order.

    Takes the inputs as the file has them and gives the outputs likewise: conversion to the type that is
    computed in, and to channels-last memory, are part of the call.

    Attributes:
        program: What it runs.
        compute: The type of the floats in between.
    """

    def __init__(self, program: Program, compute: torch.dtype, device: torch.device) -> None:
        """Place the program's tensors on ``device``.

        Raises:
            Unsupported: A weight is beyond what ``compute`` can hold.
        """
        super().__init__()
        self.program, self.compute = program, compute
        used = {name for step in program.steps for part in (step, *step.fallback) for name in part.inputs}
        used |= {tensor.name for tensor in program.outputs}
        made = {name for step in program.steps for part in (step, *step.fallback) for name in part.outputs}
        names = [tensor.name for tensor in program.inputs]
        names += [name for name in made if name]
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        self._tensors = {
            name: _placed(name, tensor, compute, device, name in program.keep_float32)
            for name, tensor in program.stored.items()
            if name in used and name not in places
        }
        self._places, self._count = places, len(places)
        self.runners = torch.nn.ModuleList(_Runner(step, places, self._tensors) for step in program.steps)
        self.entries = [
            (self._compute_type(tensor), len(tensor.shape) == 4 and tensor.dtype.startswith("float"))
            for tensor in program.inputs
        ]
        self.exits: list[tuple[int | str, torch.dtype]] = []
        for position, tensor in enumerate(program.outputs):
            source: int | str = places.get(tensor.name, -1)
            if source == -1:
                source = f"output{position}"
                self.register_buffer(source, self._tensors[tensor.name], persistent=False)
            self.exits.append((source, torch_dtype(tensor.dtype)))
        self._forget_spent()

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The outputs, in the program's order, each in the type and memory order that the file has it in."""
        values = self.enter(*inputs)
        for runner in self.runners:
            runner(values)
        return self.leave(values)

    def enter(self, *inputs: torch.Tensor) -> list[Any]:
        """The list of values that the steps work on, with the inputs converted."""
        values: list[Any] = [None] * self._count
        for place, (tensor, (dtype, image)) in enumerate(zip(inputs, self.entries, strict=True)):
            if image:
                values[place] = tensor.to(dtype=dtype, memory_format=torch.channels_last)
            else:
                values[place] = tensor.to(dtype=dtype)
        return values

    def leave(self, values: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """The outputs out of the list of values."""
        return tuple(
            (values[source] if isinstance(source, int) else getattr(self, source)).to(dtype).contiguous()
            for source, dtype in self.exits
        )

    def steps(self) -> Iterator[_Runner]:
        """The runners of all steps in order; each takes the list of values."""
        for runner in self.runners:
            assert isinstance(runner, _Runner)
            yield runner

    def runner(self, step: Step) -> _Runner:
        """A runner of a further step on the same values, such as a fallback."""
        return _Runner(step, self._places, self._tensors)

    def place(self, name: str) -> int:
        """Where among the values a tensor stands."""
        return self._places[name]

    def _compute_type(self, tensor: TensorInfo) -> torch.dtype:
        return self.compute if tensor.dtype.startswith("float") else torch_dtype(tensor.dtype)

    def _forget_spent(self) -> None:
        """Let each step drop the values that no later one reads."""
        needed = {source for source, _ in self.exits if isinstance(source, int)}
        for runner in reversed(list(self.steps())):
            read = {source for source in runner.sources if isinstance(source, int)}
            runner.spent = sorted(read - needed)
            needed |= read


def _placed(
    name: str, tensor: torch.Tensor, compute: torch.dtype, device: torch.device, keep: bool
) -> torch.Tensor:
    """A stored tensor on its device; images' weights channels-last.

    Raises:
        Unsupported: It becomes infinite in the type that is computed in.
    """
    if not tensor.is_floating_point():
        return tensor.to(device)
    limit = _LARGEST.get(compute)
    if limit is not None and not keep and tensor.numel():
        largest = float(torch.where(tensor.isfinite(), tensor, 0).abs().max())
        if largest > limit:
            raise Unsupported(f"weight {name!r} holds {largest:g}, which fp16 cannot")
    placed = tensor.to(device=device, dtype=torch.float32 if keep else compute)
    return placed.contiguous(memory_format=torch.channels_last) if placed.dim() == 4 else placed
