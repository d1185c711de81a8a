"""NVIDIA TensorRT-RTX: builds without a GPU, and finishes its kernels on the GPU where it runs."""

from __future__ import annotations

from inferometer.engines import schemes
from inferometer.engines.tensorrt.engine import TensorRt
from inferometer.engines.tensorrt.importing import importing

with importing("tensorrt_rtx", "tensorrt-rtx-cu13-bindings", "tensorrt-rtx"):
    import tensorrt_rtx_bindings as vendor
with importing("tensorrt_rtx", "cuda-bindings", "tensorrt-rtx"):
    from cuda.bindings import runtime

__all__ = ["TensorRtRtxEngine"]


class TensorRtRtxEngine(TensorRt):
    """TensorRT-RTX, the library for GeForce and RTX GPUs."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        super().__init__(
            "tensorrt_rtx", "TensorRT-RTX", vendor, runtime, schemes.tensorrt_rtx, times_kernels=False
        )
