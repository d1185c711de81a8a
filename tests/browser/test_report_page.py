"""The report in a real browser: drawn, silent, without a network, and with nothing run from records."""

import json
import re
import shutil
import subprocess

import pytest
from PIL import Image, ImageStat

from inferometer.analysis.summary import summarise
from inferometer.report.html import write_html
from tests.unit.report.sample_records import record, study, throughput

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--enable-logging=stderr", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=20000",
)  # fmt: skip
STEAL = "document.documentElement.dataset.stolen=1"

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium is not on PATH: apt-get install chromium")


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    records, top5 = study()
    write_html(summarise(records, top5), records, path)
    return path


def browse(path, folder, *more):
    """Open a file; returns what the browser printed and what it logged."""
    for attempt in ("first", "second", "third"):
        command = [BROWSER, *FLAGS, f"--user-data-dir={folder / attempt}", *more, path.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True)
        except subprocess.TimeoutExpired:
            continue  # Chromium itself now and then does not end, its work done: no fault of the page
        return done.stdout, done.stderr
    raise AssertionError("Chromium did not end in three attempts")


def console(log):
    return [line for line in log.splitlines() if "CONSOLE" in line]


def asked_for(log):
    """What pages asked for: Chromium logs their origin as "null" here, and another for its own services."""
    events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
    return {event["url"] for event in events if event.get("initiator") == "null"}


def test_charts_are_drawn_silently_and_without_a_network(page, tmp_path):
    log = tmp_path / "net.json"
    dom, errors = browse(page, tmp_path, "--dump-dom", "--window-size=1280,900", f"--log-net-log={log}")
    assert 'data-charts="drawn"' in dom
    hosts = re.findall(r'id="chart-([a-z]+)".*?<svg', dom, re.DOTALL)
    assert hosts == ["throughput", "speedup", "latency", "accuracy", "difference"]
    assert dom.count("ResNet-50</text>") == 3
    assert console(errors) == []
    assert asked_for(log) == set()


def test_a_request_would_be_noticed(tmp_path):
    path, log = tmp_path / "asking.html", tmp_path / "net.json"
    path.write_text("<!doctype html><img src='http://example.org/a.png'>")
    browse(path, tmp_path, "--dump-dom", f"--log-net-log={log}")
    assert asked_for(log) == {"http://example.org/a.png"}


def test_nothing_in_a_record_runs(tmp_path):
    texts = (
        f"</script><script>{STEAL}</script>",
        f"<img src=x onerror={STEAL}>",
        f"'-({STEAL})-'\"+({STEAL})+\"",
        "${" + STEAL + "}{{" + STEAL + "}}",
    )
    records = [
        record(model=text, precision=precision, throughput=throughput(9.0), reason=text, trial_study=text)
        for text in texts
        for precision in ("fp32", "int8")
    ]
    path = tmp_path / "hostile.html"
    write_html(summarise(records, lambda _: None), records, path)
    dom, errors = browse(path, tmp_path, "--dump-dom")
    assert 'data-charts="drawn"' in dom
    assert "data-stolen" not in dom.split(">", 2)[1]
    assert not re.search(r"<html[^>]*data-stolen", dom)
    assert console(errors) == []


def test_it_fits_a_phone_and_saves_its_records(page, tmp_path):
    # A page around it, since the browser's own window is never so narrow.
    around = tmp_path / "around.html"
    around.write_text(
        f"""<!doctype html><iframe src="{page.as_uri()}" style="width:360px;height:800px;border:0"></iframe>
        <script>
        const frame = document.querySelector("iframe");
        const saved = {{}};
        function look() {{
          const inner = frame.contentWindow, root = frame.contentDocument.documentElement;
          if (root.dataset.charts !== "drawn") return void setTimeout(look, 100);
          inner.URL.createObjectURL = (blob) => {{
            blob.text().then((text) => {{ saved[blob.type] = text.length; tell(); }});
            return "#";
          }};
          frame.contentDocument.getElementById("save-json").click();
          frame.contentDocument.getElementById("save-csv").click();
          function tell() {{
            const drawings = [...root.querySelectorAll("svg")];
            const widest = Math.max(...drawings.map((one) => one.getBoundingClientRect().right));
            document.title = JSON.stringify({{ scroll: root.scrollWidth, widest, saved }});
          }}
        }}
        look();
        </script>"""
    )
    dom, _ = browse(around, tmp_path, "--dump-dom", "--allow-file-access-from-files", "--window-size=800,900")
    told = json.loads(re.search(r"<title>(.*?)</title>", dom)[1])
    assert told["scroll"] <= 360
    assert 250 < told["widest"] <= 360
    records, _ = study()
    assert told["saved"]["application/json"] > 1000 * len(records)
    assert told["saved"]["text/csv"] > 200 * len(records)


@pytest.mark.parametrize(("scheme", "least", "most"), [(1, 230, 255), (0, 0, 60)], ids=["light", "dark"])
def test_it_follows_light_and_dark(page, tmp_path, scheme, least, most):
    picture = tmp_path / "shot.png"
    settings = f"--blink-settings=preferredColorScheme={scheme}"
    browse(page, tmp_path, f"--screenshot={picture}", "--window-size=1280,1600", settings)
    with Image.open(picture) as shot:
        grey = shot.convert("L")
        assert least <= ImageStat.Stat(grey).mean[0] <= most
        assert ImageStat.Stat(grey).stddev[0] > 10
