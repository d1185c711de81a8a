"""What ONNX Runtime raises, in this project's own errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from onnxruntime.capi import onnxruntime_pybind11_state as vendor

from inferometer.errors import EngineError, ModelError, OutOfMemory, Unsupported, brief

__all__ = ["VENDOR_ERRORS", "mapped", "vendor", "vendor_errors"]

VENDOR_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(vendor).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    MemoryError,
    RuntimeError,
    ValueError,
)
"""Whatever the vendor's module raises, and what its binding lets through from C++ and NumPy."""

# Of the host's allocators, and of CUDA and its libraries.
_MEMORY_WORDS = (
    "Failed to allocate memory", "bad_alloc", "bad allocation", "Cannot allocate memory",
    "out of memory", "cudaErrorMemoryAllocation", "CUDNN_STATUS_ALLOC_FAILED", "CUBLAS_STATUS_ALLOC_FAILED",
)  # fmt: skip


@contextlib.contextmanager
def vendor_errors(model: Path) -> Iterator[None]:
    """Raise as this project's errors, about ``model``, what the vendor raises meanwhile.

    Raises:
        ModelError: The file is no valid model.
        Unsupported: An operator, type or opset that the runtime has not got.
        OutOfMemory: Memory ran out.
        EngineError: Anything else.
    """
    try:
        yield
    except VENDOR_ERRORS as error:
        raise mapped(error, model) from error


def mapped(error: BaseException, model: Path) -> EngineError | ModelError:
    """The one table from the vendor's errors to ours."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or any(word in text for word in _MEMORY_WORDS):
        return OutOfMemory(f"{model}: out of memory in onnxruntime: {brief(error) or type(error).__name__}")
    if isinstance(error, vendor.NotImplemented):
        return Unsupported(f"{model}: onnxruntime has no kernel for it: {brief(error)}")
    strange = ("is not a registered function/op", "No Op registered for", "opset")
    if isinstance(error, vendor.Fail | vendor.InvalidGraph) and any(word in text for word in strange):
        return Unsupported(f"{model}: onnxruntime does not know an operator or opset of it: {brief(error)}")
    if isinstance(error, vendor.NoSuchFile):
        return ModelError(f"{model}: no such file")
    broken = (vendor.InvalidGraph, vendor.InvalidProtobuf, vendor.NoModel)
    if isinstance(error, broken) or "failed:Invalid model" in text:
        return ModelError(f"{model}: onnxruntime cannot read it: {brief(error)}")
    return EngineError(f"{model}: onnxruntime failed: {brief(error)}")
