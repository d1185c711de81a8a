"""Hand-made records of studies of several ranks, for tests of analysis and report.

Four GPUs, each 1,000 images/s alone in FP32 at batch 32; two together give 1,980 and four 3,600, of which
rank 3 has only 660 of its own 1,000 while the others keep 980. Two CPU ranks of one core each. One device on
synthetic input and on real images.
"""

from inferometer.records import Record
from tests.unit.report.power_records import held, result
from tests.unit.report.sample_records import record, throughput

RATES = {1: 1000.0, 2: 1980.0, 4: 3600.0}
SHARES = {1: (1.0,), 2: (0.5, 0.5), 4: (980 / 3600, 980 / 3600, 980 / 3600, 660 / 3600)}
SPREAD = (0.998, 1.0, 1.002)  # of three repeats


def uuid(rank):
    return f"GPU-{rank}"


def rank_result(rank, rate=1000.0, **fields) -> dict:
    content = {
        "rank": rank, "host": "node1", "device": f"cuda:{rank}", "uuid": uuid(rank), "cores": None,
        "images_per_s": rate, "median_latency_s": None, "skew_s": 0.0004 * rank, "load_s": 1.5,
        "host_peak_bytes": 10**9, "device_peak_bytes": 2 * 10**9, "clock_offset_s": 0.0, "clock_u_s": 0.0,
    }  # fmt: skip
    return content | fields


def cpu_rank(rank, rate=20.0, cores=None, **fields) -> dict:
    fields = {"device": "cpu", "uuid": None, "cores": str(rank) if cores is None else cores} | fields
    return rank_result(rank, rate, **fields)


def state(cpu_hz=2.6e9, busy=0.05, steal=0.0, throttled_s=0.0) -> dict:
    """What a trial of ten seconds says of the machine."""
    return {
        "before": {"frequency_mean_hz": cpu_hz, "cgroup_throttled_s": 1.0},
        "after": {"frequency_mean_hz": cpu_hz, "cgroup_throttled_s": 1.0 + throttled_s},
        "load": {"interval_s": 10.0, "busy_cores": busy, "steal_cores": steal},
    }


def alone(place, rate=1000.0, repeat=0, precision="fp32", batch=32, model="resnet50", **fields) -> Record:
    """One device by itself."""
    content = {
        "throughput": throughput(rate), "trial_place": place, "trial_device": "cuda", "trial_engine": "torch",
        "ranks": (rank_result(place, rate, skew_s=0.0),), "state": state(),
    }  # fmt: skip
    return _with_id(record("throughput", model, precision, batch, repeat, **(content | fields)))


def together(results, repeat=0, precision="fp32", batch=32, model="resnet50", **fields) -> Record:
    """Several at once; ``results`` are the ranks', whose rates add up."""
    content = {
        "throughput": throughput(sum(one["images_per_s"] for one in results)), "ranks": tuple(results),
        "trial_ranks": len(results), "trial_device": "cuda", "trial_engine": "torch", "state": state(),
    }  # fmt: skip
    return _with_id(record("throughput", model, precision, batch, repeat, **(content | fields)))


def gpu_study(
    precision="fp32", batch=32, factor=1.0, repeats=3, model="resnet50", power=False
) -> list[Record]:
    """Four devices alone, two and four together."""
    setup = {"precision": precision, "batch": batch, "model": model}
    found = []
    for repeat in range(repeats):
        by = factor * SPREAD[repeat]
        for place in range(4):
            rate = RATES[1] * by
            own = {"power": (_watts([place], rate),)} if power else {}
            found.append(alone(place, rate, repeat, **setup, **own))
        for ranks in (2, 4):
            rates = [RATES[ranks] * by * share for share in SHARES[ranks]]
            own = {"power": (_watts(range(ranks), sum(rates), cap=0.4),)} if power else {}
            results = [rank_result(rank, rate) for rank, rate in enumerate(rates)]
            found.append(together(results, repeat, **setup, **own))
    return found


def cpu_study(rates=(17.0, 17.0), repeats=3, shared=False, ours=None, theirs=None, **fields) -> list[Record]:
    """Two ranks of one core, each 20 images/s alone; ``ours`` and ``theirs``: the state of the two sides."""
    setup = {"trial_device": "cpu", "trial_engine": "onnxruntime", "batch": 8} | fields
    found = []
    for repeat in range(repeats):
        by = SPREAD[repeat]
        for place in range(2):
            one = (cpu_rank(place, 20.0 * by),)
            found.append(alone(place, 20.0 * by, repeat, ranks=one, state=theirs or state(), **setup))
        cores = "0" if shared else None
        results = [cpu_rank(rank, rate * by, cores) for rank, rate in enumerate(rates)]
        found.append(together(results, repeat, state=ours or state(), **setup))
    return found


def feeding(wait=0.6, decode=310.0, bottleneck="images", **fields) -> dict:
    content = {
        "images": 500, "workers": 4, "wait_share": wait, "prepare_share": 0.02, "images_per_s": decode,
        "bottleneck": bottleneck, "decoder": "pillow 11.0",
    }  # fmt: skip
    return content | fields


def fed_study(repeats=3, **fields) -> list[Record]:
    """One device on synthetic input, 1,240 images/s, and on decoded images, 300."""
    found = []
    for repeat in range(repeats):
        for kind, rate in (("synthetic", 1240.0), ("images", 300.0)):
            own = {"feeding": feeding()} if kind == "images" else {}
            rate *= SPREAD[repeat]
            one = record("throughput", "googlenet", "fp32", 32, repeat, throughput=throughput(rate),
                         trial_input=kind, **own, **fields)  # fmt: skip
            found.append(_with_id(one))
    return found


def _watts(ranks, rate, cap=0.0) -> dict:
    """GPU boards: 78 W idle and 400 W net each."""
    parts = [uuid(rank) for rank in ranks]
    number = len(parts)
    by_part = [
        {"part": part, "load_w": 478.0 + place, "idle_bare_w": 78.0, "clock_hz": (1.5e9, 1.9e9)}
        for place, part in enumerate(parts)
    ]
    clocks = (1.5e9, 1.9e9) if cap else (1.9e9, 1.98e9)
    return result(
        400.0 * number, rate, 78.0 * number, parts=tuple(parts), conditions=held(cap=cap), clock_hz=clocks,
        by_part=tuple(by_part) if number > 1 else (),
    )  # fmt: skip


def _with_id(one: Record) -> Record:
    trial = one.trial
    name = f"{one.id}-{trial.input}-{trial.ranks}-{trial.place}"
    return one.model_copy(update={"id": name})
