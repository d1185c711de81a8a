"""A comparison's page: the verdict first, every finding, every figure, and nothing that is not text."""

from __future__ import annotations

import re

from inferometer import published
from inferometer.analysis.comparison.compare import compare
from inferometer.analysis.comparison.points import store_source, study_source
from inferometer.report.comparison_page import comparison_page
from tests.unit.report.sample_records import record, throughput


def test_the_study_s_page_has_its_findings_and_figures_in_order() -> None:
    found = compare([study_source(published.load("dell-2017-07"))])
    page = comparison_page(found)
    places = [page.index(f"<section id='{name}'") for name in ("verdict", "findings", "figures", "ratios")]
    assert places == sorted(places)
    for one in found.findings:
        assert re.sub(r"\W", "", one.sentence)[:60] in re.sub(r"&nbsp;|\W", "", page)
    assert page.count("<figure>") == 3
    assert "tesla-p40 and tesla-p4: comparison</title>" in page


def test_labels_and_models_are_text() -> None:
    records = [
        record(batch=batch, model="<script>x", throughput=throughput(50.0 * batch)) for batch in (1, 8)
    ]
    page = comparison_page(
        compare([store_source(label, records, lambda one: None) for label in ("<b>old", "new'\"&")])
    )
    assert "<script>x" not in page
    assert "<b>old" not in page
    assert "&lt;b&gt;old" in page
