"""PyTorch with INT8 kernels of its own: the form of its INT8 files. This version does not run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inferometer.contracts import QdqScheme
from inferometer.engines import schemes
from inferometer.engines.scheme_only import SchemeOnlyEngine

__all__ = ["TorchEngine"]


class TorchEngine(SchemeOnlyEngine):
    """PyTorch."""

    name = "torch"
    title = "PyTorch"

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """int8 symmetric, zero point 0, bias in float; see ``schemes``."""
        return schemes.torch(device, options)
