"""ONNX's convolutions and poolings in PyTorch's words.

Where paddings differ between two sides, or a last window reaches beyond the image (``ceil_mode``), the image
is padded first and PyTorch goes over it without paddings.

Source: onnx/docs/Operators.md, sections Conv, ConvTranspose, MaxPool and AveragePool.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from inferometer.engines.torch.node import ConvForm, Node, Operation, Unmapped, operator

__all__: list[str] = []

_CONV: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED: dict[int, Any] = {
    1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d,
}  # fmt: skip
_MAX: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_MEAN: dict[int, Any] = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}

_WINDOW = ("auto_pad", "kernel_shape", "pads", "strides", "dilations")


@dataclass(frozen=True)
class _Windows:
    """How windows go over an image, one value per axis; ``begins`` and ``ends`` are ONNX's paddings."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    source: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def even(self) -> bool:
        """Whether both sides are padded alike, and no window reaches beyond."""
        return self.begins == self.ends and self.overhang == (0,) * len(self.kernel)

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements from the first to the last that a window takes in."""
        return tuple(
            (kernel - 1) * spread + 1 for kernel, spread in zip(self.kernel, self.dilation, strict=True)
        )

    @property
    def overhang(self) -> tuple[int, ...]:
        """Elements beyond the padded image that the last windows reach."""
        return tuple(
            max(0, (steps - 1) * stride + extent - begin - size - end)
            for steps, stride, extent, begin, size, end in zip(
                self.steps, self.stride, self.extents, self.begins, self.source, self.ends, strict=True
            )
        )

    def padding(self) -> list[int]:
        """As ``torch.nn.functional.pad`` wants it: the last axis first."""
        ends = [end + more for end, more in zip(self.ends, self.overhang, strict=True)]
        sides = list(zip(self.begins, ends, strict=True))
        return [number for pair in reversed(sides) for number in pair]


def _windows(node: Node, kernel: Sequence[int]) -> _Windows:
    rank = len(kernel)
    source = node.shape()[2:]
    if len(source) != rank or rank not in _CONV:
        raise Unmapped(f"its image has {len(source)} axes, its window {rank}")
    stride = node.ints("strides", [1] * rank)
    dilation = node.ints("dilations", [1] * rank)
    pads = node.ints("pads", [0] * 2 * rank)
    auto = node.attr("auto_pad", "NOTSET")
    begins, ends = pads[:rank], pads[rank:]
    if _same(node):
        begins, ends = _same_pads(auto, source, kernel, stride, dilation)
    elif auto == "VALID":
        begins = ends = (0,) * rank
    elif auto != "NOTSET":
        raise Unmapped(f"auto_pad {auto}")
    if min((*begins, *ends)) < 0:
        raise Unmapped("negative pads")
    ceil = bool(node.attr("ceil_mode", 0)) and not _same(node)
    steps = []
    for size, begin, end, width, step, spread in zip(
        source, begins, ends, kernel, stride, dilation, strict=True
    ):
        free = size + begin + end - ((width - 1) * spread + 1)
        if free < 0:
            raise Unmapped("its window is larger than its padded image")
        count = (math.ceil(free / step) if ceil else free // step) + 1
        # A window that would start in the padding behind the image does not count.
        steps.append(count - 1 if ceil and (count - 1) * step >= size + begin else count)
    inferred = node.output_shape()[2:]
    if tuple(steps) != inferred:
        # Inference counts a last window that starts behind the image; here, as in onnxruntime, there is none.
        raise Unmapped(f"its windows give {steps} values, ONNX's shape inference {list(inferred)}")
    return _Windows(tuple(kernel), stride, dilation, begins, ends, source, tuple(steps))


def _same(node: Node) -> bool:
    return node.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")


def _same_pads(
    auto: str, source: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """As many windows as strides fit; of an odd number of paddings UPPER has the extra one behind."""
    begins, ends = [], []
    for size, width, step, spread in zip(source, kernel, stride, dilation, strict=True):
        total = max(0, (math.ceil(size / step) - 1) * step + (width - 1) * spread + 1 - size)
        less, more = total // 2, total - total // 2
        begins.append(less if auto == "SAME_UPPER" else more)
        ends.append(more if auto == "SAME_UPPER" else less)
    return tuple(begins), tuple(ends)


@operator("Conv", attributes=(*_WINDOW, "group"))
def _conv(node: Node) -> Operation:
    node.need_floats()
    weight = node.shape(1)
    windows = _windows(node, node.ints("kernel_shape", weight[2:]))
    if windows.kernel != weight[2:]:
        raise Unmapped(f"its kernel_shape {list(windows.kernel)} is not that of its weights {list(weight)}")
    rank, groups = len(windows.kernel), int(node.attr("group", 1))
    function = _CONV[rank]
    if weight[1] == 1 and rank == 2:
        windows = _one_stride(windows)
    stride, dilation = windows.stride, windows.dilation
    # PyTorch 2.13 on the CPU reads beyond bfloat16 images where a dilated window lies in the padding alone.
    inside = all(pad < extent for pad, extent in zip(windows.begins, windows.extents, strict=True))
    if windows.begins == windows.ends and inside:
        padding = windows.begins

        def plain(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
            result: Tensor = function(x, w, b, stride, padding, dilation, groups)
            return result

        form = ConvForm(stride, padding, dilation, groups) if rank == 2 else None
        return Operation(plain, node.present, fresh=True, conv=form)
    pads = windows.padding()

    def padded(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        result: Tensor = function(functional.pad(x, pads), w, b, stride, 0, dilation, groups)
        return result

    return Operation(padded, node.present, fresh=True)


def _one_stride(windows: _Windows) -> _Windows:
    """The same windows, all axes with one stride where one of them has a single window, which takes no step.

    With one channel a group, where memory orders cannot be told apart by their strides, PyTorch 2.13 on the
    CPU gives wrong numbers for a single window along an axis whose stride is not the other's.
    """
    single = [steps == 1 for steps in windows.steps]
    if not any(single) or len(set(windows.stride)) == 1:
        return windows
    others = [stride for stride, alone in zip(windows.stride, single, strict=True) if not alone]
    ends = [
        extent - begin - size if alone else end
        for extent, begin, size, end, alone in zip(
            windows.extents, windows.begins, windows.source, windows.ends, single, strict=True
        )
    ]
    stride = (others[0] if others else 1,) * len(single)
    return replace(windows, stride=stride, ends=tuple(ends))


@operator("ConvTranspose", attributes=(*_WINDOW, "group", "output_padding", "output_shape"))
def _conv_transpose(node: Node) -> Operation:
    node.need_floats()
    if node.attr("output_shape") is not None or node.attr("auto_pad", "NOTSET") != "NOTSET":
        raise Unmapped("output_shape or auto_pad")
    rank = len(node.shape()) - 2
    if rank not in _TRANSPOSED:
        raise Unmapped(f"its image has {rank} axes")
    stride, dilation = node.ints("strides", [1] * rank), node.ints("dilations", [1] * rank)
    pads, extra = node.ints("pads", [0] * 2 * rank), node.ints("output_padding", [0] * rank)
    if pads[:rank] != pads[rank:] or min(pads) < 0:
        raise Unmapped("its pads differ between the two sides")
    if any(more >= max(step, spread) for more, step, spread in zip(extra, stride, dilation, strict=True)):
        raise Unmapped("its output_padding is not below its strides")
    function, groups, padding = _TRANSPOSED[rank], int(node.attr("group", 1)), pads[:rank]

    def spread_out(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        result: Tensor = function(x, w, b, stride, padding, extra, groups, dilation)
        return result

    return Operation(spread_out, node.present, fresh=True)


@operator("MaxPool", attributes=(*_WINDOW, "ceil_mode", "storage_order"))
def _max_pool(node: Node) -> Operation:
    node.need_floats()
    node.one_output()
    windows = _windows(node, node.ints("kernel_shape", ()))
    if _same(node) and set(windows.dilation) != {1}:
        raise Unmapped("auto_pad SAME with dilations, which runtimes pad differently")
    function = _MAX[len(windows.kernel)]
    kernel, stride, dilation = windows.kernel, windows.stride, windows.dilation
    if windows.even and _small(windows):
        padding = windows.begins
        return Operation(lambda x: function(x, kernel, stride, padding, dilation))
    pads = windows.padding()
    return Operation(
        lambda x: function(functional.pad(x, pads, value=-math.inf), kernel, stride, 0, dilation)
    )


def _small(windows: _Windows) -> bool:
    """PyTorch allows paddings up to half the kernel."""
    return all(2 * pad <= width for pad, width in zip(windows.begins, windows.kernel, strict=True))


@operator("AveragePool", attributes=(*_WINDOW, "ceil_mode", "count_include_pad"))
def _average_pool(node: Node) -> Operation:
    node.need_floats()
    windows = _windows(node, node.ints("kernel_shape", ()))
    if set(windows.dilation) != {1}:
        raise Unmapped(f"dilations {list(windows.dilation)}")
    if _same(node) and any(a < b for a, b in zip(windows.kernel, windows.stride, strict=True)):
        raise Unmapped(
            "auto_pad SAME with windows smaller than their strides, which runtimes place differently"
        )
    function, kernel, stride = _MEAN[len(windows.kernel)], windows.kernel, windows.stride
    include = bool(node.attr("count_include_pad", 0))
    if windows.even and _small(windows):
        padding = windows.begins
        return Operation(lambda x: function(x, kernel, stride, padding, False, include))
    pads, factor = windows.padding(), _share(windows, include)
    if factor is None:
        return Operation(lambda x: function(functional.pad(x, pads), kernel, stride))

    def weighted(x: Tensor, factor: Tensor) -> Tensor:
        mean: Tensor = function(functional.pad(x, pads), kernel, stride)
        return mean * factor

    return Operation(weighted, extras=(factor,))


def _share(windows: _Windows, include: bool) -> Tensor | None:
    """By what a mean over whole windows is multiplied, [1, 1, ...]; None where each is whole.

    A window counts what it has in the image, or in the padded image; never what it has beyond.
    """
    counts = np.ones((1,) * len(windows.kernel))
    for axis, width in enumerate(windows.kernel):
        first = -windows.begins[axis] if include else 0
        last = windows.source[axis] + (windows.ends[axis] if include else 0)
        starts = np.arange(windows.steps[axis]) * windows.stride[axis] - windows.begins[axis]
        within = np.minimum(starts + width, last) - np.maximum(starts, first)
        shape = [-1 if place == axis else 1 for place in range(len(windows.kernel))]
        counts = counts * within.reshape(shape)
    if counts.min() < 1:
        raise Unmapped("a window of it lies in its padding alone")
    factor = math.prod(windows.kernel) / counts
    return None if np.all(factor == 1) else torch.from_numpy(factor.astype(np.float32))[None, None]


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(node: Node) -> Operation:
    node.need_floats()
    axes = tuple(range(2, len(node.shape())))
    if not axes:
        raise Unmapped("its input is no image")
    if node.proto.op_type == "GlobalAveragePool":
        return Operation(lambda x: torch.mean(x, axes, True))
    return Operation(lambda x: torch.amax(x, axes, True))
