"""An explanation in a real browser: drawn, silent, and without a network."""

import re

import pytest

from tests.browser.chromium import BROWSER, MISSING, asked_for, browse, console

pytestmark = pytest.mark.skipif(BROWSER is None, reason=MISSING)


def test_both_panels_are_drawn_silently_and_without_a_network(pages, tmp_path):
    log = tmp_path / "net.json"
    flags = ("--dump-dom", "--window-size=1280,900", f"--log-net-log={log}")
    dom, errors = browse(pages("explained"), tmp_path, *flags)
    assert 'data-charts="drawn"' in dom
    panels = re.findall(r"<p[^>]*>([^<]*)</p><div class=\"plot[^>]*><svg", dom)
    assert panels == ["By kind of layer", "The longest layers"] * 2
    assert console(errors) == []
    assert asked_for(log) == set()
