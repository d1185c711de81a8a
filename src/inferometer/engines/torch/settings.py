"""PyTorch's process-wide settings, set for one session's work and put back; and its errors as ours."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from inferometer.errors import EngineError, InferometerError, OutOfMemory, Unsupported, brief

__all__ = [
    "TORCH_ERRORS",
    "arithmetic",
    "compiled",
    "compiling",
    "forget_compiled",
    "kernels_tried",
    "mapped",
    "torch_errors",
]

# What PyTorch raises on purpose; its compiler's are RuntimeErrors, and OSErrors where a tool is missing.
TORCH_ERRORS: tuple[type[Exception], ...] = (RuntimeError, MemoryError, ValueError, OSError)


@contextlib.contextmanager
def arithmetic(tf32: bool = False, *, gpu: bool = False) -> Iterator[None]:
    """Compute float32 products in float32, or rounded to tf32, in between; the settings are put back.

    By the older of PyTorch's two ways to say so, which sets both: where only the newer was used, reading the
    older raises, and PyTorch's compiler reads it.

    Args:
        tf32: Whether tensor cores may round factors.
        gpu: Whether cuDNN's settings are set as well: this one, and that it tries its kernels out.
    """
    before = _read()
    wanted = ("high" if tf32 else "highest", *((tf32, True) if gpu else before[1:]))
    if wanted == before:
        yield
        return
    _write(wanted)
    try:
        yield
    finally:
        _write(before)


def _read() -> tuple[str, bool, bool]:
    return (
        torch.get_float32_matmul_precision(),
        bool(torch.backends.cudnn.allow_tf32),
        bool(torch.backends.cudnn.benchmark),
    )


def _write(settings: tuple[str, bool, bool]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions advise the newer way
        torch.set_float32_matmul_precision(settings[0])
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = settings[1:]


@contextlib.contextmanager
def kernels_tried(most: int) -> Iterator[None]:
    """Let cuDNN try so many kernels for a convolution at most, in between."""
    cudnn: Any = torch.backends.cudnn
    before = cudnn.benchmark_limit
    cudnn.benchmark_limit = most
    try:
        yield
    finally:
        cudnn.benchmark_limit = before


@contextlib.contextmanager
def torch_errors(model: Path) -> Iterator[None]:
    """Turn PyTorch's errors into ours, and let go of what a failed call still holds."""
    try:
        yield
    except InferometerError:
        raise
    except TORCH_ERRORS as error:
        chain = list(_chain(error))
        for one in chain:
            # The frames of the traceback hold the tensors that filled the memory.
            traceback.clear_frames(one.__traceback__)
        # Where a capture ends for want of memory, ending the capture fails as well, and later.
        exhausted = (one for one in chain if isinstance(one, torch.OutOfMemoryError))
        raise mapped(next(exhausted, error), model) from error


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, that during whose handling it arose, and so on."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__context__


def mapped(error: BaseException, model: Path) -> EngineError:
    """The one table from PyTorch's errors to ours."""
    text = " ".join(str(error).split())
    short = brief(text)
    memory_words = (
        "out of memory", "can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate",
        "ALLOC_FAILED", "cudaErrorMemoryAllocation",
    )  # fmt: skip
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(word in text for word in memory_words):
        return OutOfMemory(f"{model}: out of memory in torch: {short or type(error).__name__}")
    strange = ("not implemented for", "Could not run", "not supported", "Unable to find a valid cuDNN")
    if isinstance(error, NotImplementedError) or any(word in text for word in strange):
        return Unsupported(f"{model}: torch has no kernel for it: {short}")
    return EngineError(f"{model}: torch failed: {short or type(error).__name__}")


def compiled(network: torch.nn.Module) -> torch.nn.Module:
    """The network under ``torch.compile``: fixed shapes, one graph.

    Compiling happens in the first call, which must be within `compiling`.
    """
    made = torch.compile(network, fullgraph=True, dynamic=False)
    assert isinstance(made, torch.nn.Module)
    return made


@contextlib.contextmanager
def compiling(*, freeze: bool) -> Iterator[None]:
    """Keep the compiler's warnings quiet; ``freeze`` lets it take stored tensors for constants."""
    import torch._inductor.config as inductor

    with inductor.patch(freezing=freeze), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the compiler about itself; what it made is checked by running it
        yield


def forget_compiled() -> None:
    """Drop all compiled code, which would otherwise pile up over the sessions of a process."""
    import torch._dynamo

    torch._dynamo.reset()
