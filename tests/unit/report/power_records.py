"""Hand-made records of a metered study, for tests of analysis and report: ResNet-50 and AlexNet on one GPU.

Idle is 78 W and the power limit 700 W. ResNet-50 at batch 128 gives 8,000 images/s in fp32 and 27,000 in
fp16; net power 560 W and 610 W, the latter at the limit for most of the load.
"""

import json
import math

import numpy as np

from inferometer.records import PowerResult, Record
from inferometer.store import arrays, write_sidecar
from tests.unit.report.sample_records import record, throughput

GPU = "GPU-1f3a"
SECOND = 1_000_000_000
RATES = {
    ("resnet50", "fp32"): {1: 900.0, 32: 6900.0, 128: 8000.0},
    ("resnet50", "fp16"): {1: 1300.0, 32: 19000.0, 128: 27000.0},
    ("resnet50", "int8"): {1: 1500.0, 32: 31000.0, 128: 48000.0},
    ("alexnet", "fp32"): {1: 2100.0, 32: 23000.0, 128: 36000.0},
    ("alexnet", "fp16"): {1: 2300.0, 32: 41000.0, 128: 74000.0},
    ("alexnet", "int8"): {1: 2400.0, 32: 49000.0, 128: 98000.0},
}
NET = {"fp32": {1: 110.0, 32: 430.0, 128: 560.0}, "fp16": {1: 105.0, 32: 480.0, 128: 610.0},
       "int8": {1: 101.0, 32: 455.0, 128: 590.0}}  # fmt: skip


def figure(mean, u=0.5, seconds=(0, 60), **fields):
    begin, end = (int(one * SECOND) for one in seconds)
    content = {
        "begin_ns": begin, "end_ns": end, "mean_w": mean, "u_w": u, "samples": 600, "distinct": 590,
        "rate_hz": 10.0, "largest_gap_s": 0.11, "coverage": 1.0, "correlation_s": 0.4,
    }  # fmt: skip
    return content | fields


def result(net=560.0, rate=8000.0, idle=78.0, u=2.0, **fields) -> dict:
    """A sound result of the GPU's board; ``u`` is that of net power, and images/s are exact."""
    low, high = net - 2 * u, net + 2 * u
    content = {
        "meter": "nvml", "boundary": "GPU board", "parts": (GPU,), "semantics": "counter since driver load",
        "gain_error": 0.05, "load_w": idle + net, "idle_bare_w": idle, "idle_loaded_w": idle + 40,
        "drift_w": 0.6, "net_w": net, "u_net_w": u, "net_ci95_w": (low, high), "images_per_s": rate,
        "images_per_s_per_w": rate / net, "images_per_s_per_w_ci95": (rate / high, rate / low),
        "j_per_image": net / rate, "j_per_image_ci95": (low / rate, high / rate),
        "images_per_s_per_load_w": rate / (idle + net), "load": figure(idle + net),
        "idle_before": figure(idle, seconds=(-40, -10)), "idle_after": figure(idle, seconds=(70, 100)),
        "idle_loaded": figure(idle + 40, seconds=(-8, -2)), "idle_age_s": 10.0,
        "beside": ({"semantics": "instantaneous", "load_w": idle + net, "disagreement": 0.004},),
        "conditions": (
            {"name": "power limit reached", "share": 0.0, "slows": True},
            {"name": "slowed by hardware for heat", "share": 0.0, "slows": True},
        ),
        "temperature_c": (41.0, 63.0), "clock_hz": (1.6e9, 1.98e9), "power_limit_w": 700.0,
        "performance_states": (0, 0),
    }  # fmt: skip
    return PowerResult.model_validate(content | fields).model_dump()


def held(cap=0.0, heat=0.0):
    shares = {"power limit reached": cap, "slowed by hardware for heat": heat}
    return tuple({"name": name, "share": share, "slows": True} for name, share in shares.items())


def without_ratio(reason="net power of 3.1 W is within three times its uncertainty of 1.4 W", **fields):
    """A result whose net power is within noise."""
    lost = dict.fromkeys(("images_per_s_per_w", "images_per_s_per_w_ci95", "j_per_image", "j_per_image_ci95"))
    missing = {"images_per_s_per_w": reason, "j_per_image": reason}
    return result(3.1, 20.0, u=1.4) | lost | {"missing": missing} | fields


def metered(*results, model="resnet50", precision="fp32", batch=128, repeat=0, **fields) -> Record:
    rate = (results[0]["images_per_s"] if results else None) or 8000.0
    content = {
        "throughput": throughput(rate), "power": results or None, "config": {"power": {"min_s": 60.0}},
        "precision_mac_share": {precision: 1.0}, "trial_device": "cuda:0", "trial_engine": "tensorrt",
        "load_window": {
            "begin_ns": 0, "end_ns": 60 * SECOND, "images": int(60 * rate), "images_per_s": rate,
            "u_images_per_s": 1.0,
        },
    }  # fmt: skip
    return record("throughput", model, precision, batch, repeat, **(content | fields))


def power_study(repeats=3) -> list[Record]:
    """Both models at three precisions and batches."""
    found = []
    for repeat in range(repeats):
        for (model, precision), rates in RATES.items():
            for batch, rate in rates.items():
                net = NET[precision][batch] * (1 + 0.004 * (repeat - 1))
                fields = {"conditions": held(cap=0.98)} if (precision, batch) == ("fp16", 128) else {}
                one = result(net, rate, **fields)
                found.append(metered(one, model=model, precision=precision, batch=batch, repeat=repeat))
    return found


def channels():
    common = {"meter": "nvml", "part": GPU}
    return [
        common | {"name": "energy", "quantity": "energy", "boundary": "GPU board",
                  "semantics": "counter since driver load", "primary": True},
        common | {"name": "power", "quantity": "power", "boundary": "GPU board",
                  "semantics": "instantaneous", "primary": False},
        common | {"name": "temperature", "quantity": "temperature", "boundary": "GPU board",
                  "semantics": "instantaneous", "primary": False},
    ]  # fmt: skip


def watts_at(second, idle=78.0, load=688.0):
    if -10 <= second < 0:
        return idle + 40
    return load + 6 * math.sin(second) if 0 <= second < 60 else idle


def trace_arrays(begin_s=-42.0, end_s=102.0, period_s=0.1, origin_ns=0):
    """The arrays of a sidecar: a counter, its power, and a temperature, ten readings a second."""
    places, begins, values, energy = [], [], [], 1000.0
    for step in range(round((end_s - begin_s) / period_s)):
        second = begin_s + step * period_s
        watts = watts_at(second)
        energy += watts * period_s
        readings = [energy, watts] + ([35.0 + max(0.0, min(second, 60.0)) / 3] if step % 10 == 0 else [])
        for place, value in enumerate(readings):
            places.append(place)
            begins.append(origin_ns + round(second * SECOND))
            values.append(value)
    return {
        "channel": np.array(places, np.int32),
        "begin_ns": np.array(begins, np.int64),
        "end_ns": np.array(begins, np.int64) + 3_000_000,
        "value": np.array(values, np.float64),
        "channels": np.array(json.dumps(channels())),
    }


def with_trace(folder, one: Record, **fields) -> Record:
    """The record with its sidecar written into the store's folder."""
    sidecar = write_sidecar(folder, f"{one.id}.power.npz", arrays(**trace_arrays(**fields)))
    return one.model_copy(update={"sidecars": (sidecar,)})
