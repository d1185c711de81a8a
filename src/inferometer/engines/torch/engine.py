"""PyTorch on NVIDIA GPUs and on the CPU, from an ONNX file.

The file's operators are mapped one by one onto PyTorch's; what is not mapped exactly is refused. Its floats
are all computed in the one type that the precision names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import torch

from inferometer.contracts import Device, QdqScheme, Session, Variant
from inferometer.engines import schemes
from inferometer.engines.options import copied, only, whole, word
from inferometer.engines.torch.cpu import CpuSession
from inferometer.engines.torch.cuda import CudaSession
from inferometer.environment.cgroup import usable_cores
from inferometer.environment.cpu import cpu_facts
from inferometer.errors import Unsupported, nearest
from inferometer.records import Precision

__all__ = ["TorchEngine"]

_OPTIONS = ("threads", "in_flight", "copies", "mode")
_MODES = {"cpu": ("eager", "compile"), "cuda": ("auto", "eager", "compile")}

_NO_INT8 = (
    "this version has no int8 kernels for it, and writes the file for them (inferometer calibrate "
    "--engine torch)"
)
_EMULATED = "this CPU has no instructions for {0}: PyTorch would emulate {0}"

# Linux's names in /proc/cpuinfo of what kernels of each type need: AVX512-BF16, AVX512-FP16 or AMX on x86,
# BF16 and FP16 arithmetic on Arm. Source: documentation of oneDNN, "CPU Dispatcher Control".
_FEATURES: dict[Precision, frozenset[str]] = {
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
    "fp16": frozenset({"avx512_fp16", "amx_fp16", "fphp", "asimdhp"}),
}


class TorchEngine:
    """PyTorch: cuDNN, cuBLAS and its own kernels on GPUs; oneDNN and its own on the CPU."""

    name = "torch"
    version = str(torch.__version__)
    computes = True

    def devices(self) -> list[Device]:
        """The GPUs, then the CPU."""
        found = []
        for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
            facts = torch.cuda.get_device_properties(index)
            found.append(Device(f"cuda:{index}", facts.name, f"GPU-{facts.uuid}"))
        return [*found, Device("cpu", cpu_facts()[0].model or "CPU of unknown model")]

    def variants(self) -> list[Variant]:
        """The usual one; ``mode`` chooses within it."""
        return [Variant({})]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """All floats on newer GPUs; on the CPU those that it has instructions for."""
        if not device.startswith("cuda"):
            features = cpu_facts()[0].features or ()
            halves = {
                name: None if needed & set(features) else _EMULATED.format(name)
                for name, needed in _FEATURES.items()
            }
            return {"fp32": None, "tf32": "tf32 is a format of NVIDIA GPUs", **halves, "int8": _NO_INT8}
        names = [one.name for one in self.devices()]
        if names == ["cpu"]:
            built = "finds no NVIDIA GPU" if torch.version.cuda else "is a build without CUDA"
            return dict.fromkeys(get_args(Precision), f"PyTorch {self.version} {built}")
        major = torch.cuda.get_device_capability(device)[0] if device in names else 0
        # Source: CUDA C++ Programming Guide, compute capabilities: tensor cores take both from 8.0 on.
        old = None if major >= 8 else "tensor cores take it from compute capability 8.0 on"
        return {"fp32": None, "tf32": old, "fp16": None, "bf16": old, "int8": _NO_INT8}

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Refuse what `load` would refuse of them."""
        _Asked.of(device, options)

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """int8 symmetric, zero point 0, bias in float; see ``schemes``."""
        return schemes.torch(device, options)

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Load a model.

        Options: ``threads`` of the CPU, a setting of the whole process. ``mode`` is ``eager`` (each
        operator's own kernels), ``compile`` (``torch.compile``) or, on GPUs and there the default, ``auto``:
        both are timed and the faster is taken. ``in_flight`` bounds the slots: the CPU has one, a
        GPU up to three.
        """
        asked = _Asked.of(device, options)
        names = [one.name for one in self.devices()]
        if device not in names:
            raise Unsupported(f"torch: there is no device {device!r}{nearest(device, names)}")
        reason = self.precisions(device, options)[precision]
        if reason is not None:
            raise Unsupported(f"torch on {device} cannot run {precision}: {reason}")
        if device == "cpu":
            return CpuSession(model, precision, batch, asked.threads or usable_cores(), asked.mode)
        return CudaSession(model, device, precision, batch, asked.mode, asked.copies, asked.in_flight)


@dataclass(frozen=True)
class _Asked:
    """The options, checked; see `TorchEngine.load`."""

    threads: int | None
    in_flight: int | None
    copies: bool
    mode: str

    @classmethod
    def of(cls, device: str, options: Mapping[str, Any]) -> _Asked:
        only("torch", options, _OPTIONS)
        modes = _MODES["cuda" if device.startswith("cuda") else "cpu"]
        return cls(
            whole("torch", options, "threads"),
            whole("torch", options, "in_flight"),
            copied("torch", options),
            word("torch", options, "mode", modes) or modes[0],
        )
