"""What TensorRT says goes wrong: it logs, returns nothing, and the log becomes one of our errors.

The vendor's module is handed in.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any, Protocol, cast

from inferometer.errors import EngineError, InferometerError, OutOfMemory, Unsupported

__all__ = ["Log", "failure", "new_log", "one_line"]

# Where in its own source an error arose, which TensorRT says before or behind what is wrong.
_WHERE = re.compile(
    r"^\s*(\[\w+\.(cpp|cu|h)::[\w:]+::\d+\]|\w+\.cpp:\d+:|I\w+::\w+:|ERROR:)\s*|Error Code \d+: |"
    r"\s*\(In \S+ at \S+\.(cpp|cu|h):\d+(?= \()|\s*In \S+ at \S+\.(cpp|cu|h):\d+"
)

_LONGEST = 400  # characters of the vendor's own words in a message

# Words of its errors. Source: the texts within the libraries of TensorRT-RTX 1.7.1, and cudaError 2.
_MEMORY = (
    "out of memory", "outofmemory", "cudaerrormemoryallocation", "cudaerror 2:", "bad_alloc",
    "gpu memory allocation", "memory allocation failed", "insufficient memory", "failed to allocate",
)  # fmt: skip
_OTHER_GPU = (
    "cannot run on this gpu", "does not support this compute capability", "incompatible device",
    "not compatible with this hardware-compatible engine", "unsupported sm",
    "is not supported by this tensorrt",
)  # fmt: skip
_NO_GPU = ("driver version is insufficient", "no cuda-capable device", "cuda initialization failure")
_NO_KERNEL = ("could not find any implementation", "no valid implementation", "could not infer output types")


class Log(Protocol):
    """A logger of TensorRT's that keeps the errors."""

    def take(self) -> list[str]:
        """The errors since the last call, oldest first."""


def new_log(vendor: Any) -> Log:
    """A logger to hand to the vendor's objects, which must not outlive it."""
    return cast(Log, _log_class(vendor)())


@functools.cache
def _log_class(vendor: Any) -> Any:
    severity = vendor.ILogger.Severity
    kept = (severity.ERROR, severity.INTERNAL_ERROR)

    class _Log(vendor.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            vendor.ILogger.__init__(self)  # the binding's own must be called by its name
            self._errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in kept:
                self._errors.append(message)

        def take(self) -> list[str]:
            taken, self._errors = self._errors, []
            return taken

    return _Log


def failure(label: str, engine: str, doing: str, errors: Sequence[str]) -> InferometerError:
    """The one table from the vendor's errors to ours.

    Args:
        label: The model.
        engine: The engine's name.
        doing: What it could not do, such as ``build``.
        errors: What it logged, oldest first; the one that names the cause is rarely the last.
    """
    for words, kind, said in (
        (_MEMORY, OutOfMemory, "out of memory in {engine}: {text}"),
        (_OTHER_GPU, Unsupported, "{engine}: {text}"),
        (_NO_GPU, Unsupported, "{engine} finds no usable GPU: {text}"),
        (_NO_KERNEL, Unsupported, "{engine} has no kernel for it: {text}"),
    ):
        for error in errors:
            if any(word in error.lower() for word in words):
                return kind(f"{label}: {said.format(engine=engine, text=one_line(error))}")
    text = one_line(errors[-1]) if errors else "it gave no reason"
    return EngineError(f"{label}: {engine} could not {doing}: {text}")


def one_line(error: str) -> str:
    """The vendor's words without where in its source they stand, shortened."""
    before, text = "", " ".join(error.split())
    while text != before:
        before, text = text, _WHERE.sub("", text).strip()
    if text.endswith("))") and text.count(")") > text.count("("):
        text = text[:-1]
    return text if len(text) <= _LONGEST else text[:_LONGEST] + " ..."
