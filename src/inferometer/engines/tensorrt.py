"""NVIDIA TensorRT and TensorRT-RTX: their form of INT8 files. This version does not run them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferometer.contracts import QdqScheme
from inferometer.engines import schemes
from inferometer.engines.scheme_only import SchemeOnlyEngine

__all__ = ["TensorRtEngine", "TensorRtRtxEngine"]


class TensorRtEngine(SchemeOnlyEngine):
    """TensorRT, whose builder is part of the library for data-centre and embedded GPUs."""

    name = "tensorrt"
    title = "TensorRT"

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """int8 symmetric, zero point 0, bias in float; see ``schemes``."""
        return schemes.tensorrt(device, options)


class TensorRtRtxEngine(SchemeOnlyEngine):
    """TensorRT-RTX, the library for GeForce and RTX GPUs."""

    name = "tensorrt_rtx"
    title = "TensorRT-RTX"

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """int8 symmetric, zero point 0, bias in float; see ``schemes``."""
        return schemes.tensorrt_rtx(device, options)
