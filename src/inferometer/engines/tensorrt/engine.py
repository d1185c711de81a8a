"""TensorRT and TensorRT-RTX as engines: options, devices, precisions, and the way from a file to a session.

The vendor's module and CUDA's runtime are handed in; ``tensorrt`` and ``tensorrt_rtx`` import them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from inferometer.contracts import Device, QdqScheme, Variant
from inferometer.engines.tensorrt.build import Plan, Recipe, build
from inferometer.engines.tensorrt.cache import PlanCache, default_folder
from inferometer.engines.tensorrt.cuda import Cuda, Gpu
from inferometer.engines.tensorrt.log import new_log
from inferometer.engines.tensorrt.model import readied
from inferometer.engines.tensorrt.options import Asked
from inferometer.engines.tensorrt.session import TensorRtSession, deserialized
from inferometer.engines.tensorrt.slot import Loaded
from inferometer.engines.tensorrt.types import Half, check_types, narrowed
from inferometer.errors import EngineError, OutOfMemory, Unsupported, nearest
from inferometer.models.files import file_sha256
from inferometer.records import Precision

__all__ = ["TensorRt"]


_AMPERE = (8, 0)
_TURING = (7, 5)

# Part of the key of kept plans: raise it when a file is given to the parser in another form.
_FORM = 1


@dataclass(frozen=True)
class TensorRt:
    """One of the two products.

    Attributes:
        name: The entry-point name.
        title: The product's.
        vendor: Its Python module.
        runtime: The CUDA runtime's Python module.
        scheme: Its form of QDQ.
        times_kernels: Whether it builds by timing kernels, so that times are worth keeping.
    """

    name: str
    title: str
    vendor: Any
    runtime: Any
    scheme: Callable[[str, Mapping[str, Any]], QdqScheme]
    times_kernels: bool = True
    computes: bool = True

    @property
    def version(self) -> str:
        """The library's."""
        return str(self.vendor.__version__)

    def devices(self) -> list[Device]:
        """The GPUs in CUDA's order, ``cuda:0`` first."""
        return [gpu.device for gpu in self._gpus()[0]]

    def variants(self) -> list[Variant]:
        """One; with the reason when there is no GPU."""
        return [Variant({}, self._gpus()[1])]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """All where the GPU is of the Ampere generation or later; none without a GPU.

        Source: NVIDIA's support matrices of TensorRT: TF32 and BF16 from compute capability 8.0 on, and no
        GPU before 7.5.
        """
        gpus, reason = self._gpus()
        gpu = next((gpu for gpu in gpus if gpu.device.name == device), gpus[0] if gpus else None)
        if gpu is None:
            return dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "int8"), reason)
        has = "{} has compute capability {}.{}".format(gpu.name, *gpu.capability)
        old = f"{self.title} wants compute capability 7.5, {has}" if gpu.capability < _TURING else None
        later = old or (f"{has}, it takes 8.0" if gpu.capability < _AMPERE else None)
        off = os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"
        return {
            "fp32": old,
            "tf32": later or ("the variable NVIDIA_TF32_OVERRIDE=0 turns it off" if off else None),
            "fp16": old,
            "bf16": later,
            "int8": old,
        }

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Refuse options that are unknown, or of a value that they do not take."""
        Asked.of(self.name, options)

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """int8 symmetric, zero point 0, bias in float; see ``schemes``."""
        return self.scheme(device, options)

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> TensorRtSession:
        """Load a model.

        A network's types are those of the file: at fp16 and bf16 it is converted first, its inputs and
        outputs stay. TF32 is allowed at tf32 alone.

        Options beside ``threads`` (that build), ``in_flight`` (2 if absent) and ``copies``: ``cache`` is a
        folder for plans, or ``none``; ``optimization_level`` 0 to 5; ``workspace_mib``; ``cuda_graph`` true
        (if absent) or false; ``float`` is the type of what is not quantized at int8: fp32 (if absent), fp16
        or bf16.
        """
        asked = Asked.of(self.name, options)
        gpu = self._gpu(device)
        reason = self.precisions(device, options)[precision]
        if reason is not None:
            raise Unsupported(f"{self.name} on {device} cannot run {precision}: {reason}")
        half = asked.half(precision)
        cuda = Cuda(self.runtime, str(model))
        cuda.call("cudaSetDevice", gpu.index)
        free = cuda.free_bytes()
        file = readied(model, batch, self.name)
        check_types(file.model, precision, str(model))
        loaded = Loaded(
            self.vendor,
            self.name,
            str(model),
            cuda,
            new_log(self.vendor),
            gpu.index,
            file,
            precision == "tf32",
        )
        made = _Maker(
            loaded, asked, self._cache(model, loaded, asked, gpu, half), half, self.times_kernels
        ).made()
        return TensorRtSession(
            replace(loaded, file=replace(file, model=ModelProto())),  # its weights are in the plan
            made.engine,
            asked.in_flight,
            copies=asked.copies,
            graphs=asked.cuda_graph,
            settled={self.name: self.version, "floats": half or "fp32", "tf32": loaded.tf32, **made.settled},
            compile_s=made.compile_s,
            free_bytes=free,
        )

    def _cache(self, model: Path, loaded: Loaded, asked: Asked, gpu: Gpu, half: Half | None) -> PlanCache:
        machine = {
            "engine": self.name,
            "version": self.version,
            "gpu": gpu.name,
            "capability": list(gpu.capability),
            "driver": loaded.cuda.driver(),
        }
        key = {
            **machine,
            "form": _FORM,
            "model": file_sha256(model),
            "inputs": {name: list(shape) for name, shape in loaded.file.inputs.items()},
            "half": half,
            "tf32": loaded.tf32,
            "optimization_level": asked.optimization_level,
            "workspace_mib": asked.workspace_mib,
        }
        folder = default_folder(self.name) if asked.cache is None else Path(asked.cache)
        return PlanCache(None if asked.cache == "none" else folder, key, machine)

    def _gpus(self) -> tuple[tuple[Gpu, ...], str | None]:
        return Cuda(self.runtime, self.name).gpus()

    def _gpu(self, device: str) -> Gpu:
        gpus, reason = self._gpus()
        found = next((gpu for gpu in gpus if gpu.device.name == device), None)
        if found is None and gpus:
            names = [gpu.device.name for gpu in gpus]
            raise Unsupported(f"{self.name}: there is no device {device!r}{nearest(device, names)}")
        if found is None:
            raise Unsupported(f"{self.name}: there is no device {device!r}: {reason}")
        return found


@dataclass(frozen=True)
class _Made:
    """An engine with its runtime, what to say of how it came about, and the seconds of its build."""

    engine: Any
    settled: Mapping[str, Any]
    compile_s: float


@dataclass(frozen=True)
class _Maker:
    """From a file to an engine: the kept plan if it loads, else a new one."""

    loaded: Loaded
    asked: Asked
    cache: PlanCache
    half: Half | None
    times_kernels: bool

    def made(self) -> _Made:
        """The engine.

        Raises:
            EngineError: As `TensorRt.load`.
            ModelError: As `TensorRt.load`.
        """
        kept = self.cache.plan()
        if kept is not None:
            try:
                return _Made(deserialized(self.loaded, kept), self._settled(from_cache=True), 0.0)
            except (Unsupported, OutOfMemory):
                raise
            except EngineError:
                self.cache.forget()  # of another version, say: what counts is how a new one loads
        begin = time.monotonic()
        plan, saturated = self._built()
        compile_s = time.monotonic() - begin
        engine = deserialized(self.loaded, plan.content)
        not_kept = self.cache.keep(plan.content, plan.timing)
        notes = {
            **self._settled(from_cache=False),
            **({"cache_not_written": not_kept} if not_kept else {}),
            **({"saturated_weights": list(saturated)} if saturated else {}),
        }
        return _Made(engine, notes, compile_s)

    def _built(self) -> tuple[Plan, tuple[str, ...]]:
        loaded, asked = self.loaded, self.asked
        model = loaded.file.model
        saturated: tuple[str, ...] = ()
        if self.half is not None:
            halved = narrowed(model, self.half, loaded.label)
            model, saturated = halved.model, halved.saturated
        workspace = asked.workspace_mib
        recipe = Recipe(
            tf32=loaded.tf32,
            optimization_level=asked.optimization_level,
            workspace_bytes=None if workspace is None else workspace << 20,
            threads=asked.threads,
        )
        timing = self.cache.timing() if self.times_kernels else None
        return build(loaded.vendor, loaded.name, loaded.log, model, loaded.label, recipe, timing), saturated

    def _settled(self, *, from_cache: bool) -> dict[str, Any]:
        asked = self.asked
        return {
            "from_cache": from_cache,
            "optimization_level": asked.optimization_level,
            "workspace_mib": asked.workspace_mib,
            "shapes": {name: list(shape) for name, shape in self.loaded.file.inputs.items()},
        }
