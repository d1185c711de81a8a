"""Makes the labelled images and the small network that ship in ``inferometer.demo``.

Needs packages that Inferometer itself does not depend on, so use an environment of its own:

    python -m venv digits-env
    digits-env/bin/pip install scikit-learn torch onnx pillow
    digits-env/bin/python scripts/train_digits.py --out src/inferometer/demo

Writes ``digits.zip`` (held-out images, one folder per class) and ``digits.onnx`` into ``--out`` and prints
the held-out top-1. Half a minute on one core. ``digits.zip`` comes out byte for byte the same (tried with
Pillow 10.3, 11.3 and 13.0); ``digits.onnx`` does with the same torch build on the same kind of CPU, elsewhere
rounding differs, training amplifies it, and the held-out top-1 may differ by a few images.

The network, its schedule and its seed were fixed beforehand, not chosen by the held-out score, and the last
epoch is what ships. The share that trains is small on purpose: with 818 images training, one of the 979
others was classified wrongly, which leaves a comparison of precisions nothing to show;
with 436, 18 of 1361 are.

Source of the images: E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine
Learning Repository, https://doi.org/10.24432/C50P49, CC BY 4.0; the 1797 images of its test part, as bundled
with scikit-learn (``sklearn.datasets.load_digits``).
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

SEED = 0
EPOCHS = 120
BATCH = 32
PEAK_LEARNING_RATE = 4e-3
WEIGHT_DECAY = 5e-4
CLASSES = 10
WIDTHS = (24, 48)  # channels at 8x8 and at 4x4: 42 K parameters, enough for Conv layers that differ in range
TRAINING_HASH_LIMIT = 64  # of the 256 values of a hash byte: a quarter trains, the rest can be scored
MEAN = STD = 127.5  # of pixels in 0..255; digits.yaml says the same

Images = npt.NDArray[np.uint8]  # [n, 8, 8], values 0..16
Labels = npt.NDArray[np.int64]  # [n], values 0..9
Weights = dict[str, npt.NDArray[np.float32]]


# --- the images ------------------------------------------------------------------------------------------


def load() -> tuple[Images, Labels]:
    """The 1797 images ([1797, 8, 8] uint8, 0..16) and their classes, in scikit-learn's order."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images.astype(np.uint8), digits.target.astype(np.int64)


def trains(image: npt.NDArray[np.uint8]) -> bool:
    """Whether an image ([8, 8] uint8, 0..16) belongs to the training part.

    The rule looks at nothing but the pixels (the first byte of their SHA-256, row by row, one byte each), so
    that anyone holding an image can tell its part, and equal images can never be in both.
    """
    return hashlib.sha256(image.tobytes()).digest()[0] < TRAINING_HASH_LIMIT


def to_gray(images: Images) -> npt.NDArray[np.uint8]:
    """Scales 0..16 to 0..255, rounding halves up: ``(v * 255 + 8) // 16``; one to one."""
    return ((images.astype(np.int64) * 255 + 8) // 16).astype(np.uint8)


def png(gray: npt.NDArray[np.uint8]) -> bytes:
    """One 8-bit grayscale PNG, uncompressed inside: compressed bytes would depend on the zlib build."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(gray).save(buffer, format="PNG", compress_level=0)
    return buffer.getvalue()


def write_zip(path: Path, images: Images, labels: Labels, indices: list[int]) -> None:
    """Writes ``CLASS/INDEX.png`` for each of ``indices``, sorted by name, with fixed dates and modes."""
    gray = to_gray(images)
    names = sorted((f"{labels[i]}/{i:04d}.png", i) for i in indices)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, i in names:
            entry = zipfile.ZipInfo(name, date_time=(1998, 7, 1, 0, 0, 0))
            entry.create_system = 3  # Unix, on whichever system this runs
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, png(gray[i]))


# --- the network -----------------------------------------------------------------------------------------


def build_network() -> torch.nn.ModuleDict:
    """The layers by name; ``forward`` and ``write_onnx`` wire them in the same way."""
    from torch import nn

    def conv(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(outputs)
        )

    narrow, wide = WIDTHS
    return nn.ModuleDict(
        {
            "stem": conv(1, narrow),
            "block1": conv(narrow, narrow),
            "block2": conv(narrow, narrow),
            "down": conv(narrow, wide, stride=2),
            "tail": conv(wide, wide),
            "classifier": nn.Linear(wide, CLASSES),
        }
    )


def forward(net: torch.nn.ModuleDict, x: torch.Tensor) -> torch.Tensor:
    """Logits [n, 10] of normalised images [n, 1, 8, 8] float32."""
    stem = net["stem"](x).relu()
    inner = net["block1"](stem).relu()
    block = (net["block2"](inner) + stem).relu()
    tail = net["tail"](net["down"](block).relu()).relu()
    logits: torch.Tensor = net["classifier"](tail.mean(dim=(2, 3)))
    return logits


def distort(x: torch.Tensor) -> torch.Tensor:
    """Turns, scales, slants and shifts each image a little, anew at every epoch."""
    import torch
    from torch.nn import functional

    n = x.shape[0]

    def uniform(limit: float) -> torch.Tensor:
        return (torch.rand(n) * 2 - 1) * limit

    angle, slant = uniform(math.radians(10)), uniform(0.15)
    size, shift = 1 + uniform(0.1), 0.7 / 4  # of the half width, which is 4 pixels: 0.7 pixel
    cos, sin = torch.cos(angle) * size, torch.sin(angle) * size
    rows = [cos, -sin + slant, uniform(shift), sin, cos, uniform(shift)]
    grid = functional.affine_grid(torch.stack(rows, dim=1).view(n, 2, 3), list(x.shape), align_corners=False)
    # Outside the picture is background: 0 before normalisation, -1 after it.
    return functional.grid_sample(x + 1, grid, align_corners=False) - 1


def train(images: Images, labels: Labels) -> Weights:
    """Trains on ``images`` ([n, 8, 8] uint8, 0..16) alone; returns the weights, BatchNorm folded."""
    import torch
    from torch.nn import functional

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    x = torch.from_numpy((to_gray(images).astype(np.float32) - MEAN) / STD)[:, None]
    y = torch.from_numpy(labels)
    net = build_network().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    steps = math.ceil(len(y) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LEARNING_RATE, EPOCHS * steps)
    for epoch in range(EPOCHS):
        total = 0.0
        for chosen in torch.randperm(len(y)).split(BATCH):
            logits = forward(net, distort(x[chosen]))
            loss = functional.cross_entropy(logits, y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item() * len(chosen)
        if (epoch + 1) % 20 == 0:
            print(f"epoch {epoch + 1:3d}: training loss {total / len(y):.4f}")
    return fold(net.eval())


def fold(net: torch.nn.ModuleDict) -> Weights:
    """Multiplies each BatchNorm into the Conv before it, in float64."""
    weights: Weights = {}
    for name, layer in net.items():
        if name == "classifier":
            w, b = layer.weight.detach().double(), layer.bias.detach().double()
        else:
            convolution, norm = layer[0], layer[1]
            gain = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
            w = convolution.weight.detach().double() * gain[:, None, None, None]
            b = norm.bias.detach().double() - norm.running_mean.double() * gain
        weights[f"{name}.weight"], weights[f"{name}.bias"] = w.float().numpy(), b.float().numpy()
    return weights


# --- the ONNX file ---------------------------------------------------------------------------------------


def build_onnx(weights: Weights, properties: dict[str, str]) -> Any:
    """The network in ONNX, opset 17: ``input`` [N, 1, 8, 8] float32 to ``logits`` [N, 10] float32."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = []

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def conv(x: str, name: str, stride: int = 1) -> str:
        shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [stride, stride]}
        return node("Conv", [x, f"{name}.weight", f"{name}.bias"], f"{name}.conv", **shape)

    stem = node("Relu", [conv("input", "stem")], "stem.relu")
    inner = node("Relu", [conv(stem, "block1")], "block1.relu")
    added = node("Add", [conv(inner, "block2"), stem], "block2.add")
    block = node("Relu", [added], "block2.relu")
    down = node("Relu", [conv(block, "down", stride=2)], "down.relu")
    tail = node("Relu", [conv(down, "tail")], "tail.relu")
    flat = node("Flatten", [node("GlobalAveragePool", [tail], "pool")], "flatten", axis=1)
    node("Gemm", [flat, "classifier.weight", "classifier.bias"], "logits", transB=1)
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    # IR 8 is what opset 17 came with: the oldest supported runtimes read it.
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, producer_name="inferometer", opset_imports=opset, ir_version=8)
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return model


def score(model: Any, images: Images, labels: Labels) -> int:
    """How many of ``images`` the ONNX file itself gets right, by onnx's own reference evaluator."""
    from onnx.reference import ReferenceEvaluator

    x = (to_gray(images).astype(np.float32) - np.float32(MEAN)) / np.float32(STD)
    (logits,) = ReferenceEvaluator(model).run(None, {"input": x[:, None]})
    return int((np.argmax(logits, axis=1) == labels).sum())


def main() -> None:
    """Writes both files and prints what they hold."""
    parser = argparse.ArgumentParser(description="Makes digits.zip and digits.onnx.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write into")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    images, labels = load()
    training = np.array([trains(image) for image in images])
    held_out = np.flatnonzero(~training)
    print(f"images: {training.sum()} train, {len(held_out)} held out")
    print(f"held out by class: {np.bincount(labels[held_out]).tolist()}")
    write_zip(out / "digits.zip", images, labels, held_out.tolist())

    properties = {
        "made_by": "scripts/train_digits.py",
        "seed": str(SEED),
        "training_images": str(training.sum()),
        "data": "Optical Recognition of Handwritten Digits, E. Alpaydin and C. Kaynak (1998), CC BY 4.0",
        "preprocessing": f"gray 0..255, minus {MEAN}, over {STD}",
    }
    model = build_onnx(train(images[training], labels[training]), properties)
    (out / "digits.onnx").write_bytes(model.SerializeToString(deterministic=True))
    right = score(model, images[held_out], labels[held_out])
    print(f"held-out top-1: {right}/{len(held_out)} = {right / len(held_out):.4f}")
    for name in ("digits.zip", "digits.onnx"):
        print(f"{out / name}: {(out / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
