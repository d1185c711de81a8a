"""Hand-made records that look like a small study's, for tests of analysis and report.

GoogLeNet, AlexNet and ResNet-50 at batches 1, 4 and 8 in fp32 and int8, three repeats; latency; the
accuracy of ``digits``; ResNet-50 out of memory at batch 512 and skipped at 1024; one AlexNet repeat failed.
"""

import random

import numpy as np

from inferometer.records import Record
from inferometer.store import PerImage

ENVIRONMENT = {
    "machine_key": "e29ffd5aaf212707",
    "cpu": {
        "model": "Intel(R) Xeon(R) Gold 6142 CPU @ 2.60GHz",
        "physical_cores": 32,
        "logical_cores": 64,
        "features": ["avx", "avx2", "avx512_vnni", "fma"],
        "int8_dot": True,
        "caches": [
            {"level": 1, "kind": "data", "size_bytes": 32768, "instances": 32},
            {"level": 3, "kind": "unified", "size_bytes": 23068672, "instances": 2},
        ],
        "governors": None,
        "turbo": True,
    },
    "memory": {"total_bytes": 206158430208},
    "cgroup": {"cpu_quota_cores": None},
    "usable_cores": 64,
    "server": {"sys_vendor": "Dell Inc.", "product_name": "PowerEdge R740", "board_name": "0DY2X0"},
    "system": {
        "os_name": "Debian GNU/Linux",
        "os_version": "12",
        "kernel": "6.1.0",
        "python": "3.11.7",
        "virtual_machine": False,
    },
    "libraries": {"onnxruntime": "1.20.1", "torch": None},
    "gpus": [],
    "missing": {
        "cpu.governors": "/sys/devices/system/cpu/cpufreq is not there",
        "cgroup.cpu_quota_cores": "the control group sets no CPU quota",
        "gpus": "the package nvidia-ml-py is not installed",
    },
}
CALIBRATED = {"table_sha256": "ab" * 32, "method": "kl", "scheme": "onnxruntime-cpu", "weight_bits": 8}
MODELS = {
    "googlenet": {"sha256": "1a" * 32, "macs": 1_582_671_872, "parameters": 6_998_552},
    "alexnet": {"sha256": "2b" * 32, "macs": 723_927_104, "parameters": 60_965_224},
    "resnet50": {"sha256": "3c" * 32, "macs": 4_089_184_256, "parameters": 25_557_032},
    "digits": {"sha256": "4d" * 32, "macs": 1_204_224, "parameters": 38_218},
}
FP32_RATES = {
    "googlenet": {1: 61.2, 4: 70.9, 8: 72.4},
    "alexnet": {1: 88.0, 4: 193.0, 8: 236.0},
    "resnet50": {1: 20.1, 4: 22.2, 8: 22.6},
}
GAINS = {"googlenet": 1.86, "alexnet": 2.31, "resnet50": 2.17}


def record(
    kind="throughput", model="resnet50", precision="fp32", batch=1, repeat=0, *, status="ok", **fields
) -> Record:
    """One record; ``fields`` replace or add its own, and ``trial_*`` those of its trial."""
    trial = {
        "kind": kind,
        "study": "demo",
        "model": model,
        "engine": "onnxruntime",
        "device": "cpu",
        "precision": precision,
        "batch": batch,
        "repeat": repeat,
    }
    trial |= {
        name.removeprefix("trial_"): fields.pop(name) for name in list(fields) if name.startswith("trial_")
    }
    content = {
        "schema": 1,
        "id": "-".join(str(trial[name]) for name in (*list(trial)[:1], *list(trial)[2:])),
        "time": "2026-03-14T09:00:00Z",
        "trial": trial,
        "status": status,
        "model": MODELS.get(model),
        "probe": probe(),
        "environment": ENVIRONMENT,
    }
    if precision == "int8":
        content["calibration"] = {"source": "synthetic", "images": 100, **CALIBRATED}
    return Record.model_validate(content | fields)


def probe(compute=12.0e9, copy=9.5e9, after=1.0) -> dict:
    return {
        "before": {"compute_bytes_per_s": compute, "copy_bytes_per_s": copy},
        "after": {"compute_bytes_per_s": compute * after, "copy_bytes_per_s": copy * after},
    }


def throughput(rate, *, windows=10, ci95="own", steady=True, images=640) -> dict:
    around = tuple(rate * (1 + 0.01 * (-1) ** i) for i in range(windows))
    return {
        "images_per_s": rate,
        "median_images_per_s": rate,
        "ci95": (rate * 0.99, rate * 1.01) if ci95 == "own" else ci95,
        "ci_kind": "within_run",
        "windows": around,
        "in_flight": 1,
        "images": images,
        "seconds": images / rate,
        "warmup_calls": 5,
        "warmup_steady": steady,
    }


def latency(p50, n=1000) -> dict:
    return {
        "min": p50 * 0.97,
        "mean": p50 * 1.01,
        "p50": p50 if n >= 10 else None,
        "p90": p50 * 1.05 if n >= 50 else None,
        "p95": p50 * 1.09 if n >= 100 else None,
        "p99": p50 * 1.21 if n >= 500 else None,
        "max": p50 * 1.6,
        "n": n,
    }


def accuracy(top1, images=1297, **fields) -> dict:
    content = {"images": images, "top1": top1, "top5": 0.999, "classes": 10}
    return content | {"excluded": 500, "skipped": 0, "skipped_files": ()} | fields


def per_image(correct, labels=None) -> PerImage:
    """Outcomes whose first class is right where ``correct`` is true; second best is the label else."""
    labels = np.arange(len(correct)) % 10 if labels is None else np.asarray(labels)
    right = np.asarray(correct, bool)
    first = np.where(right, labels, (labels + 1) % 10)
    second = np.where(right, (labels + 1) % 10, labels)
    rest = [(labels + step) % 10 for step in (2, 3, 4)]
    hashes = tuple(f"{place:064x}" for place in range(len(labels)))
    return PerImage(
        hashes, labels.astype(np.int64), np.stack([first, second, *rest], axis=1).astype(np.int64)
    )


def study(repeats=3):
    """(records, top5): the whole sample."""
    noise = random.Random(7)
    records, minute = [], 0
    for repeat in range(repeats):
        for model, rates in FP32_RATES.items():
            for precision in ("fp32", "int8"):
                gain = GAINS[model] if precision == "int8" else 1.0
                for batch, rate in rates.items():
                    minute += 1
                    records.append(_throughput(noise, model, precision, batch, repeat, rate * gain, minute))
                p50 = 1.02 / rates[1] / gain * noise.uniform(0.99, 1.01)
                records.append(
                    record("latency", model, precision, 1, repeat, latency_s=latency(p50), time=_time(minute))
                )
    records += _ended_early()
    image = np.arange(1297)
    wrong = {"fp32": image % 40 == 0, "int8": (image % 331 == 1) | ((image % 40 == 0) & (image % 800 != 0))}
    truth = {precision: ~missed for precision, missed in wrong.items()}
    outcomes = {}
    for precision, right in truth.items():
        made = (
            {"calibration": {"source": "images", "images": 500, **CALIBRATED}} if precision == "int8" else {}
        )
        one = record(
            "accuracy", "digits", precision, 8, accuracy=accuracy(float(right.mean())), time=_time(59),
            trial_input="images", **made,
        )  # fmt: skip
        outcomes[one.id] = per_image(right)
        records.append(one)
    return records, lambda one: outcomes.get(one.id)


def _throughput(noise, model, precision, batch, repeat, rate, minute) -> Record:
    machine = noise.uniform(0.985, 1.015)
    common = {"time": _time(minute), "probe": probe(12.0e9 * machine, 9.5e9 * machine)}
    if (model, precision, batch, repeat) == ("alexnet", "int8", 8, 2):
        reason = "the worker died: signal 11 (segmentation fault)"
        return record("throughput", model, precision, batch, repeat, status="failed", reason=reason, **common)
    share = {"alexnet": 0.84}.get(model, 0.991)
    detail = {"int8": share, "fp32": 1 - share} if precision == "int8" else {"fp32": 1.0}
    return record(
        "throughput", model, precision, batch, repeat,
        throughput=throughput(rate * noise.uniform(0.99, 1.01), images=40 * batch),
        memory={"host_peak_bytes": 400_000_000 + 40_000_000 * batch, "device_peak_bytes": None},
        load_s=0.4 if precision == "fp32" else 0.7,
        wall_s=9.0,
        precision_mac_share=detail if repeat == 0 else None,
        missing={"memory.device_peak_bytes": "the device is the CPU"},
        **common,
    )  # fmt: skip


def _ended_early() -> list[Record]:
    memory = "the kernel ended the worker for want of memory (oom_kill)"
    skipped = "batch 512 ran out of memory"
    return [
        record("throughput", "resnet50", "fp32", 512, status="out_of_memory", reason=memory, time=_time(57)),
        record("throughput", "resnet50", "fp32", 1024, status="skipped", reason=skipped, time=_time(57)),
    ]


def _time(minute: int) -> str:
    return f"2026-03-14T09:{minute % 60:02d}:00Z"
