"""Opening a session of ONNX Runtime on a provider, and which provider took which nodes."""

from __future__ import annotations

import contextlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime

from inferometer.engines.onnxruntime.errors import vendor_errors
from inferometer.engines.onnxruntime.plugins import places, registered
from inferometer.engines.onnxruntime.providers import Provider, settings
from inferometer.errors import ModelError, Unsupported
from inferometer.records import Precision

__all__ = ["Opening", "assignment", "open_session", "session_options"]

_CPU = "CPUExecutionProvider"
_FALLBACKS_NAMED = 20


@dataclass(frozen=True)
class Opening:
    """Everything that a session of a model is opened with.

    Attributes:
        model: The file, for messages too.
        content: The model itself where it is not the file's.
        provider: Who computes.
        device: On which of its devices.
        precision: In what.
        threads: On how many threads in all.
        in_flight: How many requests share them.
        copies: Whether transfers between host and device are part of each call.
    """

    model: Path
    provider: Provider
    device: str
    precision: Precision
    threads: int
    in_flight: int = 1
    copies: bool = True
    content: bytes | None = None


def session_options(opening: Opening, threads: int) -> onnxruntime.SessionOptions:
    """The runtime's options with ``threads`` for each call."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Source: onnxruntime_session_options_config_keys.h: 1 is float32, 4 (its default) rounds inputs to int8.
    exact = opening.precision != "int8"
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1" if exact else "4")
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.log_severity_level = 4  # errors arrive as exceptions; the log would only repeat them
    return options


def open_session(
    opening: Opening,
    options: onnxruntime.SessionOptions,
    without: Sequence[str] = (),
    profiled: bool = False,
) -> onnxruntime.InferenceSession:
    """Open a session ``without`` the named graph optimizers; it never takes another provider instead.

    Raises:
        ModelError: The file is missing or no valid model.
        Unsupported: The runtime, or its provider, cannot run it.
        EngineError: Anything else that the runtime reports.
    """
    if not opening.model.is_file():
        raise ModelError(f"{opening.model}: no such file")
    provider, source = opening.provider, opening.content or str(opening.model)
    own = settings(provider, opening.device, opening.precision, opening.threads, opening.in_flight, profiled)
    # Without this, a failing provider is replaced by others, which is only printed.
    common: dict[str, Any] = {"disabled_optimizers": list(without), "enable_fallback": 0}
    with vendor_errors(opening.model):
        if provider.plugin is not None:
            device = places(registered(provider.plugin))[opening.device]
            options.add_provider_for_devices([device], own)
            session = onnxruntime.InferenceSession(source, options, **common)
        else:
            _find_libraries(provider)
            session = onnxruntime.InferenceSession(source, options, providers=_chain(opening, own), **common)
    if provider.name not in session.get_providers():
        raise Unsupported(
            f"onnxruntime did not take {provider.name}: libraries that it needs (of CUDA, cuDNN or TensorRT) "
            f"are not found, or are of other versions than this build wants"
        )
    return session


def assignment(session: onnxruntime.InferenceSession, opening: Opening) -> dict[str, Any]:
    """How many of the model's nodes each provider took, and which of them the wanted one did not take.

    Raises:
        Unsupported: It took none.
    """
    wanted = opening.provider.name
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return {}  # before 1.24, where `refusals` leaves the CPU's provider alone
    taken: Counter[str] = Counter()
    left: list[str] = []
    for part in session.get_provider_graph_assignment_info():
        nodes = part.get_nodes()
        taken[part.ep_name] += len(nodes)
        if part.ep_name != wanted:
            left += [f"{node.name or 'without a name'} ({node.op_type})" for node in nodes]
    if taken and not taken[wanted]:
        raise Unsupported(
            f"{opening.model}: {wanted} takes none of its {taken.total()} nodes, such as {left[0]}: "
            f"all of them would run on {' and '.join(taken)}"
        )
    return {"nodes": dict(taken), "fallback": left[:_FALLBACKS_NAMED]}


def _chain(opening: Opening, own: dict[str, str]) -> list[str | tuple[str, dict[str, str]]]:
    """The provider, then those that take what it leaves."""
    provider = opening.provider
    chain: list[str | tuple[str, dict[str, str]]] = [(provider.name, own)] if own else [provider.name]
    if provider.word == "tensorrt":
        cuda = Provider("cuda", "CUDAExecutionProvider")
        chain.append((cuda.name, settings(cuda, opening.device, opening.precision, 1, 1, profiled=False)))
    return chain if provider.name == _CPU else [*chain, _CPU]


def _find_libraries(provider: Provider) -> None:
    """Load CUDA's and cuDNN's libraries from the packages of pip, where there are any.

    Source: ONNX Runtime's documentation of the CUDA provider, "Preload DLLs". It prints what it misses.
    """
    if provider.word in ("cuda", "tensorrt") and hasattr(onnxruntime, "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()):
            onnxruntime.preload_dlls()
