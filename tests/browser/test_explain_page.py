"""An explanation in a real browser: drawn, silent, and without a network."""

import pytest

from inferometer.report.explain_page import explanation_page
from tests.browser.test_report_page import BROWSER, asked_for, browse, console
from tests.unit.analysis.explained import usual

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium is not on PATH: apt-get install chromium")


def test_both_panels_are_drawn_silently_and_without_a_network(tmp_path):
    path, log = tmp_path / "explained.html", tmp_path / "net.json"
    path.write_text(explanation_page([usual()], [], "study"), encoding="utf-8")
    dom, errors = browse(path, tmp_path, "--dump-dom", "--window-size=1280,900", f"--log-net-log={log}")
    assert 'data-charts="drawn"' in dom
    assert dom.count("The longest layers</text>") == 1
    assert dom.count("By kind of layer</text>") == 1
    assert console(errors) == []
    assert asked_for(log) == set()
