"""Models written by other people's exporters, with what the framework itself makes of an input.

Run as ``python export.py FRAMEWORK FOLDER`` in an environment that has the framework and numpy; nothing of
this project is needed there. Each model is ``NAME.onnx`` with ``NAME.npz``, whose arrays ``in0``, ``in1`` and
so on are what is fed, in the order of the file's inputs, and ``out0`` and so on what comes out, as far as it
is compared.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

IMAGES = np.random.default_rng(7).random((4, 3, 16, 16), dtype=np.float32)


def keep(folder: Path, name: str, fed: Sequence[Any], given: Sequence[Any]) -> None:
    arrays = {f"in{number}": np.asarray(array) for number, array in enumerate(fed)}
    arrays |= {f"out{number}": np.asarray(array) for number, array in enumerate(given)}
    np.savez(folder / f"{name}.npz", **arrays)


def export_torch(folder: Path) -> None:
    """Both of PyTorch's exporters, with a symbolic batch, one of 1 and one of 4."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 16, 4, stride=4)
            self.token = nn.Parameter(torch.randn(1, 1, 16))
            self.norm = nn.LayerNorm(16)
            self.mix = nn.MultiheadAttention(16, 2, batch_first=True)
            self.head = nn.Linear(16, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], dim=1)
            seen = self.norm(tokens)
            return self.head((tokens + self.mix(seen, seen, seen, need_weights=False)[0])[:, 0])

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps = nn.LSTM(48, 8, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.steps(x.transpose(1, 2).flatten(2))[0][:, -1])

    torch.manual_seed(0)
    networks = {
        "convolutions": nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Hardswish(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(),
            nn.Linear(8, 10),
        ),
        "upsampling": nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.ReLU6(), nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.ConvTranspose2d(4, 2, 2, stride=2), nn.PixelShuffle(1),
        ),
        "attention": Attention(),
        "recurrent": Recurrent(),
    }  # fmt: skip
    for name, network in networks.items():
        network.eval()
        with torch.no_grad():
            given = network(torch.from_numpy(IMAGES)).numpy()
        for way, batch in (("traced", "N"), ("traced", 1), ("captured", "N"), ("captured", 4)):
            example = torch.from_numpy(IMAGES[: 2 if batch == "N" else batch])
            options: dict[str, Any] = {"dynamo": way == "captured", "verbose": False}
            if batch == "N" and way == "traced":
                options["dynamic_axes"] = {"input": {0: "batch"}, "output": {0: "batch"}}
            elif batch == "N":
                options["dynamic_shapes"] = [{0: torch.export.Dim("batch", min=1, max=4096)}]
            path = folder / f"{name}-{way}-{batch}.onnx"
            torch.onnx.export(
                network, (example,), path, input_names=["input"], output_names=["output"], **options
            )
            keep(folder, path.stem, [IMAGES], [given])


def export_sklearn(folder: Path) -> None:
    """Pipelines of scikit-learn, whose classifiers give labels and maps, or arrays if that is asked for."""
    from skl2onnx import to_onnx
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    generator = np.random.default_rng(3)
    x = generator.random((60, 6), dtype=np.float32)
    y = (x[:, 0] + x[:, 1] > 1).astype(np.int64) + (x[:, 2] > 0.5)
    words = np.array(["none", "some", "all"])[y]
    logistic = make_pipeline(StandardScaler(), LogisticRegression())
    forest = RandomForestClassifier(5, random_state=0)
    network = make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(8,), max_iter=2000, tol=1e-2, random_state=0)
    )
    fed = x[:4]
    for name, estimator, target, options in (
        ("logistic-maps", logistic, y, {}),
        ("logistic-arrays", logistic, y, {"zipmap": False}),
        ("forest-words", forest, words, {"zipmap": False}),
        ("regression", network, x[:, 3], None),
    ):
        estimator.fit(x, target)
        wanted = None if options is None else {id(estimator): options} if options else None
        model = to_onnx(estimator, x[:1], options=wanted, target_opset={"": 17, "ai.onnx.ml": 3})
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
        if name == "regression":
            given = [estimator.predict(fed).reshape(-1, 1)]
        elif name == "logistic-maps":
            given = [estimator.predict(fed)]
        elif name == "logistic-arrays":
            given = [estimator.predict(fed), estimator.predict_proba(fed)]
        else:
            given = [estimator.predict_proba(fed)]
        keep(folder, name, [fed], given)


def export_keras(folder: Path) -> None:
    """Keras' own ``model.export``, on whatever backend KERAS_BACKEND names; images are NHWC."""
    import keras

    keras.utils.set_random_seed(0)
    inputs = keras.Input((16, 16, 3))
    x = keras.layers.Rescaling(1 / 0.5, offset=-1)(inputs)
    x = keras.layers.Conv2D(8, 3, strides=2, padding="same", activation="relu")(x)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.DepthwiseConv2D(3, padding="same")(x)
    x = keras.layers.GlobalAveragePooling2D()(x)
    model = keras.Model(inputs, keras.layers.Dense(6, activation="softmax")(x))
    images = np.ascontiguousarray(IMAGES.transpose(0, 2, 3, 1))
    given = model.predict(images, verbose=0)
    name = f"keras-{keras.backend.backend()}"
    model.export(folder / f"{name}.onnx", format="onnx", verbose=False)
    keep(folder, name, [images], [given])


def export_tensorflow(folder: Path) -> None:
    """tf2onnx from a function of bytes, with names as TensorFlow writes them; and Keras on TensorFlow."""
    os.environ["KERAS_BACKEND"] = "tensorflow"
    import tensorflow as tf
    import tf2onnx

    generator = np.random.default_rng(1)
    weights = generator.standard_normal((3, 3, 3, 8), dtype=np.float32) * np.float32(0.3)
    head = generator.standard_normal((8, 4), dtype=np.float32)

    def scores(image: Any) -> dict[str, Any]:
        x = tf.cast(image, tf.float32) / 255.0
        x = tf.nn.relu6(tf.nn.conv2d(x, weights, strides=2, padding="SAME"))
        x = tf.image.resize(x, [16, 16])
        logits = tf.matmul(tf.reduce_mean(x, axis=[1, 2]), head)
        return {"classes": tf.argmax(logits, axis=-1), "probabilities": tf.nn.softmax(logits)}

    images = (IMAGES.transpose(0, 2, 3, 1) * 255).astype(np.uint8)
    for name, batch in (("bytes-any", None), ("bytes-one", 1)):
        signature = [tf.TensorSpec([batch, 16, 16, 3], tf.uint8, name="image")]
        function = tf.function(scores, input_signature=signature)
        tf2onnx.convert.from_function(
            function, input_signature=signature, opset=15, output_path=str(folder / f"{name}.onnx")
        )
        whole = [scores(tf.constant(images[row : row + 1])) for row in range(4)]
        given = [np.concatenate([one[key].numpy() for one in whole]) for key in ("classes", "probabilities")]
        keep(folder, name, [images], given)
    export_keras(folder)


def export_paddle(folder: Path) -> None:
    """paddle2onnx, without the optimisation that would install more packages."""
    import paddle

    class Network(paddle.nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.conv = paddle.nn.Conv2D(3, 8, 3, padding=1)
            self.norm = paddle.nn.BatchNorm2D(8)
            self.head = paddle.nn.Linear(8, 10)

        def forward(self, image: Any) -> Any:
            x = paddle.nn.functional.hardswish(self.norm(self.conv(image)))
            x = paddle.nn.functional.adaptive_avg_pool2d(x, 1)
            return paddle.nn.functional.softmax(self.head(paddle.flatten(x, 1)))

    paddle.seed(0)
    network = Network()
    network.eval()
    given = network(paddle.to_tensor(IMAGES)).numpy()
    for name, batch in (("paddle-any", None), ("paddle-one", 1)):
        spec = paddle.static.InputSpec([batch, 3, 16, 16], "float32", "image")
        paddle.onnx.export(
            network, str(folder / name), input_spec=[spec], opset_version=13, optimize_tool="None"
        )
        keep(folder, name, [IMAGES], [given])


EXPORTS = {
    "torch": export_torch,
    "sklearn": export_sklearn,
    "keras": export_keras,
    "tensorflow": export_tensorflow,
    "paddle": export_paddle,
}

if __name__ == "__main__":
    place = Path(sys.argv[2])
    place.mkdir(parents=True, exist_ok=True)
    EXPORTS[sys.argv[1]](place)
