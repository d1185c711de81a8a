"""What a reader does with a report: hovers, hides series, steps through values, sorts, saves, follows."""

import csv
import io
import json
import time

import pytest

from inferometer.report.tables import csv_text
from tests.unit.report.sample_records import study

HEADS = "[...document.querySelectorAll('#table-throughput thead th')]"
MEAN = (
    "[...document.querySelectorAll('#chart-throughput svg *')].find((node) =>"
    " node.__data__?.tooltip?.value === '544 images/s')"
)
SHOWN = (
    "[...document.querySelectorAll('#chart-throughput svg *')].filter((node) =>"
    " node.__data__?.datum?.precision === '%s' && getComputedStyle(node).visibility === 'visible').length"
)
LEGENDS = "[...document.querySelectorAll('#throughput .keys button')]"


def column(page, name, table="throughput"):
    """The texts of a table's column, from the top."""
    return page.run(
        f"(() => {{ const table = document.querySelector('#table-{table} table');"
        f" const at = [...table.tHead.rows[0].cells]"
        f".findIndex((one) => one.dataset.name === {json.dumps(name)});"
        " return [...table.tBodies[0].rows].map((row) => row.cells[at].textContent); })()"
    )


def head(name):
    return f"{HEADS}.find((one) => one.dataset.name === {json.dumps(name)})"


def pressed(page):
    return page.run(f"{LEGENDS}.map((one) => [one.textContent, one.getAttribute('aria-pressed')])")


def saved(page, folder, name, press):
    """The text of the file that arrives when ``press`` is called."""
    page.saves_into(folder)
    press()
    end = time.monotonic() + 20
    while not (folder / name).exists():
        assert time.monotonic() < end, f"{name} does not arrive"
        time.sleep(0.05)
    page.until(f"document.querySelector('[role=status]').textContent === 'Saved {name}'")
    return (folder / name).read_text(encoding="utf-8")


def test_hovering_tells_the_value_that_the_table_holds(visit):
    page = visit("small")
    page.hover(MEAN)
    page.until("document.querySelector('.vg-tooltip.visible')")
    rows = "[...document.querySelectorAll('.vg-tooltip tr')].map((one) => one.innerText.split('\\t'))"
    told = dict(page.run(rows))
    assert told == {"model": "AlexNet", "precision": "INT8", "batch": "8", "value": "544 images/s",
                    "MACs at precision": "84 % in INT8"}  # fmt: skip
    assert "544" in column(page, "Rate (images/s)")


def test_a_series_is_hidden_by_the_mouse_and_comes_back_by_the_keyboard(visit):
    page = visit("small")
    axis = "document.querySelector('#chart-throughput svg .role-axis').textContent"
    before, fp32, int8 = page.run(axis), page.run(SHOWN % "FP32"), page.run(SHOWN % "INT8")
    assert fp32 > 10
    assert int8 > 10
    page.click(f"{LEGENDS}[1]")
    assert pressed(page) == [["FP32", "true"], ["INT8", "false"]]
    assert (page.run(SHOWN % "FP32"), page.run(SHOWN % "INT8")) == (fp32, 0)
    assert page.run(axis) == before
    assert page.run(f"document.activeElement === {LEGENDS}[1]")
    page.press("Space")
    assert pressed(page) == [["FP32", "true"], ["INT8", "true"]]
    assert page.run(SHOWN % "INT8") == int8
    page.press("Shift+Tab", "Enter")
    assert pressed(page) == [["FP32", "false"], ["INT8", "true"]]
    assert page.run(SHOWN % "FP32") == 0


def test_a_hidden_series_stays_hidden_at_another_width(visit):
    page = visit("small")
    page.click(f"{LEGENDS}[1]")
    width = "document.querySelector('#chart-throughput svg').getBoundingClientRect().width"
    before = page.run(width)
    page.resize(700, 900)
    page.until(f"Math.abs({width} - {before}) > 30")
    page.until(f"({SHOWN % 'INT8'}) === 0 && ({SHOWN % 'FP32'}) > 10")


def test_the_slider_steps_through_the_values_by_keys_and_says_them(visit):
    page = visit("small")
    slider = "document.querySelector('#throughput .values input')"
    page.run(f"{slider}.focus()")
    page.press("ArrowRight", "Home")
    first = page.run(f"{slider}.getAttribute('aria-valuetext')")
    assert first.startswith("GoogLeNet, FP32, batch 1, ")
    assert page.run(f"{slider}.nextElementSibling.textContent") == first
    assert page.run("document.querySelectorAll('#throughput .told').length") == 1
    page.press("End")
    assert page.run(f"{slider}.getAttribute('aria-valuetext')").startswith(
        "ResNet-50, FP32, batch 1024, skipped"
    )
    every = page.run(f"Number({slider}.max) + 1")
    page.click(f"{LEGENDS}[1]")
    assert 0 < page.run(f"Number({slider}.max) + 1") < every


def test_columns_sort_by_mouse_and_keyboard_and_say_so(visit):
    page = visit("small")
    made = column(page, "Rate (images/s)")
    sort = f"{head('Rate (images/s)')}.getAttribute('aria-sort')"
    page.click(f"{head('Rate (images/s)')}.querySelector('button')")
    up = column(page, "Rate (images/s)")
    numbers = [float(one) for one in up[:-2]]
    assert numbers == sorted(numbers)
    assert set(up[-2:]) == {"out of memory", "skipped"}  # what is absent stands last
    assert page.run(sort) == "ascending"
    said = page.run("document.querySelector('[role=status]').textContent")
    assert said == "Sorted by Rate (images/s), ascending"
    page.press("Enter")
    down = column(page, "Rate (images/s)")
    assert down[:-2] == up[-3::-1]
    assert set(down[-2:]) == {"out of memory", "skipped"}
    assert page.run(sort) == "descending"
    page.press("Space")
    assert column(page, "Rate (images/s)") == made
    assert page.run(f"{HEADS}.map((one) => one.getAttribute('aria-sort'))") == ["none"] * 9


def test_every_column_of_every_table_sorts_and_keeps_its_rows(visit):
    page = visit("scaling")
    wrong = page.run(
        """(() => {
          const wrong = [];
          for (const table of document.querySelectorAll("table")) {
            const texts = () => [...table.tBodies[0].rows].map((row) => row.textContent);
            const made = texts();
            for (const button of table.tHead.querySelectorAll("button")) {
              button.click();
              const up = texts();
              button.click();
              button.click();
              if (String([...up].sort()) !== String([...made].sort())) wrong.push(button.textContent);
              if (String(texts()) !== String(made)) wrong.push(button.textContent);
            }
            const buttons = table.tHead.querySelectorAll("button").length;
            if (made.length > 1 && buttons !== table.tHead.rows[0].cells.length) wrong.push(made);
          }
          return wrong;
        })()"""
    )
    assert wrong == []


def test_names_sort_as_people_count(visit):
    page = visit("small")
    page.click(f"{head('Model')}.querySelector('button')")
    assert list(dict.fromkeys(column(page, "Model"))) == ["AlexNet", "GoogLeNet", "ResNet-50"]
    page.click(f"{head('Batch')}.querySelector('button')")
    assert list(dict.fromkeys(column(page, "Batch"))) == ["1", "4", "8", "512", "1,024"]


def test_a_table_is_saved_as_shown_with_raw_values_beside(visit, tmp_path):
    page = visit("small")
    button = "document.querySelector('#throughput .tools button')"
    text = saved(page, tmp_path, "throughput.csv", lambda: page.click(button))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["Rate (images/s)"] for row in rows] == column(page, "Rate (images/s)")
    first = rows[0]
    assert (first["Model"], first["Model, raw"], first["Precision"], first["Batch"]) == (
        "GoogLeNet", "googlenet", "FP32", "1",
    )  # fmt: skip
    assert float(first["Rate (images/s), raw"]) == pytest.approx(float(first["Rate (images/s)"]), abs=0.05)
    low, high = (float(first[f"95 % interval (images/s), raw {end}"]) for end in ("low", "high"))
    assert low < float(first["Rate (images/s), raw"]) < high
    assert float(first["MACs at precision, raw"]) == 1.0
    missing = next(row for row in rows if row["Rate (images/s)"] == "out of memory")
    assert missing["95 % interval (images/s), raw low"] == missing["Peak memory, raw"] == ""


def test_a_name_that_is_a_formula_is_saved_as_text(visit, tmp_path):
    page = visit("hostile")
    button = "document.querySelector('#throughput .tools button')"
    text = saved(page, tmp_path, "throughput.csv", lambda: page.click(button))
    engines = {row["Engine"] for row in csv.DictReader(io.StringIO(text))}
    assert '\'=HYPERLINK("http://example.org","x")' in engines
    assert not [one for one in engines if one.startswith("=")]


def test_all_records_are_saved_whole(visit, tmp_path):
    page, (records, _) = visit("small"), study()
    button = "document.getElementById('save-%s')"
    text = saved(page, tmp_path, "records.json", lambda: page.click(button % "json"))
    assert json.loads(text) == [json.loads(one.model_dump_json(by_alias=True)) for one in records]
    text = saved(page, tmp_path, "records.csv", lambda: page.click(button % "csv"))
    assert text == csv_text(records)


def test_links_lead_to_sections_charts_tables_and_findings(browser, pages):
    path = pages("h200-torch")
    for at in ("#speedup", "#chart-speedup", "#table-machine-2", "#data"):
        with browser.open(path, at=at) as page:
            top, bottom = page.run(
                f"(() => {{ const box = document.querySelector('{at}').getBoundingClientRect();"
                " return [box.top, innerHeight - Math.min(box.bottom, innerHeight)]; })()"
            )
            assert (at, top >= -1, bottom >= -1, top < 900) == (at, True, True, True)
            assert page.run("getComputedStyle(document.querySelector(':target')).outlineStyle !== 'none'"
                            " || document.querySelector(':target').tagName === 'SECTION'")  # fmt: skip
    with browser.open(path, at="#finding-7") as page:  # among those that are folded away
        assert page.run("document.querySelector('details').open")
        assert page.run("document.querySelector(':target').checkVisibility()")


def test_each_link_of_the_page_leads_somewhere_and_is_seen_with_the_focus(visit):
    page = visit("scaling")
    lost = page.run(
        "[...document.querySelectorAll('a[href^=\"#\"]')].map((one) => one.getAttribute('href'))"
        ".filter((href) => !document.getElementById(href.slice(1)))"
    )
    assert lost == []
    page.focus("#scaling .heading .link")
    assert page.run("getComputedStyle(document.activeElement).opacity") == "1"


def test_the_first_tab_offers_to_skip_to_the_results(visit):
    page = visit("small")
    page.press("Tab")
    assert page.run("document.activeElement.textContent") == "Skip to the results"
    assert page.run("document.activeElement.getBoundingClientRect().left") >= 0
    page.press("Enter")
    page.until("location.hash === '#main'")
    page.press("Tab")
    assert page.run("document.querySelector('main').contains(document.activeElement)")


def test_the_keyboard_reaches_every_control_and_each_shows_its_focus(visit):
    page = visit("small")
    controls = page.run(
        "document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]').length"
    )
    hidden = []
    for _ in range(controls + 5):
        page.press("Tab")
        found = page.run(
            "(() => { const one = document.activeElement, look = getComputedStyle(one);"
            " if (one === document.body) return null;"
            " one.dataset.reached = '';"
            " return [one.outerHTML.slice(0, 90), look.outlineStyle]; })()"
        )
        if found is None:
            break
        if found[1] == "none":
            hidden.append(found[0])
    assert page.run("document.querySelectorAll('[data-reached]').length") == controls
    assert hidden == []


def test_a_table_that_does_not_fit_scrolls_by_keys(visit):
    page = visit("small", width=360)
    page.focus("#table-throughput")
    page.press(*["ArrowRight"] * 3)
    page.until("document.querySelector('#table-throughput').scrollLeft > 0")
    assert page.run("document.documentElement.scrollLeft") == 0


@pytest.mark.parametrize(("system", "keys", "ground"), [
    ("light", 2, "rgb(21, 23, 26)"), ("dark", 1, "rgb(255, 255, 255)"), ("dark", 0, "rgb(21, 23, 26)"),
])  # fmt: skip
def test_the_reader_chooses_light_or_dark(visit, system, keys, ground):
    page = visit("small", scheme=system)
    page.focus("#look")
    page.press(*["ArrowDown"] * keys)
    page.until(f"getComputedStyle(document.body).backgroundColor === '{ground}'")


def test_nothing_moves(visit):
    page = visit("small", at="#accuracy")
    page.click(f"{LEGENDS}[1]")
    assert page.run("document.getAnimations().length") == 0
    assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
