"""What a network's steps are to a reader: layers with their precision, multiply-accumulates and seconds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from inferometer.contracts import ExecutedLayer, LayerTime
from inferometer.engines.torch.graph import Program
from inferometer.engines.torch.network import Network
from inferometer.models.graph import unused_name

__all__ = ["executed_layers", "kernel_times", "rounding_steps", "timed_passes"]

_PASSES, _ENOUGH_S = 4, 0.5  # the first warms up

_BELOW_TF32, _LESS_THAN_HALF = 0x1FFF, 0x0FFF  # bits of float32's mantissa beyond tf32's
_SAME = 1e-6  # relative: another order of summation makes less, rounding a factor more
_REORDERS = re.compile("Memcpy|nchwToNhwc|nhwcToNchw|transpose", re.IGNORECASE)

_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.float64: "fp64"}


def executed_layers(program: Program, parts: int, rounding: frozenset[str]) -> tuple[ExecutedLayer, ...]:
    """One layer a step, at the batch of all parts together.

    The type that PyTorch multiplies in is that of the tensors it is given, and it converts none by itself but
    float32 to tf32.

    Args:
        program: Of one part.
        parts: How many there are.
        rounding: Names of the steps that round float32 factors to tf32; see `rounding_steps`.
    """
    layers = []
    for step in program.steps:
        name = _NAMES.get(step.dtype, str(step.dtype).removeprefix("torch."))
        name = "tf32" if step.name in rounding else name
        written = sum(step.sizes) * step.dtype.itemsize
        macs = None if step.macs is None else step.macs * parts
        layers.append(ExecutedLayer(step.name, step.op, name, macs, written * parts))
    return tuple(layers)


def rounding_steps(network: Network, inputs: Sequence[torch.Tensor]) -> frozenset[str]:
    """Names of the steps whose float32 products are rounded to tf32.

    Each is run on factors that end where tf32's do, and on the same with less than half of tf32's last place
    added: only one that rounds gives the same for both.

    Source: tf32 keeps 10 of float32's 23 bits of mantissa (NVIDIA A100 Tensor Core GPU Architecture).
    """
    found = set()
    values = network.enter(*inputs)
    for runner in network.steps():
        step = runner.step
        source = runner.sources[0] if runner.sources else ""
        if step.macs and step.dtype is torch.float32 and isinstance(source, int):
            operands = runner.operands(values)
            wide = torch.randn_like(operands[0]).view(torch.int32) & ~_BELOW_TF32
            short = runner.function(wide.view(torch.float32), *operands[1:])
            long = runner.function((wide | _LESS_THAN_HALF).view(torch.float32), *operands[1:])
            if float((short - long).abs().max()) <= _SAME * float(short.abs().max()):
                found.add(step.name)
        runner(values)
    return frozenset(found)


def kernel_times(run: Callable[[], object]) -> tuple[LayerTime, ...]:
    """Seconds per kernel of a call on the GPU, by PyTorch's profiler; kernels of one name together."""
    calls = 3
    run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
    seconds: dict[str, float] = {}
    for event in profile.events() or ():
        if str(event.device_type).endswith("CUDA"):
            seconds[event.name] = seconds.get(event.name, 0.0) + event.device_time * 1e-6 / calls
    return tuple(
        LayerTime(name, "Kernel", taken, "reorder" if _REORDERS.search(name) else "compute")
        for name, taken in seconds.items()
    )


def timed_passes(
    network: Network,
    inputs: Sequence[torch.Tensor],
    clock: Callable[[Callable[[], None], Sequence[Callable[[], None]]], list[float]],
) -> tuple[LayerTime, ...]:
    """Seconds per step: the median of up to three passes within half a second, after one that warms up.

    The conversions at either end count as layers of their own, with the role ``reorder``.

    Args:
        network: Run step by step.
        inputs: As for a call of it.
        clock: Runs the functions one after another (the first as preparation) and gives each one's seconds.
    """
    values: list[object] = []
    runners = list(network.steps())
    taken_names = {one.step.name for one in runners}
    names = [
        (unused_name("inputs", taken_names), "Convert"),
        *((one.step.name, one.step.op) for one in runners),
        (unused_name("outputs", taken_names), "Convert"),
    ]

    def enter() -> None:
        values[:] = network.enter(*inputs)

    actions: list[Callable[[], None]] = [enter]
    actions += [lambda runner=runner: runner(values) for runner in runners]  # type: ignore[misc]
    actions.append(lambda: void(network.leave(values)))
    taken: list[list[float]] = []
    begin = time.monotonic()
    while len(taken) < 2 or (len(taken) < _PASSES and time.monotonic() - begin < _ENOUGH_S):
        taken.append(clock(values.clear, actions))
    medians = np.median(np.array(taken[1:]), axis=0)
    return tuple(
        LayerTime(name, op, float(seconds), "reorder" if op in ("Convert", "Cast") else "compute")
        for (name, op), seconds in zip(names, medians, strict=True)
    )


def void(_: object) -> None:
    """Drop a result."""
