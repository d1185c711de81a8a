"""Convolutions that add and clip in the same kernel, by cuDNN, where it has one and where that is faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from inferometer.engines.torch.graph import Program, Step
from inferometer.engines.torch.network import Network
from inferometer.engines.torch.node import ConvForm, Operation

__all__ = ["fused", "keeping_the_faster"]


def fused(program: Program) -> Program:
    """The program with each convolution and the Relu behind it, with or without an Add between, as one step.

    The steps that one stands for are its ``fallback``. Only where nothing else reads what is in between.
    """
    made = {name: step for step in program.steps for name in step.outputs if name}
    reads = Counter(name for step in program.steps for name in step.inputs)
    reads.update(tensor.name for tensor in program.outputs)
    gone: set[str] = set()
    merged: dict[str, Step] = {}
    for step in program.steps:
        if step.operation.activation != "relu":
            continue
        parts = _pattern(step, made, reads, gone)
        if parts is not None:
            merged[step.outputs[0]] = _one(parts, program)
            gone.update(part.outputs[0] for part in parts[:-1])
    steps = [merged.get(step.outputs[0], step) for step in program.steps if step.outputs[0] not in gone]
    return replace(program, steps=tuple(steps))


def _pattern(
    relu: Step, made: dict[str, Step], reads: Counter[str], gone: set[str]
) -> tuple[Step, ...] | None:
    """The convolution, the Add if there is one, and the Relu; None when they do not stand so."""
    before = made.get(relu.inputs[0])
    if before is None or reads[relu.inputs[0]] != 1:
        return None
    if _plain(before):
        return before, relu
    if before.op != "Add" or len(before.inputs) != 2 or before.inputs[0] == before.inputs[1]:
        return None
    sizes = [made[name].sizes[0] if name in made and name not in gone else 0 for name in before.inputs]
    for name in before.inputs:
        layer = made.get(name)
        if layer is not None and _plain(layer) and reads[name] == 1 and sizes == [before.sizes[0]] * 2:
            return layer, before, relu
    return None


def _plain(step: Step) -> bool:
    form = step.operation.conv
    return form is not None and form.groups == 1


def _one(parts: Sequence[Step], program: Program) -> Step:
    layer, relu = parts[0], parts[-1]
    form = layer.operation.conv
    assert form is not None
    other: tuple[str, ...] = ()
    if len(parts) == 3:
        other = tuple(name for name in parts[1].inputs if name != layer.outputs[0])
    operation = Operation(_function(form, bool(other), len(layer.inputs) == 3), fresh=True)
    return Step(
        layer.name, layer.op, operation, (*layer.inputs, *other), relu.outputs, layer.macs, relu.sizes,
        layer.dtype, tuple(parts),
    )  # fmt: skip


def _function(form: ConvForm, adds: bool, biased: bool) -> Callable[..., Any]:
    """cuDNN's ``relu(conv(x, w) + z + b)``."""
    where = form.stride, form.padding, form.dilation, form.groups

    def run(x: Tensor, w: Tensor, *rest: Tensor) -> Tensor:
        b = rest[0] if biased else None
        if adds:
            return torch.cudnn_convolution_add_relu(x, w, rest[-1], 1.0, b, *where)
        return torch.cudnn_convolution_relu(x, w, b, *where)

    return run


def keeping_the_faster(
    network: Network, inputs: Sequence[Tensor], seconds: Callable[[Callable[[], None]], float]
) -> Program:
    """The network's program with each merged step that does not work, or is slower, taken apart again.

    Args:
        network: Of a program from `fused`.
        inputs: As for a call.
        seconds: Times a function, on the device.
    """
    values = network.enter(*inputs)
    kept: list[Step] = []
    for runner in network.steps():
        step = runner.step
        if not step.fallback:
            kept.append(step)
            runner(values)
            continue
        apart = [network.runner(part) for part in step.fallback]

        def whole(runner: Any = runner) -> None:
            runner(list(values))

        def parts(apart: Any = apart) -> None:
            trial = list(values)
            for part in apart:
                part(trial)

        kept.extend([step] if _works_faster(whole, parts, seconds) else step.fallback)
        for one in apart:
            one(values)
        for inner in step.fallback[:-1]:
            values[network.place(inner.outputs[0])] = None
        for place in runner.spent:
            values[place] = None
    return replace(network.program, steps=tuple(kept))


def _works_faster(
    whole: Callable[[], None], parts: Callable[[], None], seconds: Callable[[Callable[[], None]], float]
) -> bool:
    try:
        together = seconds(whole)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return False  # cuDNN has no such kernel for this shape, type or GPU
    return together <= seconds(parts)
