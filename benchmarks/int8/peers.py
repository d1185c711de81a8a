"""One calibration by a peer, in a process of its own: python peers.py JOB.json, run by the scripts beside it.

Stands alone: it runs in the peers' environments, which hold no Inferometer (see setup_peers.sh). The job
names the peer, the model, the images and the preprocessing, all of which Inferometer gets too; the answer,
one JSON line at the end of standard output, says how many images were used and what the time went to.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from PIL import Image

# Calibrators that keep every activation stop reading here; the rest is for their copies of one tensor.
STOP_AT = 0.75

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def load_image(path: str, how: dict[str, Any]) -> np.ndarray:
    """One input [C, H, W] float32, made as Inferometer's ``Preprocessing`` makes it (accuracy.py checks)."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    if how["resize_exact"]:
        width = height = how["resize_exact"]
    elif how["resize_short"]:
        short = min(image.size)
        width, height = (side * how["resize_short"] // short for side in image.size)
    if (width, height) != image.size:
        image = image.resize((width, height), FILTERS[how["interpolation"]])
    if how["crop"]:
        left, top = (image.width - how["crop"]) // 2, (image.height - how["crop"]) // 2
        image = image.crop((left, top, left + how["crop"], top + how["crop"]))
    pixels = np.asarray(image)[..., ::-1] if how["channels"] == "BGR" else np.asarray(image)
    return np.moveaxis((pixels - np.array(how["mean"])) / how["std"], -1, 0).astype(np.float32)


class Reader:
    """The images as each peer wants to read them; notes what reading took, and stops when memory is short."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.batch_size = job, job["batch"]
        self.decode_s = 0.0
        self.first_at: float | None = None
        self.limit = STOP_AT * job["memory_mb"] * 1e6
        self.paths: list[str] = job["images"][: len(job["images"]) // self.batch_size * self.batch_size]
        self.rewind()

    def __len__(self) -> int:
        return len(self.paths) // self.batch_size

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        for start in range(0, len(self.paths), self.batch_size):
            if start and psutil.Process().memory_info().rss > self.limit:
                self.paths = self.paths[:start]  # for every later pass too
                return
            yield self._feed(start)

    def _feed(self, start: int) -> dict[str, np.ndarray]:
        begin = time.perf_counter()
        self.first_at = self.first_at or begin
        some = [load_image(path, self.job["preprocess"]) for path in self.paths[start:][: self.batch_size]]
        self.decode_s += time.perf_counter() - begin
        return {self.job["input"]: np.stack(some)}

    def rewind(self) -> None:
        self.feeds = iter(self)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.feeds, None)

    def get_first(self) -> dict[str, np.ndarray]:
        return self._feed(0)


class Pairs:
    """The same with a label, as neural-compressor reads it."""

    def __init__(self, reader: Reader) -> None:
        self.reader, self.batch_size = reader, reader.batch_size

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        return ((next(iter(feed.values())), 0) for feed in self.reader)


def onnxruntime(job: dict[str, Any], reader: Reader, method: str) -> None:
    """Calibrate as ``quantize_static`` does, or all of it: uint8 activations, int8 weights per channel.

    That is the form its documentation recommends for x86. Without ``out`` only the calibration runs, as
    the fairest figure of its cost.
    """
    from onnxruntime import quantization
    from onnxruntime.quantization.calibrate import create_calibrator
    from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry
    from onnxruntime.quantization.shape_inference import quant_pre_process

    chosen = getattr(quantization.CalibrationMethod, method)
    with tempfile.TemporaryDirectory() as folder:
        prepared = str(Path(folder) / "prepared.onnx")
        quant_pre_process(job["model"], prepared)
        if job["out"]:
            quantization.quantize_static(
                prepared, job["out"], reader, per_channel=True, reduce_range=job["reduce_range"],
                activation_type=quantization.QuantType.QUInt8, weight_type=quantization.QuantType.QInt8,
                calibrate_method=chosen,
            )  # fmt: skip
            return
        operators = list({*QLinearOpsRegistry, *QDQRegistry})
        exposed = str(Path(folder) / "augmented.onnx")
        calibrator = create_calibrator(Path(prepared), operators, exposed, calibrate_method=chosen)
        calibrator.collect_data(reader)
        calibrator.compute_data()


def nncf(job: dict[str, Any], reader: Reader, kind: str) -> None:
    """``nncf.quantize`` on the ONNX model, or on OpenVINO's form of it; kind: onnx, openvino."""
    import nncf

    options: dict[str, Any] = {
        "preset": nncf.QuantizationPreset.MIXED,
        "target_device": nncf.TargetDevice.CPU,
        "subset_size": len(reader),
    }
    if kind == "openvino":
        import openvino

        model = openvino.convert_model(job["model"])
        done = nncf.quantize(model, nncf.Dataset(reader), **options)
        if job["out"]:
            openvino.save_model(done, job["out"], compress_to_fp16=False)
        return
    import onnx

    done = nncf.quantize(onnx.load(job["model"]), nncf.Dataset(reader), **options)
    if job["out"]:
        onnx.save(done, job["out"])


def neural_compressor(job: dict[str, Any], reader: Reader, method: str) -> None:
    """``quantization.fit`` of the 2.x interface, without tuning; method: minmax, kl, percentile."""
    from neural_compressor import PostTrainingQuantConfig, quantization

    every = {".*": {"activation": {"algorithm": [method]}}}
    settings = PostTrainingQuantConfig(
        quant_format="QDQ", calibration_sampling_size=[len(reader.paths)], op_type_dict=every,
        reduce_range=job["reduce_range"],
    )  # fmt: skip
    done = quantization.fit(job["model"], settings, calib_dataloader=Pairs(reader))
    if done is None:
        raise SystemExit("neural-compressor gave no model; its log says why")
    if job["out"]:
        done.save(job["out"])


def modelopt(job: dict[str, Any], reader: Reader, method: str) -> None:
    """``modelopt.onnx.quantization.quantize`` to int8, float layers left in fp32; method: entropy, max."""
    from modelopt.onnx.quantization import quantize

    with tempfile.TemporaryDirectory() as folder:
        quantize(
            job["model"], quantize_mode="int8", calibration_data_reader=reader, calibration_method=method,
            calibration_eps=["cpu"], high_precision_dtype="fp32",
            output_path=job["out"] or str(Path(folder) / "int8.onnx"),
        )  # fmt: skip


PEERS: dict[str, tuple[Callable[[dict[str, Any], Reader, str], None], str, tuple[str, ...]]] = {
    "onnxruntime entropy": (onnxruntime, "Entropy", ("onnxruntime", "onnx")),
    "onnxruntime percentile": (onnxruntime, "Percentile", ("onnxruntime", "onnx")),
    "onnxruntime minmax": (onnxruntime, "MinMax", ("onnxruntime", "onnx")),
    "nncf onnx": (nncf, "onnx", ("nncf", "onnxruntime", "onnx")),
    "nncf openvino": (nncf, "openvino", ("nncf", "openvino")),
    "neural-compressor minmax": (neural_compressor, "minmax", ("neural-compressor", "onnxruntime", "onnx")),
    "neural-compressor kl": (neural_compressor, "kl", ("neural-compressor", "onnxruntime", "onnx")),
    "modelopt entropy": (modelopt, "entropy", ("nvidia-modelopt", "onnxruntime-gpu", "onnx")),
}
"""By name: the function, what it is told, and the packages whose versions count. The word before the blank
is the environment: a folder of that name in the peers' environment, or else that itself."""


def main() -> int:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    function, told, packages = PEERS[job["peer"]]
    versions = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    begin = time.perf_counter()
    reader = Reader(job)
    function(job, reader, told)
    end = time.perf_counter()
    first = reader.first_at or end
    answer = {
        "images": len(reader.paths),
        "before_s": first - begin,  # imports, loading and preparing the model
        "calibrate_s": end - first,  # from the first image to the end, decoding included
        "decode_s": reader.decode_s,
        "versions": versions,
    }
    print("\n" + json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
