"""axe-core on every kind of page, light and dark, wide and on a phone: no serious finding."""

from importlib.util import find_spec
from pathlib import Path

import pytest

PACKAGE = find_spec("axe_playwright_python")
SOURCE = None if PACKAGE is None or PACKAGE.origin is None else Path(PACKAGE.origin).with_name("axe.min.js")

pytestmark = pytest.mark.skipif(
    SOURCE is None or not SOURCE.is_file(),
    reason="axe-core is not installed: pip install --no-deps axe-playwright-python",
)


def findings(page):
    """What axe-core finds, worst first: how bad, which rule, and the first place."""
    page.run(f"{SOURCE.read_text(encoding='utf-8')};0")
    found = page.run("axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["impact"], one["id"], one["nodes"][0]["html"][:200]) for one in found]


@pytest.mark.parametrize(
    "name", ["small", "scaling", "explained", "h200-torch", "h200-power", "hostile", "compared"]
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 360)])
def test_no_serious_finding(visit, name, scheme, width):
    page = visit(name, scheme=scheme, width=width)
    assert [one for one in findings(page) if one[0] in ("serious", "critical")] == []


def test_a_fault_would_be_found(browser, tmp_path):
    path = tmp_path / "faulty.html"
    path.write_text("<!doctype html><html lang='en'><title>t</title><main><button></button></main></html>")
    with browser.open(path, wait="document.readyState === 'complete'") as page:
        assert ("critical", "button-name", "<button></button>") in findings(page)


def test_series_that_are_hidden_and_tables_that_are_sorted_stay_without_one(visit):
    page = visit("small")
    page.click("document.querySelector('.keys button')")
    page.click("document.querySelector('thead button')")
    assert [one for one in findings(page) if one[0] in ("serious", "critical")] == []
