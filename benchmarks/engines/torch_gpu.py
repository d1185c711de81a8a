"""ResNet-50 in halves on an NVIDIA GPU: the engine ``torch`` beside bare ``torch.compile``.

    python benchmarks/engines/torch_gpu.py [--model resnet50] [--batch 128] [--precision fp16]
        [--pairs 12] [--slice 0.6] [--mode auto] [--json FILE]

The other side is torchvision's ``resnet50().eval()``, in halves and channels-last, under
``torch.compile(mode="reduce-overhead")`` with cuDNN's benchmark mode on, called back to back on one input
that lies on the GPU. This side is the network of the same name from its ONNX file, float32 images on the GPU,
through Inferometer's own measurement with copies excluded. Both run in one process by turns, A B, B A, ...;
the ratio of a pair compares neighbours in time. Printed are the median ratio with its 95 % interval by the
sign test, and both rates. The bar: at least 0.97.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from pairing import said, turns

from inferometer.config import MeasureSection
from inferometer.contracts import Session
from inferometer.data.synthetic import synthetic_feeds
from inferometer.engines.torch.engine import TorchEngine
from inferometer.measure import measure_throughput, throughput_of
from inferometer.models import networks
from inferometer.stats import median_interval

BAR = 0.97
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def our_rate(session: Session, batch: int, seconds: float) -> float:
    """Images/s by the measurement of a trial."""
    settings = MeasureSection(max_s=seconds, interval=0.0001, warmup_max_s=0.35)
    return throughput_of(measure_throughput(session, batch, settings)).images_per_s


def bare(name: str, batch: int, dtype: torch.dtype) -> Callable[[], Any]:
    """A call of torchvision's network under ``torch.compile``, compiled and warm."""
    import torchvision

    torch.backends.cudnn.benchmark = True
    last = torch.channels_last
    network = getattr(torchvision.models, name)().eval().cuda().to(dtype).to(memory_format=last)
    images = torch.randn(batch, 3, 224, 224, device="cuda", dtype=dtype).to(memory_format=last)
    compiled = torch.compile(network, mode="reduce-overhead")

    def call() -> Any:
        with torch.inference_mode():
            return compiled(images)

    for _ in range(5):
        call()
    torch.cuda.synchronize()
    return call


def bare_rate(call: Callable[[], Any], batch: int, seconds: float) -> float:
    """Images/s of calls back to back; the GPU's queue is never empty, but for its end."""
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    calls, begin, before = 0, time.perf_counter(), None
    while calls == 0 or time.perf_counter() - begin < seconds:
        for _ in range(5):
            call()
        calls += 5
        mark = torch.cuda.Event()
        mark.record()
        if before is not None:
            before.synchronize()  # five calls ahead at least, and ten at most
        before = mark
    torch.cuda.synchronize()
    return calls * batch / (time.perf_counter() - begin)


def compared(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Both sides open, by turns. Ours first: choosing a mode drops what is compiled."""
    path, batch = folder / f"{options.model}.onnx", options.batch
    networks.export(options.model, path)
    chosen = {"mode": options.mode, "copies": "excluded"}
    rates = []
    with TorchEngine().load(path, "cuda:0", options.precision, batch, chosen) as session:
        settled = dict(session.settled)
        print(f"the engine settled on {settled} in {session.compile_s:.1f} s", file=sys.stderr, flush=True)
        feeds = synthetic_feeds(session.inputs, 0)
        for slot in range(session.in_flight):
            session.prepare(slot, feeds)
        call = bare(options.model, batch, DTYPES[options.precision])
        for pair in range(options.pairs):
            both = [0.0, 0.0]
            for side in turns(pair):
                if side == 0:
                    both[side] = our_rate(session, batch, options.slice)
                else:
                    both[side] = bare_rate(call, batch, options.slice)
            rates.append(both)
    return {"settled": settled, "rates": rates}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="resnet50", help="a built-in network that torchvision has as well")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", choices=sorted(DTYPES), default="fp16")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--slice", type=float, default=0.6, help="seconds of each turn")
    parser.add_argument("--mode", choices=("auto", "eager", "compile"), default="auto")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if not torch.cuda.is_available():
        print("PyTorch finds no NVIDIA GPU here")
        return 1
    try:
        import torchvision  # noqa: F401
    except ImportError:
        print("the other side needs torchvision: pip install torchvision")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        result = compared(options, Path(folder))
    ours, theirs = zip(*result["rates"], strict=True)
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    met = statistics.median(ratios) >= BAR
    where = f"{torch.cuda.get_device_properties(0).name}, torch {torch.__version__}"
    print(f"{options.model}, batch {options.batch}, {options.precision}: {where}")
    for mode in ("eager", "compile"):
        seconds = result["settled"].get(f"{mode}_s_per_call")
        if seconds:
            print(f"mode {mode}: {options.batch / seconds:,.0f} images/s by replays of its graph")
    print(f"the engine ({result['settled']['mode']}): {statistics.median(ours):,.0f} images/s")
    print(f"bare torch.compile: {statistics.median(theirs):,.0f} images/s")
    print(f"ratio: {said(ratios)}; the bar is {BAR}: {'met' if met else 'MISSED'}")
    if options.json:
        interval = median_interval(ratios)
        options.json.write_text(json.dumps({**result, "ratios": ratios, "ci95": interval}, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
