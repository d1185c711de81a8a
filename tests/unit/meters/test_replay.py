import math
import os
from datetime import UTC, datetime

import pytest

from inferometer.contracts import Channel, MeterStatus, Sample
from inferometer.errors import ConfigError, MeterError
from inferometer.meters import replay
from inferometer.meters.replay import ReplayMeter

S = 10**9
WALL_S = 1_714_557_600
"""2024-05-01T10:00:00Z."""
MONOTONIC_S = 5_000

ROWS = "timestamp,watts\n2024-05-01T10:00:00Z,100\n2024-05-01T10:00:01Z,101.5\n2024-05-01T10:00:02Z,99\n"


class Clocks:
    """Both clocks of the machine, which stand still until they are moved."""

    passed_s = 0.0

    def monotonic_ns(self) -> int:
        return MONOTONIC_S * S + round(self.passed_s * S)

    def time_ns(self) -> int:
        return WALL_S * S + round(self.passed_s * S)


@pytest.fixture(autouse=True)
def clocks(monkeypatch):
    clocks = Clocks()
    monkeypatch.setattr(replay, "time", clocks)
    return clocks


@pytest.fixture
def file(tmp_path):
    return tmp_path / "bench.csv"


def arrived(file, text, **options):
    """What a file gives: seconds after the meter was opened, and the value."""
    file.write_text(text)
    with ReplayMeter().open({"file": str(file), **options}) as session:
        return pairs(session.arrived())


def pairs(samples):
    assert all(one.begin_ns == one.end_ns and one.place == 0 for one in samples)
    return [((one.begin_ns - MONOTONIC_S * S) / S, one.value) for one in samples]


def refusal(file, text, **options):
    """Why a file is refused, and the same told by ``status``."""
    file.write_text(text)
    with pytest.raises((MeterError, ConfigError)) as refused:
        ReplayMeter().open({"file": str(file), **options})
    (status,) = ReplayMeter().status({"file": str(file), **options})
    assert status.reason == str(refused.value)
    assert status.reason.startswith(f"replay: {file}: ")
    return status.reason.removeprefix(f"replay: {file}: ")


def test_a_recorded_trace(file):
    file.write_text(ROWS)
    with ReplayMeter().open({"file": str(file), "devices": ["GPU-1"]}) as session:
        assert session.channels == (
            Channel(
                "power bench", "power", "external meter", "bench", "as logged", 1.0, primary=True, pushed=True
            ),
        )
        assert session.facts == {
            "file": "bench.csv",
            "zone": "UTC",
            "unit": "W",
            "column": None,
            "clock_offset_s": 0.0,
            "align": "wall",
        }
        assert session.arrived() == [
            Sample(0, MONOTONIC_S * S, MONOTONIC_S * S, 100.0),
            Sample(0, (MONOTONIC_S + 1) * S, (MONOTONIC_S + 1) * S, 101.5),
            Sample(0, (MONOTONIC_S + 2) * S, (MONOTONIC_S + 2) * S, 99.0),
        ]
        assert session.arrived() == []
        with pytest.raises(MeterError, match="its readings come by themselves"):
            session.read(0)


def test_the_channel_is_named_by_the_options(file):
    file.write_text(ROWS)
    options = {
        "file": str(file),
        "boundary": "server input",
        "part": "socket 3",
        "semantics": "average over 1 s",
        "gain_error": 0.005,
        "period_s": 0.5,
    }
    with ReplayMeter().open(options) as session:
        assert session.channels == (
            Channel(
                name="power socket 3",
                quantity="power",
                boundary="server input",
                part="socket 3",
                semantics="average over 1 s",
                period_s=0.5,
                primary=True,
                gain_error=0.005,
                pushed=True,
            ),
        )
    assert ReplayMeter().status(options) == (MeterStatus("socket 3", ("server input power",)),)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("head", ["timestamp|watts\n", "\ufefftime|W\r\n", ""])
def test_delimiters_and_headers(file, delimiter, head):
    text = head + "1714557600|100\r\n\r\n1714557600.25| 2.5e2 \r\n"
    assert arrived(file, text.replace("|", delimiter)) == [(0.0, 100.0), (0.25, 250.0)]


@pytest.mark.parametrize(
    ("time", "zone", "after_s"),
    [
        ("2024-05-01T10:00:00.125Z", "UTC", 0.125),
        ("2024-05-01 10:00:00.125", "UTC", 0.125),
        ("2024-05-01T10:00", "UTC", 0),
        ("2024-05-01T12:00:01+02:00", "UTC", 1),
        ("2024-05-01T12:00:01+02:00", "Asia/Tokyo", 1),
        ("2024-05-01T12:00:01", "Europe/Berlin", 1),
        ("2024-05-01T19:00:00", "Asia/Tokyo", 0),
        ("1714557601", "Asia/Tokyo", 1),
        ("1714557600.123456789", "UTC", 0.123456789),
        ("1714557590.", "UTC", -10),
    ],
)
def test_times(file, time, zone, after_s):
    assert arrived(file, f"{time},1\n", zone=zone, period_s=1) == [(after_s, 1.0)]


def test_the_loggers_clock_may_be_ahead(file):
    assert arrived(file, ROWS, clock_offset_s=2.5)[0] == (-2.5, 100.0)
    assert arrived(file, ROWS, clock_offset_s=-3)[0] == (3.0, 100.0)


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (
            "2024-10-27T02:30:00",
            "the time 2024-10-27 02:30:00 is ambiguous in Europe/Berlin, whose clocks change",
        ),
        (
            "2024-03-31 02:30:00",
            "the time 2024-03-31 02:30:00 does not exist in Europe/Berlin, whose clocks change",
        ),
    ],
)
def test_a_change_of_the_clocks(file, time, message):
    reason = refusal(file, f"{time},1\n", zone="Europe/Berlin", period_s=1)
    assert reason.startswith(f"line 1: {message}")
    assert reason.endswith("log in UTC or with an offset")


def test_around_a_change_of_the_clocks(file):
    def seconds(text):
        return (datetime.fromisoformat(text) - datetime.fromtimestamp(WALL_S, UTC)).total_seconds()

    text = "2024-03-31T01:59:59,1\n2024-03-31T03:00:00,2\n2024-10-27T01:59:59,3\n2024-10-27T03:00:00,4\n"
    assert arrived(file, text, zone="Europe/Berlin") == [
        (seconds("2024-03-31T00:59:59Z"), 1.0),
        (seconds("2024-03-31T01:00:00Z"), 2.0),
        (seconds("2024-10-26T23:59:59Z"), 3.0),
        (seconds("2024-10-27T02:00:00Z"), 4.0),
    ]


@pytest.mark.parametrize(
    ("unit", "quantity", "values"),
    [
        ("W", "power", [2.0, 3.0]),
        ("mW", "power", [0.002, 0.003]),
        ("kW", "power", [2000.0, 3000.0]),
        ("J", "energy", [2.0, 3.0]),
        ("mJ", "energy", [0.002, 0.003]),
        ("Wh", "energy", [7200.0, 10800.0]),
        ("kWh", "energy", [7.2e6, 10.8e6]),
    ],
)
def test_units(file, unit, quantity, values):
    file.write_text("0,2\n1,3\n")
    with ReplayMeter().open({"file": str(file), "unit": unit}) as session:
        assert (session.channels[0].quantity, session.channels[0].name) == (quantity, f"{quantity} bench")
        assert [one.value for one in session.arrived()] == values


def test_columns(file):
    table = "time,volts,Watts,amps\n1714557600,230,100,0.5\n1714557601,231,110,0.6\n"
    assert arrived(file, table) == [(0.0, 100.0), (1.0, 110.0)]
    assert arrived(file, table, column="amps") == [(0.0, 0.5), (1.0, 0.6)]
    assert arrived(file, table, column=2) == [(0.0, 230.0), (1.0, 231.0)]
    headless = table.partition("\n")[2]
    assert arrived(file, headless, column=3) == [(0.0, 100.0), (1.0, 110.0)]
    quoted = '"time","power, total"\n"1714557600","7"\n'
    assert arrived(file, quoted, column="power, total", period_s=1) == [(0.0, 7.0)]


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        (
            "time,a,b\n1,2,3\n",
            None,
            "line 1: has 3 columns: say by the option column which one holds the values",
        ),
        ("1,2,3\n", None, "line 1: has 3 columns: say by"),
        ("1\n", None, "line 1: has 1 columns: say by"),
        ("time,a,power\n1,2,3\n", "powr", "line 1: has 0 columns 'powr'; did you mean 'power'?"),
        ("time,a,a\n1,2,3\n", "a", "line 1: has 2 columns 'a'"),
        ("\n1,2\n", "watts", "line 2: is no header: give the column 'watts' by its number"),
        ("time,a\n1,2\n", 3, "line 1: has no column 3: there are 2"),
    ],
)
def test_columns_that_are_not_there(file, text, column, message):
    assert refusal(file, text, period_s=1, **({} if column is None else {"column": column})).startswith(
        message
    )


@pytest.mark.parametrize("cell", ["", "n/a", "nan", "inf", "1e999", "12 W", "1_0", "0x10"])
def test_what_is_no_number_is_no_reading(file, cell):
    (first, value), second = arrived(file, f"1714557600,{cell}\n1714557601,5\n")
    assert (first, second) == (0.0, (1.0, 5.0))
    assert math.isnan(value)


def test_a_delimiter_too_many_is_harmless(file):
    assert arrived(file, "t,watts\n1714557600,12,\n", period_s=1) == [(0.0, 12.0)]


def test_a_missing_cell_is_no_reading(file):
    assert math.isnan(arrived(file, "t,watts\n1714557600\n", period_s=1)[0][1])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("10,1\n10,2\n9.5,3\n", {}, "line 3: time goes backwards, to 9.5"),
        ("t,watts\n2024-05-01T10:00:00Z,1\n2024-05-01T11:00:00+02:00,2\n", {}, "line 3: time goes backwards"),
        (
            "1714557600000,1\n",
            {},
            "line 1: the time 1714557600000 is not from 1970 to 2200; plain numbers",
        ),
        ("2300-01-01T00:00:00Z,1\n", {}, "line 1: the time 2300-01-01T00:00:00Z is not from 1970"),
        ("1969-12-31T23:59:59Z,1\n", {}, "line 1: the time 1969-12-31T23:59:59Z is not from 1970"),
        ("1,1\nsoon,2\n", {}, "line 2: the time 'soon' is neither ISO 8601"),
        ("2024-05-01,2\n", {}, "line 1: the time '2024-05-01' is neither ISO 8601"),
        ("2024-13-01T00:00:00,2\n", {}, "line 1: month must be in 1..12"),
        ("-5,2\n", {}, "line 1: the time '-5' is neither"),
        ("1;12,5\n", {}, "line 1: '12,5' has a decimal comma: write a decimal point"),
        ("1,5\n2,\n3,4.9\n", {"unit": "J"}, "line 3: cumulative energy falls, to 4.9 J"),
        ("t,watts\n1,12,5\n", {}, "line 2: has 3 cells, the first line has 2"),
        ("1,5\r2,6\n", {}, "line 1: new-line character"),
    ],
)
def test_faults_name_the_line(file, text, options, message):
    assert refusal(file, text, **options).startswith(message)


def test_what_is_no_text(file):
    file.write_bytes(b"1,2\n\xff\xfe1,2\n")
    with pytest.raises(MeterError, match=r"bench\.csv: line 2: 'utf-8' codec can't decode"):
        ReplayMeter().open({"file": str(file)})


def test_the_period_is_the_median_spacing(file):
    file.write_text("0,1\n1,1\n2,1\n2.5,1\n9,1\n10,1\n")
    with ReplayMeter().open({"file": str(file)}) as session:
        assert session.channels[0].period_s == 1.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds 0 whole lines of readings, which do not show how far apart they come: give period_s"),
        ("t,watts\n1,2\n2,3", "holds 1 whole lines of readings, which do not show how far apart"),
        ("1,1\n1,2\n1,3\n2,4\n", "most readings share their times: give period_s"),
    ],
)
def test_a_period_that_does_not_show(file, text, message):
    assert refusal(file, text).startswith(message)


def test_a_file_that_grows(file, clocks):
    file.write_text("")
    with ReplayMeter().open({"file": str(file), "period_s": 1}) as session, file.open("a") as logger:

        def write(text):
            logger.write(text)
            logger.flush()
            return pairs(session.arrived())

        assert session.channels[0].period_s == 1.0
        assert write("timestamp,wa") == []
        assert write("tts\n1714557600,1") == []
        clocks.passed_s = 100.0
        assert write("5\n1714557601,16\n1714557602,") == [(0.0, 15.0), (1.0, 16.0)]
        assert write("17") == []
        assert write("\n") == [(2.0, 17.0)]
        assert write("") == []


def test_a_fault_ends_what_grows(file):
    file.write_text("1714557600,1\n1714557601,2\n")
    with ReplayMeter().open({"file": str(file)}) as session, file.open("a") as logger:
        logger.write("1714557602,3\n1714557601,4\n1714557603,5\n")
        logger.flush()
        # What came before the fault is given first.
        assert pairs(session.arrived()) == [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]
        for _ in range(2):
            with pytest.raises(MeterError, match=r"bench\.csv: line 4: time goes backwards, to 1714557601"):
                session.arrived()
            logger.write("1714557604,6\n")
            logger.flush()


def test_a_file_that_is_cut_short(file):
    file.write_text("1714557600,1\n1714557601,2\n")
    with ReplayMeter().open({"file": str(file)}) as session:
        assert len(session.arrived()) == 2
        file.write_text("1714557602,1\n")
        for _ in range(2):
            with pytest.raises(MeterError, match=r"bench\.csv: became shorter while it was read"):
                session.arrived()


def test_aligned_at_the_start_readings_come_when_their_time_has_come(file, clocks):
    file.write_text("elapsed,watts\n0,10\n0.5,20\n1,30\n")
    options = {"file": str(file), "align": "start"}
    with ReplayMeter().open(options) as session, file.open("a") as logger:
        assert session.channels[0].period_s == 0.5
        assert session.facts["align"] == "start"
        assert pairs(session.arrived()) == [(0.0, 10.0)]
        clocks.passed_s = 0.499
        assert session.arrived() == []
        clocks.passed_s = 0.5
        assert pairs(session.arrived()) == [(0.5, 20.0)]
        logger.write("1.25,40\n1,50\n")
        logger.flush()
        clocks.passed_s = 1.1
        assert pairs(session.arrived()) == [(1.0, 30.0)]
        assert session.arrived() == []
        clocks.passed_s = 10.0
        assert pairs(session.arrived()) == [(1.25, 40.0)]
        with pytest.raises(MeterError, match="line 6: time goes backwards"):
            session.arrived()


def test_aligned_at_the_start_dates_do_not_matter(file, clocks):
    file.write_text(ROWS.replace("2024", "2001"))
    with ReplayMeter().open({"file": str(file), "align": "start"}) as session:
        clocks.passed_s = 60.0
        assert pairs(session.arrived()) == [(0.0, 100.0), (1.0, 101.5), (2.0, 99.0)]


def test_no_file(tmp_path):
    (status,) = ReplayMeter().status({})
    assert (status.subject, status.reason) == ("replay", "no file is named")
    assert "with the option file" in status.remedy
    with pytest.raises(ConfigError, match="replay: the option file is missing"):
        ReplayMeter().open({})
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("absent.csv", "No such file or directory"),
        ("", "is no file"),
        ("pipe", "is no file"),
    ):
        path = str(tmp_path / name)
        (status,) = ReplayMeter().status({"file": path})
        assert status.reason == f"replay: {tmp_path / name}: {why}"
        with pytest.raises(MeterError, match=why):
            ReplayMeter().open({"file": path})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fil": "x"}, "replay: unknown option 'fil'; did you mean 'file'?"),
        ({"file": 3}, "replay: file: wants a text, got 3"),
        ({"file": ""}, "replay: file: wants a text, got ''"),
        ({"unit": "w"}, "replay: unit: 'w' is not known; known are J, W, Wh, kW, kWh, mJ, mW"),
        ({"unit": 1}, "replay: unit: wants a text, got 1"),
        ({"align": "begin"}, "replay: align: 'begin' is not known; known are start, wall"),
        (
            {"align": "start", "clock_offset_s": 1},
            "replay: clock_offset_s has no meaning with align 'start': ",
        ),
        ({"clock_offset_s": "1"}, "replay: clock_offset_s: wants a number of seconds, got '1'"),
        ({"clock_offset_s": math.nan}, "replay: clock_offset_s: wants a number of seconds, got nan"),
        ({"column": 1}, "replay: column: wants a name, or a number from 2 on, got 1"),
        ({"column": True}, "replay: column: wants a name, or a number from 2 on, got True"),
        ({"gain_error": 1.0}, "replay: gain_error: wants a fraction from 0 to below 1, got 1.0"),
        ({"gain_error": -0.1}, "replay: gain_error: wants a fraction from 0 to below 1, got -0.1"),
        ({"period_s": 0}, "replay: period_s: wants seconds above 0, got 0"),
        ({"period_s": True}, "replay: period_s: wants seconds above 0, got True"),
        ({"part": " "}, "replay: part: wants a text, got ' '"),
        ({"devices": "all"}, "replay: devices: wants a list of UUIDs, got 'all'"),
        ({"zone": "Berlin"}, "replay: zone: 'Berlin' is not in the time zone database (tzdata)"),
        ({"zone": "Europe"}, "replay: zone: 'Europe' is not in the time zone database"),
        ({"zone": "../x"}, "replay: zone: '../x' is not in the time zone database"),
    ],
)
def test_options(options, message):
    for ask in (ReplayMeter().status, ReplayMeter().open):
        with pytest.raises(ConfigError) as refused:
            ask({"file": "x.csv"} | options)
        assert str(refused.value).startswith(message)
