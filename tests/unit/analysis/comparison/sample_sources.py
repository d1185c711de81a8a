"""Stores and studies for tests of comparisons: hand-made records, and the 2017 study, altered at will."""

import hashlib
import json
from importlib import resources

from inferometer import published
from inferometer.analysis.comparison.points import store_source, study_source
from tests.unit.report.sample_records import ENVIRONMENT, record, throughput

DELL = "dell-2017-07-p40-vs-p4"
CONFIG = {
    "engine_version": "1.20.1",
    "options": {"threads": 2},
    "preprocess": {"name": "torchvision", "crop": 224},
    "measure": {"max_s": 2.0},
    "isolation": "trial",
}


def dell(*altered):
    """The study, with each (old, new) text of its file replaced."""
    path = resources.files("inferometer.published") / "data" / f"{DELL}.yaml"
    text = path.read_text(encoding="utf-8")
    for old, new in altered:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return study_source(published.parse(DELL, text))


def trials(rates=(100.0, 101.0, 99.0), precision="int8", model="resnet50", batch=8, **fields):
    """One throughput trial per rate; ``config_*`` replace single settings."""
    config = CONFIG | {
        name.removeprefix("config_"): fields.pop(name) for name in list(fields) if name.startswith("config_")
    }
    given = {"config": config, "precision_mac_share": {precision: 1.0}, **fields}
    # Like a trial's identity it differs where the settings do, and here where the machine does.
    own = hashlib.sha256(json.dumps([model, precision, batch, given], sort_keys=True).encode()).hexdigest()[
        :8
    ]
    return [
        record(
            "throughput", model, precision, batch, repeat,
            throughput=throughput(rate), id=f"{own}-{repeat}", **given,
        )
        for repeat, rate in enumerate(rates)
    ]  # fmt: skip


def store(label, *groups, top5=lambda one: None):
    """A store of these records."""
    return store_source(label, [one for group in groups for one in group], top5)


def elsewhere(**cpu):
    """The environment of another machine."""
    return ENVIRONMENT | {"machine_key": "0123456789abcdef", "cpu": ENVIRONMENT["cpu"] | cpu}
