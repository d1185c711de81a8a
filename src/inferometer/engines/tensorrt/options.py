"""The options of TensorRT's engines, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from inferometer.engines.options import copied, only, whole, word
from inferometer.engines.tensorrt.types import Half
from inferometer.errors import EngineError
from inferometer.records import Precision

__all__ = ["Asked"]

_OPTIONS = (
    "threads", "in_flight", "copies", "cache", "optimization_level", "workspace_mib", "cuda_graph", "float",
)  # fmt: skip
_FLOATS = ("fp32", "fp16", "bf16")
_IN_FLIGHT = 2  # one request's transfers beside the other's computing

# Source: IBuilderConfig's own default.
_LEVEL = 3


@dataclass(frozen=True)
class Asked:
    """What was asked for; see `TensorRt.load`. ``cache`` is None for the usual folder, or ``none``."""

    threads: int | None
    in_flight: int
    copies: bool
    cache: str | None
    optimization_level: int
    workspace_mib: int | None
    cuda_graph: bool
    floats: str

    @classmethod
    def of(cls, engine: str, options: Mapping[str, Any]) -> Asked:
        """Check them.

        Raises:
            EngineError: One is unknown, or of a value that it does not take.
        """
        only(engine, options, _OPTIONS)
        number, choice = partial(whole, engine, options), partial(word, engine, options)
        level = number("optimization_level", 0, 5)
        cache, graph = options.get("cache"), options.get("cuda_graph", True)
        if cache is not None and (not isinstance(cache, str) or not cache):
            raise EngineError(f"{engine}: cache: wants a folder, or none: {cache!r}")
        if not isinstance(graph, bool):
            raise EngineError(f"{engine}: cuda_graph: wants true or false: {graph!r}")
        return cls(
            number("threads"), number("in_flight") or _IN_FLIGHT,
            copied(engine, options), cache,
            _LEVEL if level is None else level,
            number("workspace_mib", 1, 1 << 30), graph, choice("float", _FLOATS) or "fp32",
        )  # fmt: skip

    def half(self, precision: Precision) -> Half | None:
        """The type of 16 bits that floats are computed in; None for float32.

        The option ``float`` says nothing of other precisions than int8.
        """
        found = self.floats if precision == "int8" else precision
        return cast(Half, found) if found in ("fp16", "bf16") else None
