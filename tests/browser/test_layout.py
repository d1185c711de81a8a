"""What pages look like: on a desk, on a phone, dark, printed. The pictures are kept as artefacts."""

import pytest
from PIL import Image, ImageStat

PAGES = ["small", "scaling", "explained", "h200-torch", "h200-power", "compared"]
PAPER = 718  # CSS pixels of A4 between margins of 12 mm, rounded up


def brightness(path):
    """Mean and spread of grey, 0 to 255."""
    with Image.open(path) as picture:
        grey = ImageStat.Stat(picture.convert("L"))
    return grey.mean[0], grey.stddev[0]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("scheme", "least", "most"), [("light", 225, 255), ("dark", 0, 60)])
def test_a_page_is_light_or_dark_as_the_system_is(visit, artefact, name, scheme, least, most):
    picture = artefact(f"{name}-{scheme}.png")
    page = visit(name, scheme=scheme)
    page.screenshot(picture, whole=True)
    mean, spread = brightness(picture)
    assert least <= mean <= most
    assert spread > 10
    assert page.run("document.documentElement.scrollWidth") == 1280


@pytest.mark.parametrize("name", [*PAGES, "hostile"])
def test_a_page_fits_a_phone(visit, artefact, name):
    page = visit(name, width=360, height=740)
    page.screenshot(artefact(f"{name}-phone.png"), whole=True)
    assert page.run("document.documentElement.scrollWidth") == 360
    widths = page.run("[...document.querySelectorAll('.plot svg')].map((one) => one.getBoundingClientRect())"
                      ".map((box) => [box.left, box.right])")  # fmt: skip
    assert min(right - left for left, right in widths) > 250
    assert min(left for left, _ in widths) >= 0
    assert max(right for _, right in widths) <= 360


def test_marks_stay_inside_their_drawing_on_a_phone(visit):
    page = visit("h200-torch", width=360)
    out = page.run(
        "[...document.querySelectorAll('.plot svg text, .plot svg path')]"
        ".map((one) => one.getBoundingClientRect())"
        ".filter((box) => box.width && (box.right > 361 || box.left < -1)).length"
    )
    assert out == 0


@pytest.mark.parametrize("name", PAGES)
def test_a_page_prints_light_and_whole(visit, artefact, name):
    page = visit(name, scheme="dark", width=PAPER)
    page.scheme("dark", media="print")
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.body).color") == "rgb(27, 28, 30)"
    controls = "[...document.querySelectorAll('nav, select, .tools, .values, .link')]"
    assert page.run(f"{controls}.filter((one) => one.checkVisibility()).length") == 0
    wide = page.run(
        "[...document.querySelectorAll('table, .plot svg')].map((one) => one.getBoundingClientRect().right)"
    )
    assert max(wide) <= PAPER + 1
    boxes = "[...document.querySelectorAll('.scroll')]"
    assert page.run(f"{boxes}.every((one) => getComputedStyle(one).overflowX === 'visible')")
    page.screenshot(artefact(f"{name}-printed.png"), whole=True)
    paper = artefact(f"{name}.pdf")
    page.pdf(paper)
    assert paper.read_bytes().startswith(b"%PDF")


def test_what_is_folded_away_is_printed(visit):
    page = visit("h200-torch")
    page.run(
        "document.querySelector('details').addEventListener('toggle', () => { document.title = 'opened'; })"
    )
    page.ask("Page.printToPDF")
    page.until("document.title === 'opened' && !document.querySelector('details').open")


def test_an_address_elsewhere_is_spelt_on_paper(visit):
    page = visit("small")
    page.run(
        "document.querySelector('footer').append(Object.assign(document.createElement('a'),"
        " {href: 'https://example.org/', textContent: 'there'}))"
    )
    page.scheme("light", media="print")
    after = page.run("getComputedStyle(document.querySelector('footer a'), '::after').content")
    assert "https://example.org/" in after


def test_without_scripts_there_are_tables_and_no_dead_controls(browser, pages):
    with browser.open(pages("small"), scripts=False, wait="document.readyState === 'complete'") as page:
        seen = "[...document.querySelectorAll('%s')].filter((one) => one.checkVisibility()).length"
        assert page.run(seen % "#look, .keys, .values, button") == 0
        assert page.run(seen % "table") == 9
        assert "Charts need JavaScript" in page.run("document.body.innerText")
