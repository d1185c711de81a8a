"""Names of models, engines, devices, studies, machines and reasons are text, whatever they hold."""

import pytest

from tests.browser.pages import FORMULA, LONG, MARKUP, STOLEN, TURNING


@pytest.fixture
def page(visit):
    return visit("hostile")


def test_nothing_in_a_record_runs(page):
    page.run("document.querySelectorAll('button').forEach((one) => { one.click(); one.click(); })")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.hover("[...document.querySelectorAll('.plot svg *')].find((node) => node.__data__?.tooltip)")
    page.until("document.querySelector('.vg-tooltip.visible')")
    assert page.run("document.documentElement.dataset.stolen") is None
    elements = (
        "document.querySelectorAll('img, iframe, object, embed, a:not([href^=\"#\"]), [onerror]').length"
    )
    assert page.run(elements) == 0


def test_the_policy_stops_what_would_run(page):
    # A script that found its way in would not run: the policy is no decoration.
    page.run(
        "(() => { const one = document.createElement('script');"
        f" one.textContent = '{STOLEN}'; document.body.append(one);"
        f" document.body.insertAdjacentHTML('beforeend', '<img src=x: onerror=\"{STOLEN}\">'); }})()"
    )
    assert page.run("new Promise((done) => setTimeout(done, 200))") is None
    assert page.run("document.documentElement.dataset.stolen") is None
    said = page.take_said()
    assert [line for line in said if "Content Security Policy" in line]


def test_names_read_as_they_are_written(page):
    engines = page.run(
        "(() => { const table = document.querySelector('#table-throughput table');"
        " const at = [...table.tHead.rows[0].cells].findIndex((one) => one.dataset.name === 'Engine');"
        " return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent); })()"
    )
    assert set(engines) == {
        *MARKUP,
        LONG,
        FORMULA,
        TURNING.replace("\u202e", "\ufffd").replace("\u2066", "\ufffd"),
    }


def test_no_name_turns_the_text_around_it(page):
    turns = (
        "[...document.body.innerText].filter((one) => /[\\u202a-\\u202e\\u2066-\\u2069]/.test(one)).length"
    )
    assert page.run(turns) == 0
    drawn = "[...document.querySelectorAll('.panel')].map((one) => one.textContent).join()"
    assert "\ufffdgnp.drow\ufffd model" in page.run(drawn)


def test_long_names_widen_nothing(page):
    assert page.run("document.documentElement.scrollWidth") == 1280
    heights = page.run("[...document.querySelectorAll('.panel p')].map((one) => one.offsetHeight)")
    assert max(heights) < 80


def test_nothing_in_a_comparison_runs(visit):
    page = visit("compared-hostile")
    page.run("document.querySelectorAll('button').forEach((one) => { one.click(); one.click(); })")
    page.run("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert page.run("document.documentElement.dataset.stolen") is None
    assert page.run("document.querySelectorAll('img, iframe, object, [onerror]').length") == 0
    turns = (
        "[...document.body.innerText].filter((one) => /[\\u202a-\\u202e\\u2066-\\u2069]/.test(one)).length"
    )
    assert page.run(turns) == 0
