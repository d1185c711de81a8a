"""A small study with layers, built by hand, for tests of explanations."""

from inferometer.analysis.explain import explain
from inferometer.analysis.summary import summarise
from tests.unit.report.sample_records import record, throughput

FP32 = {
    "executed": [
        {"name": "conv1", "op": "FusedConv", "precision": "fp32", "macs": 100, "bytes": None},
        {"name": "conv2", "op": "Conv", "precision": "fp32", "macs": 100, "bytes": None},
        {"name": "pool", "op": "MaxPool", "precision": "fp32", "macs": 0, "bytes": None},
        {"name": "fc", "op": "Gemm", "precision": "fp32", "macs": 10, "bytes": None},
    ],
    "profile": [
        {"name": "relu1_nchwc", "op": "Conv", "seconds": 0.004, "role": "compute"},
        {"name": "conv2_nchwc", "op": "Conv", "seconds": 0.003, "role": "compute"},
        {"name": "pool_nchwc", "op": "MaxPool", "seconds": 0.001, "role": "compute"},
        {"name": "back", "op": "ReorderOutput", "seconds": 0.0005, "role": "reorder"},
        {"name": "fc", "op": "Gemm", "seconds": 0.0015, "role": "compute"},
    ],
}
"""10 ms in all: 8.5 in layers that multiply, 1 in the pool, 0.5 in a reorder."""

INT8 = {
    "executed": [
        {"name": "to_int", "op": "QuantizeLinear", "precision": "fp32", "macs": 0, "bytes": None},
        {"name": "conv1_token_7", "op": "QLinearConv", "precision": "int8", "macs": 100, "bytes": None},
        {"name": "conv2_token_9", "op": "QLinearConv", "precision": "int8", "macs": 100, "bytes": None},
        {"name": "pool", "op": "MaxPool", "precision": "int8", "macs": 0, "bytes": None},
        {"name": "to_float", "op": "DequantizeLinear", "precision": "other", "macs": 0, "bytes": None},
        {"name": "fc", "op": "Gemm", "precision": "fp32", "macs": 10, "bytes": None},
    ],
    "profile": [
        {"name": "to_int", "op": "QuantizeLinear", "seconds": 0.0004, "role": "quantize"},
        {"name": "conv1_token_7", "op": "QLinearConv", "seconds": 0.001, "role": "compute"},
        {"name": "conv2_token_9", "op": "QLinearConv", "seconds": 0.0036, "role": "compute"},
        {"name": "pool", "op": "MaxPool", "seconds": 0.0002, "role": "compute"},
        {"name": "to_float", "op": "DequantizeLinear", "seconds": 0.0003, "role": "quantize"},
        {"name": "fc", "op": "Gemm", "seconds": 0.0015, "role": "compute"},
    ],
}
"""7 ms in all: conv1 gains 3, conv2 loses 0.6, fc stays in float, 0.7 go into quantizing."""

SHARES = {"fp32": {"fp32": 1.0}, "bf16": {"bf16": 1.0}, "int8": {"int8": 200 / 210, "fp32": 10 / 210}}


def rates(precision, values, batch=8, **fields):
    """One record a repeat; what ran is known of the first."""
    return [
        record(
            precision=precision,
            batch=batch,
            repeat=repeat,
            throughput=throughput(value),
            precision_mac_share=SHARES[precision] if repeat == 0 else None,
            **fields,
        )
        for repeat, value in enumerate(values)
    ]


def explained(records, layers):
    """``explain`` of records; ``layers`` gives a sidecar's content by precision, at batch 8 of repeat 0."""
    found, singles = explain(
        summarise(records, lambda _: None),
        records,
        lambda one: (
            layers.get(one.trial.precision)
            if (one.trial.batch, one.trial.repeat) == (8, 0) and one.trial.kind == "throughput"
            else None
        ),
    )
    return list(found), list(singles)


def usual(int8=(200.0, 202.0, 201.0), fp32=(100.0, 101.0, 102.0), **layers):
    """FP32 and INT8 at batch 8, three repeats each."""
    found, _ = explained(rates("fp32", fp32) + rates("int8", int8), {"fp32": FP32, "int8": INT8} | layers)
    return found[0]
