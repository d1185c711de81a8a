"""The IPMI meter: Debian's ipmitool against a BMC, a pretended ipmitool, and the bytes by hand."""

from __future__ import annotations

import importlib.util
import os
import pickle
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from inferometer.contracts import Channel, Meter
from inferometer.errors import ConfigError, MeterError
from inferometer.meters import ipmi
from inferometer.meters.ipmi import IpmiMeter, PowerReading, decode_reading, power_w

USER, PASSWORD = "watcher", "s3cret phrase"
# 215 W now, 2 W least, 468 W most, 184 W mean; 1000 ms; measuring.
ANSWER = bytes.fromhex("dc d700 0200 d401 b800 64843766 e8030000 40")

needs_bmc = pytest.mark.skipif(
    shutil.which("ipmitool") is None or importlib.util.find_spec("pyghmi") is None,
    reason="needs the Debian package ipmitool and the PyPI package pyghmi",
)
needs_ipmitool = pytest.mark.skipif(
    shutil.which("ipmitool") is None, reason="needs the Debian package ipmitool"
)

Bmcs = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def bmcs() -> Iterator[Bmcs]:
    """Options for a BMC in a mode; it starts with the first question for it."""
    running: dict[str, tuple[subprocess.Popen[str], int]] = {}

    def options(mode: str) -> dict[str, Any]:
        if mode not in running:
            script = Path(__file__).with_name("ipmi_bmc.py")
            command = [sys.executable, str(script), mode, USER, PASSWORD]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert process.stdout is not None
            running[mode] = (process, int(process.stdout.readline()))
        return {"host": "127.0.0.1", "port": running[mode][1], "timeout_s": 30}

    yield options
    for process, _ in running.values():
        process.kill()
        process.communicate()


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_IPMI_USER", USER)
    monkeypatch.setenv("INFEROMETER_IPMI_PASSWORD", PASSWORD)


Pretend = Callable[[str], Path]


@pytest.fixture
def pretend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """Puts a shell script first on PATH in place of ipmitool; returns its folder."""

    def write(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "ipmitool").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "ipmitool").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        return folder

    return write


def failure(options: dict[str, Any]) -> str:
    with pytest.raises(MeterError) as raised:
        IpmiMeter().open(options)
    text = str(raised.value)
    assert PASSWORD not in text
    assert "\n" not in text
    return text


def says(words: str, status: int = 1) -> str:
    """A script that says something on its error output, and fails."""
    return f"echo '{words}' >&2; exit {status}"


# The bytes


def test_decodes_every_field() -> None:
    assert decode_reading(ANSWER) == PowerReading(215, 2, 468, 184, 1_714_914_404, 1.0, True)


def test_only_bit_6_says_active() -> None:
    assert not decode_reading(ANSWER[:-1] + b"\xbf").active
    assert decode_reading(ANSWER[:-1] + b"\xff").active


def test_the_power_of_a_reading() -> None:
    assert power_w(decode_reading(ANSWER)) == 215.0
    assert power_w(decode_reading(ANSWER[:1] + b"\xfe\xff" + ANSWER[3:])) == 65534.0


@pytest.mark.parametrize(
    ("current", "state", "words"),
    [
        (b"\x00\x00", b"\x00", "deactivated"),
        (b"\xd7\x00", b"\x00", "deactivated"),
        (b"\x00\x00", b"\x40", "0 W, which cannot be"),
        (b"\xff\xff", b"\x40", "65535 W stands for none"),
    ],
)
def test_no_reading(current: bytes, state: bytes, words: str) -> None:
    reading = decode_reading(ANSWER[:1] + current + ANSWER[3:-1] + state)
    with pytest.raises(MeterError, match=words):
        power_w(reading)


@pytest.mark.parametrize("data", [b"", ANSWER[:-1], ANSWER + b"\x00", b"\xdd" + ANSWER[1:], bytes(18)])
def test_refuses_what_is_no_dcmi_answer(data: bytes) -> None:
    with pytest.raises(MeterError, match="no DCMI power reading"):
        decode_reading(data)


# A BMC, through the real ipmitool


@needs_bmc
def test_reads_a_bmc(bmcs: Bmcs) -> None:
    meter: Meter = IpmiMeter()
    options = {**bmcs("ok"), "devices": ["GPU-1"]}
    with meter.open(options) as session:
        assert session.channels == (
            Channel(
                name="power",
                quantity="power",
                boundary="server input (DCMI)",
                part="127.0.0.1",
                semantics="current reading of the BMC",
                period_s=5.0,
                primary=True,
            ),
        )
        assert [session.read(0), session.read(0)] == [215.0, 215.0]
        version = session.facts["ipmitool"]
        assert version
        assert (
            version in subprocess.run(["ipmitool", "-V"], capture_output=True, text=True, check=True).stdout
        )
        assert {key: value for key, value in session.facts.items() if key != "ipmitool"} == {
            "interface": "lanplus",
            "port": options["port"],
            "cipher": None,
            "privilege": "user",
            "statistics_period_s": 1.0,
        }


@needs_bmc
def test_status_of_a_bmc(bmcs: Bmcs) -> None:
    (status,) = IpmiMeter().status(bmcs("ok"))
    assert (status.subject, status.reads) == ("BMC of 127.0.0.1", ("server input (DCMI) power",))
    assert status.reason is None
    (status,) = IpmiMeter().status(bmcs("deactivated"))
    assert status.reads == ()
    assert status.reason == "127.0.0.1: the BMC's power measurement is deactivated (it says 0 W)"
    assert status.remedy == "enable power monitoring in the BMC's settings"


@needs_bmc
@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("deactivated", "power measurement is deactivated (it says 0 W)"),
        ("none", "65535 W stands for none"),
        ("unsupported", "does not support DCMI power readings (invalid command); completion code c1"),
        ("privilege", "option privilege to operator or administrator"),
    ],
)
def test_a_bmc_without_a_reading(bmcs: Bmcs, mode: str, words: str) -> None:
    assert words in failure(bmcs(mode))


@needs_bmc
def test_credentials_from_a_file(bmcs: Bmcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INFEROMETER_IPMI_USER")
    monkeypatch.delenv("INFEROMETER_IPMI_PASSWORD")
    path = tmp_path / "bmc"
    path.write_text(f"{USER}\n{PASSWORD}\n")
    path.chmod(0o600)
    with IpmiMeter().open({**bmcs("ok"), "credentials_file": str(path), "cipher": 3}) as session:
        assert session.read(0) == 215.0
        assert session.facts["cipher"] == 3


@needs_bmc
def test_a_wrong_password(bmcs: Bmcs, monkeypatch: pytest.MonkeyPatch) -> None:
    options = bmcs("ok")
    monkeypatch.setenv("INFEROMETER_IPMI_PASSWORD", "wrong")
    assert failure(options) == (
        "ipmi: 127.0.0.1: the BMC does not accept the password: "
        "check INFEROMETER_IPMI_USER and INFEROMETER_IPMI_PASSWORD"
    )


@needs_bmc
def test_an_unknown_user(bmcs: Bmcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_IPMI_USER", "stranger")
    text = failure({**bmcs("ok"), "timeout_s": 2.5})
    assert "the BMC answers, but not to this user" in text


@needs_bmc
def test_a_cipher_suite_that_the_bmc_has_not(bmcs: Bmcs) -> None:
    assert "set the option cipher" in failure({**bmcs("ok"), "cipher": 17})


@needs_bmc
def test_a_password_longer_than_ipmi_takes(bmcs: Bmcs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFEROMETER_IPMI_PASSWORD", PASSWORD * 2)
    assert "passwords of 20 bytes at most" in failure(bmcs("ok"))


@needs_bmc
def test_a_bmc_that_never_answers(bmcs: Bmcs) -> None:
    text = failure({**bmcs("hang"), "timeout_s": 2.5})
    assert "the BMC did not answer the request in time" in text
    assert not [child for child in psutil.Process().children(recursive=True) if child.name() == "ipmitool"]


@needs_ipmitool
def test_a_port_where_nobody_answers() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        text = failure({"host": "127.0.0.1", "port": port, "timeout_s": 3})
    assert f"at UDP port {port}" in text
    assert "IPMI over LAN enabled" in text


# A pretended ipmitool


def test_what_ipmitool_is_given(pretend: Pretend) -> None:
    folder = pretend(
        'cd "${0%/*}"; [ "$1" = -V ] && { echo "ipmitool version 9"; exit; }\n'
        "cat /proc/$$/environ > environ; cat > stdin; cut -d' ' -f5 /proc/$$/stat > group; echo $$ > pid\n"
        'printf "%s\\n" "$@" > arguments\n'
        f"echo ' {ANSWER[:16].hex(' ')}'; echo ' {ANSWER[16:].hex(' ')}'"
    )
    options = {"host": "bmc.example", "cipher": 17, "privilege": "operator", "period_s": 7}
    with IpmiMeter().open(options) as session:
        assert session.read(0) == 215.0
        assert session.facts["ipmitool"] == "9"
        assert session.channels[0].period_s == 7.0
        assert PASSWORD not in repr(vars(session))
    arguments = (folder / "arguments").read_text().split("\n")
    assert " ".join(arguments).strip() == (
        "-v -I lanplus -H bmc.example -p 623 -U watcher -E -L OPERATOR -N 2 -R 1 -C 17 "
        "raw 0x2c 0x02 0xdc 0x01 0x00 0x00"
    )
    environment = dict(entry.split("=", 1) for entry in (folder / "environ").read_text().split("\0") if entry)
    assert environment == {"PATH": os.environ["PATH"], "IPMI_PASSWORD": PASSWORD}
    assert (folder / "stdin").read_bytes() == b""
    assert (folder / "group").read_text().split() == (folder / "pid").read_text().split()


def test_a_hang_ends_the_whole_group(pretend: Pretend) -> None:
    folder = pretend('cd "${0%/*}"; sleep 600 & echo $! $$ > pids; wait')
    assert "nothing at UDP port 623 gave a session in time" in failure({"host": "bmc", "timeout_s": 2})
    deadline = time.monotonic() + 30
    for pid in map(int, (folder / "pids").read_text().split()):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, f"process {pid} is still there"
            time.sleep(0.01)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("Watts: many", "ipmitool's output is not hexadecimal: Watts: many"),
        ("", "this is no DCMI power reading"),
        (f"no {PASSWORD} here", "ipmitool's output is not hexadecimal: no *** here"),
    ],
)
def test_output_that_is_no_reading(pretend: Pretend, output: str, words: str) -> None:
    pretend(f"echo '{output}'")
    assert words in failure({"host": "bmc"})


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        ("Address lookup for bmc failed\nCould not open socket!", "the name of the host is not known"),
        ("Could not open socket!", "the host cannot be reached"),
        ("RAKP 2 message indicates an error : unauthorized name", "the BMC does not know the user"),
        (
            "RAKP 2 message indicates an error : unauthorized role requested",
            "refuses the user this privilege",
        ),
        ("Set Session Privilege Level to OPERATOR failed: Unknown (0x81)", "refuses the user this privilege"),
        ("Error in open session response message : no matching cipher suite", "no such cipher suite"),
        ("Username is too long (> 16 bytes)", "users of 16"),
        ("Get Auth Capabilities error\nError: Unable to establish", "nothing answers at UDP port 623"),
        ("Unable to send RAW command (channel=0x0 netfn=0x2c lun=0x0 cmd=0x2 rsp=0xc0): Node busy", "busy"),
        ("Unable to send RAW command (channel=0x0 netfn=0x2c lun=0x0 cmd=0x2 rsp=0xcb): X", "code cb"),
        (f"something {PASSWORD}", "ipmitool failed (exit status 1): something ***"),
        ("word " * 200, "word word  ..."),
        ("one\ntwo\nthree\nfour\nfive", "(exit status 1): three four five"),
    ],
)
def test_what_a_failure_means(pretend: Pretend, errors: str, words: str) -> None:
    pretend(says(errors))
    assert words in failure({"host": "bmc"})


def test_one_failed_reading_does_not_end_the_session(pretend: Pretend) -> None:
    good = f"echo '{ANSWER.hex(' ')}'"
    pretend(good)
    with IpmiMeter().open({"host": "bmc"}) as session:
        pretend(says("Unable to send RAW command (channel=0x0 netfn=0x2c lun=0x0 cmd=0x2 rsp=0xc3): Timeout"))
        with pytest.raises(MeterError, match="took too long"):
            session.read(0)
        pretend(good)
        assert session.read(0) == 215.0


def test_without_ipmitool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert failure({"host": "bmc"}) == "ipmi: there is no ipmitool on PATH: install the package ipmitool"
    (status,) = IpmiMeter().status({})
    assert (status.reason, status.remedy) == ("there is no ipmitool on PATH", "install the package ipmitool")


def test_an_ipmitool_that_does_not_start(pretend: Pretend) -> None:
    (pretend("") / "ipmitool").write_text("#!/no/such/interpreter\n")
    assert "does not start (No such file or directory)" in failure({"host": "bmc"})


def test_the_error_survives_another_process() -> None:
    with pytest.raises(MeterError) as raised:
        decode_reading(b"")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


# This machine's own BMC


def test_no_driver(pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(says("must not be asked"))
    monkeypatch.setattr(ipmi, "_NODES", (tmp_path / "ipmi0",))
    (status,) = IpmiMeter().status({})
    assert status.subject == "BMC of this machine"
    assert status.reason == (
        f"there is no {tmp_path}/ipmi0: the kernel's IPMI driver is not loaded, or this machine has no BMC"
    )
    assert status.remedy
    assert "modprobe -a ipmi_si ipmi_devintf" in status.remedy
    assert "option host" in failure({})


def test_no_permission(pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(says("must not be asked"))
    (tmp_path / "ipmi0").touch()
    monkeypatch.setattr(ipmi, "_NODES", (tmp_path / "ipmi0",))
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path / "ipmi0" or not mode & os.W_OK)
    monkeypatch.setattr(shutil, "which", lambda name: str(tmp_path / "bin" / name))
    (status,) = IpmiMeter().status({})
    assert status.reason == f"no permission to use {tmp_path / 'ipmi0'}"
    assert status.remedy
    assert "udev rule" in status.remedy


def test_reads_this_machine(pretend: Pretend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = pretend(
        f'cd "${{0%/*}}"; [ "$1" = -V ] || echo "$*" > arguments; echo \'{ANSWER.hex(" ")}\''
        "; cat /proc/$$/environ > environ"
    )
    (tmp_path / "ipmi0").touch()
    monkeypatch.setattr(ipmi, "_NODES", (tmp_path / "ipmi0",))
    with IpmiMeter().open({}) as session:
        assert session.channels[0].part == "local"
        assert session.read(0) == 215.0
        assert session.facts == {"ipmitool": None, "interface": "open", "statistics_period_s": 1.0}
    assert (folder / "arguments").read_text() == "-v -I open raw 0x2c 0x02 0xdc 0x01 0x00 0x00\n"
    assert "PASSWORD" not in (folder / "environ").read_text()
    assert IpmiMeter().status({})[0].reason is None


# Options and secrets


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hots": "bmc"}, "unknown option 'hots'; did you mean 'host'?"),
        ({"host": ""}, "host: wants a name"),
        ({"host": "-v"}, "host: wants a name"),
        ({"host": "bmc x"}, "host: wants a name"),
        ({"host": 7}, "host: wants a name"),
        ({"port": 623}, "port goes with the option host"),
        ({"credentials_file": "f"}, "credentials_file goes with the option host"),
        ({"host": "bmc", "port": 0}, "port: wants a whole number from 1 to 65535"),
        ({"host": "bmc", "port": "623"}, "port: wants a whole number"),
        ({"host": "bmc", "port": True}, "port: wants a whole number"),
        ({"host": "bmc", "cipher": 0}, "cipher: wants a whole number from 1 to 17"),
        ({"host": "bmc", "privilege": "admin"}, "unknown privilege 'admin'; known are"),
        ({"host": "bmc", "user_env": ""}, "user_env: wants the name"),
        ({"host": "bmc", "credentials_file": 3}, "credentials_file: wants a path"),
        ({"host": "bmc", "credentials_file": "f", "user_env": "A"}, "excludes user_env"),
        ({"timeout_s": 0}, "timeout_s: wants seconds"),
        ({"timeout_s": float("nan")}, "timeout_s: wants seconds"),
        ({"timeout_s": "5"}, "timeout_s: wants seconds"),
        ({"period_s": -1}, "period_s: wants seconds"),
        ({"period_s": True}, "period_s: wants seconds"),
    ],
)
def test_refuses_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        IpmiMeter().open(options)
    assert words in str(raised.value)
    with pytest.raises(ConfigError):
        IpmiMeter().status(options)


def test_a_password_in_place_of_a_variable_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as raised:
        IpmiMeter().open({"host": "bmc", "password_env": PASSWORD})
    assert PASSWORD not in str(raised.value)


@pytest.mark.parametrize("name", ["INFEROMETER_IPMI_USER", "INFEROMETER_IPMI_PASSWORD"])
def test_a_variable_that_is_not_set(pretend: Pretend, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pretend(says("must not be asked"))
    monkeypatch.delenv(name)
    assert f"the environment variable {name} is not set" in failure({"host": "bmc"})
    monkeypatch.setenv("OTHER", "")
    option = "user_env" if name.endswith("USER") else "password_env"
    assert "the environment variable OTHER is not set" in failure({"host": "bmc", option: "OTHER"})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_refuses_a_file_that_others_may_use(pretend: Pretend, tmp_path: Path, mode: int) -> None:
    pretend(says("must not be asked"))
    path = tmp_path / "bmc"
    path.write_text(f"{USER}\n{PASSWORD}\n")
    path.chmod(mode)
    text = failure({"host": "bmc", "credentials_file": str(path)})
    assert f"{path} holds a password, and is open to others: chmod 600 {path}" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (f"{USER}\n".encode(), "does not hold a user and a password"),
        (f"\n{PASSWORD}\n".encode(), "does not hold a user and a password"),
        (f"{USER}\n{PASSWORD}\nmore\n".encode(), "does not hold a user and a password"),
        (f"{USER}\n{PASSWORD}\0\n".encode(), "does not hold a user and a password"),
        (f"{USER}\n{PASSWORD}\xe9\n".encode("latin-1"), "is no text in UTF-8"),
        (None, "cannot be read (No such file or directory)"),
    ],
)
def test_a_file_without_an_account(
    pretend: Pretend, tmp_path: Path, content: bytes | None, words: str
) -> None:
    pretend(says("must not be asked"))
    path = tmp_path / "bmc"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    assert words in failure({"host": "bmc", "credentials_file": str(path)})


def test_a_pipe_in_place_of_a_file_does_not_wait(pretend: Pretend, tmp_path: Path) -> None:
    pretend(says("must not be asked"))
    os.mkfifo(tmp_path / "bmc", 0o600)
    assert "does not hold a user" in failure({"host": "bmc", "credentials_file": str(tmp_path / "bmc")})
