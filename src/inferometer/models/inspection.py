"""Inspecting any ONNX file without running it: parameters, MACs and activations by layer."""

from __future__ import annotations

import os
from collections.abc import Iterable

from onnx import ModelProto, NodeProto, ValueInfoProto, inliner

from inferometer.models.files import file_sha256, load
from inferometer.models.form import float_type, form_of
from inferometer.models.graph import consumer_counts, is_standard, node_label, true_inputs
from inferometer.models.macs import node_macs
from inferometer.models.parameters import NodeUse, parameter_uses
from inferometer.models.shapes import (
    TensorFacts,
    batch_of,
    dimensions,
    dtype_name,
    infer_facts,
    with_batch_of_one,
)
from inferometer.models.summary import LayerRow, ModelSummary, TensorInfo, folded_parameters

__all__ = ["describe"]


def describe(source: str | os.PathLike[str] | ModelProto) -> ModelSummary:
    """Describe a model file, or a model in memory.

    Figures are for one image: a symbolic batch is set to 1, those of a fixed batch are divided by it. What
    cannot be told is None with its reason, in the layer and in the totals.

    Raises:
        ModelError: The file cannot be used (see `load`), or its shapes contradict each other.
    """
    if isinstance(source, ModelProto):
        return _summarise(source, None, None)
    model = load(source, weights=False)
    return _summarise(model, os.fspath(source), file_sha256(source))


def _summarise(model: ModelProto, path: str | None, sha256: str | None) -> ModelSummary:
    flat = with_batch_of_one(model)
    if flat.functions:
        flat = inliner.inline_local_functions(flat)
    batch = batch_of(model)
    facts = infer_facts(flat, path or f"model {model.graph.name!r}")
    # An optional output that nobody reads, such as the mask of a Dropout, is not computed.
    read = consumer_counts(flat.graph)
    rows = tuple(
        _row(node, index, use, [facts.get(name) for name in node.output if read[name]], facts, batch or 1)
        for index, (node, use) in enumerate(zip(flat.graph.node, parameter_uses(flat.graph), strict=True))
        if not use.constant
    )
    metadata = {item.key: item.value for item in model.metadata_props}
    form = form_of(model)
    opsets = {"" if is_standard(item.domain) else item.domain: item.version for item in model.opset_import}
    return ModelSummary(
        path=path,
        sha256=sha256,
        inputs=tuple(_info(item) for item in true_inputs(model.graph)),
        outputs=tuple(_info(item) for item in model.graph.output),
        batch=batch,
        opset=opsets.get("", 1),
        opsets=opsets,
        ir_version=model.ir_version,
        producer=" ".join(filter(None, (model.producer_name, model.producer_version))) or None,
        parameters=sum(row.parameters for row in rows),
        folded_parameters=folded_parameters(metadata),
        macs=_total(row.macs for row in rows),
        activation_bytes=_total(row.activation_bytes for row in rows),
        reason=_total_reason(rows),
        layers=rows,
        is_quantized=form != "float",
        metadata=metadata,
        form=form,
        float_type=float_type(model),
    )


def _row(
    node: NodeProto,
    index: int,
    use: NodeUse,
    outputs: list[TensorFacts | None],
    facts: dict[str, TensorFacts],
    batch: int,
) -> LayerRow:
    first = outputs[0] if outputs else None
    size = _total(None if item is None else item.size_bytes for item in outputs)
    macs, reason = node_macs(node, facts)
    if size is None and reason is None:
        reason = "the shape or type of an output is not known"
    if macs is not None and macs % batch:
        macs, reason = None, f"{macs} MACs do not divide by the batch of {batch}"
    return LayerRow(
        name=node_label(node, index),
        op=node.op_type if is_standard(node.domain) else f"{node.domain}.{node.op_type}",
        macs=None if macs is None else macs // batch,
        parameters=use.parameters,
        output_shape=None if first is None else first.shape,
        activation_bytes=None if size is None else -(-size // batch),
        reason=reason,
    )


def _total(values: Iterable[int | None]) -> int | None:
    """The sum, or None when one value is unknown."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return sum(known) if len(known) == len(listed) else None


def _total_reason(rows: tuple[LayerRow, ...]) -> str | None:
    unknown = [row for row in rows if row.reason is not None]
    if not unknown:
        return None
    worst = next((row for row in unknown if row.macs is None), unknown[0])
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    return f"layer {worst.name!r}{more}: {worst.reason}"


def _info(info: ValueInfoProto) -> TensorInfo:
    if not info.type.HasField("tensor_type"):
        return TensorInfo(info.name, None, None)
    return TensorInfo(info.name, dimensions(info), dtype_name(info.type.tensor_type.elem_type))
