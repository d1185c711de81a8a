"""Kernels as ONNX Runtime's profile lists them, of sessions opened for that alone."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from inferometer.contracts import Feeds
from inferometer.engines.onnxruntime.errors import vendor_errors
from inferometer.engines.onnxruntime.layers import Event, layer_name
from inferometer.engines.onnxruntime.opening import Opening, open_session, session_options
from inferometer.engines.onnxruntime.openvino import inner_kernels
from inferometer.errors import EngineError

__all__ = ["BLOCKED", "Kernels", "kernels_of", "plain_kernels_of"]

BLOCKED = "_nchwc"
"""How the names of kernels on blocked channels end, behind the name of their result."""


@dataclass(frozen=True)
class Kernels:
    """The events of one call.

    Attributes:
        nodes: One for each kernel of the runtime, or node that a provider has compiled.
        inside: Those of the kernels inside a compiled node, by the place of the node's in ``nodes``.
    """

    nodes: tuple[Event, ...]
    inside: Mapping[int, Sequence[Event]]


def kernels_of(
    opening: Opening, names: Sequence[str], feeds: Feeds, calls: int, enough_s: float
) -> list[Kernels]:
    """The kernels of each of ``calls`` calls, the third and later within ``enough_s`` seconds."""
    with tempfile.TemporaryDirectory(prefix="inferometer-profile-") as folder:
        options = _options(opening, Path(folder))
        session = open_session(opening, options, profiled=True)
        return _run(opening, session, names, feeds, calls, enough_s)


def plain_kernels_of(
    opening: Opening, names: Sequence[str], feeds: Feeds
) -> tuple[Kernels, Mapping[str, str]]:
    """The kernels of one call with weights not packed in advance and channels not blocked.

    Packed weights are missing from the profile, and blocked channels are padded. Which precision runs depends
    on neither.

    Returns:
        The kernels; and the names of those that work on blocked channels in `kernels_of`, with the names that
        they have here. The runtime calls the one after the node's result, the other after the node; which
        belong together is read from its optimized graph. Nothing where it writes none.
    """
    with tempfile.TemporaryDirectory(prefix="inferometer-profile-") as name:
        folder = Path(name)
        graph = folder / "graph.onnx" if opening.provider.word == "cpu" else None
        try:
            kernels = _plain(opening, names, feeds, folder, graph)
        except EngineError:
            if graph is None:
                raise
            graph = None  # it may be the writing that failed
            kernels = _plain(opening, names, feeds, folder, graph)
        return kernels, _blocked_names(graph, kernels) if graph else {}


def _plain(opening: Opening, names: Sequence[str], feeds: Feeds, folder: Path, graph: Path | None) -> Kernels:
    options = _options(opening, folder)
    options.add_session_config_entry("session.disable_prepacking", "1")
    if graph is not None:
        # The weights, which may be large, are written to no file.
        (folder / "weights").symlink_to("/dev/null")
        prefix = "session.optimized_model_external_initializers_"
        options.add_session_config_entry(f"{prefix}file_name", "weights")
        options.add_session_config_entry(f"{prefix}min_size_in_bytes", "1024")
        options.optimized_model_filepath = str(graph)
    session = open_session(opening, options, ("NchwcTransformer",), profiled=True)
    return _run(opening, session, names, feeds, 1, 0.0)[0]


def _blocked_names(graph: Path, kernels: Kernels) -> dict[str, str]:
    try:
        nodes = onnx.load(str(graph), load_external_data=False).graph.node
    except (DecodeError, OSError):
        return {}
    ran = [(event["args"]["op_name"], layer_name(event)) for event in kernels.nodes]
    if [op for op, _ in ran] != [node.op_type for node in nodes]:
        return {}
    return {node.output[0] + BLOCKED: name for node, (_, name) in zip(nodes, ran, strict=True)}


def _options(opening: Opening, folder: Path) -> onnxruntime.SessionOptions:
    options = session_options(opening, opening.threads)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "trace")
    return options


def _run(
    opening: Opening,
    session: onnxruntime.InferenceSession,
    names: Sequence[str],
    feeds: Feeds,
    calls: int,
    enough_s: float,
) -> list[Kernels]:
    with vendor_errors(opening.model):
        begin, done = time.monotonic(), 0
        while done < min(calls, 2) or (done < calls and time.monotonic() - begin < enough_s):
            session.run(names, feeds)
            done += 1
        trace = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return _by_call(trace, done)


def _by_call(trace: Sequence[Event], calls: int) -> list[Kernels]:
    nodes = [
        event for event in trace if event.get("cat") == "Node" and event["name"].endswith("_kernel_time")
    ]
    inside, per_call = inner_kernels(trace, nodes), len(nodes) // calls
    return [
        Kernels(
            tuple(nodes[begin : begin + per_call]),
            {place: inside[begin + place] for place in range(per_call) if begin + place in inside},
        )
        for begin in range(0, per_call * calls, per_call or 1)
    ] or [Kernels((), {})] * calls
