from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("urllib3", reason="the package urllib3 is not installed")

import urllib3

from inferometer.contracts import MeterSession
from inferometer.errors import ConfigError, InferometerError, MeterError
from inferometer.meters.redfish import RedfishMeter
from inferometer.meters.redfish_client import Client, Endpoint, Login, Passing, waiting_time
from tests.unit.meters.redfish_server import PASSWORD, SESSIONS, USER, Answer, RedfishServer

CHASSIS = "/redfish/v1/Chassis"
BOX = f"{CHASSIS}/System.Embedded.1"
SYSTEM = "/redfish/v1/Systems/System.Embedded.1"
LOGIN = f"POST {SESSIONS}"


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(*paths: str) -> dict[str, Any]:
    return {"Members": [link(path) for path in paths], "Members@odata.count": len(paths)}


def legacy() -> dict[str, Any]:
    """An older iDRAC: no Status in PowerControl."""
    return {
        "/redfish/v1": {
            "RedfishVersion": "1.11.0",
            "Vendor": "Dell",
            "Links": {"Sessions": link(SESSIONS)},
            "Chassis": link(CHASSIS),
        },
        CHASSIS: collection(BOX),
        BOX: {
            **link(BOX),
            "Id": "System.Embedded.1",
            "ChassisType": "StandAlone",
            "Links": {"ComputerSystems": [link(SYSTEM)]},
            "Power": link(f"{BOX}/Power"),
        },
        f"{BOX}/Power": {"PowerControl": [{"Name": "System Power Control", "PowerConsumedWatts": 312}]},
        SYSTEM: {"PowerState": "On"},
    }


def with_environment(tree: dict[str, Any], excerpt: Any) -> dict[str, Any]:
    tree[BOX]["EnvironmentMetrics"] = link(f"{BOX}/EnvironmentMetrics")
    tree[f"{BOX}/EnvironmentMetrics"] = {"Id": "EnvironmentMetrics", "PowerWatts": excerpt}
    return tree


def with_supplies(tree: dict[str, Any], *watts: float | None) -> dict[str, Any]:
    supplies = f"{BOX}/PowerSubsystem/PowerSupplies"
    tree[BOX]["PowerSubsystem"] = link(f"{BOX}/PowerSubsystem")
    tree[f"{BOX}/PowerSubsystem"] = {"PowerSupplies": link(supplies)}
    paths = [f"{supplies}/PSU.Slot.{number + 1}" for number in range(len(watts))]
    tree[supplies] = collection(*paths)
    for number, (path, value) in enumerate(zip(paths, watts, strict=True)):
        state = {"State": "Enabled"}
        tree[path] = {"Id": f"PSU.Slot.{number + 1}", "Status": state, "Metrics": link(f"{path}/Metrics")}
        tree[f"{path}/Metrics"] = {"Id": "Metrics", "InputPowerWatts": {"Reading": value}}
    return tree


def with_sensors(tree: dict[str, Any], **sensors: dict[str, Any]) -> dict[str, Any]:
    tree[BOX]["Sensors"] = link(f"{BOX}/Sensors")
    tree[f"{BOX}/Sensors"] = collection(*(f"{BOX}/Sensors/{name}" for name in sensors))
    for name, more in sensors.items():
        tree[f"{BOX}/Sensors/{name}"] = {"Id": name, "ReadingType": "Power", "ReadingUnits": "W", **more}
    return tree


def metrics_of(number: int) -> str:
    return f"{BOX}/PowerSubsystem/PowerSupplies/PSU.Slot.{number}/Metrics"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_REDFISH_USER", USER)
    monkeypatch.setenv("INFEROMETER_REDFISH_PASSWORD", PASSWORD)


@pytest.fixture
def bmc() -> Iterator[RedfishServer]:
    """After every test no session may be left at the server."""
    with RedfishServer(legacy()) as server:
        yield server
        assert server.sessions == {}


def opened(server: RedfishServer, **options: Any) -> MeterSession:
    return RedfishMeter().open({"url": server.url, **options})


def told(error: BaseException) -> str:
    """All that the error and those behind it say."""
    lines = traceback.format_exception(error)
    link_: BaseException | None = error
    while link_ is not None:
        lines.append(repr(link_) + str(link_.args))
        link_ = link_.__cause__ or link_.__context__
    return "".join(lines)


def boundaries(session: MeterSession) -> list[tuple[str, str]]:
    return [(channel.boundary, channel.part) for channel in session.channels]


# Where the power is


def test_the_legacy_resource_without_a_status(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        (channel,) = session.channels
        assert channel.name == "power control System.Embedded.1"
        assert (channel.quantity, channel.boundary, channel.part) == (
            "power",
            "server (PowerControl)",
            "System.Embedded.1",
        )
        assert (channel.period_s, channel.step_s, channel.primary, channel.pushed) == (1.0, None, True, False)
        assert session.read(0) == 312.0
        bmc.tree[f"{BOX}/Power"]["PowerControl"][0]["PowerConsumedWatts"] = 405.5
        assert session.read(0) == 405.5
        assert session.facts["tls"] == "none (http)"
        assert session.facts["auth"] == "session"
        assert session.facts["Vendor"] == "Dell"
        assert set(session.facts["passed_over"]) == {
            "System.Embedded.1: PSU inputs",
            "System.Embedded.1: EnvironmentMetrics",
        }


def test_a_newer_service_without_the_legacy_resource(bmc: RedfishServer) -> None:
    with_environment(bmc.tree, {"Reading": 230})
    del bmc.tree[f"{BOX}/Power"]
    with opened(bmc, sources="all") as session:
        assert boundaries(session) == [("server (EnvironmentMetrics)", "System.Embedded.1")]
        assert session.read(0) == 230.0
        assert "HTTP 404 Not Found" in session.facts["passed_over"]["System.Embedded.1: PowerControl"]


def test_environment_metrics_that_only_name_their_sensor(bmc: RedfishServer) -> None:
    with_sensors(bmc.tree, TotalPower={"PhysicalContext": "Chassis", "Reading": 374, "Accuracy": 2})
    with_environment(bmc.tree, {"DataSourceUri": f"{BOX}/Sensors/TotalPower"})
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (EnvironmentMetrics)"
        assert session.channels[0].gain_error == 0.02
        bmc.log.clear()
        assert session.read(0) == 374.0
        assert bmc.log == [f"GET {BOX}/Sensors/TotalPower"]


def test_power_supplies_come_first_and_one_poll_is_one_request_each(bmc: RedfishServer) -> None:
    with_environment(with_supplies(bmc.tree, 120.5, 118), {"Reading": 230})
    with opened(bmc) as session:
        assert boundaries(session) == [
            ("server input (PSU sum)", "System.Embedded.1 PSU.Slot.1"),
            ("server input (PSU sum)", "System.Embedded.1 PSU.Slot.2"),
        ]
        bmc.log.clear()
        assert [session.read(0), session.read(1)] == [120.5, 118.0]
        assert bmc.log == [f"GET {metrics_of(1)}", f"GET {metrics_of(2)}"]


def test_all_sources_keep_their_own_boundaries(bmc: RedfishServer) -> None:
    with_environment(with_supplies(bmc.tree, 120, 118), {"Reading": 230})
    with_sensors(
        bmc.tree,
        SystemBoardPwrConsumption={"PhysicalContext": "SystemBoard", "Reading": 210},
        PowerHeadroom={"PhysicalContext": "SystemBoard", "Reading": 900},
    )
    with opened(bmc, sources="all") as session:
        assert [channel.boundary for channel in session.channels] == [
            "server input (PSU sum)",
            "server input (PSU sum)",
            "server (EnvironmentMetrics)",
            "server (PowerControl)",
            "system board",
        ]
        assert [session.read(place) for place in range(5)] == [120, 118, 230, 312, 210]
        assert all(channel.primary for channel in session.channels)


def test_sensors_of_supplies_count_their_inputs_only(bmc: RedfishServer) -> None:
    supply = {"PhysicalContext": "PowerSupply"}
    with_sensors(
        bmc.tree,
        **{
            "PSU.Slot.1_InputPower": {**supply, "Reading": 120, "Accuracy": 5},
            "PSU.Slot.1_OutputPower": {**supply, "Reading": 111},
            "PSU.Slot.2_InputPower": {**supply, "Reading": 130},
            "PSU.Slot.2_OutputPower": {**supply, "Reading": 121},
            "PS3_A": {**supply, "PhysicalSubContext": "Input", "Reading": 10},
            "PS3_Input": {**supply, "PhysicalSubContext": "Output", "Reading": 9},
            "PS3_OutputPower": {**supply, "Name": "Power supply in bay 3", "Reading": 9},
            "PS4_Input": {**supply, "Reading": None, "Status": {"State": "Absent"}},
            "PS1_InputTemp": {**supply, "ReadingType": "Temperature", "ReadingUnits": "Cel", "Reading": 30},
        },
    )
    with opened(bmc) as session:
        assert [channel.part for channel in session.channels] == [
            "System.Embedded.1 PSU.Slot.1_InputPower",
            "System.Embedded.1 PSU.Slot.2_InputPower",
            "System.Embedded.1 PS3_A",
        ]
        assert {channel.boundary for channel in session.channels} == {"server input (PSU sum)"}
        assert [channel.gain_error for channel in session.channels] == [0.05, None, None]
        assert [session.read(place) for place in range(3)] == [120, 130, 10]


def test_sensors_that_do_not_say_which_side_they_are_on_are_not_summed(bmc: RedfishServer) -> None:
    with_sensors(bmc.tree, PS1_Power={"PhysicalContext": "PowerSupply", "Reading": 120})
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (PowerControl)"


def test_a_part_of_the_supplies_does_not_pass_for_the_sum(bmc: RedfishServer) -> None:
    with_supplies(bmc.tree, 120, None)
    with_sensors(bmc.tree, PS1_InputPower={"PhysicalContext": "PowerSupply", "Reading": 120})
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (PowerControl)"
        assert session.facts["passed_over"]["System.Embedded.1: PSU inputs"] == (
            "1 sensors are known to be inputs, of 2 supplies"
        )


def test_an_empty_bay_is_no_supply(bmc: RedfishServer) -> None:
    with_supplies(bmc.tree, 240, None)
    bmc.tree[f"{BOX}/PowerSubsystem/PowerSupplies/PSU.Slot.2"]["Status"]["State"] = "Absent"
    with opened(bmc) as session:
        assert boundaries(session) == [("server input (PSU sum)", "System.Embedded.1 PSU.Slot.1")]


def test_pages_and_expanded_collections(bmc: RedfishServer) -> None:
    names = [f"PSU{number}_InputPower" for number in (1, 2)]
    with_sensors(bmc.tree, **{name: {"PhysicalContext": "PowerSupply", "Reading": 100} for name in names})
    bmc.tree["/redfish/v1"]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True}}
    members = [{**link(path), **bmc.tree[path]} for path in (f"{BOX}/Sensors/{name}" for name in names)]
    page = f"{BOX}/Sensors?$expand=."
    more = f"{BOX}/Sensors?$skip=1"
    bmc.tree[page] = {"Members": members[:1], "Members@odata.nextLink": more}
    bmc.tree[more] = {"Members": members[1:]}
    with opened(bmc) as session:
        assert len(session.channels) == 2
        # Each sensor once more, for its accuracy and first reading.
        assert bmc.count(f"GET {BOX}/Sensors/{names[0]}") == 1


def test_the_chassis_around_covers_the_one_inside(bmc: RedfishServer) -> None:
    inner, board, enclosure = f"{CHASSIS}/Node", f"{CHASSIS}/Board", f"{CHASSIS}/Enclosure"
    for path, kind in ((inner, "Sled"), (board, "Module"), (enclosure, "Enclosure")):
        bmc.tree[path] = {
            "Id": path.rsplit("/", 1)[1],
            "ChassisType": kind,
            "PowerState": "On",
            "Links": {"ContainedBy": link(BOX)},
            "EnvironmentMetrics": link(f"{path}/EnvironmentMetrics"),
        }
        bmc.tree[f"{path}/EnvironmentMetrics"] = {"PowerWatts": {"Reading": 90}}
    bmc.tree[CHASSIS] = collection(inner, BOX, board, enclosure)
    with opened(bmc) as session:
        assert boundaries(session) == [("server (PowerControl)", "System.Embedded.1")]
        assert session.facts["passed_over"]["Node"] == "it is inside System.Embedded.1, whose power covers it"
    with opened(bmc, chassis="Board") as session:
        assert boundaries(session) == [("module (EnvironmentMetrics)", "Board")]
    with pytest.raises(MeterError, match=re.escape("there is no chassis 'Nod'; did you mean 'Node'?")):
        opened(bmc, chassis="Nod")


# What counts as a reading


@pytest.mark.parametrize("value", [None, "312", True, -1])
def test_what_is_no_number_of_watts_is_no_reading(bmc: RedfishServer, value: Any) -> None:
    with opened(bmc) as session:
        control = bmc.tree[f"{BOX}/Power"]["PowerControl"][0]
        control["PowerConsumedWatts"] = value
        with pytest.raises(MeterError, match="gives no reading: PowerConsumedWatts is"):
            session.read(0)
        control["PowerConsumedWatts"] = 300
        assert session.read(0) == 300.0


def test_null_everywhere_says_so(bmc: RedfishServer) -> None:
    bmc.tree[f"{BOX}/Power"]["PowerControl"][0]["PowerConsumedWatts"] = None
    with pytest.raises(MeterError, match=r"tells no power that can be used .*PowerConsumedWatts is null"):
        opened(bmc)


def test_0_w_is_true_when_off_and_suspicious_when_on(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        bmc.tree[f"{BOX}/Power"]["PowerControl"][0]["PowerConsumedWatts"] = 0
        with pytest.raises(MeterError, match="0 W while the system is On"):
            session.read(0)
        bmc.tree[SYSTEM]["PowerState"] = "Off"
        assert session.read(0) == 0.0
        del bmc.tree[SYSTEM]["PowerState"]
        with pytest.raises(MeterError, match="0 W and no word whether the system is on"):
            session.read(0)


def test_a_source_that_reads_0_w_while_on_is_passed_over(bmc: RedfishServer) -> None:
    with_environment(bmc.tree, {"Reading": 0})
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (PowerControl)"
    bmc.tree[SYSTEM]["PowerState"] = "Off"
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (EnvironmentMetrics)"
        assert session.read(0) == 0.0


def test_one_supply_may_carry_the_load_of_both(bmc: RedfishServer) -> None:
    with_supplies(bmc.tree, 240, 0)
    with opened(bmc) as session:
        assert [session.read(1), session.read(0)] == [0.0, 240.0]
        bmc.tree[metrics_of(1)]["InputPowerWatts"]["Reading"] = 0
        for place in (0, 1):
            with pytest.raises(MeterError, match="0 W while the system is On"):
                session.read(place)


# Sessions


def test_one_connection_one_session_and_its_end(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        assert [session.read(0) for _ in range(5)] == [312.0] * 5
        assert len(bmc.sessions) == 1
    assert (bmc.connections, bmc.made, bmc.log[-1]) == (1, 1, f"DELETE {SESSIONS}/1")


def test_an_expired_session_is_opened_anew(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        bmc.expire()
        assert session.read(0) == 312.0
        assert (bmc.made, len(bmc.sessions), bmc.connections) == (2, 1, 1)


def test_a_session_that_is_refused_although_it_lives_does_not_leak(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        bmc.instead[f"GET {BOX}/Power"].extend([Answer(401), Answer(401)])
        with pytest.raises(MeterError, match=r"wants a log-in that is valid \(HTTP 401\)"):
            session.read(0)
        assert (bmc.made, bmc.sessions) == (2, {})
        assert session.read(0) == 312.0


def test_failures_after_the_login_close_the_session(bmc: RedfishServer) -> None:
    bmc.instead[f"GET {CHASSIS}"].append(Answer(500))
    with pytest.raises(MeterError, match="HTTP 500 Internal Server Error"):
        opened(bmc)
    bmc.instead[f"GET {CHASSIS}"].append(Answer(body=b"<html>"))
    with pytest.raises(MeterError, match="does not answer in JSON: is it a Redfish service"):
        opened(bmc)
    bmc.tree[CHASSIS] = collection()
    with pytest.raises(MeterError, match="tells no power that can be used"):
        opened(bmc)
    assert (bmc.made, bmc.sessions) == (3, {})


def test_the_end_of_a_session_is_asked_for_again(bmc: RedfishServer) -> None:
    session = opened(bmc)
    request = f"DELETE {SESSIONS}/1"
    bmc.instead[request].extend([Answer(503, {"Retry-After": "0"}), Answer(drop=True)])
    session.close()
    assert bmc.count(request) == 3


def test_a_session_that_cannot_be_closed_does_not_raise(
    bmc: RedfishServer, caplog: pytest.LogCaptureFixture
) -> None:
    session = opened(bmc)
    bmc.instead[f"DELETE {SESSIONS}/1"].extend([Answer(503, {"Retry-After": "0"})] * 3)
    session.close()
    assert "may stay open until it runs out: it answers 503" in caplog.text
    bmc.expire()


def test_an_address_of_its_own_that_the_service_tells(bmc: RedfishServer) -> None:
    bmc.location = "https://192.0.2.7{path}"
    with opened(bmc):
        assert len(bmc.sessions) == 1


def test_a_wrong_password_is_tried_once(bmc: RedfishServer) -> None:
    bmc.password = "another"
    with pytest.raises(
        MeterError, match=r"refuses the user or the password; check those from \$INFEROMETER_REDFISH_USER"
    ):
        opened(bmc)
    bmc.password = PASSWORD
    with opened(bmc) as session:
        bmc.password = "changed"
        bmc.expire()
        before = bmc.count(LOGIN)
        for _ in range(3):
            with pytest.raises(MeterError, match="refuses the user or the password"):
                session.read(0)
        assert bmc.count(LOGIN) == before + 1


def test_a_login_without_an_answer_is_not_repeated_at_once(bmc: RedfishServer) -> None:
    with opened(bmc, timeout_s=0.3) as session:
        bmc.expire()
        bmc.instead[LOGIN].append(Answer(stall=True))
        before = bmc.count(LOGIN)
        with pytest.raises(MeterError, match="did not answer the log-in"):
            session.read(0)
        with pytest.raises(MeterError, match="is left alone for another"):
            session.read(0)
        assert bmc.count(LOGIN) == before + 1


def test_basic_and_no_login(bmc: RedfishServer) -> None:
    with opened(bmc, auth="basic") as session:
        assert session.read(0) == 312.0
        assert session.facts["auth"] == "basic"
    assert bmc.made == 0
    with pytest.raises(MeterError, match="wants a log-in that is valid"):
        opened(bmc, auth="none")


# Trouble that passes


def test_503_is_a_gap_and_is_not_asked_again_before_its_time(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        request = f"GET {BOX}/Power"
        bmc.instead[request].append(Answer(503, {"Retry-After": "1"}))
        with pytest.raises(MeterError, match=r"is busy \(HTTP 503\); asked again in 1 s at the earliest"):
            session.read(0)
        count = bmc.count(request)
        with pytest.raises(MeterError, match="is left alone for another"):
            session.read(0)
        assert bmc.count(request) == count
        assert eventually(session) == 312.0


def eventually(session: MeterSession) -> float:
    end = time.monotonic() + 20
    while True:
        try:
            return session.read(0)
        except MeterError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def test_503_while_opening_is_waited_for(bmc: RedfishServer) -> None:
    busy = Answer(503, {"Retry-After": "0"})
    bmc.instead[LOGIN].append(busy)
    bmc.instead[f"GET {CHASSIS}"].append(busy)
    with opened(bmc) as session:
        assert session.read(0) == 312.0


def test_a_stall_while_opening_is_asked_again(bmc: RedfishServer) -> None:
    bmc.instead[f"GET {BOX}/Power"].append(Answer(stall=True))
    with opened(bmc, timeout_s=0.3) as session:
        assert session.read(0) == 312.0
    for _ in range(3):
        bmc.instead[f"GET {BOX}/Power"].append(Answer(stall=True))
    with pytest.raises(MeterError, match="does not answer within"):
        opened(bmc, timeout_s=0.1)


@pytest.mark.skipif(
    not hasattr(urllib3.HTTPResponse, "read1"), reason="this urllib3 is older than 2.2 and has no read1"
)
def test_an_answer_that_trickles_is_a_stall(bmc: RedfishServer) -> None:
    with opened(bmc, timeout_s=0.3) as session:
        bmc.instead[f"GET {BOX}/Power"].append(Answer(body=b" " * 100, trickle=True))
        with pytest.raises(MeterError, match="does not answer within"):
            session.read(0)
        assert session.read(0) == 312.0


def test_the_wait_is_bounded() -> None:
    assert waiting_time("2") == 2.0
    assert waiting_time("86400") == 5.0
    assert waiting_time(None) == 1.0
    assert waiting_time("Wed, 21 Oct 2026 07:28:00 GMT") == 1.0


def test_patience_waits_as_long_as_told(bmc: RedfishServer) -> None:
    waits: list[float] = []
    port = int(bmc.url.rsplit(":", 1)[1])
    endpoint = Endpoint("http", "127.0.0.1", port, "none (http)")
    bmc.instead[f"GET {SYSTEM}"].extend([Answer(429, {"Retry-After": "86400"})])
    with Client(endpoint, "basic", Login(USER, PASSWORD, "here"), waits.append) as client:
        with pytest.raises(Passing):
            client.get(SYSTEM, tries=2)
        assert len(waits) == 1
        assert 0 < waits[0] <= 5.0


def test_a_stall_is_a_gap_and_the_connection_is_opened_anew(bmc: RedfishServer) -> None:
    with opened(bmc, timeout_s=0.3) as session:
        bmc.instead[f"GET {BOX}/Power"].append(Answer(stall=True))
        with pytest.raises(
            MeterError, match=r"does not answer within 0\.3 s; timeout_s sets how long to wait"
        ):
            session.read(0)
        assert session.read(0) == 312.0
        assert (bmc.connections, bmc.made) == (2, 1)


def test_a_dropped_connection_is_asked_once_more(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        bmc.instead[f"GET {BOX}/Power"].append(Answer(drop=True))
        assert session.read(0) == 312.0
        bmc.instead[f"GET {BOX}/Power"].extend([Answer(drop=True), Answer(drop=True)])
        with pytest.raises(MeterError, match="dropped the connection"):
            session.read(0)
        assert session.read(0) == 312.0


def test_redirects_stay_within_the_host(bmc: RedfishServer) -> None:
    with opened(bmc) as session:
        request, moved = f"GET {BOX}/Power", f"{BOX}/Power2"
        bmc.tree[moved] = {"PowerControl": [{"PowerConsumedWatts": 7}]}
        bmc.instead[request].append(Answer(308, {"Location": moved}))
        assert session.read(0) == 7.0
        bmc.instead[request].append(Answer(308, {"Location": f"{bmc.url}{moved}"}))
        assert session.read(0) == 7.0
        for elsewhere in ("http://192.0.2.1/redfish/v1", "//192.0.2.1/redfish/v1", f"{bmc.url}0/redfish/v1"):
            bmc.instead[request].append(Answer(302, {"Location": elsewhere}))
            with pytest.raises(MeterError, match="sends to another host, which is not followed"):
                session.read(0)


def test_links_stay_within_the_host(bmc: RedfishServer) -> None:
    bmc.tree[BOX]["Power"] = link("http://192.0.2.1/redfish/v1/Power")
    with pytest.raises(MeterError, match="PowerControl: there is no Power resource"):
        opened(bmc)


def test_a_link_into_a_resource_names_no_sensor(bmc: RedfishServer) -> None:
    with_environment(bmc.tree, {"DataSourceUri": f"{BOX}/Power#/PowerControl/0"})
    with opened(bmc) as session:
        assert session.channels[0].boundary == "server (PowerControl)"
        assert (
            session.facts["passed_over"]["System.Embedded.1: EnvironmentMetrics"] == "there is no PowerWatts"
        )


# Secrets


def test_no_text_tells_a_secret(bmc: RedfishServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[str] = []
    with opened(bmc, timeout_s=0.3) as session:
        texts += [repr(session), str(session.facts), str(session.channels), repr(vars(session))]
        texts += [repr(vars(session)["_client"])]
        for answers in (
            [Answer(stall=True)],
            [Answer(500)],
            [Answer(401), Answer(401)],
            [Answer(drop=True)] * 2,
        ):
            bmc.instead[f"GET {BOX}/Power"].extend(answers)
            with pytest.raises(MeterError) as caught:
                session.read(0)
            texts.append(told(caught.value))
        tokens = set(bmc.sessions) | {f"token-{number}-8f1c" for number in range(1, 9)}
        bmc.expire()
        bmc.instead[LOGIN].append(Answer(drop=True))
        with pytest.raises(MeterError) as caught:
            session.read(0)
        texts.append(told(caught.value))
    bmc.password = "another"
    with pytest.raises(MeterError) as caught:
        opened(bmc)
    texts.append(told(caught.value))
    texts.append(str(RedfishMeter().status({"url": bmc.url})))
    texts.append(repr(Login(USER, PASSWORD, "here")))
    assert f'"POST {SESSIONS} HTTP/1.1" 201' in caplog.text
    everything = "\n".join([*texts, caplog.text])
    for secret in (USER, PASSWORD, *tokens):
        assert secret not in everything
        assert json.dumps(secret)[1:-1] not in everything


def test_credentials_from_a_file(bmc: RedfishServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFEROMETER_REDFISH_USER")
    path = tmp_path / "bmc"
    for text in (f"{USER}\n{PASSWORD}\n", f"{USER}:{PASSWORD}\n"):
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        with opened(bmc, credentials_file=str(path)) as session:
            assert session.read(0) == 312.0
    for mode in (0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(MeterError, match="can be read by others; chmod 600"):
            opened(bmc, credentials_file=str(path))
    path.chmod(0o600)
    for content in (b"justoneword-Zq7", b"a\nb\nc-Zq7", b"", b"user:\xff\xfesecret-Zq7"):
        path.write_bytes(content)
        with pytest.raises(MeterError, match="does not hold user:password") as caught:
            opened(bmc, credentials_file=str(path))
        assert "Zq7" not in told(caught.value)
    with pytest.raises(MeterError, match="cannot be read: No such file"):
        opened(bmc, credentials_file=str(tmp_path / "absent"))


def test_credentials_that_are_not_set(bmc: RedfishServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFEROMETER_REDFISH_PASSWORD")
    with pytest.raises(
        MeterError, match="no user and password for the BMC: INFEROMETER_REDFISH_PASSWORD not set"
    ):
        opened(bmc)
    monkeypatch.setenv("OTHER_PASSWORD", PASSWORD)
    with opened(bmc, password_env="OTHER_PASSWORD") as session:
        assert session.read(0) == 312.0


# Options and status


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"urll": "x"}, "unknown option 'urll'; did you mean 'url'?"),
        ({"url": "https://root:calvin@bmc"}, "url holds a user or password"),
        ({"url": "bmc.example"}, "url is https://HOST"),
        ({"url": "https://bmc/redfish/v1"}, "url is https://HOST"),
        ({"url": "https://bmc:99999"}, "url is https://HOST"),
        ({"url": "ftp://bmc"}, "url is https://HOST"),
        ({"url": "https://bmc", "insecure": "yes"}, "insecure is true or false, not 'yes'"),
        ({"url": "https://bmc", "insecure": True, "ca_file": "x"}, "ca_file and insecure do not go together"),
        ({"url": "http://bmc", "insecure": True}, "with http"),
        ({"url": "https://bmc", "fingerprint": "ab:cd"}, "fingerprint is the SHA-256"),
        ({"url": "https://bmc", "auth": "digest"}, "auth is one of session, basic, none, not 'digest'"),
        ({"url": "https://bmc", "sources": "both"}, "sources is one of preferred, all, not 'both'"),
        ({"url": "https://bmc", "timeout_s": 0}, "timeout_s is a number of seconds above 0"),
        ({"url": "https://bmc", "period_s": True}, "period_s is a number of seconds above 0"),
        ({"url": "https://bmc", "chassis": 1}, "chassis is text"),
        ({}, "no url is given"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        RedfishMeter().open(options)
    assert "calvin" not in told(caught.value)


def test_status(bmc: RedfishServer) -> None:
    (status,) = RedfishMeter().status({})
    assert (status.subject, status.reads, status.reason) == ("redfish", (), "no url is given")
    assert "give url: https://ADDRESS" in str(status.remedy)
    (status,) = RedfishMeter().status({"url": bmc.url, "devices": ["GPU-1"]})
    assert (status.subject, status.reads) == (bmc.url, ("server (PowerControl): System.Embedded.1",))
    assert status.reason is None
    bmc.password = "another"
    (status,) = RedfishMeter().status({"url": bmc.url})
    assert str(status.reason).endswith("refuses the user or the password")
    assert str(status.remedy).startswith("check those from")
    with pytest.raises(ConfigError):
        RedfishMeter().status({"nothing": 1})


def test_no_service_at_the_address() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        (status,) = RedfishMeter().status({"url": url})
        assert "cannot be reached" in str(status.reason)


def test_the_period_is_the_studys(bmc: RedfishServer) -> None:
    with opened(bmc, period_s=5) as session:
        assert session.channels[0].period_s == 5.0


# Against sushy-static, another's server


@pytest.fixture
def mockup(tmp_path: Path) -> Path:
    folder = tmp_path / "mockup"
    tree = with_supplies(legacy(), 120.5, 118)
    for path, document in tree.items():
        place = folder / path.removeprefix("/redfish/v1").lstrip("/")
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("the Debian package openssl is not installed")
    pem, key = tmp_path / "bmc.pem", tmp_path / "bmc.key"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", str(key), "-out", str(pem), "-days", "2", "-subj", "/CN=bmc"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-addext", "keyUsage=critical,digitalSignature,keyCertSign"),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return pem, key


@pytest.fixture
def static(mockup: Path) -> Iterator[Any]:
    """Start `sushy-static` with more arguments; returns its port."""
    pytest.importorskip("sushy_tools", reason="the PyPI package sushy-tools is not installed")
    running: list[subprocess.Popen[bytes]] = []

    def start(*more: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        command = [sys.executable, "-m", "sushy_tools.static.main", "-i", "127.0.0.1", "-p", str(port)]
        command += ["-m", str(mockup), *more]
        running.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        end = time.monotonic() + 30
        while time.monotonic() < end and running[-1].poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return port
        pytest.fail("sushy-static does not listen")

    yield start
    for process in running:
        process.kill()
        process.wait(30)


def change(mockup: Path, path: str, document: Any) -> None:
    (mockup / path.removeprefix("/redfish/v1/") / "index.json").write_text(json.dumps(document))


def test_sushy_static_over_http(static: Any, mockup: Path) -> None:
    options = {"url": f"http://127.0.0.1:{static()}", "auth": "none"}
    with RedfishMeter().open(options) as session:
        assert [session.read(0), session.read(1)] == [120.5, 118.0]
        change(mockup, metrics_of(2), {"InputPowerWatts": {"Reading": 99}})
        assert [session.read(0), session.read(1)] == [120.5, 99.0]
        change(mockup, metrics_of(2), {"InputPowerWatts": {"Reading": None}})
        with pytest.raises(MeterError, match="Reading is null"):
            session.read(1)
        assert session.facts["tls"] == "none (http)"


def test_sushy_static_over_tls(static: Any, certificate: tuple[Path, Path], tmp_path: Path) -> None:
    pem, key = certificate
    port = static("-c", str(pem), "-k", str(key))
    base = {"url": f"https://127.0.0.1:{port}", "auth": "none"}
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem.read_text())).hexdigest()
    colons = ":".join(re.findall("..", digest)).upper()
    for more, tls in (
        ({"ca_file": str(pem)}, "verified"),
        ({"fingerprint": digest}, "fingerprint"),
        ({"fingerprint": colons}, "fingerprint"),
        ({"insecure": True}, "not verified"),
    ):
        with RedfishMeter().open({**base, **more}) as session:
            assert [session.read(0), session.read(1)] == [120.5, 118.0]
            assert session.facts["tls"] == tls
    for more in ({}, {"fingerprint": "0" * 64}):
        with pytest.raises(MeterError, match=r"is not trusted: .*; give its ca_file, or the fingerprint"):
            RedfishMeter().open({**base, **more})
    with pytest.raises(
        MeterError, match=r"is not trusted: .*IP address mismatch|is not trusted: .*[Hh]ostname"
    ):
        RedfishMeter().open({**base, "url": f"https://localhost:{port}", "ca_file": str(pem)})
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(MeterError, match=re.escape(f"the certificates in {empty} cannot be read")):
        RedfishMeter().open({**base, "ca_file": str(empty)})


def test_errors_are_of_the_one_tree() -> None:
    assert issubclass(Passing, MeterError)
    assert issubclass(MeterError, InferometerError)
