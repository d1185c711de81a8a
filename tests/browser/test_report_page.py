"""The report opened by a browser of its own: drawn, silent, and without a network."""

import re

import pytest

from tests.browser.chromium import BROWSER, MISSING, asked_for, browse, console

pytestmark = pytest.mark.skipif(BROWSER is None, reason=MISSING)


@pytest.fixture(scope="module")
def page(pages):
    return pages("small")


def test_charts_are_drawn_silently_and_without_a_network(page, tmp_path):
    log = tmp_path / "net.json"
    dom, errors = browse(page, tmp_path, "--dump-dom", "--window-size=1280,900", f"--log-net-log={log}")
    assert 'data-charts="drawn"' in dom
    hosts = re.findall(r'id="chart-([a-z]+)".*?<svg', dom, re.DOTALL)
    assert hosts == ["throughput", "speedup", "latency", "accuracy", "difference"]
    assert len(re.findall(r"<p[^>]*>ResNet-50</p>", dom)) == 3
    assert console(errors) == []
    assert asked_for(log) == set()


def test_a_request_would_be_noticed(tmp_path):
    path, log = tmp_path / "asking.html", tmp_path / "net.json"
    path.write_text("<!doctype html><img src='http://example.org/a.png'>")
    browse(path, tmp_path, "--dump-dom", f"--log-net-log={log}")
    assert asked_for(log) == {"http://example.org/a.png"}
