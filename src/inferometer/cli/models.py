"""``inferometer models list | show F | export NAME F``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from inferometer.cli.console import print_json, print_line, print_tables
from inferometer.cli.options import JsonOption, refuse_overwriting
from inferometer.cli.weights import WeightsOption, say
from inferometer.errors import ConfigError
from inferometer.models import networks
from inferometer.models.form import FORM_WORDS
from inferometer.models.inspection import describe
from inferometer.models.summary import ModelSummary
from inferometer.report.tables import Cell, Column, Table

app = typer.Typer(help="The built-in networks, and what an ONNX file is.", rich_markup_mode=None)


@app.command("list")
def list_models(as_json: JsonOption = False) -> int:
    """The seven networks that Inferometer builds itself."""
    known = [networks.network(name) for name in networks.names()]
    if as_json:
        print_json([asdict(item) for item in known])
        return 0
    names = ("network", "input", "parameters", "MACs", "preprocess")
    units = (None, "pixels", "published, M", "published, G", None)
    rows = tuple(
        tuple(
            Cell(text, text)
            for text in (
                item.name,
                str(item.input_size),
                f"{item.published_parameters_m:.2f}",
                f"{item.published_macs_g:.3f}",
                item.preprocess,
            )
        )
        for item in known
    )
    right = {"input", "parameters", "MACs"}
    columns = tuple(
        Column(name, unit, "right" if name in right else "left")
        for name, unit in zip(names, units, strict=True)
    )
    print_tables([Table("networks", "Built-in networks, with random weights", columns, rows)])
    return 0


@app.command("show")
def show(
    model: Annotated[str, typer.Argument(help="An ONNX file, or the name of a built-in network.")],
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Of a built-in network: what --weights wants in a file.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Inputs, outputs, and per layer MACs, parameters and bytes of activations."""
    built_in = model in networks.names() and not Path(model).exists()
    if tensors and not built_in:
        raise ConfigError(f"{model}: --tensors is for the built-in networks: {', '.join(networks.names())}")
    summary = describe(networks.shapes_only(model) if built_in else Path(model))
    if as_json:
        wanted = {"weights": _wanted(model)} if built_in else {}
        print_json({**asdict(summary), **wanted})
        return 0
    if tensors:
        print_tables([_tensors(naming) for naming in networks.namings(model)])
        return 0
    for label, group in (("input", summary.inputs), ("output", summary.outputs)):
        for tensor in group:
            print_line(f"{label:8} {tensor.name} {list(tensor.shape or ())} {tensor.dtype}")
    print_line(f"opset    {summary.opset}")
    print_line(f"form     {summary.float_type or 'no floats'}, {FORM_WORDS[summary.form]}")
    print_line(
        f"total    {summary.parameters / 1e6:.2f} M parameters, {_giga(summary.macs)} G MACs per image"
    )
    print_tables([_layers(summary)])
    return 0


@app.command("export")
def export(
    name: Annotated[str, typer.Argument(help="A built-in network.")],
    file: Annotated[Path, typer.Argument(help="The ONNX file to write.")],
    seed: Annotated[int | None, typer.Option("--seed", help="Of random weights; 0 by default.")] = None,
    weights: WeightsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Write a built-in network as an ONNX file, with trained weights or with random ones."""
    found: dict[str, object] = {"network": name, "file": str(file)}
    if weights is None:
        networks.export(name, file, seed=seed or 0)
        found["seed"] = seed or 0
    else:
        if seed is not None:
            raise ConfigError("--seed is for random weights: leave out it or --weights")
        networks.network(name)  # an unknown name is told before anything is read
        refuse_overwriting({"the ONNX file": file}, [weights])
        notes = networks.export_trained(name, weights, file)
        say(weights, notes)
        found |= {"weights": str(weights), "notes": list(notes)}
    if as_json:
        print_json(found)
    else:
        print_line(f"wrote {file}")
    return 0


def _wanted(name: str) -> list[dict[str, object]]:
    """What ``--weights`` takes for a network, by naming."""
    return [
        {
            "names": naming.title,
            "tensors": [{"name": tensor, "shape": list(shape)} for tensor, shape in naming.shapes.items()],
        }
        for naming in networks.namings(name)
    ]


def _tensors(naming: networks.Naming) -> Table:
    columns = (Column("tensor", header=True), Column("shape"), Column("layer"))
    rows = tuple(
        (
            Cell(tensor, tensor),
            Cell("x".join(str(size) for size in naming.shapes[tensor]), None),
            Cell(layer, layer),
        )
        for layer, origin in naming.origins.items()
        for tensor in origin.names()
    )
    return Table("tensors", f"A file of weights, with {naming.title} names", columns, rows)


def _layers(summary: ModelSummary) -> Table:
    columns = (
        Column("layer", header=True),
        Column("operator"),
        Column("output"),
        Column("MACs", "M", "right"),
        Column("parameters", None, "right"),
        Column("activations", "bytes", "right"),
    )
    rows = tuple(
        (
            Cell(layer.name, layer.name),
            Cell(layer.op, layer.op),
            Cell(
                "x".join("?" if size is None else str(size) for size in layer.output_shape or ()) or "?", None
            ),
            Cell("?" if layer.macs is None else f"{layer.macs / 1e6:.2f}", layer.macs),
            Cell(str(layer.parameters), layer.parameters),
            Cell(
                "?" if layer.activation_bytes is None else str(layer.activation_bytes), layer.activation_bytes
            ),
        )
        for layer in summary.layers
    )
    return Table("layers", "Layers; MACs and bytes are those of one image", columns, rows)


def _giga(macs: int | None) -> str:
    return "unknown" if macs is None else f"{macs / 1e9:.3f}"
