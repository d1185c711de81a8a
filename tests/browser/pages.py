"""The pages that browser tests open: small studies by hand, and the stores under results/."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from inferometer import published
from inferometer.analysis.comparison.compare import compare
from inferometer.analysis.comparison.points import Source, store_source, study_source
from inferometer.analysis.summary import summarise
from inferometer.report.characters import page_bytes
from inferometer.report.comparison_page import comparison_page
from inferometer.report.explain_page import explanation_page
from inferometer.report.html import write_html
from inferometer.report.power_trace import traces_of
from inferometer.store import read_per_image, read_store
from tests.unit.analysis.explained import usual
from tests.unit.report.sample_records import latency, record, study, throughput
from tests.unit.report.scaling_records import fed_study, gpu_study

RESULTS = Path(__file__).resolve().parents[2] / "results"

STOLEN = "document.documentElement.dataset.stolen=1"
MARKUP = (
    "<script>",
    f"</script><script>{STOLEN}</script>",
    f"<img src=x onerror={STOLEN}>",
    f"javascript:{STOLEN}",
    f"'-({STOLEN})-'\"+({STOLEN})+\"",
    "${" + STOLEN + "}{{" + STOLEN + "}}",
    "<!--<script>&amp;&lt;",
)
"""Names that would run, or break the page, if they were anything but text."""

TURNING = "\u202egnp.drow\u2066 model"
LONG = "a-very-long-name-without-a-blank" * 12
FORMULA = '=HYPERLINK("http://example.org","x")'


def _small(path: Path) -> None:
    records, top5 = study()
    write_html(summarise(records, top5), records, path)


def _scaling(path: Path) -> None:
    records = [*gpu_study(power=True), *gpu_study("int8", factor=1.9, power=True), *fed_study()]
    write_html(summarise(records, lambda _: None), records, path)


def _explained(path: Path) -> None:
    path.write_bytes(page_bytes(explanation_page([usual(), usual()], [], "study")))


def _stored(name: str, path: Path) -> None:
    folder = RESULTS / name
    records = read_store(folder).records
    summary = summarise(records, partial(read_per_image, folder))
    write_html(summary, records, path, traces_of(records, folder))


def _compared(path: Path, *sources: Source) -> None:
    found = compare(sources or [study_source(published.load("dell-2017-07"))])
    path.write_bytes(page_bytes(comparison_page(found)))


def _compared_hostile(path: Path) -> None:
    records = hostile_records()
    sources = [store_source(label, records, lambda _: None) for label in (MARKUP[1], TURNING)]
    _compared(path, *sources)


def hostile_records():
    """Every name that reaches a page, as each of the texts that must stay text."""
    found = []
    for text in (*MARKUP, TURNING, LONG, FORMULA):
        names = {"model": text, "trial_engine": text, "trial_device": text, "trial_study": text}
        machine = {"cpu": {"model": text}, "server": {"sys_vendor": text}, "libraries": {text: text}}
        for precision, rate in (("fp32", 9.0), ("int8", 19.0)):
            setup = {"precision": precision, "environment": machine, **names}
            found.append(record(throughput=throughput(rate), **setup))
            found.append(record("latency", latency_s=latency(1 / rate), **setup))
        found.append(record(status="failed", batch=2, reason=text, environment=machine, **names))
    return found


def _hostile(path: Path) -> None:
    records = hostile_records()
    write_html(summarise(records, lambda _: None), records, path)


WRITERS = {
    "small": _small,
    "scaling": _scaling,
    "explained": _explained,
    "h200-torch": partial(_stored, "h200-torch"),
    "h200-power": partial(_stored, "h200-power"),
    "hostile": _hostile,
    "compared": _compared,
    "compared-hostile": _compared_hostile,
}
