"""One browser for all tests that drive pages, the pages, and a folder for what they look like."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.browser.chromium import BROWSER, MISSING, Browser
from tests.browser.pages import WRITERS


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    if BROWSER is None:
        pytest.skip(MISSING)
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """The path of a page by its name; each is written once."""
    folder = tmp_path_factory.mktemp("pages")

    def path_of(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            WRITERS[name](path)
        return path

    return path_of


@pytest.fixture
def visit(browser, pages):
    """Opens a page by its name; in the end none has said anything on the console or asked the network."""
    tabs = []

    def opened(name: str, **settings):
        tabs.append(browser.open(pages(name), **settings))
        return tabs[-1]

    yield opened
    said = [line for tab in tabs for line in tab.said]
    asked = [url for tab in tabs for url in tab.asked_for]
    for tab in tabs:
        tab.close()
    assert (said, asked) == ([], [])


@pytest.fixture
def artefact(tmp_path, request):
    """A path for what a test shows; in the folder INFEROMETER_ARTEFACTS it is kept."""
    kept = os.environ.get("INFEROMETER_ARTEFACTS")
    folder = Path(kept) / "browser" if kept else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return lambda name: folder / re.sub(r"[^\w.-]+", "-", name)
