"""OpenVINO's library: how it is imported, its one core, and its errors in our words."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferometer.errors import EngineError, InferometerError, ModelError, OutOfMemory, Unsupported, brief


@contextlib.contextmanager
def _no_telemetry() -> Iterator[None]:
    """Make the import of ``openvino_telemetry`` fail meanwhile.

    Importing openvino imports its model converter, which reports that import to Google Analytics and leaves
    an identifier in ``~/intel``. Without the telemetry package it takes a stub of its own that does nothing.

    Source: openvino/tools/ovc/__init__.py and telemetry_utils.py of the package.
    """
    name, absent = "openvino_telemetry", object()
    before: Any = sys.modules.get(name, absent)
    sys.modules[name] = None  # type: ignore[assignment]  # how Python spells: this import fails
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not absent:
            sys.modules[name] = before


with _no_telemetry():
    import openvino
    from openvino import _pyopenvino as vendor

__all__ = ["VENDOR_ERRORS", "core", "frontend", "mapped", "openvino", "vendor", "vendor_errors"]

VENDOR_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(vendor).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    MemoryError,
    RuntimeError,
    ValueError,
)
"""Whatever the vendor's module raises, and what its binding lets through from C++ and NumPy."""

# Where in its own source an error arose, which OpenVINO says before and between what is wrong.
_WHERE = re.compile(
    r"Exception from \S+:\d+:|Check '.*?' failed at \S+:\d+:|FrontEnd API failed with \w+:", re.DOTALL
)


@functools.cache
def core() -> openvino.Core:
    """One for the process, as OpenVINO wants it: each would load its plug-ins again. It caches no models."""
    made = openvino.Core()
    made.set_property({"CACHE_DIR": ""})
    return made


def frontend(model: Path) -> Any:
    """The reader of ONNX files; ``Core.read_model`` would try all its readers on a broken one."""
    with vendor_errors(model):
        return _frontends().load_by_framework("onnx")


@functools.cache
def _frontends() -> Any:
    return openvino.frontend.FrontEndManager()


@contextlib.contextmanager
def vendor_errors(model: Path, *, reading: bool = False) -> Iterator[None]:
    """Turn what the vendor raises within into ours; ``reading`` is when the file is at fault."""
    try:
        yield
    except VENDOR_ERRORS as error:
        raise mapped(error, model, reading=reading) from error


def mapped(error: BaseException, model: Path, *, reading: bool = False) -> InferometerError:
    """The one table from the vendor's errors to ours; ``reading`` is when the file is at fault."""
    text = " ".join(_WHERE.sub("", str(error)).split())
    short = brief(text)
    memory_words = (
        "bad_alloc", "bad allocation", "can't alloc", "Cannot allocate", "Failed to allocate",
        "out of memory", "CL_MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_HOST_MEMORY", "OUT_OF_DEVICE_MEMORY",
        "Exceeded max size of memory",
    )  # fmt: skip
    if isinstance(error, MemoryError) or any(word in text for word in memory_words):
        return OutOfMemory(f"{model}: out of memory in openvino: {short or type(error).__name__}")
    strange = ("No conversion rule found", "not supported", "Unsupported ")
    if isinstance(error, vendor.NotImplementedFailure) or any(word in text for word in strange):
        return Unsupported(f"{model}: openvino does not know an operator or form of it: {short}")
    if "could not create a primitive" in text:
        return Unsupported(f"{model}: openvino has no kernel for it: {short}")
    if reading:
        return ModelError(f"{model}: openvino cannot read it: {short}")
    return EngineError(f"{model}: openvino failed: {short}")
