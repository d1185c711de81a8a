"""From an ONNX model to a plan, as TensorRT calls its serialized engine. No GPU is needed for TensorRT-RTX.

The vendor's module is handed in: TensorRT 10 and 11 and TensorRT-RTX have the same names for all of this.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from inferometer.engines.tensorrt.log import Log, failure, one_line
from inferometer.errors import EngineError, InferometerError, ModelError, OutOfMemory, Unsupported
from inferometer.models.external import LARGEST_MESSAGE, bytes_inside
from inferometer.models.files import save

__all__ = ["Plan", "Recipe", "build"]

# What the binding raises itself: for an object that the library did not make, and what it lets through.
VENDOR_ERRORS = (TypeError, RuntimeError, ValueError, MemoryError)

# Codes of the parser's errors that say the file is at fault. Source: onnx-tensorrt, NvOnnxParser.h.
_FILE_FAULTS = ("MODEL_DESERIALIZE_FAILED", "INVALID_VALUE", "INVALID_GRAPH", "INVALID_NODE")


@dataclass(frozen=True)
class Recipe:
    """How to build.

    Attributes:
        tf32: Whether products of float32 may be computed in TF32.
        optimization_level: 0 to 5: how long it searches for fast kernels.
        workspace_bytes: The most that one layer may take beside its inputs and outputs; None: all there is.
        threads: CPU threads that build; None: TensorRT's own choice.
    """

    tf32: bool
    optimization_level: int = 3
    workspace_bytes: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Plan:
    """A serialized engine, and the timing cache after its build (empty: none)."""

    content: bytes
    timing: bytes


def build(
    vendor: Any, name: str, log: Log, model: ModelProto, label: str, recipe: Recipe, timing: bytes | None
) -> Plan:
    """Build a network whose types are those of the model (strongly typed).

    Args:
        vendor: TensorRT's module.
        name: The engine's name, for errors.
        log: A logger of the vendor's.
        model: Its shapes fixed, its weights in memory.
        label: How to call the model in an error.
        recipe: How to build.
        timing: Times of kernels from an earlier build, empty for none; None where it does not time them.

    Raises:
        ModelError: The graph cannot be.
        Unsupported: The parser or the builder does not know an operator or form of it, or there is no GPU.
        OutOfMemory: Memory ran out.
        EngineError: Anything else.
    """
    log.take()
    try:
        builder = vendor.Builder(log)
        if recipe.threads is not None:
            builder.max_threads = recipe.threads
        # TensorRT 11 knows no other networks.
        typed = getattr(vendor.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
        network = builder.create_network(0 if typed is None else 1 << int(typed))
        _parse(vendor, name, log, network, model, label)
        config = _config(vendor, builder, log, recipe, timing)
        memory = builder.build_serialized_network(network, config)
    except VENDOR_ERRORS as error:
        raise failure(label, name, "build it", [*log.take(), *_told(error)]) from error
    if memory is None:
        raise failure(label, name, "build it", log.take())
    times = None if timing is None else config.get_timing_cache()
    return Plan(bytes(memory), b"" if times is None else bytes(times.serialize()))


def _told(error: Exception) -> list[str]:
    """What an exception of the binding adds to the log: little, but that memory ran out."""
    return ["bad_alloc"] if isinstance(error, MemoryError) else [str(error)]


def _config(vendor: Any, builder: Any, log: Log, recipe: Recipe, timing: bytes | None) -> Any:
    config = builder.create_builder_config()
    if recipe.tf32:
        config.set_flag(vendor.BuilderFlag.TF32)
    else:
        config.clear_flag(vendor.BuilderFlag.TF32)  # it is set from the start
    config.profiling_verbosity = vendor.ProfilingVerbosity.DETAILED
    config.builder_optimization_level = recipe.optimization_level
    if recipe.workspace_bytes is not None:
        config.set_memory_pool_limit(vendor.MemoryPoolType.WORKSPACE, recipe.workspace_bytes)
    if timing is not None and not _timed(config, timing):
        _timed(config, b"")  # the old one is of another version or GPU
    log.take()  # what it said of an old timing cache is no fault of this build
    return config


def _timed(config: Any, timing: bytes) -> bool:
    """Give the builder times of kernels; whether it took them."""
    cache = config.create_timing_cache(timing)
    return cache is not None and bool(config.set_timing_cache(cache, False))


def _parse(vendor: Any, name: str, log: Log, network: Any, model: ModelProto, label: str) -> None:
    """Fill the network from the model, and check that all its shapes are known.

    Raises:
        InferometerError: As `build`.
    """
    parser = vendor.OnnxParser(network, log)
    if bytes_inside(model) <= LARGEST_MESSAGE:
        done = parser.parse(model.SerializeToString())
    else:
        with tempfile.TemporaryDirectory(prefix="inferometer-tensorrt-") as folder:
            path = Path(folder) / "model.onnx"
            save(model, path)
            done = parser.parse_from_file(str(path))
    if not done:
        errors = [parser.get_error(number) for number in range(parser.num_errors)]
        raise _refusal(label, name, errors[-1] if errors else None, log.take())
    for position in range(network.num_inputs):
        tensor = network.get_input(position)
        if tensor.is_shape_tensor:
            raise Unsupported(
                f"{label}: input {tensor.name!r} decides shapes, which are fixed here in {name}"
            )
    for position in range(network.num_outputs):
        tensor = network.get_output(position)
        if any(side < 0 for side in tensor.shape):
            raise Unsupported(
                f"{label}: the shape of output {tensor.name!r} depends on values, and is not fixed"
            )


def _refusal(label: str, name: str, error: Any, logged: list[str]) -> InferometerError:
    """What an error of the parser stands for."""
    if error is None:
        return failure(label, name, "parse it", logged)
    code, operator, text = error.code().name, error.node_operator(), one_line(error.desc())
    where = f" at node {error.node_name()!r}" if error.node_name() else ""
    if "lugin not found" in text or "No importer" in text:
        return Unsupported(f"{label}: {name} does not know the operator {operator or '?'}{where}")
    if code == "MEM_ALLOC_FAILED":
        return OutOfMemory(f"{label}: out of memory in {name}: {text}")
    if code.startswith("UNSUPPORTED"):
        of = f"{operator} in this form" if operator else "the model in this form"
        return Unsupported(f"{label}: {name} does not support {of}{where}: {text}")
    if code in _FILE_FAULTS:
        return ModelError(f"{label}: {name} cannot read it{where} ({operator or 'the file'}): {text}")
    return EngineError(f"{label}: {name} could not parse it{where}: {text}")
