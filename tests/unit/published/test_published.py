from __future__ import annotations

from importlib import resources

import pytest
import yaml
from pydantic import ValidationError

from inferometer.errors import ConfigError
from inferometer.published import Coordinates, PublishedStudy, load, parse, studies

NAMES = [
    "dell-2017-03-p40",
    "dell-2017-07-p40-vs-p4",
    "mlperf-resnet50-offline",
    "nvidia-2017-gtc-8bit-inference",
]
# Counted by hand in the files: figures, and among them the ones that ran out of memory.
COUNTS = {NAMES[0]: (29, 1), NAMES[1]: (46, 2), NAMES[2]: (12, 0), NAMES[3]: (36, 0)}
DATA_SECTIONS = {"images_per_s", "images_per_s_batch_128", "samples_per_s", "figures", "accuracy_percent"}


def find(study: PublishedStudy, **wanted: object) -> list[float | None]:
    return [p.value for p in study.points if all(getattr(p, name) == value for name, value in wanted.items())]


def raw_text(name: str) -> str:
    return (resources.files("inferometer.published") / "data" / f"{name}.yaml").read_text(encoding="utf-8")


def leaves(node: object) -> list[object]:
    if isinstance(node, dict):
        return [leaf for below in node.values() for leaf in leaves(below)]
    return [node]


def test_the_studies_there_are():
    assert studies() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_becomes_exactly_one_point(name):
    study = load(name)
    content = yaml.safe_load(raw_text(name))
    figures = [leaf for key in DATA_SECTIONS & set(content) for leaf in leaves(content[key])]
    numbers = [leaf for leaf in figures if isinstance(leaf, (int, float))]
    out_of_memory = [leaf for leaf in figures if leaf == "out_of_memory"]
    points, without = COUNTS[name]
    assert len(study.points) == points == len(numbers) + len(out_of_memory)
    assert len([p for p in study.points if p.status == "out_of_memory"]) == without == len(out_of_memory)
    # Each lies at its own place in the file, and no value is lost or changed but for percentages.
    assert len({p.section for p in study.points}) == points
    scaled = [
        p.value * (100 if p.metric in ("top1", "top5") else 1) for p in study.points if p.value is not None
    ]
    assert sorted(scaled) == pytest.approx(sorted(numbers), rel=1e-12)
    assert all((p.value is None) == (p.status == "out_of_memory") for p in study.points)


def test_dell_march_2017():
    study = load("dell-2017-03-p40")
    assert study.title == "Deep Learning Inference on P40 GPUs"
    assert study.date == "2017-03"
    assert study.engine == "TensorRT 2.0 EA, one MPI process per GPU"
    assert study.source.startswith("Facts transcribed from: R. Xu, F. Han, N. Dandapanthula")
    assert study.source.endswith("Dell EMC HPC Innovation Lab, March 2017.")
    assert study.accelerators["tesla-m40"] == {"fp32_tflops": 6.8, "int8_tops": None}
    one = {"batch": 128, "count": 1, "metric": "images_per_s", "relative_to": None}
    assert find(study, accelerator="tesla-m40", model="googlenet", precision="fp32", **one) == [1446]
    assert find(study, accelerator="tesla-p40", model="alexnet", precision="fp32", **one) == [5198]
    # The study gives this point three times, from three runs.
    assert find(study, accelerator="tesla-p40", model="googlenet", precision="int8", **one) == [
        6410,
        6406,
        6410,
    ]
    assert find(study, model="alexnet", precision="int8", batch=128, count=4) == [64691]
    assert find(study, model="alexnet", batch=4096, count=1, accelerator="tesla-p40") == [18011]
    assert find(study, model="googlenet", batch=4096, status="out_of_memory") == [None]


def test_dell_july_2017_is_relative_to_one_p40():
    study = load("dell-2017-07-p40-vs-p4")
    assert study.accelerators["tesla-p4"]["tdp_w"] == 75
    base = Coordinates(accelerator="tesla-p40", model="alexnet", precision="int8", batch=128, count=1)
    four_p4 = {"accelerator": "tesla-p4", "model": "alexnet", "batch": 128, "count": 4, "relative_to": base}
    assert find(study, metric="images_per_s", **four_p4) == [2.09]
    assert find(study, metric="images_per_s_per_w", **four_p4) == [1.52]
    assert find(study, model="googlenet", accelerator="tesla-p40", count=3, metric="images_per_s") == [3.0]
    batch_1 = base.model_copy(update={"batch": 1})
    assert find(study, accelerator="tesla-p4", batch=256, count=1, relative_to=batch_1) == [15.3]
    assert find(study, accelerator="tesla-p4", status="out_of_memory", metric="images_per_s_per_w") == [
        None,
        None,
    ]
    assert study.facts["accuracy_protocol"]["calibration"] == "the first 50 batches (1250 images)"
    assert study.facts["power_method"].startswith("power while running inference minus")
    assert base in [point.coordinates for point in study.points]


def test_mlperf():
    study = load("mlperf")
    eight = {
        "accelerator": "h200-sxm-141gb",
        "model": "resnet50",
        "precision": "int8",
        "count": 8,
        "batch": None,
    }
    assert find(study, metric="images_per_s", **eight) == [756960]
    assert find(study, metric="images_per_s_per_device", **eight) == [94620]
    assert find(study, accelerator="l4", count=1, metric="images_per_s") == [12882]
    assert {p.notes["round"] for p in study.points if p.accelerator == "t4"} == {"v0.7"}
    assert study.facts == {"accuracy_gate": {"fp32_top1": 76.46, "required_fraction": 0.99}}
    assert (study.date, study.platform, study.engine) == (None, None, None)


def test_nvidia_gtc_2017_accuracy_in_fractions():
    study = load("nvidia")
    resnet = {"model": "resnet50", "accelerator": "titan-x-pascal", "batch": None, "count": None}
    assert find(study, metric="top1", precision="fp32", **resnet) == [pytest.approx(0.7323, abs=1e-12)]
    assert find(study, metric="top5", precision="int8", **resnet) == [pytest.approx(0.9106, abs=1e-12)]
    assert find(study, metric="images_per_s", model="vgg19", precision="int8", batch=128, count=1) == [946]
    assert study.facts["calibration_algorithm"]["histogram_bins"] == 2048


def test_a_prefix_that_only_one_study_has():
    assert load("dell-2017-07").name == "dell-2017-07-p40-vs-p4"


def test_an_ambiguous_prefix_names_the_candidates():
    with pytest.raises(ConfigError, match="dell-2017-03-p40, dell-2017-07-p40-vs-p4"):
        load("dell")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("dell-2017-03-p4O", "did you mean 'dell-2017-03-p40'"), ("", "known are dell"), ("q", "known")],
)
def test_an_unknown_study_offers_the_nearest(name, hint):
    with pytest.raises(ConfigError, match=hint):
        load(name)


def test_studies_are_frozen_and_serialisable():
    study = load("mlperf")
    assert PublishedStudy.model_validate_json(study.model_dump_json()) == study
    with pytest.raises(ValidationError):
        study.points[0].value = 1.0


HEAD = "# A source.\n# Two lines.\n\n# not this one\ntitle: T\naccelerators: {tesla-p4: {}, tesla-p40: {}}\n"


def test_a_study_of_ones_own():
    study = parse("own", HEAD + "images_per_s: {batch_8: {vgg16: {fp16: {tesla-p4: 3}}}}\n")
    assert study.source == "A source. Two lines."
    (point,) = study.points
    assert point.model_dump() == {
        "accelerator": "tesla-p4",
        "model": "vgg16",
        "precision": "fp16",
        "batch": 8,
        "count": 1,
        "metric": "images_per_s",
        "value": 3.0,
        "status": "ok",
        "relative_to": None,
        "section": "images_per_s / batch_8 / vgg16 / fp16 / tesla-p4",
        "notes": {},
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_per_s: {}", "unknown section 'image_per_s'; did you mean 'images_per_s'"),
        ("images_per_s: {}", "images_per_s: expected a mapping, found {}"),
        ("images_per_s: {alexnet: {int8: {tesla-p5: 3}}}", "tesla-p5: this key is not understood"),
        ("images_per_s: {alexnet: {int8: {'': 3}}}", "this key is not understood"),
        ("images_per_s: {alexnet: {int8: {1.5: 3}}}", "a key must be a word or a whole number"),
        ("images_per_s: {alexnet: {int8: {true: 3}}}", "a key must be a word or a whole number"),
        ("images_per_s: {alexnet: {tesla-p4: 3}}", "tesla-p4: no key tells the precision"),
        ("images_per_s: {alexnet: {int8: 3}}", "no key tells the accelerator"),
        ("images_per_s: {int8: {tesla-p4: 3}}", "no key tells the model"),
        ("accuracy_percent: {alexnet: {int8: {tesla-p4: 3}}}", "no key tells the metric"),
        ("accuracy_percent: {alexnet: {int8: {tesla-p4: {top1: 101}}}}", "101 is no percentage"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: -3}}}", "-3 is no throughput"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: .nan}}}", "nan is no throughput"),
        (
            "images_per_s: {alexnet: {int8: {tesla-p4: true}}}",
            "expected a number or 'out_of_memory', found True",
        ),
        ("images_per_s: {alexnet: {int8: {tesla-p4: null}}}", "found None"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: [3]}}}", r"found \[3\]"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: oom}}}", "found 'oom'"),
        ("images_per_s: {alexnet: {googlenet: {int8: {tesla-p4: 3}}}}", "model is named twice"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: {top1: 3}}}}", "metric is named twice"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: {8: 3}}}}", "whether 8 is a batch or a count"),
        ("images_per_s: {int8_by_batch: {alexnet: {tesla-p4: {0: 3}}}}", "is at least 1"),
        ("images_per_s: {int8_one_p100_by_batch: {alexnet: {1: 3}}}", "'p100' names none or several"),
        (
            "figures: {figure_1_alexnet_int8_batch8: {images_per_s: {tesla-p4: {1: 2}}}}",
            "must be 1 and is 2.0",
        ),
        ("figures: 3", "figures: expected a mapping, found 3"),
        ("figures: {figure_1: {images_per_s: {}}}", "expected a mapping, found {}"),
        ("title: again", "key 'title' is repeated"),
        ("images_per_s: {alexnet: {int8: {tesla-p4: 1, tesla-p4: 2}}}", "key 'tesla-p4' is repeated"),
        ("images_per_s: {", "not valid YAML"),
    ],
)
def test_what_is_not_understood_is_refused(text, message):
    with pytest.raises(ConfigError, match=message) as caught:
        parse("own", f"{HEAD}{text}\n")
    assert "published study own" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no mapping"),
        ("[1]", "holds no mapping"),
        ("date: 2017-03", "title"),
        ("title: T\naccelerators: [p4]", "expected specifications by name"),
        ("title: T\naccelerators: {p4: {tdp_w: [1]}}", "accelerators.p4.tdp_w"),
        ("title: 3", "title"),
    ],
)
def test_a_wrong_description_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse("own", text)
