"""The option ``--weights`` of the verbs that take models."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.console import note
from inferometer.errors import ConfigError
from inferometer.models import networks

__all__ = ["WeightsOption", "WithWeights", "say", "weights_for", "with_weights"]

WeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        help="Trained weights of a built-in network: .safetensors, .pth, .onnx (models show NAME --tensors).",
    ),
]


@dataclass(frozen=True)
class WithWeights:
    """A built-in network that was given weights, as a file: where it is, and its preprocessing preset."""

    file: Path
    preprocess: str


def weights_for(models: Sequence[str], weights: Path | None) -> dict[str, str]:
    """Which of the models the weights are for; what will be done with them is told on standard error.

    Raises:
        ConfigError: There are weights, and not exactly one built-in network that they could be for.
        ModelError: The file cannot be used, or does not fit.
        EngineError: The package that reads it is not installed, or not fit to.
    """
    if weights is None:
        return {}
    built_in = [model for model in models if model in networks.names()]
    if not built_in:
        raise ConfigError(
            f"--weights {weights}: are for a built-in network, an ONNX file has its own: leave them out, or "
            f"name one of {', '.join(networks.names())}"
        )
    if len(built_in) > 1:
        raise ConfigError(
            f"--weights {weights}: for {' or '.join(built_in)}? Write each to a file first: inferometer "
            "models export NAME FILE --weights FILE"
        )
    say(weights, networks.examine_weights(built_in[0], weights))
    return {built_in[0]: str(weights)}


def with_weights(model: str, weights: Path | None, context: typer.Context) -> WithWeights | None:
    """Write a network with its weights into a file that lasts as long as ``context``; None without weights.

    Raises:
        InferometerError: As `weights_for`, or the file cannot be written.
    """
    for name, file in weights_for([model], weights).items():
        scratch = tempfile.TemporaryDirectory(prefix="inferometer-weights-")
        path = Path(context.with_resource(scratch)) / f"{name}.onnx"
        networks.export_trained(name, file, path)
        return WithWeights(path, networks.network(name).preprocess)
    return None


def say(weights: Path, notes: Sequence[str]) -> None:
    """Tell what was done with a file of weights."""
    for text in notes:
        note(f"{weights.name}: {text}")
