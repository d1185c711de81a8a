"""Convolutions on which PyTorch's own kernels go wrong, which the engine puts to it in another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("torch", reason="the extra 'torch' is not installed")

import torch

from inferometer.engines.torch import settings
from inferometer.engines.torch.graph import build_program, read, with_batch
from inferometer.engines.torch.network import Network


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("dtype", "image", "kernel", "groups", "strides", "pads", "dilation"),
    [
        (torch.float32, (1, 40, 2), (3, 3), 1, (1, 2), (1, 1), 1),
        (torch.bfloat16, (4, 5, 5), (1, 3), 4, (1, 3), (0, 0), 1),
        (torch.bfloat16, (8, 9, 1), (2, 1), 8, (2, 3), (0, 2), 2),  # windows in the padding alone
    ],
)
def test_a_convolution_of_one_channel_a_group_takes_its_memory_for_what_it_is(
    dtype: Any,
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    groups: int,
    strides: tuple[int, ...],
    pads: tuple[int, ...],
    dilation: int,
    compiled: bool,
    tmp_path: Path,
) -> None:
    channels, height, width = image
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
    g (float[N, {channels}, {height}, {width}] x) => (float[N, C, H, W] y) {{
      y = Conv<group = {groups}, strides = {list(strides)}, pads = {list(pads * 2)},
        dilations = [1, {dilation}]>(x, w) }}""")
    weight = torch.arange(16 * kernel[0] * kernel[1]).remainder(5).reshape(16, 1, *kernel).float()
    model.graph.initializer.append(numpy_helper.from_array(weight.numpy(), "w"))
    x = torch.arange(2 * channels * height * width).remainder(4).reshape(2, *image).float()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    network = Network(build_program(with_batch(read(path), 2, path), dtype, path), dtype, torch.device("cpu"))
    call = settings.compiled(network) if compiled else network
    with torch.inference_mode(), settings.compiling(freeze=True):
        found = call(x)[0]
    settings.forget_compiled()
    # Small whole numbers, whose sums are exact in any of the types.
    exact = torch.nn.functional.conv2d(
        x.double(), weight.double(), None, strides, pads, (1, dilation), groups
    )
    assert torch.equal(found.double(), exact)
