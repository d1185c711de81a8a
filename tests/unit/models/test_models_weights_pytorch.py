"""ResNet-50 as PyTorch computes it against the exported file, both with the same checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inferometer.models import describe
from inferometer.models.networks import export_trained

pytestmark = pytest.mark.slow


def resnet50(torch: Any, classes: int) -> Any:
    """ResNet-50 version 1.5 from PyTorch's own layers, named as torchvision names them."""
    nn = torch.nn

    class Bottleneck(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(width)
            self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(width)
            self.conv3 = nn.Conv2d(width, 4 * width, 1, bias=False)
            self.bn3 = nn.BatchNorm2d(4 * width)
            self.downsample = None
            if inputs != 4 * width:
                project = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
                self.downsample = nn.Sequential(project, nn.BatchNorm2d(4 * width))

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.bn1(self.conv1(x)))
            y = torch.relu(self.bn2(self.conv2(y)))
            y = self.bn3(self.conv3(y))
            return torch.relu(y + (x if self.downsample is None else self.downsample(x)))

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            inputs = 64
            for stage, (width, blocks) in enumerate(
                zip((64, 128, 256, 512), (3, 4, 6, 3), strict=True), start=1
            ):
                parts = []
                for block in range(blocks):
                    parts.append(Bottleneck(inputs, width, 2 if stage > 1 and block == 0 else 1))
                    inputs = 4 * width
                setattr(self, f"layer{stage}", nn.Sequential(*parts))
            self.fc = nn.Linear(2048, classes)

        def forward(self, x: Any) -> Any:
            x = nn.functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean(dim=(2, 3)))

    return ResNet()


def test_resnet50_computes_what_pytorch_computes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    ort = pytest.importorskip("onnxruntime", reason="the extra 'cpu' is not installed")
    torch.manual_seed(0)
    network = resnet50(torch, 10)
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, torch.nn.BatchNorm2d):
                part.momentum = None  # the statistics become those of the images
                part.weight.uniform_(0.5, 1.5)
                part.bias.normal_(0, 0.2)
        network.train()(images)
        wanted = network.eval()(images).numpy()
    torch.save({"state_dict": network.state_dict(), "epoch": 90}, tmp_path / "checkpoint.pth.tar")
    notes = export_trained("resnet50", tmp_path / "checkpoint.pth.tar", tmp_path / "r50.onnx")
    assert notes == (
        "took the entry 'state_dict', left out epoch",
        "folded BatchNorm into the convolutions",
        "has 10 classes, not 1000",
    )
    assert describe(tmp_path / "r50.onnx").outputs[0].shape == ("N", 10)
    session = ort.InferenceSession(tmp_path / "r50.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input": images.numpy()})
    assert np.ptp(wanted) > 0.1  # the images differ in something
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.ptp(wanted))
