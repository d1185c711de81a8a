"""Reading PyTorch's checkpoints without running what is in them.

A checkpoint is a pickle, and a pickle is a program. It is read with ``torch.load(weights_only=True)``, which
builds tensors and plain containers and refuses the rest; nothing here ever falls back to the other way.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from inferometer.errors import MissingExtra, ModelError, Unsupported
from inferometer.models.stored import Stored, WeightFile, without_prefixes

__all__ = ["SUFFIXES", "read_checkpoint"]

SUFFIXES = (".pth", ".pt", ".bin", ".ckpt", ".tar")
"""Endings of checkpoints in use."""

# Older ones can be made to run code by a crafted file in spite of weights_only.
# Source: CVE-2025-32434 (mended in 2.6.0), CVE-2026-24747 (mended in 2.10.0).
_SAFE_FROM = (2, 10)

_WRAPPERS = ("state_dict", "model", "model_state_dict")

# What the restricted unpickler and the archive reader raise on damaged or foreign files.
_UNREADABLE = (
    pickle.UnpicklingError, RuntimeError, OSError, EOFError, LookupError, ValueError, TypeError,
    AttributeError, AssertionError, OverflowError, ImportError, struct.error, zipfile.BadZipFile,
)  # fmt: skip


def read_checkpoint(path: Path) -> WeightFile:
    """The state dict of a checkpoint.

    Files of the ZIP form (all since PyTorch 1.6) are mapped, so that values are read when asked for.
    Wrappers such as ``{"state_dict": ...}`` and prefixes that all names share, such as ``module.``, are
    taken off.

    Raises:
        ModelError: It is damaged, no checkpoint, holds more than tensors and plain values, or no state dict.
        MissingExtra: PyTorch is not installed.
        Unsupported: The PyTorch that is installed can be made to run code by a checkpoint.
    """
    state, notes = _state_dict(path, _load(path))
    state, more = without_prefixes(state)
    return WeightFile(path, {name: _tensor(state, name) for name in list(state)}, (*notes, *more))


def _load(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtra(
            f"{path}: a PyTorch checkpoint needs: pip install 'inferometer[torch]'; .safetensors does not"
        ) from error
    version = str(torch.__version__)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < _SAFE_FROM:
        raise Unsupported(
            f"{path}: PyTorch {version} can be made to run code by a checkpoint (CVE-2026-24747): install "
            "2.10 or newer, or give the weights as .safetensors"
        )
    try:
        is_zip = zipfile.is_zipfile(path)
        if is_zip and (damaged := _damaged(path)) is not None:
            raise ModelError(f"{path}: is damaged in {damaged}: download it again")
        if is_zip and _is_script(path):
            raise ModelError(f"{path}: a TorchScript program, not a state dict: save model.state_dict()")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that of other pickle protocols, which work
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except _UNREADABLE as error:
        raise ModelError(f"{path}: {_why(str(error))}") from error


def _damaged(path: Path) -> str | None:
    """The first member whose checksum is wrong; PyTorch maps the file and does not look."""
    with zipfile.ZipFile(path) as archive:
        return archive.testzip()


def _is_script(path: Path) -> bool:
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def _why(message: str) -> str:
    found = re.search(r"GLOBAL ([\w.]*\w)", message)
    if found:
        return (
            f"holds Python objects ({found[1]}), which only running code from the file could build: "
            "save model.state_dict() alone, or .safetensors, where you trust the file"
        )
    return "no usable PyTorch checkpoint, truncated or of another kind: download it again"


def _state_dict(path: Path, content: Any) -> tuple[dict[str, Any], list[str]]:
    """The mapping of names to tensors in what a checkpoint holds."""
    notes: list[str] = []
    for wrapper in _WRAPPERS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            others = [str(key) for key in content if key != wrapper][:5]
            rest = f", left out {', '.join(others)}" if others else ""
            notes.append(f"took the entry {wrapper!r}{rest}")
            content = content[wrapper]
            break
    tensors = (
        {str(name): value for name, value in content.items() if hasattr(value, "dtype")}
        if isinstance(content, Mapping)
        else {}
    )
    if not tensors:
        raise ModelError(
            f"{path}: holds no state dict, that is no names with tensors "
            f"(nor under {', '.join(_WRAPPERS)}): save model.state_dict()"
        )
    return tensors, notes


def _tensor(state: dict[str, Any], name: str) -> Stored:
    tensor = state[name]
    kind = str(tensor.dtype).removeprefix("torch.")
    plain = str(tensor.layout) == "torch.strided" and str(tensor.device) == "cpu"

    def read() -> NDArray[Any]:
        values = state.pop(name).detach()
        # numpy has no bfloat16; float32 holds it exactly.
        values = values.float() if kind == "bfloat16" else values
        found: NDArray[Any] = values.contiguous().numpy()
        return found

    return Stored(tuple(tensor.shape), kind if plain else f"{tensor.layout} {kind}", read)
