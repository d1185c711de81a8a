"""Against a plain Pillow and onnxruntime reference, on a trained network and 500 photographs."""

import csv
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from inferometer.accuracy import score, top_k
from inferometer.data import preprocess
from inferometer.data.imageset import check_labels, open_set, ordered
from inferometer.data.loader import ImageLoader

ROOT = Path(os.environ.get("INFEROMETER_TEST_DATA", ""))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "INFEROMETER_TEST_DATA" not in os.environ,
        reason="INFEROMETER_TEST_DATA does not name a folder with models/ and imagenet-sample/",
    ),
]


@pytest.fixture(scope="module")
def session():
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(
        str(ROOT / "models" / "efficientnet_lite0.onnx"), providers=["CPUExecutionProvider"]
    )


def reference_input(path):
    image = Image.open(path).convert("RGB")
    width, height = image.size
    if width < height:
        image = image.resize((256, int(256 * height / width)), Image.BICUBIC)
    else:
        image = image.resize((int(256 * width / height), 256), Image.BICUBIC)
    left, top = (image.width - 224) // 2, (image.height - 224) // 2
    pixels = np.array(image.crop((left, top, left + 224, top + 224)), dtype=np.float32)
    return ((pixels - 127.0) / 128.0).transpose(2, 0, 1)[None]


def test_accuracy_and_logits(session):
    images = open_set(ROOT / "imagenet-sample")
    check_labels(images, 1000, "efficientnet_lite0.onnx")
    preprocessing = preprocess.load("efficientnet-lite").for_input([None, 3, 224, 224])
    loader = ImageLoader(images.source, ordered(images, 0), preprocessing, 25, workers=2)
    logits, labels, files = [], [], []
    for batch in loader:
        logits.append(session.run(None, {"input": batch.images})[0])
        labels.append(batch.labels)
        files += batch.files
    assert not loader.skipped
    top1, top5 = score(top_k(np.concatenate(logits), 5), np.concatenate(labels))
    assert len(files) == 500
    assert top1 == pytest.approx(0.886, abs=0.008)
    assert top5 == pytest.approx(0.974, abs=0.008)

    with (ROOT / "imagenet-sample" / "labels.csv").open() as stream:
        truth = {row["file"]: int(row["class_index"]) for row in csv.DictReader(stream)}
    assert [truth[name] for name in files] == np.concatenate(labels).tolist()
    ours = np.concatenate(logits)
    for place in range(0, 500, 10):
        (theirs,) = session.run(None, {"input": reference_input(ROOT / "imagenet-sample" / files[place])})
        assert np.abs(ours[place] - theirs[0]).max() < 1e-4, files[place]
