"""ONNX Runtime on the CPU, and on the other execution providers that it has or that packages add to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from inferometer.contracts import Device, QdqScheme, Session, Variant
from inferometer.engines import schemes
from inferometer.engines.onnxruntime.float16 import float16_form
from inferometer.engines.onnxruntime.opening import Opening
from inferometer.engines.onnxruntime.providers import (
    Provider,
    found_devices,
    provider_of,
    provider_variants,
    refusals,
    settle_tf32,
)
from inferometer.engines.onnxruntime.session import OnnxRuntimeSession
from inferometer.engines.options import copied, only, whole
from inferometer.environment.cgroup import usable_cores
from inferometer.errors import Unsupported, nearest
from inferometer.records import Precision

__all__ = ["OnnxRuntimeEngine", "OnnxRuntimeSession"]

_OPTIONS = ("threads", "in_flight", "copies", "provider")
# Providers that compute float16 where the file has it; the others are told to compute in it.
_BY_TYPES_OF_FILE = ("cuda", "nv-tensorrt-rtx", "webgpu")


class OnnxRuntimeEngine:
    """``onnxruntime``; the option ``provider`` says by which of its execution providers.

    Absent, the device decides: ``cpu`` or ``cuda``. It is one of ``cpu``, ``cuda``, ``tensorrt``,
    ``openvino``, or the name of an installed package ``onnxruntime-ep-...`` without that beginning.
    """

    name = "onnxruntime"
    version = str(onnxruntime.__version__)
    computes = True

    def devices(self) -> list[Device]:
        """The CPU; then GPUs (``cuda:0`` for NVIDIA's, ``gpu:0``) and others that some provider runs on."""
        return found_devices()

    def variants(self) -> list[Variant]:
        """The CPU's provider, then each other that is known or installed."""
        return [Variant({}), *provider_variants()]

    def precisions(self, device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
        """What the provider of the options runs on the device, the others with the reason why not.

        Raises:
            EngineError: There is no such provider.
        """
        return _precisions(device, options)

    def check(self, device: str, options: Mapping[str, Any]) -> None:
        """Refuse what `load` would refuse of them.

        Raises:
            Unsupported: The provider cannot leave transfers out on this device.
            EngineError: An option is not known, or does not take its value.
        """
        only("onnxruntime", options, _OPTIONS)
        for key in ("threads", "in_flight"):
            whole("onnxruntime", options, key)
        _copies(options, provider_of(device, options), device)

    def qdq_scheme(self, device: str, options: Mapping[str, Any]) -> QdqScheme:
        """That of the provider; see ``schemes``.

        Raises:
            Unsupported: The provider runs no integers.
        """
        return schemes.onnxruntime(device, options)

    def load(
        self, model: Path, device: str, precision: Precision, batch: int, options: Mapping[str, Any]
    ) -> Session:
        """Load a model.

        The option ``threads`` is the number of threads in all; ``in_flight`` requests (1 if absent, and no
        more than threads) share them, each computed by the thread that submits it. ``provider`` is described
        above. Nodes that the provider does not take run on the CPU, and the session's ``settled`` counts and
        names them; a model of which it takes none is refused.
        """
        self.check(device, options)
        provider = provider_of(device, options)
        if device != "cpu":
            known = [found.name for found in self.devices()]
            if device not in known:
                raise Unsupported(f"onnxruntime: there is no device {device!r}{nearest(device, known)}")
        reason = refusals(provider, device)[precision]
        if reason is not None:
            raise Unsupported(f"onnxruntime on {device} cannot run {precision}: {reason}")
        settle_tf32(provider, precision)
        threads = whole("onnxruntime", options, "threads") or usable_cores()
        opening = Opening(
            model=model,
            provider=provider,
            device=device,
            precision=precision,
            threads=threads,
            in_flight=min(whole("onnxruntime", options, "in_flight") or 1, threads),
            copies=_copies(options, provider, device),
            content=float16_form(model)
            if precision == "fp16" and provider.word in _BY_TYPES_OF_FILE
            else None,
        )
        return OnnxRuntimeSession(opening, batch)


def _precisions(device: str, options: Mapping[str, Any]) -> dict[Precision, str | None]:
    try:
        return refusals(provider_of(device, options), device)
    except Unsupported as error:
        return dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "int8"), str(error))


def _copies(options: Mapping[str, Any], provider: Provider, device: str) -> bool:
    """Whether transfers count."""
    included = copied("onnxruntime", options)
    if not included and device != "cpu" and not device.startswith("cuda"):
        raise Unsupported(
            f"onnxruntime: copies cannot be left out on {device} by the provider {provider.word}: "
            f"say copies: included"
        )
    return included
