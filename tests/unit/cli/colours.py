"""A model that names the nearest of some colours, and pictures of one colour: how they are fed matters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper, parser
from PIL import Image

GRAPH = """
<ir_version: 8, opset_import: ["" : 17]>
colours ({dtype}[N, {shape}] picture) => (float[N, {classes}] logits)
{{
  {before}
  f = ReduceMean <axes = [{axes}], keepdims = 0> (x)
  logits = Gemm(f, w, b)
}}
"""


def palette(count: int, seed: int = 0) -> npt.NDArray[np.uint8]:
    """[count, 3] uint8, RGB: none is the mirror of another, and they fill the cube."""
    return np.random.default_rng(seed).integers(10, 246, (count, 3)).astype(np.uint8)


def colour_model(
    path: Path,
    colours: npt.NDArray[np.uint8],
    mean: tuple[float, float, float],
    std: tuple[float, float, float],
    *,
    side: int = 224,
    dtype: str = "float",
    nhwc: bool = False,
    background: bool = False,
    scale: float = 20.0,
) -> Path:
    """Write a model that wants RGB as (x - mean) / std; ``background``: its class 0 never wins."""
    ready = (colours.astype(np.float64) - mean) / std
    weights, bias = 2 * ready.T, -(ready**2).sum(axis=1)
    if background:
        weights = np.concatenate([np.zeros((3, 1)), weights], axis=1)
        bias = np.concatenate([[-1e6], bias])
    shape = f"{side}, {side}, 3" if nhwc else f"3, {side}, {side}"
    before = "x = Identity(picture)" if dtype == "float" else "x = Cast <to = 1> (picture)"
    text = GRAPH.format(
        dtype=dtype, shape=shape, classes=weights.shape[1], before=before, axes="1, 2" if nhwc else "2, 3"
    )
    model = parser.parse_model(text)
    for name, values in {"w": weights * scale, "b": bias * scale}.items():
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), name))
    onnx.save(model, path)
    return path


def pictures(
    folder: Path, colours: npt.NDArray[np.uint8], each: int, *, shift: int = 0, spread: int = 14
) -> Path:
    """Pictures of one colour with a little noise; ``labels.csv`` adds ``shift`` to the colours' numbers."""
    folder.mkdir()
    generator = np.random.default_rng(1)
    lines = ["file,class_index"]
    for number, colour in enumerate(np.tile(colours, (each, 1))):
        height, width = 40 + number % 7, 50 + number % 5
        noise = generator.integers(-9, 10, (height, width, 3))
        moved = generator.integers(
            -spread, spread + 1, 3
        )  # of the whole picture: some land near another colour
        values = np.clip(colour.astype(np.int64) + noise + moved, 0, 255).astype(np.uint8)
        Image.fromarray(values).save(folder / f"{number:03}.png")
        lines.append(f"{number:03}.png,{number % len(colours) + shift}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    return folder
