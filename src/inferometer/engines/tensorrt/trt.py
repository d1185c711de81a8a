"""NVIDIA TensorRT, versions 10 and 11."""

from __future__ import annotations

from inferometer.engines import schemes
from inferometer.engines.tensorrt.engine import TensorRt
from inferometer.engines.tensorrt.importing import importing

with importing("tensorrt", "tensorrt", "tensorrt"):
    try:
        import tensorrt as vendor
    except ModuleNotFoundError:
        import tensorrt_bindings as vendor  # what the wheels call it when the one that binds them is left out
with importing("tensorrt", "cuda-bindings", "tensorrt"):
    from cuda.bindings import runtime

__all__ = ["TensorRtEngine"]


class TensorRtEngine(TensorRt):
    """TensorRT, for data-centre, workstation and embedded GPUs."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        super().__init__("tensorrt", "TensorRT", vendor, runtime, schemes.tensorrt)
