"""The written page and pictures: complete, escaped, atomic."""

import base64
import hashlib
import io
import json
import re
from html.parser import HTMLParser

import pytest
from PIL import Image

from inferometer.analysis.summary import summarise
from inferometer.errors import StoreError
from inferometer.report.html import page, write_html
from inferometer.report.png import write_pngs
from tests.unit.report.sample_records import latency, record, throughput

HOSTILE = "</script><script>alert(1)</script>"


class Reader(HTMLParser):
    """Collects the elements, their attributes, and the text of scripts."""

    def __init__(self):
        super().__init__()
        self.elements, self.scripts, self._script = [], [], None

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._script = dict(attrs) if tag == "script" else None
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_data(self, data):
        if self._script is not None:
            self.scripts[-1][1] += data

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None


def read(text):
    reader = Reader()
    reader.feed(text)
    return reader


def block(reader, name):
    return json.loads(next(text for attributes, text in reader.scripts if attributes.get("id") == name))


@pytest.fixture(scope="module")
def made(summary, records):
    return page(summary, records)


def test_the_raw_records_are_inside(made, records):
    reader = read(made)
    assert block(reader, "records") == [json.loads(one.model_dump_json(by_alias=True)) for one in records]
    assert block(reader, "records-csv").count("\n") == len(records) + 1


def test_nothing_is_loaded_from_anywhere(made):
    reader = read(made)
    loading = [(tag, a) for tag, a in reader.elements if {"src", "srcset", "data", "poster"} & a.keys()]
    assert loading == []
    assert {tag for tag, _ in reader.elements} & {"link", "img", "iframe", "object", "embed", "base"} == set()
    assert all(a["href"].startswith("#") for tag, a in reader.elements if tag == "a")
    css = re.search(r"<style>(.*?)</style>", made, re.DOTALL)[1]
    assert "url(" not in css
    assert "@import" not in css


def test_only_the_pages_own_scripts_may_run(made):
    reader = read(made)
    policy = next(
        a["content"] for tag, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"
    )
    running = [text for attributes, text in reader.scripts if attributes.get("type") != "application/json"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in running]
    assert len(running) == 2
    assert re.search(r"script-src ([^;]*);", policy)[1].split() == [f"'sha256-{one}'" for one in hashes]
    style = re.search(r"<style>(.*?)</style>", made, re.DOTALL)[1]
    styled = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ") == [
        "default-src 'none'", policy.split("; ")[1], f"style-src 'sha256-{styled}'", "base-uri 'none'",
        "form-action 'none'",
    ]  # fmt: skip
    assert not [a for _, a in reader.elements if "style" in a]
    assert not [a for _, a in reader.elements for name in a if name.startswith("on")]


def hostile_records():
    return [
        record(model=HOSTILE, throughput=throughput(9.0), trial_study=HOSTILE,
               environment={"cpu": {"model": HOSTILE}}, trial_engine="<img src=x onerror=alert(1)>"),
        record(model=HOSTILE, precision="int8", throughput=throughput(19.0), trial_device="'\"><b>"),
        record(model=HOSTILE, precision="int8", batch=2, status="failed", reason="<!--<script>&amp;"),
    ]  # fmt: skip


def test_records_are_text_wherever_they_stand():
    records = hostile_records()
    text = page(summarise(records, lambda _: None), records)
    reader = read(text)
    assert len([1 for attributes, _ in reader.scripts if attributes.get("type") != "application/json"]) == 2
    assert {tag for tag, _ in reader.elements} & {"img", "b"} == set()
    assert "<script>alert" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert block(reader, "records")[0]["trial"]["model"] == HOSTILE
    titles = {
        panel["title"] for chart in block(reader, "charts") for panel in chart["specification"]["concat"]
    }
    # What follows the last slash is the model's short name.
    assert "script>, <img src=x onerror=alert(1)>, cpu, machine 1" in titles


def test_tables_and_charts_can_be_read_aloud(made):
    reader = read(made)
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("table") == tags.count("caption") == 9
    assert tags.count("h1") == 1
    assert all(a.get("scope") in ("col", "row") for tag, a in reader.elements if tag == "th")
    labels = [a["aria-label"] for _, a in reader.elements if a.get("role") == "img"]
    assert len(labels) == 5
    assert labels[0].startswith("Chart: Throughput by batch and precision. Images per second by batch;")
    identifiers = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(set(identifiers)) == len(identifiers)
    assert ("html", {"lang": "en"}) in reader.elements


def test_headline_numbers_stand_at_the_top(made, summary):
    top = made[made.index("What was found") : made.index("Throughput by batch and precision</h2>")]
    for sentence in (summary.findings[2].sentence, *summary.cautions):
        assert sentence.replace(" %", "&nbsp;%").replace(" images/s", "&nbsp;images/s") in top


def test_a_page_without_results_says_so():
    text = page(summarise([], lambda _: None), [])
    assert "No trial gave a number." in text
    assert block(read(text), "charts") == []


def test_latency_without_percentiles_keeps_its_section_and_table():
    few = [record("latency", latency_s=latency(0.05, n=5)), record(throughput=throughput(9.0))]
    text = page(summarise(few, lambda _: None), few)
    assert "<a href='#latency'>Latency</a>" in text
    section = text[text.index("<section id='latency'") :]
    section = section[: section.index("</section>")]
    assert "<caption class=unseen>Latency</caption>" in section
    assert "chart-latency" not in section
    assert ">80.0</td>" in section  # the longest, 1.6 times the middle, in milliseconds
    assert text.count("id='table-latency'") == 1


def test_the_page_says_what_it_does_not_hold(made):
    assert "The time stamps of single calls and the outcomes of single images are not" in made


def test_the_file_is_written_whole_or_not_at_all(summary, records, tmp_path):
    target = tmp_path / "report.html"
    write_html(summary, records, target)
    assert target.read_text(encoding="utf-8").endswith("</html>\n")
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="folder: is no ordinary file"):
        write_html(summary, records, tmp_path / "folder")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder", "report.html"]


def test_pictures_are_of_a_plausible_size_and_not_blank(summary, tmp_path):
    paths = write_pngs(summary, tmp_path / "charts")
    assert [one.name for one in paths] == [
        "throughput.png", "speedup.png", "latency.png", "accuracy.png", "difference.png",
    ]  # fmt: skip
    with Image.open(io.BytesIO(paths[0].read_bytes())) as picture:
        assert 1500 < picture.width < 2200
        assert 500 < picture.height < 800
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20)}
    assert {(255, 255, 255), (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)} <= colours
